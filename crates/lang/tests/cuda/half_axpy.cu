#include <cuda_fp16.h>
__global__ void half_axpy(const __half* x, __half* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        __half scaled = __hmul(__float2half(a), x[i]);
        y[i] = __hadd(scaled, y[i]);
    }
}
