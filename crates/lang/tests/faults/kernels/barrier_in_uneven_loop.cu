// launch: grid=1 block=32
// args: x=range:100 out=zeros:32 n=100
// fault: divergent_barrier
// says: reached by 4 of 32 threads
__global__ void sums(const float* x, float* out, int n) {
    __shared__ float s[32];
    float sum = 0.0f;
#ifdef FAULT
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
#else
    for (int base = 0; base < n; base += blockDim.x) {
        int i = base + threadIdx.x;
#endif
        s[threadIdx.x] = i < n ? x[i] : 0.0f;
        __syncthreads();  // HERE
        sum += s[threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
