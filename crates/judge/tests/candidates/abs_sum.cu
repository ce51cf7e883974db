//# problem {"sizes": {"n": "1..500"}, "args": {"out": "zeros:1", "x": "randn:n", "n": "n"}, "launch": {"grid": 1, "block": 32}}
//# reference
__global__ void abs_sum(float* out, const float* x, int n) {
    if (threadIdx.x != 0) return;
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += fabsf(x[i]);
    out[0] = sum;
}
//# right tree in shared memory
//# launch {"grid": 1, "block": 128}
__global__ void abs_sum(float* out, const float* x, int n) {
    __shared__ float buffer[128];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = t; i < n; i += 128) sum += fabsf(x[i]);
    buffer[t] = sum;
    __syncthreads();
    for (int s = 64; s > 0; s >>= 1) {
        if (t < s) buffer[t] += buffer[t + s];
        __syncthreads();
    }
    if (t == 0) out[0] = buffer[0];
}
//# right shuffles and atomics
//# launch {"dim": "n", "block": 64}
__global__ void abs_sum(float* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? fabsf(x[i]) : 0.0f;
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
    if ((threadIdx.x & 31) == 0) atomicAdd(out, v);
}
//# right every thread an atomic update
//# launch {"dim": "n", "block": 96}
__global__ void abs_sum(float* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&out[0], x[i] < 0.0f ? -x[i] : x[i]);
}
//# right compensated
__global__ void abs_sum(float* out, const float* x, int n) {
    if (threadIdx.x != 0) return;
    float sum = 0.0f, carry = 0.0f;
    for (int i = 0; i < n; i++) {
        float y = fabsf(x[i]) - carry, t = sum + y;
        carry = (t - sum) - y;
        sum = t;
    }
    out[0] = sum;
}
//# wrong absolute value missing
__global__ void abs_sum(float* out, const float* x, int n) {
    if (threadIdx.x != 0) return;
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += x[i];
    out[0] = fabsf(sum);
}
//# wrong integers
__global__ void abs_sum(float* out, const float* x, int n) {
    if (threadIdx.x != 0) return;
    int sum = 0;
    for (int i = 0; i < n; i++) sum += (int)fabsf(x[i]);
    out[0] = sum;
}
//# wrong first element skipped
__global__ void abs_sum(float* out, const float* x, int n) {
    if (threadIdx.x != 0) return;
    float sum = 0.0f;
    for (int i = 1; i < n; i++) sum += fabsf(x[i]);
    out[0] = sum;
}
//# wrong squares
__global__ void abs_sum(float* out, const float* x, int n) {
    if (threadIdx.x != 0) return;
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    out[0] = sum;
}
//# fault race not atomic
//# launch {"dim": "n", "block": 64}
__global__ void abs_sum(float* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[0] += fabsf(x[i]);
}
//# fault partial_warp shuffle in a branch
//# launch {"dim": "n", "block": 64}
__global__ void abs_sum(float* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = fabsf(x[i]);
        for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
        if ((threadIdx.x & 31) == 0) atomicAdd(out, v);
    }
}
//# cheating guess of the mean
__global__ void abs_sum(float* out, const float* x, int n) {
    if (threadIdx.x == 0) out[0] = 0.7978845608f * n;
}
//# cheating nothing written
__global__ void abs_sum(float* out, const float* x, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += fabsf(x[i]);
}
