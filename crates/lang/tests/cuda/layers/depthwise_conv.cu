#include <cuda_runtime.h>

__constant__ int c_pad = 1;

// Depthwise 3x3 convolution, stride 2: blockIdx.z is batch and channel.
template <int K, int STRIDE>
__global__ void depthwise_conv(const float* __restrict__ src, const float* __restrict__ filters, float* __restrict__ dst,
                               int channels, int h, int w, int oh, int ow) {
    const int ox = threadIdx.x + blockIdx.x * blockDim.x;
    const int oy = threadIdx.y + blockIdx.y * blockDim.y;
    const int plane = blockIdx.z, ch = plane % channels;
    if (ox >= ow || oy >= oh) return;
    float acc = 0;
#pragma unroll
    for (int ky = 0; ky < K; ++ky) {
        const int iy = oy * STRIDE - c_pad + ky;
        if (iy < 0 || iy >= h) continue;
#pragma unroll
        for (int kx = 0; kx < K; ++kx) {
            const int ix = ox * STRIDE - c_pad + kx;
            if (ix < 0 || ix >= w) continue;
            acc += __ldg(&src[(plane * h + iy) * w + ix]) * __ldg(filters + (ch * K + ky) * K + kx);
        }
    }
    dst[(plane * oh + oy) * ow + ox] = acc;
}

template __global__ void depthwise_conv<3, 2>(const float*, const float*, float*, int, int, int, int, int);
