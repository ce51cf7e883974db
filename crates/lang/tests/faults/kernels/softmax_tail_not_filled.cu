// launch: grid=1 block=64
// args: x=range:50 y=zeros:50 n=50
// fault: uninitialized
// says: 's[50]' is read before it is written, in thread [18, 0, 0] of block [0, 0, 0]
__global__ void row_max(const float* x, float* y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
#ifdef FAULT
    if (t < n) s[t] = x[t];
#else
    s[t] = t < n ? x[t] : -INFINITY;
#endif
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (t < half) s[t] = fmaxf(s[t], s[t + half]);  // HERE
        __syncthreads();
    }
    if (t < n) y[t] = x[t] - s[0];
}
