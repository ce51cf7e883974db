// launch: grid=1 block=64
// args: x=range:64 out=zeros:64
// fault: divergent_barrier
// says: reached by 32 of 64 threads of block [0, 0, 0]
__global__ void producer_consumer(const float* x, float* out) {
    __shared__ float s[32];
    int t = threadIdx.x;
#ifdef FAULT
    if (t < 32) {
        s[t] = x[t];
        __syncthreads();  // HERE
    } else {
        __syncthreads();
        out[t] = s[t - 32];
    }
#else
    if (t < 32) s[t] = x[t];
    __syncthreads();
    if (t >= 32) out[t] = s[t - 32];
#endif
}
