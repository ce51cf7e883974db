__device__ unsigned int retirementCount = 0;

// Sums by one launch: blocks store partial sums, and the last one to finish adds them.
__global__ void last_block_sum(const int* g_idata, int* g_partial, int* g_odata, unsigned int n) {
    __shared__ int sdata[64];
    __shared__ bool amLast;
    unsigned int tid = threadIdx.x;
    int sum = 0;
    for (unsigned int i = blockIdx.x * blockDim.x + tid; i < n; i += blockDim.x * gridDim.x) sum += g_idata[i];
    sdata[tid] = sum;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] = sum = sum + sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) {
        atomicExch(&g_partial[blockIdx.x], sum);
        __threadfence();
        unsigned int ticket = atomicInc(&retirementCount, gridDim.x);
        amLast = (ticket == gridDim.x - 1);
    }
    __syncthreads();
    if (amLast && tid == 0) {
        int total = 0;
        for (int b = 0; b < gridDim.x; b++) total += atomicAdd(&g_partial[b], 0);
        *g_odata = total;
        atomicExch(&retirementCount, 0u);
    }
}
