// launch: grid=1 block=32
// args: data=mod7:32 counts=zeros:8
// fault: uninitialized
// says: 'bins[0]' is read before it is written
__global__ void histogram(const int* data, int* counts) {
    __shared__ int bins[8];
#ifndef FAULT
    if (threadIdx.x < 8) bins[threadIdx.x] = 0;
    __syncthreads();
#endif
    atomicAdd(&bins[data[threadIdx.x]], 1);  // HERE
    __syncthreads();
    if (threadIdx.x < 8) counts[threadIdx.x] = bins[threadIdx.x];
}
