#include <cuda_bf16.h>
__global__ void bfloat_dot(const __nv_bfloat16* a, const __nv_bfloat16* b, float* out, int n) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += 32) sum += __bfloat162float(a[i]) * __bfloat162float(b[i]);
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
    if (threadIdx.x == 0) *out = sum;
}
