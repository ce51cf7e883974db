#define THREADS 128

__global__ void dot(const float* x, const float* y, float* result, int n) {
    __shared__ float partial[THREADS];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * THREADS + t; i < n; i += THREADS * gridDim.x) sum += x[i] * y[i];
    partial[t] = sum;
    // __syncthreads() is missing here
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) partial[t] += partial[t + half];
        __syncthreads();
    }
    if (t == 0) atomicAdd(result, partial[0]);
}
