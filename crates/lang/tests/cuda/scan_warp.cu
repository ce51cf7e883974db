// Running sums of a block: within warps by shuffles, then over the sums of warps.
__device__ int inclusive(int value, int lane) {
    #pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        int below = __shfl_up_sync(0xffffffffu, value, d);
        if (lane >= d) value += below;
    }
    return value;
}
__global__ void __launch_bounds__(128) scan_warp(const int* in, int* out, int n) {
    __shared__ int totals[4];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int i = threadIdx.x + blockIdx.x * blockDim.x;
    int value = i < n ? in[i] : 0;
    value = inclusive(value, lane);
    if (lane == 31) totals[warp] = value;
    __syncthreads();
    int before = 0;
    for (int w = 0; w < warp; w++) before += totals[w];
    if (i < n) out[i] = value + before;
}
