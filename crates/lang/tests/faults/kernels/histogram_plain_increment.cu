// launch: grid=2 block=64
// args: data=mod7:128 counts=zeros:8
// fault: race
// says: race on 'bins[
__global__ void histogram(const unsigned* data, unsigned* counts) {
    __shared__ unsigned bins[8];
    int t = threadIdx.x;
    if (t < 8) bins[t] = 0;
    __syncthreads();
    unsigned bin = data[blockIdx.x * blockDim.x + t];
#ifdef FAULT
    bins[bin] = bins[bin] + 1;  // FIRST SECOND
#else
    atomicAdd(&bins[bin], 1u);
#endif
    __syncthreads();
    if (t < 8) atomicAdd(&counts[t], bins[t]);
}
