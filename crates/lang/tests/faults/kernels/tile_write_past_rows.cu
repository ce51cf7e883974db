// launch: grid=1 block=8x8
// args: x=range:64 y=zeros:64
// fault: out_of_bounds
// says: 'tile[8][0]': index 8 is outside 'tile, dimension 0' of 8 elements, in thread [0, 7, 0]
__global__ void shift_rows(const float* x, float* y) {
    __shared__ float tile[8][8];
    int tx = threadIdx.x, ty = threadIdx.y;
#ifdef FAULT
    tile[ty + 1][tx] = x[ty * 8 + tx];  // HERE
#else
    tile[(ty + 1) % 8][tx] = x[ty * 8 + tx];
#endif
    __syncthreads();
    y[ty * 8 + tx] = tile[ty][tx];
}
