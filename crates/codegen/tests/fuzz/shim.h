// Defines what CUDA source needs to compile as C++: an independent reference for the printer and the interpreter.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(n)
struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx, blockDim, gridDim;
template <class To, class From> static To bits_as(From from) { To to; static_assert(sizeof to == sizeof from); memcpy(&to, &from, sizeof to); return to; }
static float __int_as_float(int x) { return bits_as<float>(x); }
static float __uint_as_float(unsigned x) { return bits_as<float>(x); }
static int __float_as_int(float x) { return bits_as<int>(x); }
static unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
static double __longlong_as_double(long long x) { return bits_as<double>(x); }
static long long __double_as_longlong(double x) { return bits_as<long long>(x); }
static float __fsqrt_rn(float x) { return sqrtf(x); }
static double __dsqrt_rn(double x) { return sqrt(x); }
template <class To, class From> static To saturated(From x) {
    if (x != x) return 0;
    const From low = (From)std::numeric_limits<To>::min(), high = -2 * (From)(std::numeric_limits<To>::min() / 2);
    if (std::numeric_limits<To>::is_signed) return x < low ? std::numeric_limits<To>::min() : x >= high ? std::numeric_limits<To>::max() : (To)x;
    const From top = ldexp((From)1, 8 * sizeof(To));
    return x < 0 ? 0 : x >= top ? std::numeric_limits<To>::max() : (To)x;
}
template <class F> static int __float2int_rz(F x) { return saturated<int>(x); }
template <class F> static int __double2int_rz(F x) { return saturated<int>(x); }
template <class F> static unsigned __float2uint_rz(F x) { return saturated<unsigned>(x); }
template <class F> static unsigned __double2uint_rz(F x) { return saturated<unsigned>(x); }
template <class F> static long long __float2ll_rz(F x) { return saturated<long long>(x); }
template <class F> static long long __double2ll_rz(F x) { return saturated<long long>(x); }
template <class F> static unsigned long long __float2ull_rz(F x) { return saturated<unsigned long long>(x); }
template <class F> static unsigned long long __double2ull_rz(F x) { return saturated<unsigned long long>(x); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
// The GPU's minimum and maximum put -0 below +0; C leaves that open.
template <class F> static F cuda_max(F a, F b) { return a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b); }
template <class F> static F cuda_min(F a, F b) { return a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b); }
#define fmaxf cuda_max<float>
#define fminf cuda_min<float>
#define fmax cuda_max<double>
#define fmin cuda_min<double>
template <class T> static T atomicAdd(T* p, T v) { const T old = *p; *p = old + v; return old; } // one thread at a time
template <class T> static T atomicSub(T* p, T v) { const T old = *p; *p = old - v; return old; }
template <class T> static T atomicMin(T* p, T v) { const T old = *p; *p = old < v ? old : v; return old; }
template <class T> static T atomicMax(T* p, T v) { const T old = *p; *p = old > v ? old : v; return old; }
template <class T> static T atomicAnd(T* p, T v) { const T old = *p; *p = old & v; return old; }
template <class T> static T atomicOr(T* p, T v) { const T old = *p; *p = old | v; return old; }
template <class T> static T atomicXor(T* p, T v) { const T old = *p; *p = old ^ v; return old; }
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
// The compiler's own 16-bit floats instead of PTX.
static float bn_f16_to_f32(unsigned short x) { return bits_as<_Float16>(x); }
static unsigned short bn_f32_to_f16(float x) { return bits_as<unsigned short>((_Float16)x); }
// The n-th parameter of a function.
template <int N, class R, class... P> static std::tuple_element_t<N, std::tuple<P...>> argument(R (*)(P...));
template <class T> static T* view(FILE* in, size_t bytes) {
    char* memory = new char[bytes + 8]();
    if (bytes && fread(memory, 1, bytes, in) != bytes) { fprintf(stderr, "short input\n"); exit(3); }
    return (T*)memory;
}
