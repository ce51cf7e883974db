//# problem {"sizes": {"m": "1..24", "k": "1..40", "n": "1..24"}, "args": {"c": "uninitialized:m*n", "a": "randn:m*k", "b": "randn:k*n", "m": "m", "k": "k", "n": "n"}, "launch": {"dim": ["n", "m"], "block": [8, 8]}}
//# reference
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int p = 0; p < k; p++) sum += a[row * k + p] * b[p * n + col];
    c[row * n + col] = sum;
}
//# right tiles of 8
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    __shared__ float as[8][8], bs[8][8];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * 8 + tx, row = blockIdx.y * 8 + ty;
    float sum = 0.0f;
    for (int p0 = 0; p0 < k; p0 += 8) {
        as[ty][tx] = row < m && p0 + tx < k ? a[row * k + p0 + tx] : 0.0f;
        bs[ty][tx] = p0 + ty < k && col < n ? b[(p0 + ty) * n + col] : 0.0f;
        __syncthreads();
        for (int p = 0; p < 8; p++) sum += as[ty][p] * bs[p][tx];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
//# right backwards and fused
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int p = k - 1; p >= 0; p--) sum = fmaf(a[row * k + p], b[p * n + col], sum);
    c[row * n + col] = sum;
}
//# right two accumulators
//# launch {"dim": "m*n", "block": 64}
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m * n) return;
    int row = i / n, col = i % n;
    float even = 0.0f, odd = 0.0f;
    int p = 0;
    for (; p + 1 < k; p += 2) {
        even += a[row * k + p] * b[p * n + col];
        odd += a[row * k + p + 1] * b[(p + 1) * n + col];
    }
    if (p < k) even += a[row * k + p] * b[p * n + col];
    c[i] = even + odd;
}
//# right one warp per element
//# launch {"grid": ["n", "m"], "block": 32}
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    int row = blockIdx.y, col = blockIdx.x;
    float sum = 0.0f;
    for (int p = threadIdx.x; p < k; p += 32) sum += a[row * k + p] * b[p * n + col];
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (threadIdx.x == 0) c[row * n + col] = sum;
}
//# fault race second barrier missing
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    __shared__ float as[8][8], bs[8][8];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * 8 + tx, row = blockIdx.y * 8 + ty;
    float sum = 0.0f;
    for (int p0 = 0; p0 < k; p0 += 8) {
        as[ty][tx] = row < m && p0 + tx < k ? a[row * k + p0 + tx] : 0.0f;
        bs[ty][tx] = p0 + ty < k && col < n ? b[(p0 + ty) * n + col] : 0.0f;
        __syncthreads();
        for (int p = 0; p < 8; p++) sum += as[ty][p] * bs[p][tx];
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
//# fault uninitialized tile not padded
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    __shared__ float as[8][8], bs[8][8];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * 8 + tx, row = blockIdx.y * 8 + ty;
    float sum = 0.0f;
    for (int p0 = 0; p0 < k; p0 += 8) {
        if (row < m && p0 + tx < k) as[ty][tx] = a[row * k + p0 + tx];
        if (p0 + ty < k && col < n) bs[ty][tx] = b[(p0 + ty) * n + col];
        __syncthreads();
        for (int p = 0; p < 8; p++) sum += as[ty][p] * bs[p][tx];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
//# fault out_of_bounds no guard
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    for (int p = 0; p < k; p++) sum += a[row * k + p] * b[p * n + col];
    c[row * n + col] = sum;
}
//# wrong accumulates in half precision
#include <cuda_fp16.h>
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    __half sum = __float2half(0.0f);
    for (int p = 0; p < k; p++) sum = __hadd(sum, __float2half(a[row * k + p] * b[p * n + col]));
    c[row * n + col] = __half2float(sum);
}
//# wrong last product missing
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int p = 0; p < k / 4 * 4; p++) sum += a[row * k + p] * b[p * n + col];
    c[row * n + col] = sum;
}
//# wrong operand transposed
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int p = 0; p < k; p++) sum += a[p * m + row] * b[p * n + col];
    c[row * n + col] = sum;
}
//# cheating zeros
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < m && col < n) c[row * n + col] = 0.0f;
}
//# cheating index instead of a product
__global__ void matmul(float* c, const float* a, const float* b, int m, int k, int n) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < m && col < n) c[row * n + col] = row - col;
}
