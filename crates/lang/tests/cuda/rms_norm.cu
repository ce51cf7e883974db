template <typename T, int THREADS>
__global__ void rms_norm(T* y, const T* x, const T* weight, int width) {
    __shared__ T part[THREADS];
    T sum = T(0);
    for (int c = threadIdx.x; c < width; c += THREADS) {
        T v = x[blockIdx.x * width + c];
        sum += v * v;
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        T total = static_cast<T>(0);
        for (int t = 0; t < THREADS; ++t) total += part[t];
        part[0] = T(1) / sqrt(total / T(width) + T(1e-6));
    }
    __syncthreads(); // the scale is there
    T scale = part[0];
    for (int c = threadIdx.x; c < width; c += THREADS)
        y[blockIdx.x * width + c] = x[blockIdx.x * width + c] * scale * weight[c];
}
