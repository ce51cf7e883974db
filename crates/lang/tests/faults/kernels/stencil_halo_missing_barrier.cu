// launch: grid=2 block=64
// args: x=range:130 y=zeros:128
// fault: race
// says: race on 's[
#define R 1
__global__ void blur(const float* x, float* y) {
    __shared__ float s[64 + 2 * R];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t] = x[i];  // FIRST
    if (t < 2 * R) s[64 + t] = x[i + 64];
#ifndef FAULT
    __syncthreads();
#endif
    y[i] = (s[t] + s[t + 1] + s[t + 2]) / 3.0f;  // SECOND
}
