// 16-bit floats in pairs, and rows of accumulators: what all attention kernels use.
//
// Compiled with HALF (1: f16, 0: bf16) defined first.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;

#define LOG2E 1.4426950408889634f
#define INFINITY_F (1.0f / 0.0f)
#if HALF
#define ELEMENT "f16"
#else
#define ELEMENT "bf16"
#endif

struct Strides {
    i64 batch, head, token;
};

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Packs two floats, the first in the lower half.
__device__ __forceinline__ u32 pack(float low, float high) {
    u32 r;
    asm("cvt.rn." ELEMENT "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

__device__ __forceinline__ float low_of(u32 pair) {
#if HALF
    float r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(r) : "r"(pair));
    return r;
#else
    return __uint_as_float(pair << 16);
#endif
}

__device__ __forceinline__ float high_of(u32 pair) {
#if HALF
    float r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(r) : "r"(pair));
    return r;
#else
    return __uint_as_float(pair & 0xffff0000u);
#endif
}

__device__ __forceinline__ float exp2_approx(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// Maximum and sum over the four threads that hold a row of an accumulator.
__device__ __forceinline__ float max_of_quad(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float sum_of_quad(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}
