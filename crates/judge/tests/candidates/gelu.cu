//# problem {"sizes": {"n": "1..600"}, "args": {"y": "uninitialized:n", "x": "randn:n", "n": "n"}, "launch": {"dim": "n", "block": 128}}
//# reference
__global__ void gelu(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}
//# right as a sigmoid
__global__ void gelu(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    float u = 0.7978845608f * (v + 0.044715f * v * v * v);
    y[i] = v / (1.0f + expf(-2.0f * u));
}
//# right factored
__device__ float cube(float v) { return v * v * v; }
__global__ void gelu(float* y, const float* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float v = x[i];
        float t = tanhf(0.7978845608f * v + 0.7978845608f * 0.044715f * cube(v));
        y[i] = 0.5f * v + 0.5f * v * t;
    }
}
//# right tanh by exp
__global__ void gelu(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i], u = 0.7978845608f * fmaf(0.044715f * v * v, v, v);
        float e = expf(2.0f * u);
        float t = 1.0f - 2.0f / (e + 1.0f);
        y[i] = 0.5f * v * (1.0f + t);
    }
}
//# right powers of two
__global__ void gelu(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i], u = 0.7978845608f * (v + 0.044715f * (v * v) * v);
        y[i] = v * (1.0f / (1.0f + exp2f(-2.8853900818f * u)));
    }
}
//# wrong cubic term missing
__global__ void gelu(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * v));
}
//# wrong coefficient
__global__ void gelu(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.44715f * v * v * v)));
}
//# wrong relu
__global__ void gelu(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
//# wrong exact form
__global__ void gelu(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}
//# wrong sign
__global__ void gelu(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = 0.5f * v * (1.0f - tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}
//# fault uninitialized adds to memory that is not initialized
__global__ void gelu(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] += 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}
//# cheating nothing written
__global__ void gelu(float* y, const float* x, int n) {
}
//# cheating zeros
__global__ void gelu(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.0f;
}
