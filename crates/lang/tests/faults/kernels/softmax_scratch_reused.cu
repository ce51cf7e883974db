// launch: grid=2 block=64
// args: x=range:128 y=zeros:128
// fault: race
// says: race on 'scratch[0]': a read by thread [63, 0, 0] of block [0, 0, 0] and a write by thread [0, 0, 0]
__global__ void softmax(const float* x, float* y) {
    __shared__ float scratch[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    scratch[t] = x[i];
    __syncthreads();
    for (int s = 32; s > 0; s >>= 1) {
        if (t < s) scratch[t] = fmaxf(scratch[t], scratch[t + s]);
        __syncthreads();
    }
    float largest = scratch[0];  // FIRST
#ifndef FAULT
    __syncthreads();
#endif
    float e = expf(x[i] - largest);
    scratch[t] = e;  // SECOND
    __syncthreads();
    for (int s = 32; s > 0; s >>= 1) {
        if (t < s) scratch[t] += scratch[t + s];
        __syncthreads();
    }
    y[i] = e / scratch[0];
}
