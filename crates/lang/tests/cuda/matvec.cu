// A warp a row.
__global__ void matvec(const double* __restrict__ A, const double* __restrict__ x, double* __restrict__ y, int rows, int cols) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    double sum = 0;
    if (row < rows) {
        for (int c = lane; c < cols; c += 32) sum += A[row * cols + c] * x[c];
    }
    for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_xor_sync(~0u, sum, mask);
    if (row < rows && lane == 0) y[row] = sum;
}
