// launch: grid=1 block=16x16
// args: x=range:256 y=zeros:256
// fault: out_of_bounds
// says: 'tile[0][16]': index 16 is outside 'tile, dimension 1' of 16 elements, in thread [15, 0, 0]
__global__ void gradient(const float* x, float* y) {
    __shared__ float tile[16][16];
    int tx = threadIdx.x, ty = threadIdx.y;
    tile[ty][tx] = x[ty * 16 + tx];
    __syncthreads();
#ifdef FAULT
    float right = tile[ty][tx + 1];  // HERE
#else
    float right = tx + 1 < 16 ? tile[ty][tx + 1] : 0.0f;
#endif
    y[ty * 16 + tx] = right - tile[ty][tx];
}
