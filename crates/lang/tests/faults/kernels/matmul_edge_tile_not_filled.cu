// launch: grid=2x2 block=8x8
// args: a=range:144 b=range:144 c=zeros:144 n=12
// fault: uninitialized
// says: 'As[0][4]' is read before it is written, in thread [0, 0, 0] of block [0, 0, 0]
#define TILE 8
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0.0f;
    for (int t = (n + TILE - 1) / TILE - 1; t >= 0; --t) {
        int k0 = t * TILE;
#ifdef FAULT
        if (row < n && k0 + tx < n) As[ty][tx] = a[row * n + k0 + tx];
#else
        As[ty][tx] = row < n && k0 + tx < n ? a[row * n + k0 + tx] : 0.0f;
#endif
        Bs[ty][tx] = col < n && k0 + ty < n ? b[(k0 + ty) * n + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k)
            sum += As[ty][k] * Bs[k][tx];  // HERE
        __syncthreads();
    }
    if (row < n && col < n) c[row * n + col] = sum;
}
