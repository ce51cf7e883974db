typedef unsigned short bn_bf16;
__device__ __forceinline__ float bn_bf16_to_f32(unsigned short a) {
#if __CUDA_ARCH__ >= 800
    float r;
    asm("mov.b32 %0, {%1, %2};" : "=f"(r) : "h"((unsigned short)0), "h"(a));
    return r;
#else
    return __uint_as_float((unsigned)a << 16);
#endif
}
__device__ __forceinline__ unsigned short bn_f32_to_bf16(float a) {
#if __CUDA_ARCH__ >= 800
    unsigned short r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(a));
    return r;
#else
    const unsigned bits = __float_as_uint(a);
    return a != a ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}
template <int BYTES> struct bn_word;
template <> struct bn_word<2> { typedef unsigned short type; };
template <> struct bn_word<4> { typedef unsigned type; };
template <> struct bn_word<8> { typedef uint2 type; };
template <> struct bn_word<16> { typedef uint4 type; };
template <class V> __device__ __forceinline__ V bn_load(const void* p) {
    union { typename bn_word<sizeof(V)>::type word; V v; } u;
    u.word = *(const typename bn_word<sizeof(V)>::type*)p;
    return u.v;
}
template <class V> __device__ __forceinline__ void bn_store(void* p, const V& v) {
    union { typename bn_word<sizeof(V)>::type word; V v; } u;
    u.v = v;
    *(typename bn_word<sizeof(V)>::type*)p = u.word;
}
struct bf16x8 { bn_bf16 v[8]; };
struct bf16x4 { bn_bf16 x, y, z, w; };
__device__ __forceinline__ bn_bf16 bn_add_bf16(bn_bf16 a, bn_bf16 b) {
    const float t0 = bn_bf16_to_f32(a);
    const float t1 = bn_bf16_to_f32(b);
    const float t2 = t0 + t1;
    const bn_bf16 t3 = bn_f32_to_bf16(t2);
    return t3;
}
__device__ __forceinline__ bn_bf16 bn_mul_bf16(bn_bf16 a, bn_bf16 b) {
    const float t0 = bn_bf16_to_f32(a);
    const float t1 = bn_bf16_to_f32(b);
    const float t2 = t0 * t1;
    const bn_bf16 t3 = bn_f32_to_bf16(t2);
    return t3;
}
extern "C" __global__ void __launch_bounds__(256)
add_mul_fma_mul_tanh_add_mul_bf16(bn_bf16* __restrict__ out, const bn_bf16* __restrict__ in0, const float* __restrict__ in1, const float* __restrict__ in2, float c0, float c1, float c2) {
    for (unsigned i_ = (unsigned)blockIdx.x * blockDim.x + threadIdx.x; i_ < 98304u;
         i_ += (unsigned)gridDim.x * blockDim.x) {
        const int index = (int)i_;
        const int v2 = index * 8;
        const bf16x8 v3 = bn_load<bf16x8>(&in0[v2]);
        const bn_bf16 v4 = v3.v[0];
        const bn_bf16 v5 = v3.v[1];
        const bn_bf16 v6 = v3.v[2];
        const bn_bf16 v7 = v3.v[3];
        const bn_bf16 v8 = v3.v[4];
        const bn_bf16 v9 = v3.v[5];
        const bn_bf16 v10 = v3.v[6];
        const bn_bf16 v11 = v3.v[7];
        const int v13 = v2 % 768;
        const float v14 = in1[v13];
        const bn_bf16 v15 = bn_f32_to_bf16(v14);
        const int v17 = v2 + 1;
        const int v19 = v17 % 768;
        const float v20 = in1[v19];
        const bn_bf16 v21 = bn_f32_to_bf16(v20);
        const int v23 = v2 + 2;
        const int v25 = v23 % 768;
        const float v26 = in1[v25];
        const bn_bf16 v27 = bn_f32_to_bf16(v26);
        const int v29 = v2 + 3;
        const int v31 = v29 % 768;
        const float v32 = in1[v31];
        const bn_bf16 v33 = bn_f32_to_bf16(v32);
        const int v35 = v2 + 4;
        const int v37 = v35 % 768;
        const float v38 = in1[v37];
        const bn_bf16 v39 = bn_f32_to_bf16(v38);
        const int v41 = v2 + 5;
        const int v43 = v41 % 768;
        const float v44 = in1[v43];
        const bn_bf16 v45 = bn_f32_to_bf16(v44);
        const int v47 = v2 + 6;
        const int v49 = v47 % 768;
        const float v50 = in1[v49];
        const bn_bf16 v51 = bn_f32_to_bf16(v50);
        const int v53 = v2 + 7;
        const int v55 = v53 % 768;
        const float v56 = in1[v55];
        const bn_bf16 v57 = bn_f32_to_bf16(v56);
        const bn_bf16 v58 = bn_add_bf16(v4, v15);
        const bn_bf16 v59 = bn_add_bf16(v5, v21);
        const bn_bf16 v60 = bn_add_bf16(v6, v27);
        const bn_bf16 v61 = bn_add_bf16(v7, v33);
        const bn_bf16 v62 = bn_add_bf16(v8, v39);
        const bn_bf16 v63 = bn_add_bf16(v9, v45);
        const bn_bf16 v64 = bn_add_bf16(v10, v51);
        const bn_bf16 v65 = bn_add_bf16(v11, v57);
        const float v66 = bn_bf16_to_f32(v58);
        const float v67 = bn_bf16_to_f32(v59);
        const float v68 = bn_bf16_to_f32(v60);
        const float v69 = bn_bf16_to_f32(v61);
        const float v70 = bn_bf16_to_f32(v62);
        const float v71 = bn_bf16_to_f32(v63);
        const float v72 = bn_bf16_to_f32(v64);
        const float v73 = bn_bf16_to_f32(v65);
        const float v75 = v66 * c0;
        const float v76 = v67 * c0;
        const float v77 = v68 * c0;
        const float v78 = v69 * c0;
        const float v79 = v70 * c0;
        const float v80 = v71 * c0;
        const float v81 = v72 * c0;
        const float v82 = v73 * c0;
        const float v85 = v66 * c1;
        const float v86 = v67 * c1;
        const float v87 = v68 * c1;
        const float v88 = v69 * c1;
        const float v89 = v70 * c1;
        const float v90 = v71 * c1;
        const float v91 = v72 * c1;
        const float v92 = v73 * c1;
        const float v94 = v66 * v66;
        const float v95 = v67 * v67;
        const float v96 = v68 * v68;
        const float v97 = v69 * v69;
        const float v98 = v70 * v70;
        const float v99 = v71 * v71;
        const float v100 = v72 * v72;
        const float v101 = v73 * v73;
        const float v103 = fmaf(c2, v94, 1.0f);
        const float v104 = fmaf(c2, v95, 1.0f);
        const float v105 = fmaf(c2, v96, 1.0f);
        const float v106 = fmaf(c2, v97, 1.0f);
        const float v107 = fmaf(c2, v98, 1.0f);
        const float v108 = fmaf(c2, v99, 1.0f);
        const float v109 = fmaf(c2, v100, 1.0f);
        const float v110 = fmaf(c2, v101, 1.0f);
        const float v111 = v85 * v103;
        const float v112 = v86 * v104;
        const float v113 = v87 * v105;
        const float v114 = v88 * v106;
        const float v115 = v89 * v107;
        const float v116 = v90 * v108;
        const float v117 = v91 * v109;
        const float v118 = v92 * v110;
        const float v119 = tanhf(v111);
        const float v120 = tanhf(v112);
        const float v121 = tanhf(v113);
        const float v122 = tanhf(v114);
        const float v123 = tanhf(v115);
        const float v124 = tanhf(v116);
        const float v125 = tanhf(v117);
        const float v126 = tanhf(v118);
        const float v127 = 1.0f + v119;
        const float v128 = 1.0f + v120;
        const float v129 = 1.0f + v121;
        const float v130 = 1.0f + v122;
        const float v131 = 1.0f + v123;
        const float v132 = 1.0f + v124;
        const float v133 = 1.0f + v125;
        const float v134 = 1.0f + v126;
        const float v135 = v75 * v127;
        const float v136 = v76 * v128;
        const float v137 = v77 * v129;
        const float v138 = v78 * v130;
        const float v139 = v79 * v131;
        const float v140 = v80 * v132;
        const float v141 = v81 * v133;
        const float v142 = v82 * v134;
        const bn_bf16 v143 = bn_f32_to_bf16(v135);
        const bn_bf16 v144 = bn_f32_to_bf16(v136);
        const bn_bf16 v145 = bn_f32_to_bf16(v137);
        const bn_bf16 v146 = bn_f32_to_bf16(v138);
        const bn_bf16 v147 = bn_f32_to_bf16(v139);
        const bn_bf16 v148 = bn_f32_to_bf16(v140);
        const bn_bf16 v149 = bn_f32_to_bf16(v141);
        const bn_bf16 v150 = bn_f32_to_bf16(v142);
        const float v151 = in2[v13];
        const bn_bf16 v152 = bn_f32_to_bf16(v151);
        const float v153 = in2[v19];
        const bn_bf16 v154 = bn_f32_to_bf16(v153);
        const float v155 = in2[v25];
        const bn_bf16 v156 = bn_f32_to_bf16(v155);
        const float v157 = in2[v31];
        const bn_bf16 v158 = bn_f32_to_bf16(v157);
        const float v159 = in2[v37];
        const bn_bf16 v160 = bn_f32_to_bf16(v159);
        const float v161 = in2[v43];
        const bn_bf16 v162 = bn_f32_to_bf16(v161);
        const float v163 = in2[v49];
        const bn_bf16 v164 = bn_f32_to_bf16(v163);
        const float v165 = in2[v55];
        const bn_bf16 v166 = bn_f32_to_bf16(v165);
        const bn_bf16 v167 = bn_mul_bf16(v143, v152);
        const bn_bf16 v168 = bn_mul_bf16(v144, v154);
        const bn_bf16 v169 = bn_mul_bf16(v145, v156);
        const bn_bf16 v170 = bn_mul_bf16(v146, v158);
        const bn_bf16 v171 = bn_mul_bf16(v147, v160);
        const bn_bf16 v172 = bn_mul_bf16(v148, v162);
        const bn_bf16 v173 = bn_mul_bf16(v149, v164);
        const bn_bf16 v174 = bn_mul_bf16(v150, v166);
        const bf16x4 v175 = {v167, v168, v169, v170};
        bn_store(&out[v2], v175);
        const bf16x4 v176 = {v171, v172, v173, v174};
        bn_store(&out[v35], v176);
    }
}
