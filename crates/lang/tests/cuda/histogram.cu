#define BINS 16
__global__ void histogram(const unsigned int* data, unsigned int* counts, int n) {
    __shared__ unsigned int local[BINS];
    if (threadIdx.x < BINS) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        atomicAdd(&local[data[i] % BINS], 1u);
    }
    __syncthreads();
    if (threadIdx.x < BINS) atomicAdd(counts + threadIdx.x, local[threadIdx.x]);
}
