// Sparse (ELLPACK, column-major) times dense, -1 marks padding.
__global__ void ell_spmm(const int* __restrict__ cols, const float* __restrict__ vals, const float* __restrict__ dense,
                         float* __restrict__ out, int rows, int width, int n) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows && col < n) {
        float dot = 0.0f;
        for (int k = 0; k < width; ++k) {
            const int c = cols[rows * k + row];
            if (c == -1) continue;
            dot += vals[rows * k + row] * dense[c * n + col];
        }
        out[row * n + col] = dot;
    }
}
