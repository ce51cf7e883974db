//! CUDA definitions of operations that C++ has no expression for, without headers. Each is printed
//! only if it is used.

/// Search string and definition. A definition may use earlier ones.
pub(super) const PRELUDE: &[(&str, &str)] = &[
    ("bn_f16", "typedef unsigned short bn_f16;\n"),
    ("bn_bf16", "typedef unsigned short bn_bf16;\n"),
    // Named conversions between bits and floats: tools that treat bn_f16 and bn_bf16 as float types
    // would take a plain cast for a numeric conversion.
    ("bn_f16_of(", "__device__ __forceinline__ bn_f16 bn_f16_of(unsigned short bits) { return bits; }\n"),
    ("bn_f16_bits(", "__device__ __forceinline__ unsigned short bn_f16_bits(bn_f16 a) { return a; }\n"),
    ("bn_bf16_of(", "__device__ __forceinline__ bn_bf16 bn_bf16_of(unsigned short bits) { return bits; }\n"),
    ("bn_bf16_bits(", "__device__ __forceinline__ unsigned short bn_bf16_bits(bn_bf16 a) { return a; }\n"),
    // A thread with an out-of-bounds index exits; barriers do not wait for exited threads.
    (
        "bn_at(",
        "__device__ __noinline__ void bn_bad(long long i, long long* status, long long code) {
    if (atomicCAS((unsigned long long*)status, 0ull, (unsigned long long)code) == 0ull) status[1] = i;
    asm volatile(\"exit;\");
}
template <class I> __device__ __forceinline__ I bn_at(I i, long long n, int width, long long* status, long long code) {
    if (i < 0 || i > n - width) bn_bad(i, status, code);
    return i;
}
template <class I> __device__ __forceinline__ I bn_aligned(I i, int width, long long* status, long long code) {
    if (i % width != 0) bn_bad(i, status, code);
    return i;
}
",
    ),
    (
        "bn_min(",
        "__device__ __forceinline__ float bn_min(float a, float b) {
#if __CUDA_ARCH__ >= 800
    float r;
    asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b));
    return r;
#else
    return a != a || b != b ? __int_as_float(0x7fffffff) : fminf(a, b);
#endif
}
__device__ __forceinline__ double bn_min(double a, double b) {
    return a != a || b != b ? __longlong_as_double(0x7fffffffffffffffLL) : fmin(a, b);
}
template <class T> __device__ __forceinline__ T bn_min(T a, T b) { return a < b ? a : b; }
",
    ),
    (
        "bn_max(",
        "__device__ __forceinline__ float bn_max(float a, float b) {
#if __CUDA_ARCH__ >= 800
    float r;
    asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b));
    return r;
#else
    return a != a || b != b ? __int_as_float(0x7fffffff) : fmaxf(a, b);
#endif
}
__device__ __forceinline__ double bn_max(double a, double b) {
    return a != a || b != b ? __longlong_as_double(0x7fffffffffffffffLL) : fmax(a, b);
}
template <class T> __device__ __forceinline__ T bn_max(T a, T b) { return a > b ? a : b; }
",
    ),
    (
        "bn_div(",
        "__device__ __forceinline__ int bn_div(int a, int b) {
    return b == 0 ? 0 : b == -1 ? (int)(0 - (unsigned)a) : a / b;
}
__device__ __forceinline__ long long bn_div(long long a, long long b) {
    return b == 0 ? 0 : b == -1 ? (long long)(0 - (unsigned long long)a) : a / b;
}
",
    ),
    (
        "bn_rem(",
        "__device__ __forceinline__ int bn_rem(int a, int b) { return b == 0 || b == -1 ? 0 : a % b; }
__device__ __forceinline__ long long bn_rem(long long a, long long b) { return b == 0 || b == -1 ? 0 : a % b; }
",
    ),
    (
        "bn_to_i32(",
        "__device__ __forceinline__ int bn_to_i32(float a) { return __float2int_rz(a); }
__device__ __forceinline__ int bn_to_i32(double a) { return a != a ? 0 : __double2int_rz(a); }
",
    ),
    (
        "bn_to_i64(",
        "__device__ __forceinline__ long long bn_to_i64(float a) { return a != a ? 0 : __float2ll_rz(a); }
__device__ __forceinline__ long long bn_to_i64(double a) { return a != a ? 0 : __double2ll_rz(a); }
",
    ),
    (
        "bn_to_u32(",
        "__device__ __forceinline__ unsigned bn_to_u32(float a) { return __float2uint_rz(a); }
__device__ __forceinline__ unsigned bn_to_u32(double a) { return a != a ? 0 : __double2uint_rz(a); }
",
    ),
    (
        "bn_to_u64(",
        "__device__ __forceinline__ unsigned long long bn_to_u64(float a) { return a != a ? 0 : __float2ull_rz(a); }
__device__ __forceinline__ unsigned long long bn_to_u64(double a) { return a != a ? 0 : __double2ull_rz(a); }
",
    ),
    (
        "bn_f16_to_f32(",
        "__device__ __forceinline__ float bn_f16_to_f32(unsigned short a) {
    float r;
    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(a));
    return r;
}
",
    ),
    (
        "bn_f32_to_f16(",
        "__device__ __forceinline__ unsigned short bn_f32_to_f16(float a) {
    unsigned short r;
    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(a));
    return r;
}
",
    ),
    (
        "bn_bf16_to_f32(",
        // Moves register halves; a shift would first extract them.
        "__device__ __forceinline__ float bn_bf16_to_f32(unsigned short a) {
#if __CUDA_ARCH__ >= 800
    float r;
    asm(\"mov.b32 %0, {%1, %2};\" : \"=f\"(r) : \"h\"((unsigned short)0), \"h\"(a));
    return r;
#else
    return __uint_as_float((unsigned)a << 16);
#endif
}
",
    ),
    (
        "bn_f32_to_bf16(",
        "__device__ __forceinline__ unsigned short bn_f32_to_bf16(float a) {
#if __CUDA_ARCH__ >= 800
    unsigned short r;
    asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(a));
    return r;
