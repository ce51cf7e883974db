//# problem {"sizes": {"rows": "1..40", "cols": "2..50"}, "args": {"y": "uninitialized:rows*cols", "x": "randn:rows*cols", "rows": "rows", "cols": "cols"}, "launch": {"dim": ["cols", "rows"], "block": [16, 16]}}
//# reference
__global__ void transpose(float* y, const float* x, int rows, int cols) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < rows && j < cols) y[j * rows + i] = x[i * cols + j];
}
//# right padded tile
__global__ void transpose(float* y, const float* x, int rows, int cols) {
    __shared__ float tile[16][17];
    int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
    if (i < rows && j < cols) tile[threadIdx.y][threadIdx.x] = x[i * cols + j];
    __syncthreads();
    int row = blockIdx.x * 16 + threadIdx.y, col = blockIdx.y * 16 + threadIdx.x;
    if (row < cols && col < rows) y[row * rows + col] = tile[threadIdx.x][threadIdx.y];
}
//# right one dimension
//# launch {"dim": "rows*cols", "block": 128}
__global__ void transpose(float* y, const float* x, int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) y[i] = x[i % rows * cols + i / rows];
}
//# right one thread per row
//# launch {"dim": "rows", "block": 32}
__global__ void transpose(float* y, const float* x, int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; i < rows && j < cols; ++j) y[j * rows + i] = x[i * cols + j];
}
//# fault race barrier missing
__global__ void transpose(float* y, const float* x, int rows, int cols) {
    __shared__ float tile[16][17];
    int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = i < rows && j < cols ? x[i * cols + j] : 0.0f;
    int row = blockIdx.x * 16 + threadIdx.y, col = blockIdx.y * 16 + threadIdx.x;
    if (row < cols && col < rows) y[row * rows + col] = tile[threadIdx.x][threadIdx.y];
}
//# fault out_of_bounds no guard
__global__ void transpose(float* y, const float* x, int rows, int cols) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    y[j * rows + i] = x[i * cols + j];
}
//# wrong copied
__global__ void transpose(float* y, const float* x, int rows, int cols) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < rows && j < cols) y[i * cols + j] = x[i * cols + j];
}
//# wrong tile not transposed
__global__ void transpose(float* y, const float* x, int rows, int cols) {
    __shared__ float tile[16][16];
    int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = i < rows && j < cols ? x[i * cols + j] : 0.0f;
    __syncthreads();
    int row = blockIdx.x * 16 + threadIdx.y, col = blockIdx.y * 16 + threadIdx.x;
    if (row < cols && col < rows) y[row * rows + col] = tile[threadIdx.y][threadIdx.x];
}
//# wrong tail forgotten
//# launch {"grid": ["max(1, cols / 16)", "max(1, rows / 16)"], "block": [16, 16]}
__global__ void transpose(float* y, const float* x, int rows, int cols) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < rows && j < cols) y[j * rows + i] = x[i * cols + j];
}
//# cheating nothing written
__global__ void transpose(float* y, const float* x, int rows, int cols) {
    int i = threadIdx.x;
    if (i < 0) y[i] = x[i];
}
//# cheating constant
__global__ void transpose(float* y, const float* x, int rows, int cols) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < rows && j < cols) y[j * rows + i] = 0.25f;
}
