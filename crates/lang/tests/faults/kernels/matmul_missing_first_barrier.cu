// launch: grid=2x2 block=8x8
// args: a=range:256 b=range:256 c=zeros:256 n=16
// fault: race
// says: race on 'As[
#define TILE 8
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0.0f;
    for (int t = 0; t < n / TILE; ++t) {
        As[ty][tx] = a[row * n + t * TILE + tx];  // FIRST
        Bs[ty][tx] = b[(t * TILE + ty) * n + col];
#ifndef FAULT
        __syncthreads();
#endif
        for (int k = 0; k < TILE; ++k)
            sum += As[ty][k] * Bs[k][tx];  // SECOND
        __syncthreads();
    }
    c[row * n + col] = sum;
}
