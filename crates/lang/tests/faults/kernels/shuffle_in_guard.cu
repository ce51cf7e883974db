// launch: grid=1 block=32
// args: x=range:20 out=zeros:1 n=20
// fault: partial_warp
// says: 20 of 32 threads of a warp take part in a shuffle
__global__ void sum(const float* x, float* out, int n) {
#ifdef FAULT
    if (threadIdx.x < n) {
        float v = x[threadIdx.x];
#else
    {
        float v = threadIdx.x < n ? x[threadIdx.x] : 0.0f;
#endif
        for (int offset = 16; offset > 0; offset /= 2)
            v += __shfl_down_sync(0xffffffff, v, offset);  // HERE
        if (threadIdx.x == 0) out[0] = v;
    }
}
