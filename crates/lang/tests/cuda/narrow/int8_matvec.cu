#include <stdint.h>

// y = scale[row] * (W * x), with W in signed bytes read as char4, x quantized too.
__global__ void int8_matvec(const char4* __restrict__ w, const char4* __restrict__ x, const float* __restrict__ scales,
                            float x_scale, float* __restrict__ y, int quads) {
    extern __shared__ int32_t partial[];
    int32_t acc = 0;
    const char4* row = w + blockIdx.x * quads;
    for (int i = threadIdx.x; i < quads; i += blockDim.x) {
        const char4 a = row[i], b = __ldg(x + i);
        acc += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
    partial[threadIdx.x] = acc;
    __syncthreads();
#pragma unroll
    for (int s = blockDim.x / 2; s; s >>= 1) {
        if (threadIdx.x < s) partial[threadIdx.x] += partial[threadIdx.x + s];
        __syncthreads();
    }
    if (!threadIdx.x) y[blockIdx.x] = partial[0] * scales[blockIdx.x] * x_scale;
}
