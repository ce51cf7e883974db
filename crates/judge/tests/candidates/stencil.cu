//# problem {"sizes": {"h": "3..24", "w": "3..30"}, "args": {"y": "uninitialized:h*w", "x": "rand:h*w", "h": "h", "w": "w"}, "launch": {"dim": ["w", "h"], "block": [8, 8]}}
//# reference
__global__ void stencil(float* y, const float* x, int h, int w) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= h || j >= w) return;
    int at = i * w + j;
    if (i == 0 || j == 0 || i == h - 1 || j == w - 1) y[at] = x[at];
    else y[at] = (x[at] + x[at - 1] + x[at + 1] + x[at - w] + x[at + w]) / 5.0f;
}
//# right tile with a halo
__global__ void stencil(float* y, const float* x, int h, int w) {
    __shared__ float tile[10][10];
    int j0 = blockIdx.x * 8 - 1, i0 = blockIdx.y * 8 - 1;
    for (int t = threadIdx.y * 8 + threadIdx.x; t < 100; t += 64) {
        int i = i0 + t / 10, j = j0 + t % 10;
        tile[t / 10][t % 10] = i >= 0 && i < h && j >= 0 && j < w ? x[i * w + j] : 0.0f;
    }
    __syncthreads();
    int a = threadIdx.y + 1, b = threadIdx.x + 1, i = i0 + a, j = j0 + b;
    if (i >= h || j >= w) return;
    float v = tile[a][b];
    if (i > 0 && j > 0 && i < h - 1 && j < w - 1)
        v = 0.2f * (tile[a - 1][b] + tile[a + 1][b] + (tile[a][b - 1] + tile[a][b + 1]) + v);
    y[i * w + j] = v;
}
//# right one dimension
//# launch {"dim": "h*w", "block": 64}
__global__ void stencil(float* y, const float* x, int h, int w) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= h * w) return;
    int i = at / w, j = at % w;
    bool inside = i % (h - 1) != 0 && j % (w - 1) != 0;
    y[at] = inside ? (x[at - w] + x[at - 1] + x[at] + x[at + 1] + x[at + w]) * (1.0f / 5) : x[at];
}
//# right weights in a loop
__global__ void stencil(float* y, const float* x, int h, int w) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= h || j >= w) return;
    float sum = 0.0f, weight = 0.0f;
    for (int di = -1; di <= 1; di++)
        for (int dj = -1; dj <= 1; dj++)
            if (di * dj == 0 && i > 0 && j > 0 && i < h - 1 && j < w - 1) {
                sum += x[(i + di) * w + j + dj];
                weight += 1.0f;
            }
    y[i * w + j] = weight > 0.0f ? sum / weight : x[i * w + j];
}
//# wrong four neighbours
__global__ void stencil(float* y, const float* x, int h, int w) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= h || j >= w) return;
    int at = i * w + j;
    if (i == 0 || j == 0 || i == h - 1 || j == w - 1) y[at] = x[at];
    else y[at] = (x[at - 1] + x[at + 1] + x[at - w] + x[at + w]) / 4.0f;
}
//# wrong axis
__global__ void stencil(float* y, const float* x, int h, int w) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= h || j >= w) return;
    int at = i * w + j;
    if (i == 0 || j == 0 || i == h - 1 || j == w - 1) y[at] = x[at];
    else y[at] = (x[at] + 2.0f * x[at - 1] + 2.0f * x[at + 1]) / 5.0f;
}
//# wrong border not copied
__global__ void stencil(float* y, const float* x, int h, int w) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= h || j >= w) return;
    int at = i * w + j;
    if (i > 0 && j > 0 && i < h - 1 && j < w - 1)
        y[at] = (x[at] + x[at - 1] + x[at + 1] + x[at - w] + x[at + w]) / 5.0f;
}
//# wrong divisor
__global__ void stencil(float* y, const float* x, int h, int w) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= h || j >= w) return;
    int at = i * w + j;
    if (i == 0 || j == 0 || i == h - 1 || j == w - 1) y[at] = x[at];
    else y[at] = (x[at] + x[at - 1] + x[at + 1] + x[at - w] + x[at + w]) / 5;
    if (i == 1 && j == 1) y[at] *= 1.0001f;
}
//# fault out_of_bounds halo of the border
__global__ void stencil(float* y, const float* x, int h, int w) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= h || j >= w) return;
    int at = i * w + j;
    float mean = (x[at] + x[at - 1] + x[at + 1] + x[at - w] + x[at + w]) / 5.0f;
    y[at] = i == 0 || j == 0 || i == h - 1 || j == w - 1 ? x[at] : mean;
}
//# cheating mean of the distribution
__global__ void stencil(float* y, const float* x, int h, int w) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < h && j < w) y[i * w + j] = 0.5f;
}
