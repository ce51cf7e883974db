// launch: grid=1 block=128
// args: data=mod7:128 counts=zeros:16
// fault: race
// says: a write by thread [4, 0, 0] of block [0, 0, 0] and an atomic update by thread [
__global__ void histogram(const int* data, int* counts) {
    __shared__ int bins[16];
    int t = threadIdx.x;
    if (t < 16) bins[t] = 0;  // FIRST
#ifndef FAULT
    __syncthreads();
#endif
    atomicAdd(&bins[(data[t] + 4) % 16], 1);  // SECOND
    __syncthreads();
    if (t < 16) counts[t] = bins[t];
}
