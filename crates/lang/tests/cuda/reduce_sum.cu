// Dynamic shared memory: as many floats as the block has threads.
extern __shared__ float unused_here[];
__global__ void reduce_sum(const float* in, float* out, unsigned int n) {
    extern __shared__ float data[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * (blockDim.x * 2) + threadIdx.x;
    float mine = i < n ? in[i] : 0.0f;
    if (i + blockDim.x < n) mine += in[i + blockDim.x];
    data[tid] = mine;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) {
            data[tid] = mine = mine + data[tid + s];
        }
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = data[0];
}
