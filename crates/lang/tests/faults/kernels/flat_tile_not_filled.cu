// launch: grid=1 block=16
// args: x=range:16 y=zeros:16
// fault: uninitialized
// says: 'tile[3][0]' is read before it is written, in thread [12, 0, 0]
__global__ void copy(const float* x, float* y) {
    __shared__ float tile[4][4];
    float* flat = (float*)tile;
    int t = threadIdx.x;
#ifdef FAULT
    if (t < 12)
#endif
    tile[t / 4][t % 4] = x[t];
    __syncthreads();
    y[t] = flat[t];  // HERE
}
