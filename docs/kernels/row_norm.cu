// y = x / |x| for each row.
__global__ void row_norm(const float* x, float* y, int rows, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float sum = 0.0f;
    for (int j = 0; j < n; j++) sum += x[r * n + j] * x[r * n + j];
    float scale = rsqrtf(sum + 1e-6f);
    for (int j = 0; j < n; j++) y[r * n + j] = x[r * n + j] * scale;
}

// Adds to rows of y that several threads may share.
__global__ void add_rows(const float* x, const int* row, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[row[i]] += x[i];
}
