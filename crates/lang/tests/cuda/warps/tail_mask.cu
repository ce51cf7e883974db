// Sum of n numbers: only the lanes that have one take part in the last warp.
__global__ void tail_mask(const float* x, float* sums, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned mask = __ballot_sync(0xffffffff, i < n);
    if (i < n) {
        const int lane = threadIdx.x % 32, count = __popc(mask);
        float v = x[i];
        for (int offset = 16; offset > 0; offset /= 2) {
            // A lane that does not take part must not be read.
            const int from = lane + offset < count ? lane + offset : lane;
            const float other = __shfl_sync(mask, v, from);
            if (from != lane) v += other;
        }
        if (lane == 0) sums[i / 32] = v;
    }
}
