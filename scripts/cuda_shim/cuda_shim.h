// CUDA C++ on a CPU, one thread after another: enough for kernels without barriers, shared memory,
// atomics and warp functions. Used by scripts/cuda_against_gcc.py.
#pragma once

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
#define __CUDA_ARCH__ 900
#define __CUDACC__ 1
#define __NVCC__ 1
#define CUDART_INF_F INFINITY
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931

#define VECTORS(T, name, align2, align4)                                          \
    struct name##1 { T x; };                                                      \
    struct alignas(align2) name##2 { T x, y; };                                   \
    struct name##3 { T x, y, z; };                                                \
    struct alignas(align4) name##4 { T x, y, z, w; };                             \
    static inline name##1 make_##name##1(T x) { return {x}; }                     \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }             \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }     \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(signed char, char, 2, 4)
VECTORS(unsigned char, uchar, 2, 4)
VECTORS(short, short, 4, 8)
VECTORS(unsigned short, ushort, 4, 8)
VECTORS(int, int, 8, 16)
VECTORS(unsigned int, uint, 8, 16)
VECTORS(long, long, 16, 16)
VECTORS(unsigned long, ulong, 16, 16)
VECTORS(long long, longlong, 16, 16)
VECTORS(unsigned long long, ulonglong, 16, 16)
VECTORS(float, float, 8, 16)
VECTORS(double, double, 16, 16)
#undef VECTORS

struct dim3 {
    unsigned int x, y, z;
    dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};
static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

template <class A, class B> static inline typename std::common_type<A, B>::type min(A a, B b) {
    typedef typename std::common_type<A, B>::type T;
    if constexpr (std::is_floating_point<T>::value) return std::fmin((T)a, (T)b);
    else return (T)b < (T)a ? (T)b : (T)a;
}
template <class A, class B> static inline typename std::common_type<A, B>::type max(A a, B b) {
    typedef typename std::common_type<A, B>::type T;
    if constexpr (std::is_floating_point<T>::value) return std::fmax((T)a, (T)b);
    else return (T)a < (T)b ? (T)b : (T)a;
}
static inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
static inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
static inline float pow(float a, int b) { return powf(a, (float)b); }

// Two steps of rounding, as a product and a division would have.
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline float sinpif(float x) { return (float)sin(M_PI * (double)x); }
static inline float cospif(float x) { return (float)cos(M_PI * (double)x); }
static inline double sinpi(double x) { return sin(M_PI * x); }
static inline double cospi(double x) { return cos(M_PI * x); }
static inline float normcdff(float x) { return (float)(0.5 * erfc(-(double)x / sqrt(2.0))); }
static inline double normcdf(double x) { return 0.5 * erfc(-x / sqrt(2.0)); }
static inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
// Names that the C library declares for itself.
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __sincosf sincosf
static inline float __fdividef(float a, float b) { return a / b; }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

template <class To, class From> static inline To bits_of(From from) {
    To to;
    static_assert(sizeof(To) == sizeof(From), "sizes");
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline int __float_as_int(float x) { return bits_of<int>(x); }
static inline unsigned __float_as_uint(float x) { return bits_of<unsigned>(x); }
static inline float __int_as_float(int x) { return bits_of<float>(x); }
static inline float __uint_as_float(unsigned x) { return bits_of<float>(x); }
static inline long long __double_as_longlong(double x) { return bits_of<long long>(x); }
static inline double __longlong_as_double(long long x) { return bits_of<double>(x); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline double __int2double_rn(int x) { return x; }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rd(float x) { return (int)floorf(x); }
static inline int __float2int_ru(float x) { return (int)ceilf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline unsigned __float2uint_rn(float x) { return (unsigned)rintf(x); }
static inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
static inline int __double2int_rn(double x) { return (int)rint(x); }
static inline int __double2int_rz(double x) { return (int)x; }
static inline int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
static inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    unsigned out = 0;
    for (int n = 0; n < 32; n++) out |= (x >> n & 1) << (31 - n);
    return out;
}
template <class T> static inline T __ldg(const T* p) { return *p; }
template <class T> static inline T __ldcs(const T* p) { return *p; }
template <class T> static inline T __ldca(const T* p) { return *p; }
template <class T> static inline T __ldcg(const T* p) { return *p; }
template <class T> static inline void __stcs(T* p, T v) { *p = v; }
template <class T> static inline void __stcg(T* p, T v) { *p = v; }

// An argument of a launch.
struct Argument {
    void* array;
    double real;
    long long integer;
    template <class T> T as() const {
        if constexpr (std::is_pointer<T>::value) return (T)array;
        else if constexpr (std::is_floating_point<T>::value) return (T)real;
        else return (T)integer;
    }
};
template <class... P, size_t... N>
static void launch(void (*kernel)(P...), dim3 grid, dim3 block, const Argument* args, std::index_sequence<N...>) {
    gridDim = grid, blockDim = block;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++)
                for (threadIdx.z = 0; threadIdx.z < block.z; threadIdx.z++)
                    for (threadIdx.y = 0; threadIdx.y < block.y; threadIdx.y++)
                        for (threadIdx.x = 0; threadIdx.x < block.x; threadIdx.x++)
                            kernel(args[N].template as<typename std::remove_cv<P>::type>()...);
}
template <class... P> static void launch(void (*kernel)(P...), dim3 grid, dim3 block, const Argument* args) {
    launch(kernel, grid, block, args, std::index_sequence_for<P...>());
}
static void* read_array(const char* path, size_t bytes) {
    void* out = malloc(bytes);
    FILE* file = fopen(path, "rb");
    if (!file || fread(out, 1, bytes, file) != bytes) exit(3);
    fclose(file);
    return out;
}
static void write_array(const char* path, const void* array, size_t bytes) {
    FILE* file = fopen(path, "wb");
    if (!file || fwrite(array, 1, bytes, file) != bytes || fclose(file)) exit(3);
}
