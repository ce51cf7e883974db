// launch: grid=1 block=64
// args: x=range:64 out=zeros:1
// fault: race
// says: are not ordered by a barrier
__global__ void reduce(const float* x, float* out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t < 32) {
        float v = s[t] + s[t + 32];
#ifdef FAULT
        s[t] = v;  // FIRST
        v += s[t ^ 16];  // SECOND
#else
        __syncwarp();
        s[t] = v;
        __syncwarp();
        v += s[t ^ 16];
#endif
        __syncwarp();
        s[t] = v;
        __syncwarp();
        v += s[t ^ 8];
        if (t == 0) out[0] = v;
    }
}
