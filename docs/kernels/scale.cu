template <typename T>
__device__ T scaled(T x, T by) { return x * by; }

template <typename T, int PER_THREAD>
__global__ void scale(T* x, T by, int n) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * PER_THREAD;
    for (int k = 0; k < PER_THREAD; k++) {
        if (first + k < n) x[first + k] = scaled(x[first + k], by);
    }
}
