//# problem {"sizes": {"rows": "1..7", "cols": "2..120"}, "args": {"y": "uninitialized:rows*cols", "x": "randn:rows*cols", "gamma": "rand:cols", "beta": "randn:cols", "rows": "rows", "cols": "cols"}, "launch": {"dim": "rows", "block": 32}}
//# reference
__global__ void layer_norm(float* y, const float* x, const float* gamma, const float* beta, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float mean = 0.0f, variance = 0.0f;
    for (int j = 0; j < cols; j++) mean += x[row * cols + j];
    mean /= cols;
    for (int j = 0; j < cols; j++) {
        float d = x[row * cols + j] - mean;
        variance += d * d;
    }
    variance /= cols;
    float scale = rsqrtf(variance + 1e-5f);
    for (int j = 0; j < cols; j++) y[row * cols + j] = (x[row * cols + j] - mean) * scale * gamma[j] + beta[j];
}
//# right block per row
//# launch {"grid": "rows", "block": 32}
__global__ void layer_norm(float* y, const float* x, const float* gamma, const float* beta, int rows, int cols) {
    const float* in = x + blockIdx.x * cols;
    float sum = 0.0f;
    for (int j = threadIdx.x; j < cols; j += 32) sum += in[j];
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
    float mean = sum / cols;
    float squares = 0.0f;
    for (int j = threadIdx.x; j < cols; j += 32) squares += (in[j] - mean) * (in[j] - mean);
    for (int d = 16; d > 0; d >>= 1) squares += __shfl_xor_sync(~0u, squares, d);
    float scale = 1.0f / sqrtf(squares / cols + 1e-5f);
    for (int j = threadIdx.x; j < cols; j += 32)
        y[blockIdx.x * cols + j] = fmaf((in[j] - mean) * scale, gamma[j], beta[j]);
}
//# right one pass
__global__ void layer_norm(float* y, const float* x, const float* gamma, const float* beta, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f, squares = 0.0f;
    for (int j = 0; j < cols; j++) {
        float v = x[row * cols + j];
        sum += v;
        squares += v * v;
    }
    float mean = sum / cols, variance = squares / cols - mean * mean;
    float scale = rsqrtf(variance + 1e-5f);
    for (int j = 0; j < cols; j++) y[row * cols + j] = (x[row * cols + j] - mean) * scale * gamma[j] + beta[j];
}
//# right Welford
__global__ void layer_norm(float* y, const float* x, const float* gamma, const float* beta, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float mean = 0.0f, m2 = 0.0f;
    for (int j = 0; j < cols; j++) {
        float v = x[row * cols + j], delta = v - mean;
        mean += delta / (j + 1);
        m2 += delta * (v - mean);
    }
    float scale = rsqrtf(m2 / cols + 1e-5f);
    for (int j = 0; j < cols; j++) {
        float shift = beta[j] - mean * scale * gamma[j];
        y[row * cols + j] = x[row * cols + j] * (scale * gamma[j]) + shift;
    }
}
//# wrong unbiased variance
__global__ void layer_norm(float* y, const float* x, const float* gamma, const float* beta, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float mean = 0.0f, variance = 0.0f;
    for (int j = 0; j < cols; j++) mean += x[row * cols + j];
    mean /= cols;
    for (int j = 0; j < cols; j++) variance += (x[row * cols + j] - mean) * (x[row * cols + j] - mean);
    variance /= cols - 1;
    for (int j = 0; j < cols; j++)
        y[row * cols + j] = (x[row * cols + j] - mean) * rsqrtf(variance + 1e-5f) * gamma[j] + beta[j];
}
//# wrong shift forgotten
__global__ void layer_norm(float* y, const float* x, const float* gamma, const float* beta, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float mean = 0.0f, variance = 0.0f;
    for (int j = 0; j < cols; j++) mean += x[row * cols + j];
    mean /= cols;
    for (int j = 0; j < cols; j++) variance += (x[row * cols + j] - mean) * (x[row * cols + j] - mean);
    for (int j = 0; j < cols; j++)
        y[row * cols + j] = (x[row * cols + j] - mean) * rsqrtf(variance / cols + 1e-5f) * gamma[j];
}
//# wrong root forgotten
__global__ void layer_norm(float* y, const float* x, const float* gamma, const float* beta, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float mean = 0.0f, variance = 0.0f;
    for (int j = 0; j < cols; j++) mean += x[row * cols + j];
    mean /= cols;
    for (int j = 0; j < cols; j++) variance += (x[row * cols + j] - mean) * (x[row * cols + j] - mean);
    for (int j = 0; j < cols; j++)
        y[row * cols + j] = (x[row * cols + j] - mean) / (variance / cols + 1e-5f) * gamma[j] + beta[j];
}
//# wrong parameters by row
__global__ void layer_norm(float* y, const float* x, const float* gamma, const float* beta, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float mean = 0.0f, variance = 0.0f;
    for (int j = 0; j < cols; j++) mean += x[row * cols + j];
    mean /= cols;
    for (int j = 0; j < cols; j++) variance += (x[row * cols + j] - mean) * (x[row * cols + j] - mean);
    for (int j = 0; j < cols; j++)
        y[row * cols + j] = (x[row * cols + j] - mean) * rsqrtf(variance / cols + 1e-5f) * gamma[row % cols] + beta[row % cols];
}
//# wrong large epsilon
__global__ void layer_norm(float* y, const float* x, const float* gamma, const float* beta, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float mean = 0.0f, variance = 0.0f;
    for (int j = 0; j < cols; j++) mean += x[row * cols + j];
    mean /= cols;
    for (int j = 0; j < cols; j++) variance += (x[row * cols + j] - mean) * (x[row * cols + j] - mean);
    for (int j = 0; j < cols; j++)
        y[row * cols + j] = (x[row * cols + j] - mean) * rsqrtf(variance / cols + 1e-3f) * gamma[j] + beta[j];
}
//# cheating zeros
__global__ void layer_norm(float* y, const float* x, const float* gamma, const float* beta, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    for (int j = 0; j < cols; j++) y[row * cols + j] = 0.0f;
}
