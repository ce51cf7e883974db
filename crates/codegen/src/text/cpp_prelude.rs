//! C++ definitions of the CUDA intrinsics that generated source uses, for compilation on a CPU.
//! Each is printed only if it is used.

pub(super) const INCLUDES: &str = "#include <cmath>\n#include <cstdio>\n#include <cstring>\n";

/// Search string and definition. A definition may use earlier ones.
pub(super) const PRELUDE: &[(&str, &str)] = &[
    ("bn_f16", "typedef unsigned short bn_f16;\n"),
    ("bn_bf16", "typedef unsigned short bn_bf16;\n"),
    ("bn_f16_of(", "static inline bn_f16 bn_f16_of(unsigned short bits) { return bits; }\n"),
    ("bn_f16_bits(", "static inline unsigned short bn_f16_bits(bn_f16 a) { return a; }\n"),
    ("bn_bf16_of(", "static inline bn_bf16 bn_bf16_of(unsigned short bits) { return bits; }\n"),
    ("bn_bf16_bits(", "static inline unsigned short bn_bf16_bits(bn_bf16 a) { return a; }\n"),
    (
        "bn_assert(",
        "static inline void bn_assert(bool holds, const char* claim) {
    if (!holds) {
        std::fprintf(stderr, \"'%s' does not hold\\n\", claim);
        __builtin_trap();
    }
}
",
    ),
    (
        "bn_bits<",
        "template <class To, class From> static inline To bn_bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from, \"\");
    memcpy(&to, &from, sizeof to);
    return to;
}
",
    ),
    ("__int_as_float(", "static inline float __int_as_float(int a) { return bn_bits<float>(a); }\n"),
    ("__uint_as_float(", "static inline float __uint_as_float(unsigned a) { return bn_bits<float>(a); }\n"),
    ("__float_as_int(", "static inline int __float_as_int(float a) { return bn_bits<int>(a); }\n"),
    ("__float_as_uint(", "static inline unsigned __float_as_uint(float a) { return bn_bits<unsigned>(a); }\n"),
    (
        "__longlong_as_double(",
        "static inline double __longlong_as_double(long long a) { return bn_bits<double>(a); }\n",
    ),
    (
        "__double_as_longlong(",
        "static inline long long __double_as_longlong(double a) { return bn_bits<long long>(a); }\n",
    ),
    ("__fsqrt_rn(", "static inline float __fsqrt_rn(float a) { return std::sqrt(a); }\n"),
    ("__dsqrt_rn(", "static inline double __dsqrt_rn(double a) { return std::sqrt(a); }\n"),
    ("__popc(", "static inline int __popc(unsigned a) { return __builtin_popcount(a); }\n"),
    ("__popcll(", "static inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }\n"),
    ("__clz(", "static inline int __clz(unsigned a) { return a ? __builtin_clz(a) : 32; }\n"),
    ("__clzll(", "static inline int __clzll(unsigned long long a) { return a ? __builtin_clzll(a) : 64; }\n"),
    ("__threadfence_block(", "static inline void __threadfence_block() {}\n"),
    ("__threadfence(", "static inline void __threadfence() {}\n"),
    ("__threadfence_system(", "static inline void __threadfence_system() {}\n"),
    (
        "bn_min(",
        "static inline float bn_min(float a, float b) {
    return a != a ? a : b != b ? b : a < b || (a == b && std::signbit(a)) ? a : b;
}
static inline double bn_min(double a, double b) {
    return a != a ? a : b != b ? b : a < b || (a == b && std::signbit(a)) ? a : b;
}
template <class T> static inline T bn_min(T a, T b) { return a < b ? a : b; }
",
    ),
    (
        "bn_max(",
        "static inline float bn_max(float a, float b) {
    return a != a ? a : b != b ? b : a > b || (a == b && !std::signbit(a)) ? a : b;
}
static inline double bn_max(double a, double b) {
    return a != a ? a : b != b ? b : a > b || (a == b && !std::signbit(a)) ? a : b;
}
template <class T> static inline T bn_max(T a, T b) { return a > b ? a : b; }
",
    ),
    (
        "bn_div(",
        "static inline int bn_div(int a, int b) { return b == 0 ? 0 : b == -1 ? (int)(0 - (unsigned)a) : a / b; }
static inline long long bn_div(long long a, long long b) {
    return b == 0 ? 0 : b == -1 ? (long long)(0 - (unsigned long long)a) : a / b;
}
",
    ),
    (
        "bn_rem(",
        "static inline int bn_rem(int a, int b) { return b == 0 || b == -1 ? 0 : a % b; }
static inline long long bn_rem(long long a, long long b) { return b == 0 || b == -1 ? 0 : a % b; }
",
    ),
    (
        "bn_to_i32(",
        "static inline int bn_to_i32(double a) {
    return a != a ? 0 : a < -2147483648.0 ? -2147483647 - 1 : a >= 2147483648.0 ? 2147483647 : (int)a;
}
",
    ),
    (
        "bn_to_i64(",
        "static inline long long bn_to_i64(double a) {
    return a != a ? 0
         : a < -9223372036854775808.0 ? -9223372036854775807LL - 1
         : a >= 9223372036854775808.0 ? 9223372036854775807LL : (long long)a;
}
",
    ),
    (
        "bn_to_u32(",
        "static inline unsigned bn_to_u32(double a) {
    return !(a > 0) ? 0 : a >= 4294967296.0 ? 4294967295u : (unsigned)a;
}
",
    ),
    (
        "bn_to_u64(",
        "static inline unsigned long long bn_to_u64(double a) {
    return !(a > 0) ? 0 : a >= 18446744073709551616.0 ? 18446744073709551615ull : (unsigned long long)a;
}
",
    ),
    (
        "bn_f16_to_f32(",
        "static inline float bn_f16_to_f32(unsigned short a) {
    const unsigned sign = (unsigned)(a & 0x8000) << 16, rest = a & 0x7fff;
    if (rest > 0x7c00) return bn_bits<float>(0x7fffffff);
    if (rest == 0x7c00) return bn_bits<float>(sign | 0x7f800000);
    // Exponents differ by 112; the product also makes denormals of f16 normal.
    return bn_bits<float>(sign | bn_bits<unsigned>(bn_bits<float>(rest << 13) * 5.192296858534828e33f));
}
",
    ),
    (
        "bn_f32_to_f16(",
        "static inline unsigned short bn_f32_to_f16(float a) {
    const unsigned bits = bn_bits<unsigned>(a), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return 0x7fff;
    if (rest >= 0x477ff000) return sign | 0x7c00;
    // Below the normal numbers of f16 the sum with 1/2 rounds to a multiple of its smallest number.
    if (rest < 0x38800000) return sign | (bn_bits<unsigned>(bn_bits<float>(rest) + 0.5f) - 0x3f000000);
    return sign | ((rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13);
}
",
    ),
    (
        "bn_bf16_to_f32(",
        "static inline float bn_bf16_to_f32(unsigned short a) { return bn_bits<float>((unsigned)a << 16); }\n",
    ),
    (
        "bn_f32_to_bf16(",
        "static inline unsigned short bn_f32_to_bf16(float a) {
    const unsigned bits = bn_bits<unsigned>(a);
    return a != a ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
",
    ),
    ("bn_printable(", "static inline double bn_printable(double a) { return a != a ? std::fabs(a) : a; }\n"),
    (
        "bn_exchange(",
        "static inline double bn_exchange(double* p, double v) { const double old = *p; *p = v; return old; }\n",
    ),
    (
        "bn_compare_exchange(",
        "template <class T> static inline T bn_compare_exchange(T* p, T expected, T v) {
    const T old = *p;
    if (memcmp(&old, &expected, sizeof old) == 0) *p = v;
    return old;
}
",
    ),
    (
        "bn_load<",
        "template <class V> static inline V bn_load(const void* p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}
",
    ),
    ("bn_store(", "template <class V> static inline void bn_store(void* p, const V& v) { memcpy(p, &v, sizeof v); }\n"),
    (
        "bn_load_private<",
        "template <class V> static inline V bn_load_private(const void* p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}
",
    ),
    (
        "bn_store_private(",
        "template <class V> static inline void bn_store_private(void* p, const V& v) { memcpy(p, &v, sizeof v); }\n",
    ),
    (
        "atomicAdd(",
        "template <class T> static inline T atomicAdd(T* p, T v) { const T old = *p; *p = old + v; return old; }
static inline int atomicAdd(int* p, int v) { const int old = *p; *p = (int)((unsigned)old + (unsigned)v); return old; }
",
    ),
    (
        "atomicSub(",
        "template <class T> static inline T atomicSub(T* p, T v) { const T old = *p; *p = old - v; return old; }
static inline int atomicSub(int* p, int v) { const int old = *p; *p = (int)((unsigned)old - (unsigned)v); return old; }
",
    ),
    (
        "atomicMin(",
        "template <class T> static inline T atomicMin(T* p, T v) { const T old = *p; *p = v < old ? v : old; return old; }\n",
    ),
    (
        "atomicMax(",
        "template <class T> static inline T atomicMax(T* p, T v) { const T old = *p; *p = v > old ? v : old; return old; }\n",
    ),
    (
        "bn_atomic_min(",
        "template <class T> static inline T bn_atomic_min(T* p, T v) { const T old = *p; *p = bn_min(old, v); return old; }\n",
    ),
    (
        "bn_atomic_max(",
        "template <class T> static inline T bn_atomic_max(T* p, T v) { const T old = *p; *p = bn_max(old, v); return old; }\n",
    ),
    (
        "atomicAnd(",
        "template <class T> static inline T atomicAnd(T* p, T v) { const T old = *p; *p &= v; return old; }\n",
    ),
    (
        "atomicOr(",
        "template <class T> static inline T atomicOr(T* p, T v) { const T old = *p; *p |= v; return old; }\n",
    ),
    (
        "atomicXor(",
        "template <class T> static inline T atomicXor(T* p, T v) { const T old = *p; *p ^= v; return old; }\n",
    ),
    (
        "atomicExch(",
        "template <class T> static inline T atomicExch(T* p, T v) { const T old = *p; *p = v; return old; }\n",
    ),
    (
        "atomicCAS(",
        "template <class T> static inline T atomicCAS(T* p, T expected, T v) {
    const T old = *p;
    if (old == expected) *p = v;
    return old;
}
",
    ),
];
