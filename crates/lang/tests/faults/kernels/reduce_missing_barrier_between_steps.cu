// launch: grid=2 block=256
// args: x=range:512 out=zeros:2
// fault: race
// says: race on 'partial[64]': a write by thread [64, 0, 0] of block [0, 0, 0] and a read by thread [0, 0, 0]
__global__ void reduce(const float* x, float* out) {
    __shared__ float partial[256];
    int t = threadIdx.x;
    partial[t] = x[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half >>= 1) {
        if (t < half) {
            float other = partial[t + half];  // SECOND
            partial[t] += other;  // FIRST
        }
#ifndef FAULT
        __syncthreads();
#endif
    }
    if (t == 0) out[blockIdx.x] = partial[0];
}
