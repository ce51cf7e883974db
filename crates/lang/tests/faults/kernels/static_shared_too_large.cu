// launch: grid=1 block=32
// args: x=range:32 y=zeros:32
// error: 49664 bytes of static shared memory per block; the maximum is 49152 (48 KB)
__global__ void stage(const float* x, float* y) {
    __shared__ float small[128];
#ifdef FAULT
    __shared__ float large[96][128];  // HERE
#else
    __shared__ float large[95][128];
#endif
    small[threadIdx.x] = x[threadIdx.x];
    large[3][threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = small[threadIdx.x] + large[3][threadIdx.x];
}
