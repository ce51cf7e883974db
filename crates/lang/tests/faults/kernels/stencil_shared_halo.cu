// launch: grid=2 block=32
// args: x=range:66 y=zeros:64
// fault: out_of_bounds
// says: index 33 is outside 's' of 33 elements
__global__ void stencil(const float* x, float* y) {
#ifdef FAULT
    __shared__ float s[33];
#else
    __shared__ float s[34];
#endif
    int t = threadIdx.x, i = blockIdx.x * 32 + t;
    s[t] = x[i];
    if (t < 2) s[t + 32] = x[i + 32];  // HERE
    __syncthreads();
    y[i] = s[t] + s[t + 1] + s[t + 2];
}
