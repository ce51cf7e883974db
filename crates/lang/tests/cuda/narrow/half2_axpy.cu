#include <cuda_fp16.h>

#define HALF2(value) (reinterpret_cast<half2*>(&(value))[0])

// y = a * x + y and relu, two halves at a time.
__global__ void half2_axpy(half* x, half* y, half a, int n) {
    const int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    const half2 zero = __float2half2_rn(0.0f);
    if (i + 1 < n) {
        half2 v = __hfma2(__half2half2(a), HALF2(x[i]), HALF2(y[i]));
        HALF2(y[i]) = __hmax2(v, zero);
    } else if (i < n) {
        y[i] = __hmax(__hadd(__hmul(a, x[i]), y[i]), __float2half(0.f));
    }
}
