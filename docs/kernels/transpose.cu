// Rows and columns of the tile are 32 elements, so that a column lies in one bank.
__global__ void transpose(const float* x, float* y, int n) {
    __shared__ float tile[32][32];
    int column = blockIdx.x * 32 + threadIdx.x;
    for (int r = threadIdx.y; r < 32; r += 8)
        tile[r][threadIdx.x] = x[(blockIdx.y * 32 + r) * n + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    for (int r = threadIdx.y; r < 32; r += 8)
        y[(blockIdx.x * 32 + r) * n + column] = tile[threadIdx.x][r];
}
