// launch: grid=1 block=48
// args: x=range:64 out=zeros:64
// fault: partial_warp
// says: 16 of 32 threads of a warp take part in a shuffle
__global__ void butterfly(const float* x, float* out) {
    float v = x[threadIdx.x];
#ifdef FAULT
    v += __shfl_xor_sync(0xffffffff, v, 16);  // HERE
#else
    v += __shfl_xor_sync(0xffffffff, v, 8);
#endif
    out[threadIdx.x] = v;
}
