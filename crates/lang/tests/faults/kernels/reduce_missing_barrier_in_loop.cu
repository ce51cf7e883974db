// launch: grid=4 block=128
// args: x=range:512 out=zeros:4
// fault: race
// says: race on 'partial[64]'
__global__ void reduce(const float* x, float* out) {
    __shared__ float partial[128];
    int t = threadIdx.x;
    partial[t] = x[blockIdx.x * blockDim.x + t];  // FIRST
#ifndef FAULT
    __syncthreads();
#endif
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) partial[t] += partial[t + half];  // SECOND
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = partial[0];
}
