#include <cuda_runtime.h>
#define FULL_MASK 0xffffffff

__inline__ __device__ float warp_sum(float value) {
    for (int offset = warpSize / 2; offset > 0; offset /= 2) {
        value += __shfl_down_sync(FULL_MASK, value, offset);
    }
    return value;
}

__global__ void reduce_warp(const float* in, float* out, int n) {
    static __shared__ float sums[32];
    int lane = threadIdx.x % warpSize;
    int warp = threadIdx.x / warpSize;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = (i < n) ? in[i] : 0;
    value = warp_sum(value);
    if (lane == 0) sums[warp] = value;
    __syncthreads();
    value = (threadIdx.x < blockDim.x / warpSize) ? sums[lane] : 0;
    if (warp == 0) value = warp_sum(value);
    if (threadIdx.x == 0) out[blockIdx.x] = value;
}
