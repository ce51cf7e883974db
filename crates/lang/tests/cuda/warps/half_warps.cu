#define HALF_MASK 0x0000ffffu

// Dot products of short rows: the first 16 lanes of each warp reduce, a partial mask says so.
__global__ void half_warps(const float* a, const float* b, float* out, int rows) {
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (warp >= rows) return;
    if (lane < 16) {
        float v = a[warp * 16 + lane] * b[warp * 16 + lane];
#pragma unroll
        for (int m = 8; m >= 1; m >>= 1) v += __shfl_xor_sync(HALF_MASK, v, m, 16);
        bool positive = __all_sync(HALF_MASK, v > 0.f);
        if (lane == 0) out[warp] = positive ? v : -v;
    }
}
