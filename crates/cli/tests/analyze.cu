// Access patterns whose transactions tests/analyze.rs computes from the addresses.
struct Particle { float x, y, z; };

__global__ void unit(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * x[i];
}
__global__ void stride2(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[2 * i];
}
__global__ void stride32(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[32 * i];
}
__global__ void misaligned(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i + 1];
}
__global__ void broadcast(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[blockIdx.x];
}
__global__ void reversed(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[255 - i];
}
__global__ void fields(const Particle* p, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = p[i].x * p[i].x
         + p[i].z;
}
__global__ void copied(const Particle* p, Particle* q) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    q[i] = p[i];
}
__global__ void wide(const float4* x, float4* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = x[i];
    v.x += 1.0f;
    y[i] = v;
}
__global__ void component(const float4* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i].w;
}
__global__ void doubles(const double* x, double* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] + 1.0;
}
__global__ void bytes(const unsigned char* x, unsigned char* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[3 * i] = x[i];
}
__global__ void gather(const int* at, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int n = at[i];
    y[i] = x[n];
}
template <int PITCH>
__device__ void transpose_tile(const float* x, float* y) {
    __shared__ float tile[32 * PITCH];
    int column = blockIdx.x * 32 + threadIdx.x;
    for (int r = threadIdx.y; r < 32; r += 8)
        tile[r * PITCH + threadIdx.x] = x[(blockIdx.y * 32 + r) * 64 + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    for (int r = threadIdx.y; r < 32; r += 8)
        y[(blockIdx.x * 32 + r) * 64 + column] = tile[threadIdx.x * PITCH + r];
}
__global__ void transpose(const float* x, float* y) { transpose_tile<32>(x, y); }
__global__ void transpose_padded(const float* x, float* y) { transpose_tile<33>(x, y); }
template <typename T, int STRIDE>
__global__ void shared_stride(T* y) {
    __shared__ T tile[64 * STRIDE];
    int t = threadIdx.x;
    tile[t * STRIDE] = (T)t;
    __syncthreads();
    y[t] = tile[t * STRIDE];
}
__global__ void shared_wide(float4* y) {
    __shared__ float4 tile[128];
    int t = threadIdx.x;
    tile[2 * t] = y[t];
    __syncthreads();
    y[t] = tile[2 * t];
}
__global__ void halves(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 2 == 0) {
        for (int k = 0; k < 10; k++)
            y[i] = y[i] * x[0] + x[1];
    } else {
        y[i] = 2.0f;
    }
}
__global__ void by_warp(float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x / 32 % 2 == 0) y[i] = 1.0f;
    else y[i] = 2.0f;
}
__global__ void both_wait(float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 2 == 0) {
        y[i] = 1.0f;
        __syncwarp();
    } else {
        __syncwarp();
        y[i] = 2.0f;
    }
}
__global__ void trips(float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < i % 32; k++)
        sum += 1.0f;
    y[i] = sum;
}
__global__ void histogram(const int* at, int* bins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int n = at[i];
    atomicAdd(&bins[n], 1);
}
__global__ void shared_histogram(const int* at, int* bins) {
    __shared__ int local[8];
    if (threadIdx.x < 8) local[threadIdx.x] = 0;
    __syncthreads();
    int n = at[blockIdx.x * blockDim.x + threadIdx.x] % 8;
    atomicAdd(&local[n], 1);
    __syncthreads();
    if (threadIdx.x < 8) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
