template <typename T, int N>
struct alignas(sizeof(T) * N) AlignedVector {
    T val[N];
};

template <typename T, int N>
__device__ void load_vector(AlignedVector<T, N>* to, const T* from, int at) {
    *to = reinterpret_cast<const AlignedVector<T, N>*>(from)[at];
}

// Bias and ReLU, N elements a thread.
template <typename T, int N>
__global__ void bias_relu(T* out, const T* x, const T* bias, int vectors, int columns) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += gridDim.x * blockDim.x) {
        AlignedVector<T, N> in, result;
        load_vector(&in, x, i);
        for (int k = 0; k < N; ++k) {
            const T sum = in.val[k] + bias[(i * N + k) % columns];
            result.val[k] = sum > T(0) ? sum : T(0);
        }
        *reinterpret_cast<AlignedVector<T, N>*>(&out[i * N]) = result;
    }
}
template __global__ void bias_relu<float, 4>(float*, const float*, const float*, int, int);
