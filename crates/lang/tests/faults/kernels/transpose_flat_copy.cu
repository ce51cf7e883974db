// launch: grid=1 block=8x8
// args: in=range:64 out=zeros:64
// fault: race
// says: race on 'tile[1][0]'
__global__ void transpose(const float* in, float* out) {
    __shared__ float tile[8][8];
    float* flat = &tile[0][0];
    int t = threadIdx.y * 8 + threadIdx.x;
    flat[t] = in[t];  // FIRST
#ifndef FAULT
    __syncthreads();
#endif
    out[t] = tile[threadIdx.x][threadIdx.y];  // SECOND
}
