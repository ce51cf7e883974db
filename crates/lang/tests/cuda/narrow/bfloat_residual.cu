#include <cuda_bf16.h>

// Residual and RMS norm of rows of bfloat16 pairs, a warp per row.
__global__ void bfloat_residual(__nv_bfloat162* residual, const __nv_bfloat162* x, const __nv_bfloat162* weight,
                                __nv_bfloat162* out, int pairs, float eps) {
    const int lane = threadIdx.x, row = blockIdx.x;
    float square = 0.f;
    for (int c = lane; c < pairs; c += warpSize) {
        __nv_bfloat162 sum = __hadd2(residual[row * pairs + c], x[row * pairs + c]);
        residual[row * pairs + c] = sum;
        float2 f = __bfloat1622float2(sum);
        square += f.x * f.x + f.y * f.y;
    }
    for (int o = 16; o; o >>= 1) square += __shfl_xor_sync(0xffffffff, square, o);
    const float scale = rsqrtf(square / (2 * pairs) + eps);
    for (int c = lane; c < pairs; c += warpSize) {
        const float2 f = __bfloat1622float2(residual[row * pairs + c]);
        const float2 w = make_float2(__low2float(weight[c]), __high2float(weight[c]));
        out[row * pairs + c] = __floats2bfloat162_rn(f.x * scale * w.x, f.y * scale * w.y);
    }
}
