#include <cuda_fp16.h>
#include <cstdint>

#define QK 32

typedef struct {
    half d;              // scale
    half m;              // minimum
    uint8_t qs[QK / 2];  // nibbles
} block_q4;
static_assert(sizeof(block_q4) == 2 * sizeof(half) + QK / 2, "unexpected padding");

static __device__ __forceinline__ void dequantize_q4(const block_q4* vx, int ib, int iqs, float2& v) {
    const float d = __half2float(vx[ib].d), m = __half2float(vx[ib].m);
    const int vui = vx[ib].qs[iqs];
    v.x = vui & 0xF;
    v.y = vui >> 4;
    v.x = v.x * d + m;
    v.y = v.y * d + m;
}

// Low nibbles are the first half of a block, high ones the second.
__global__ void int4_dequant(const block_q4* __restrict__ vx, float* __restrict__ y, int k) {
    const int i = 2 * (blockDim.x * blockIdx.x + threadIdx.x);
    if (i >= k) return;
    const int ib = i / QK, iqs = (i % QK) / 2, base = i - i % QK;
    float2 v;
    dequantize_q4(vx, ib, iqs, v);
    y[base + iqs] = v.x;
    y[base + iqs + QK / 2] = v.y;
}
