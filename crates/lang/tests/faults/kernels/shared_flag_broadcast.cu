// launch: grid=1 block=64
// args: x=mod7:64 out=zeros:64
// fault: race
// says: race on 'found[0]'
__global__ void any_six(const int* x, int* out) {
    __shared__ int found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (x[threadIdx.x] == 6) atomicExch(&found, 1);  // FIRST
#ifndef FAULT
    __syncthreads();
#endif
    out[threadIdx.x] = found;  // SECOND
}
