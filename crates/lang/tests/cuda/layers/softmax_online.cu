#include <float.h>

struct __align__(8) MD {
    float m;
    float d;
};

__device__ __forceinline__ MD warp_reduce_md(MD value) {
    const unsigned int mask = 0xffffffff;
#pragma unroll
    for (int stride = 32 >> 1; stride >= 1; stride >>= 1) {
        MD other;
        other.m = __shfl_xor_sync(mask, value.m, stride);
        other.d = __shfl_xor_sync(mask, value.d, stride);
        bool bigger = value.m > other.m;
        MD big = bigger ? value : other;
        MD small = bigger ? other : value;
        value.d = big.d + small.d * __expf(small.m - big.m);
        value.m = big.m;
    }
    return value;
}

// Softmax in one pass over the input and one over the output, a block of several warps per row.
template <const int NUM_THREADS = 256>
__global__ void softmax_online(const float* x, float* y, int N) {
    const int WARPS = NUM_THREADS / 32;
    __shared__ MD shared[WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float* row = x + blockIdx.x * N;
    MD val;
    val.m = -FLT_MAX;
    val.d = 0.0f;
    for (int i = threadIdx.x; i < N; i += NUM_THREADS) {
        float v = row[i];
        float m = fmaxf(val.m, v);
        val.d = val.d * __expf(val.m - m) + __expf(v - m);
        val.m = m;
    }
    MD res = warp_reduce_md(val);
    if (lane == 0) shared[warp] = res;
    __syncthreads();
    if (threadIdx.x < 32) {
        MD block_res = lane < WARPS ? shared[lane] : MD{-FLT_MAX, 0.0f};
        block_res = warp_reduce_md(block_res);
        if (threadIdx.x == 0) shared[0] = block_res;
    }
    __syncthreads();
    MD final_res = shared[0];
    float inverse = __fdividef(1.0f, final_res.d);
    for (int i = threadIdx.x; i < N; i += NUM_THREADS) y[blockIdx.x * N + i] = __expf(row[i] - final_res.m) * inverse;
}

void softmax(const float* x, float* y, int rows, int N) { softmax_online<96><<<rows, 96>>>(x, y, N); }
