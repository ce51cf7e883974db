typedef unsigned int uint;
constexpr int RADIX_BITS = 4;
constexpr int RADIX = 1 << RADIX_BITS;

template <int shift>
__device__ __forceinline__ uint digit(uint key) {
    return (key >> shift) & (RADIX - 1);
}

// Digit counts of each block, written digit by digit for a scan over blocks.
template <int THREADS, int ITEMS, int shift>
__global__ void radix_digits(const uint* __restrict__ keys, uint* __restrict__ counts, int n) {
    __shared__ uint bins[THREADS / 32][RADIX];
    const int warp = threadIdx.x >> 5;
    for (int i = threadIdx.x; i < (THREADS / 32) * RADIX; i += THREADS) (&bins[0][0])[i] = 0;
    __syncthreads();
    const int base = blockIdx.x * THREADS * ITEMS;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int i = base + k * THREADS + threadIdx.x;
        if (i < n) atomicAdd(&bins[warp][digit<shift>(keys[i])], 1u);
    }
    __syncthreads();
    if (threadIdx.x < RADIX) {
        uint total = 0;
        for (int w = 0; w < THREADS / 32; ++w) total += bins[w][threadIdx.x];
        counts[threadIdx.x * gridDim.x + blockIdx.x] = total;
    }
}

template __global__ void radix_digits<64, 3, 8>(const uint*, uint*, int);
