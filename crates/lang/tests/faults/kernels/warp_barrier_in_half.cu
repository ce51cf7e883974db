// launch: grid=1 block=32
// args: x=range:32 out=zeros:32
// fault: divergent_barrier
// says: reached by 16 of 32 threads of warp 0
__global__ void exchange(const int* x, int* out) {
    __shared__ int s[32];
    int lane = threadIdx.x;
    s[lane] = x[lane];
#ifdef FAULT
    if (lane < 16) __syncwarp();  // HERE
#else
    __syncwarp();
#endif
    out[lane] = s[lane];
}
