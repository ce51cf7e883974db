// launch: grid=2 block=64
// args: x=range:100 out=zeros:100 n=100
// fault: divergent_barrier
// says: reached by 36 of 64 threads of block [1, 0, 0]
__global__ void shift(const float* x, float* out, int n) {
    __shared__ float s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
#ifdef FAULT
    if (i < n) {
        s[threadIdx.x] = x[i];
        __syncthreads();  // HERE
        out[i] = s[threadIdx.x];
    }
#else
    if (i < n) s[threadIdx.x] = x[i];
    __syncthreads();
    if (i < n) out[i] = s[threadIdx.x];
#endif
}
