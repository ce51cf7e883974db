//# problem {"sizes": {"n": "1..128"}, "args": {"y": "uninitialized:n", "x": "randn:n", "n": "n"}, "launch": {"grid": 1, "block": 128}}
//# reference
__global__ void scan(float* y, const float* x, int n) {
    if (threadIdx.x != 0) return;
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        sum += x[i];
        y[i] = sum;
    }
}
//# right Hillis-Steele
__global__ void scan(float* y, const float* x, int n) {
    __shared__ float s[2][128];
    int t = threadIdx.x, from = 0;
    s[0][t] = t < n ? x[t] : 0.0f;
    __syncthreads();
    for (int d = 1; d < 128; d *= 2) {
        s[1 - from][t] = s[from][t] + (t >= d ? s[from][t - d] : 0.0f);
        from = 1 - from;
        __syncthreads();
    }
    if (t < n) y[t] = s[from][t];
}
//# right every prefix on its own
__global__ void scan(float* y, const float* x, int n) {
    int t = threadIdx.x;
    if (t >= n) return;
    float sum = 0.0f;
    for (int i = t; i >= 0; i--) sum += x[i];
    y[t] = sum;
}
//# right warps and their totals
__global__ void scan(float* y, const float* x, int n) {
    __shared__ float totals[4];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    float v = t < n ? x[t] : 0.0f;
    for (int d = 1; d < 32; d *= 2) {
        float other = __shfl_up_sync(0xffffffff, v, d);
        if (lane >= d) v += other;
    }
    if (lane == 31) totals[warp] = v;
    __syncthreads();
    for (int w = 0; w < warp; w++) v += totals[w];
    if (t < n) y[t] = v;
}
//# wrong exclusive
__global__ void scan(float* y, const float* x, int n) {
    if (threadIdx.x != 0) return;
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        y[i] = sum;
        sum += x[i];
    }
}
//# wrong backwards
__global__ void scan(float* y, const float* x, int n) {
    if (threadIdx.x != 0) return;
    float sum = 0.0f;
    for (int i = n - 1; i >= 0; i--) {
        sum += x[i];
        y[i] = sum;
    }
}
//# fault race single buffer
__global__ void scan(float* y, const float* x, int n) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = t < n ? x[t] : 0.0f;
    __syncthreads();
    for (int d = 1; d < 128; d *= 2) {
        if (t >= d) s[t] += s[t - d];
        __syncthreads();
    }
    if (t < n) y[t] = s[t];
}
//# wrong last step missing
__global__ void scan(float* y, const float* x, int n) {
    __shared__ float s[2][128];
    int t = threadIdx.x, from = 0;
    s[0][t] = t < n ? x[t] : 0.0f;
    __syncthreads();
    for (int d = 1; d < 16; d *= 2) {
        s[1 - from][t] = s[from][t] + (t >= d ? s[from][t - d] : 0.0f);
        from = 1 - from;
        __syncthreads();
    }
    if (t < n) y[t] = s[from][t];
}
//# fault out_of_bounds neighbour of the first
__global__ void scan(float* y, const float* x, int n) {
    if (threadIdx.x != 0) return;
    for (int i = 0; i < n; i++) y[i] = y[i - 1] + x[i];
}
//# cheating nothing written
__global__ void scan(float* y, const float* x, int n) {
    float sum = threadIdx.x < n ? x[threadIdx.x] : 0.0f;
}
//# cheating zeros
__global__ void scan(float* y, const float* x, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = 0.0f;
}
