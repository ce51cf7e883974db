#include <type_traits>
#include <cuda_fp16.h>

namespace act {
struct Identity {
    template <typename T> static __device__ T forward(T v) { return v; }
};
struct Relu {
    template <typename T> static __device__ T forward(T v) { return v > T(0) ? v : T(0); }
};
struct Silu {
    template <typename T> static __device__ T forward(T v) { return v / (T(1) + expf(-v)); }
};
} // namespace act

template <typename T> __device__ __forceinline__ float to_float(T v) {
    if constexpr (std::is_same<T, __half>::value) return __half2float(v);
    else return static_cast<float>(v);
}
template <typename T> __device__ __forceinline__ T from_float(float v) {
    if constexpr (std::is_same<T, __half>::value) return __float2half_rn(v);
    else return static_cast<T>(v);
}

// out = activation(in + bias), several elements per thread.
template <typename T, class Activation, int ITEMS = 2>
__global__ void __launch_bounds__(64) activation_policy(T* out, const T* in, const float* bias, int cols, int n) {
    int base = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int i = base + k;
        if (i < n) out[i] = from_float<T>(Activation::forward(to_float(in[i]) + bias[i % cols]));
    }
}

template <class Activation> void run(__half* out, const __half* in, const float* bias, int cols, int n) {
    activation_policy<__half, Activation><<<(n + 127) / 128, 64>>>(out, in, bias, cols, n);
}
int main() {
    run<act::Identity>(0, 0, 0, 1, 0);
    run<act::Silu>(0, 0, 0, 1, 0);
}
