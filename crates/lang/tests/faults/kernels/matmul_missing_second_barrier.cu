// launch: grid=2x2 block=8x8
// args: a=range:256 b=range:256 c=zeros:256 n=16
// fault: race
// says: race on 'As[0][0]': a read by thread [1, 0, 0] of block [0, 0, 0] and a write by thread [0, 0, 0]
#define TILE 8
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0.0f;
    for (int t = 0; t < n / TILE; ++t) {
        As[ty][tx] = a[row * n + t * TILE + tx];  // SECOND
        Bs[ty][tx] = b[(t * TILE + ty) * n + col];
        __syncthreads();
        for (int k = 0; k < TILE; ++k)
            sum += As[ty][k] * Bs[k][tx];  // FIRST
#ifndef FAULT
        __syncthreads();
#endif
    }
    c[row * n + col] = sum;
}
