// launch: grid=1 block=16
// args: x=range:16 y=zeros:16
// fault: out_of_bounds
// says: index 4 is outside 'tile, dimension 1' of 4 elements, in thread [3, 0, 0]
__global__ void shift(const float* x, float* y) {
    __shared__ float tile[4][4];
    float* flat = &tile[0][0];
    int t = threadIdx.x;
    flat[t] = x[t];
    __syncthreads();
#ifdef FAULT
    y[t] = tile[t / 4][t % 4 + 1];  // HERE
#else
    y[t] = tile[t / 4][(t + 1) % 4];
#endif
}
