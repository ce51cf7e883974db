//! Pointers and values reinterpreted as other types.

use super::{check, check_errors};

#[test]
fn pointers_to_scalars_are_cast_to_vectors_of_other_scalars() {
    check(&[
        // 4 floats hold 8 halves; 0 to 7 are exact in both.
        (
            "__global__ void k(__half* x) {
                float4* wide = reinterpret_cast<float4*>(x);
                float4 a = wide[1]; wide[2] = a;
                wide[3].x = a.y;
                __half2* pair = (__half2*)&wide[4];
                x[0] = pair[1].y; x[1] = ((__half2*)&a)[3].x;
            }",
            &[
                35.0, 14.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 8.0, 9.0, 10.0,
                11.0, 12.0, 13.0, 14.0, 15.0, 10.0, 11.0, 26.0,
            ],
        ),
        (
            "#define LOAD(value) (reinterpret_cast<float4*>(&(value))[0])
            __global__ void k(__half* x) {
                __half pack[8], twice[8];
                LOAD(pack[0]) = LOAD(x[8]);
                for (int i = 0; i < 8; i++) twice[i] = __hadd(pack[i], pack[i]);
                LOAD(x[0]) = LOAD(twice[0]);
            }",
            &[16.0, 18.0, 20.0, 22.0, 24.0, 26.0, 28.0, 30.0, 8.0],
        ),
        (
            "__global__ void k(int* x) {
                int2 v = *(int2*)(x + 2); x[0] = v.x * 10 + v.y;
                short* s = (short*)x; x[1] = s[8] + s[9];
                unsigned char* c = (unsigned char*)x; x[2] = c[4 * 40];
                x[3] = ((char4*)x)[50].x; x[4] = ((unsigned short*)(x + 60))[0];
                float3* f = (float3*)(x + 9); x[5] = __float_as_int(f[1].y);
                long long* l = (long long*)x; x[6] = (l[5] >> 32) - 1;
            }",
            &[23.0, 4.0, 40.0, 50.0, 60.0, 13.0, 10.0],
        ),
    ]);
}

#[test]
fn arrays_and_variables_are_accessed_as_other_types() {
    check(&[
        (
            "__global__ void k(int* x) {
                float4 v = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
                float* f = &v.x; f[2] = 30.0f; x[0] = v.z; f = (float*)&v; x[1] = f[3] + f[1];
                int word = 0x01020304; unsigned char* b = (unsigned char*)&word;
                b[1] = 7; x[2] = word == 0x01020704; x[3] = b[0] + b[3];
                __shared__ float4 tile[8];
                float* flat = (float*)tile; for (int i = 0; i < 32; i++) flat[i] = i;
                x[4] = tile[3].z;
                __shared__ unsigned char raw[64]; ((int*)raw)[3] = 0x0a0b0c0d; x[5] = raw[13];
                double d = 1.0; x[6] = ((unsigned*)&d)[1] == 0x3ff00000u;
            }",
            &[30.0, 6.0, 1.0, 5.0, 14.0, 12.0, 1.0],
        ),
        (
            "template <typename T, int N> struct __align__(sizeof(T) * N) Pack { T v[N]; };
            struct Pair { char tag; int value; };
            __global__ void k(int* x) {
                Pack<int, 4> p = *(Pack<int, 4>*)(x + 4); x[0] = p.v[0] + p.v[3];
                p.v[1] = 99; *reinterpret_cast<Pack<int, 4>*>(x + 8) = p; x[1] = x[9];
                Pair pair{3, 5}; int* words = (int*)&pair; x[2] = words[1]; x[3] = *(char*)words;
                short halves[4] = {1, 2, 3, 4}; x[4] = *(int*)(halves + 2) == (4 << 16 | 3);
                float f; int n = 0x40000000; memcpy(&f, &n, sizeof f); x[5] = f;
                long long both; int2 two = make_int2(7, 9); memcpy(&both, &two, 8); x[6] = both >> 32;
            }",
            &[11.0, 99.0, 5.0, 3.0, 1.0, 2.0, 9.0],
        ),
    ]);
}

#[test]
fn dynamic_shared_memory_holds_several_types() {
    check(&[(
        "__global__ void k(int* x) {
            extern __shared__ char raw[];
            double* d = (double*)raw; int* c = (int*)(raw + 8 * sizeof(double));
            d[7] = 2.5; c[0] = 3; c[1] = 4;
            x[0] = d[7] * 2; x[1] = c[1]; x[2] = ((int2*)c)->x; x[3] = raw[63];
        }",
        &[5.0, 4.0, 3.0, 64.0],
    )]);
}

#[test]
fn bits_survive_a_reinterpretation() {
    // All patterns of 16 bits, NaNs among them, pass through floats.
    check(&[(
        "__global__ void k(int* x) {
            int wrong = 0;
            for (int i = 0; i < 65536; i += 257) {
                unsigned short in[8], out[8];
                for (int j = 0; j < 8; j++) in[j] = i + j * 8191;
                float4 v = *(float4*)in;
                *(float4*)out = v;
                __half2 h = *(__half2*)&v.y;
                for (int j = 0; j < 8; j++) wrong += in[j] != out[j];
                wrong += __half_as_ushort(h.x) != in[2] || __half_as_ushort(h.y) != in[3];
            }
            x[0] = wrong;
        }",
        &[0.0],
    )]);
}

#[test]
fn casts_check_alignment_and_bounds() {
    check_errors(&[
        ("__global__ void k(__half* x) { x[0] = ((__half2*)(x + 3))->x; }", "not a multiple of 2"),
        ("__global__ void k(int* x) { x[0] = ((int4*)x)[16].x; }", "is outside"),
        (
            "__global__ void k(int* x) { char* c = (char*)x; x[0] = *(int*)(c + 2); }",
            "multiple of the type's alignment",
        ),
        ("__global__ void k(int* x) { ((char*)x)[5] = 1; }", "writing a part of a number through a pointer"),
        (
            "__global__ void k(int* x) { x[0] = ((uchar2*)x)[3].x; }",
            "reinterpreting a pointer to 'int' as a pointer to 'uchar2' is not supported",
        ),
        ("__global__ void k(int* x) { ((char4*)x)->y = 1; }", "writing a part of a number through a pointer"),
    ]);
}

#[test]
fn words_of_doubles_and_comparisons_of_halves() {
    check(&[(
        "__global__ void k(int* x) {
            double d = -2.5; x[0] = __double2hiint(d) == (int)0xc0040000; x[1] = __double2loint(d);
            x[2] = __hiloint2double(__double2hiint(d), 0) * 2;
            __half2 a = __floats2half2_rn(1.0f, 2.0f), b = __floats2half2_rn(2.0f, 2.0f);
            __half2 less = __hlt2(a, b), same = __heq2(a, b);
            x[3] = __low2float(less) * 10 + __high2float(less); x[4] = __low2float(same) * 10 + __high2float(same);
            __half nan = __ushort_as_half(0x7e00), one = __float2half(1.0f);
            x[5] = __hne(nan, one); x[6] = __hne(one, one); x[7] = __hne(one, __float2half(2.0f));
        }",
        &[1.0, 0.0, -5.0, 10.0, 1.0, 0.0, 0.0, 1.0],
    )]);
}
