// Inclusive sums along rows of an image: warps scan chunks and carry on.
__global__ void integral_rows(const unsigned char* __restrict__ image, unsigned int* __restrict__ sums, int width) {
    __shared__ unsigned int warp_sums[8];
    __shared__ unsigned int carry;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (threadIdx.x == 0) carry = 0;
    __syncthreads();
    for (int start = 0; start < width; start += blockDim.x) {
        const int x = start + threadIdx.x;
        unsigned int v = x < width ? image[blockIdx.x * width + x] : 0;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            unsigned int up = __shfl_up_sync(0xffffffffu, v, d);
            if (lane >= d) v += up;
        }
        if (lane == 31) warp_sums[warp] = v;
        __syncthreads();
        unsigned int before = carry;
        for (int w = 0; w < warp; w++) before += warp_sums[w];
        if (x < width) sums[blockIdx.x * width + x] = v + before;
        __syncthreads(); // all have read the carry
        if (threadIdx.x == blockDim.x - 1) carry = v + before;
        __syncthreads();
    }
}
