// launch: grid=2x2 block=16x16
// args: in=range:1024 out=zeros:1024 n=32
// fault: race
// says: race on 'tile[1][0]': a write by thread [0, 1, 0] of block [0, 0, 0] and a read by thread [1, 0, 0]
__global__ void transpose(const float* in, float* out, int n) {
    __shared__ float tile[16][17];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];  // FIRST
#ifndef FAULT
    __syncthreads();
#endif
    int tx = blockIdx.y * 16 + threadIdx.x, ty = blockIdx.x * 16 + threadIdx.y;
    out[ty * n + tx] = tile[threadIdx.x][threadIdx.y];  // SECOND
}