#else
    const unsigned bits = __float_as_uint(a);
    return a != a ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}
",
    ),
    (
        "bn_word<",
        "template <int BYTES> struct bn_word;
template <> struct bn_word<2> { typedef unsigned short type; };
template <> struct bn_word<4> { typedef unsigned type; };
template <> struct bn_word<8> { typedef uint2 type; };
template <> struct bn_word<16> { typedef uint4 type; };
",
    ),
    (
        "bn_load<",
        "template <class V> __device__ __forceinline__ V bn_load(const void* p) {
    union { typename bn_word<sizeof(V)>::type word; V v; } u;
    u.word = *(const typename bn_word<sizeof(V)>::type*)p;
    return u.v;
}
",
    ),
    (
        "bn_store(",
        "template <class V> __device__ __forceinline__ void bn_store(void* p, const V& v) {
    union { typename bn_word<sizeof(V)>::type word; V v; } u;
    u.v = v;
    *(typename bn_word<sizeof(V)>::type*)p = u.word;
}
",
    ),
    (
        "bn_load_private<",
        "template <class V> __device__ __forceinline__ V bn_load_private(const void* p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}
",
    ),
    (
        "bn_store_private(",
        "template <class V> __device__ __forceinline__ void bn_store_private(void* p, const V& v) {
    memcpy(p, &v, sizeof v);
}
",
    ),
    (
        "bn_printable(",
        "__device__ __forceinline__ double bn_printable(double a) { return a != a ? fabs(a) : a; }
",
    ),
    (
        "bn_assert(",
        "__device__ __forceinline__ void bn_assert(bool holds, const char* claim) {
    if (!holds) {
        printf(\"'%s' does not hold, in thread [%u, %u, %u] of block [%u, %u, %u]\\n\", claim, threadIdx.x, threadIdx.y,
            threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z);
        __trap();
    }
}
",
    ),
    (
        "bn_exchange(",
        "__device__ __forceinline__ double bn_exchange(double* p, double v) {
    return __longlong_as_double(
        (long long)atomicExch((unsigned long long*)p, (unsigned long long)__double_as_longlong(v)));
}
",
    ),
    (
        "bn_compare_exchange(",
        "__device__ __forceinline__ float bn_compare_exchange(float* p, float expected, float v) {
    return __int_as_float(atomicCAS((int*)p, __float_as_int(expected), __float_as_int(v)));
}
__device__ __forceinline__ double bn_compare_exchange(double* p, double expected, double v) {
    return __longlong_as_double((long long)atomicCAS((unsigned long long*)p,
        (unsigned long long)__double_as_longlong(expected), (unsigned long long)__double_as_longlong(v)));
}
",
    ),
    (
        "bn_atomic_min(",
        "__device__ __forceinline__ float bn_atomic_min(float* p, float v) {
    int old = *(volatile int*)p, seen;
    do {
        seen = old;
        old = atomicCAS((int*)p, seen, __float_as_int(bn_min(__int_as_float(seen), v)));
    } while (old != seen);
    return __int_as_float(old);
}
__device__ __forceinline__ double bn_atomic_min(double* p, double v) {
    unsigned long long old = *(volatile unsigned long long*)p, seen;
    do {
        seen = old;
        const double next = bn_min(__longlong_as_double((long long)seen), v);
        old = atomicCAS((unsigned long long*)p, seen, (unsigned long long)__double_as_longlong(next));
    } while (old != seen);
    return __longlong_as_double((long long)old);
}
",
    ),
    (
        "bn_atomic_max(",
        "__device__ __forceinline__ float bn_atomic_max(float* p, float v) {
    int old = *(volatile int*)p, seen;
    do {
        seen = old;
        old = atomicCAS((int*)p, seen, __float_as_int(bn_max(__int_as_float(seen), v)));
    } while (old != seen);
    return __int_as_float(old);
}
__device__ __forceinline__ double bn_atomic_max(double* p, double v) {
    unsigned long long old = *(volatile unsigned long long*)p, seen;
    do {
        seen = old;
        const double next = bn_max(__longlong_as_double((long long)seen), v);
        old = atomicCAS((unsigned long long*)p, seen, (unsigned long long)__double_as_longlong(next));
    } while (old != seen);
    return __longlong_as_double((long long)old);
}
",
    ),
];
