// Histogram of the bytes of words: bins of 16 values.
__global__ void byte_counts(const unsigned int* words, unsigned int* counts, int n) {
    __shared__ unsigned int bins[16];
    if (threadIdx.x < 4) reinterpret_cast<uint4*>(bins)[threadIdx.x] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(words);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const uchar4 four = reinterpret_cast<const uchar4*>(words)[i];
        atomicAdd(&bins[four.x >> 4], 1u);
        atomicAdd(&bins[four.y >> 4], 1u);
        atomicAdd(&bins[bytes[4 * i + 2] >> 4], 1u);
        atomicAdd(&bins[bytes[4 * i + 3] >> 4], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 16) counts[threadIdx.x] = bins[threadIdx.x];
}
