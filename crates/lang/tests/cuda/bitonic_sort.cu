// Sorts 128 numbers of a block in shared memory.
__global__ void bitonic_sort(int* values) {
    __shared__ int s[128];
    const unsigned int tid = threadIdx.x;
    s[tid] = values[blockIdx.x * 128 + tid];
    __syncthreads();
    for (unsigned int k = 2; k <= 128; k *= 2) {
        for (unsigned int j = k / 2; j > 0; j /= 2) {
            unsigned int other = tid ^ j;
            if (other > tid) {
                bool up = (tid & k) == 0;
                if ((s[tid] > s[other]) == up) {
                    int kept = s[tid];
                    s[tid] = s[other];
                    s[other] = kept;
                }
            }
            __syncthreads();
        }
    }
    values[blockIdx.x * 128 + tid] = s[tid];
}
