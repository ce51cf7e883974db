//# problem {"sizes": {"rows": "1..9", "cols": "1..150"}, "args": {"y": "uninitialized:rows*cols", "x": "randn:rows*cols", "rows": "rows", "cols": "cols"}, "launch": {"dim": "rows", "block": 32}}
//# reference
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float highest = -INFINITY, sum = 0.0f;
    for (int j = 0; j < cols; j++) highest = fmaxf(highest, x[row * cols + j]);
    for (int j = 0; j < cols; j++) sum += expf(x[row * cols + j] - highest);
    for (int j = 0; j < cols; j++) y[row * cols + j] = expf(x[row * cols + j] - highest) / sum;
}
//# right one block per row
//# launch {"grid": "rows", "block": 64}
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    __shared__ float buffer[64];
    const float* in = x + blockIdx.x * cols;
    float* out = y + blockIdx.x * cols;
    float v = -INFINITY;
    for (int j = threadIdx.x; j < cols; j += 64) v = fmaxf(v, in[j]);
    buffer[threadIdx.x] = v;
    __syncthreads();
    for (int s = 32; s > 0; s >>= 1) {
        if (threadIdx.x < s) buffer[threadIdx.x] = fmaxf(buffer[threadIdx.x], buffer[threadIdx.x + s]);
        __syncthreads();
    }
    float highest = buffer[0];
    __syncthreads();
    v = 0.0f;
    for (int j = threadIdx.x; j < cols; j += 64) v += expf(in[j] - highest);
    buffer[threadIdx.x] = v;
    __syncthreads();
    for (int s = 32; s > 0; s >>= 1) {
        if (threadIdx.x < s) buffer[threadIdx.x] += buffer[threadIdx.x + s];
        __syncthreads();
    }
    float scale = 1.0f / buffer[0];
    for (int j = threadIdx.x; j < cols; j += 64) out[j] = expf(in[j] - highest) * scale;
}
//# right online
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float highest = -INFINITY, sum = 0.0f;
    for (int j = 0; j < cols; j++) {
        float v = x[row * cols + j];
        float next = fmaxf(highest, v);
        sum = sum * expf(highest - next) + expf(v - next);
        highest = next;
    }
    for (int j = 0; j < cols; j++) y[row * cols + j] = expf(x[row * cols + j] - highest) / sum;
}
//# right shuffles
//# launch {"grid": "rows", "block": 32}
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    int lane = threadIdx.x, row = blockIdx.x;
    float highest = -INFINITY, sum = 0.0f;
    for (int j = lane; j < cols; j += 32) highest = fmaxf(highest, x[row * cols + j]);
    for (int d = 16; d > 0; d /= 2) highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, d));
    for (int j = lane; j < cols; j += 32) sum += expf(x[row * cols + j] - highest);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    for (int j = lane; j < cols; j += 32) y[row * cols + j] = expf(x[row * cols + j] - highest) / sum;
}
//# right without the maximum
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int j = 0; j < cols; j++) sum += expf(x[row * cols + j]);
    for (int j = 0; j < cols; j++) y[row * cols + j] = expf(x[row * cols + j]) / sum;
}
//# wrong not normalized
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float highest = -INFINITY;
    for (int j = 0; j < cols; j++) highest = fmaxf(highest, x[row * cols + j]);
    for (int j = 0; j < cols; j++) y[row * cols + j] = expf(x[row * cols + j] - highest);
}
//# wrong last column not in the sum
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int j = 0; j < cols - 1; j++) sum += expf(x[row * cols + j]);
    for (int j = 0; j < cols; j++) y[row * cols + j] = expf(x[row * cols + j]) / sum;
}
//# wrong axis
//# launch {"dim": "cols", "block": 32}
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    float sum = 0.0f;
    for (int i = 0; i < rows; i++) sum += expf(x[i * cols + col]);
    for (int i = 0; i < rows; i++) y[i * cols + col] = expf(x[i * cols + col]) / sum;
}
//# wrong shuffles over half a warp
//# launch {"grid": "rows", "block": 32}
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    int lane = threadIdx.x, row = blockIdx.x;
    float sum = 0.0f;
    for (int j = lane; j < cols; j += 32) sum += expf(x[row * cols + j]);
    for (int d = 8; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    for (int j = lane; j < cols; j += 32) y[row * cols + j] = expf(x[row * cols + j]) / sum;
}
//# fault race barrier missing
//# launch {"grid": "rows", "block": 64}
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    __shared__ float buffer[64];
    float v = 0.0f;
    for (int j = threadIdx.x; j < cols; j += 64) v += expf(x[blockIdx.x * cols + j]);
    buffer[threadIdx.x] = v;
    __syncthreads();
    for (int s = 32; s > 0; s >>= 1) {
        if (threadIdx.x < s) buffer[threadIdx.x] += buffer[threadIdx.x + s];
    }
    __syncthreads();
    for (int j = threadIdx.x; j < cols; j += 64)
        y[blockIdx.x * cols + j] = expf(x[blockIdx.x * cols + j]) / buffer[0];
}
//# fault divergent_barrier barrier in a branch
//# launch {"grid": "rows", "block": 64}
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    __shared__ float total;
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int j = 0; j < cols; j++) sum += expf(x[blockIdx.x * cols + j]);
        total = sum;
        __syncthreads();
    }
    for (int j = threadIdx.x; j < cols; j += 64)
        y[blockIdx.x * cols + j] = expf(x[blockIdx.x * cols + j]) / total;
}
//# cheating uniform distribution
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    for (int j = 0; j < cols; j++) y[row * cols + j] = 1.0f / cols;
}
//# cheating only checks its memory
__global__ void softmax(float* y, const float* x, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows && y[row * cols] == 12345.0f) y[row * cols] = x[row * cols];
}
