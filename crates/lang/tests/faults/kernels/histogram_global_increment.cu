// launch: grid=4 block=32
// args: data=mod7:128 counts=zeros:8
// fault: race
// says: race on 'counts[
__global__ void histogram(const int* data, int* counts) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FAULT
    counts[data[i]]++;  // FIRST SECOND
#else
    atomicAdd(counts + data[i], 1);
#endif
}
