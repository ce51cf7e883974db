//# problem {"sizes": {"rows": "1..12", "cols": "40..160"}, "args": {"y": "uninitialized:rows", "a": "randn:rows*cols", "x": "randn:cols", "rows": "rows", "cols": "cols"}, "launch": {"dim": "rows", "block": 32}}
//# reference
#include <cuda_fp16.h>
__global__ void matvec(__half* y, const __half* a, const __half* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int j = 0; j < cols; j++) sum += __half2float(a[row * cols + j]) * __half2float(x[j]);
    y[row] = __float2half(sum);
}
//# right one warp per row
//# launch {"grid": "rows", "block": 32}
#include <cuda_fp16.h>
__global__ void matvec(__half* y, const __half* a, const __half* x, int rows, int cols) {
    float sum = 0.0f;
    for (int j = threadIdx.x; j < cols; j += 32)
        sum = fmaf(__half2float(a[blockIdx.x * cols + j]), __half2float(x[j]), sum);
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, d);
    if (threadIdx.x == 0) y[blockIdx.x] = __float2half(sum);
}
//# right in double
#include <cuda_fp16.h>
__global__ void matvec(__half* y, const __half* a, const __half* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double sum = 0.0;
    for (int j = cols - 1; j >= 0; j--) sum += (double)__half2float(a[row * cols + j]) * (double)__half2float(x[j]);
    y[row] = __float2half((float)sum);
}
//# wrong accumulates in half precision
#include <cuda_fp16.h>
__global__ void matvec(__half* y, const __half* a, const __half* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    __half sum = __float2half(0.0f);
    for (int j = 0; j < cols; j++) sum = __hadd(sum, __hmul(a[row * cols + j], x[j]));
    y[row] = sum;
}
//# wrong odd columns skipped
#include <cuda_fp16.h>
__global__ void matvec(__half* y, const __half* a, const __half* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int j = 0; j < cols; j += 2) sum += __half2float(a[row * cols + j]) * __half2float(x[j]);
    y[row] = __float2half(sum);
}
//# wrong row stride
#include <cuda_fp16.h>
__global__ void matvec(__half* y, const __half* a, const __half* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int j = 0; j < cols; j++) sum += __half2float(a[row + j * rows]) * __half2float(x[j]);
    y[row] = __float2half(sum * 1.0f);
}
//# fault race all threads write one element
#include <cuda_fp16.h>
__global__ void matvec(__half* y, const __half* a, const __half* x, int rows, int cols) {
    float sum = 0.0f;
    for (int j = 0; j < cols; j++) sum += __half2float(a[j]) * __half2float(x[j]);
    y[0] = __float2half(sum);
}
//# cheating constant
#include <cuda_fp16.h>
__global__ void matvec(__half* y, const __half* a, const __half* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) y[row] = __float2half(0.1f);
}
