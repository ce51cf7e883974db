//# problem {"sizes": {"n": "1..700"}, "args": {"n": "n", "a": 1.7, "x": "randn:n", "y": "randn:n"}, "launch": {"dim": "n", "block": 128}}
//# reference
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
//# right fused
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
}
//# right stride loop over a fixed grid
//# launch {"grid": 2, "block": 64}
__global__ void k(int count, float scale, const float* in, float* out) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        float v = in[i] * scale;
        out[i] += v;
    }
}
//# right four elements per thread
//# launch {"dim": "(n + 3) / 4", "block": 32}
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    #pragma unroll
    for (int j = 0; j < 4; j++) {
        int i = first + j;
        if (i < n) y[i] = y[i] + a * x[i];
    }
}
//# right in double
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (float)((double)a * x[i] + y[i]);
}
//# fault out_of_bounds one index too many
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = a * x[i] + y[i];
}
//# wrong scale
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (a + 0.001f) * x[i] + y[i];
}
//# wrong addend forgotten
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
//# wrong tail forgotten
//# launch {"grid": "max(1, n / 128)", "block": 128}
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
//# wrong factor truncated to an integer
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int factor = (int)a;
    if (i < n) y[i] = factor * x[i] + y[i];
}
//# wrong operands exchanged
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * y[i] + x[i];
}
//# cheating constant
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * a;
}
//# cheating nothing written
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 0) y[i] = a * x[i] + y[i];
}
