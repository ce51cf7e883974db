__device__ unsigned int finished;
// Threads that hold an even number, by votes; the last warp to finish is counted too.
__global__ void block_count(const int* x, int* evens) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned ballot = __ballot_sync(0xffffffff, x[i] % 2 == 0);
    if (threadIdx.x % 32 == 0) {
        evens[i / 32] = __popc(ballot);
        atomicAdd(&finished, 1);
    }
}
