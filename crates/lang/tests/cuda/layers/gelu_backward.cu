#include <cmath>
#define GELU_SCALING_FACTOR sqrtf(2.0f / M_PI)

// Gradient of GELU with tanh, in place, eight elements a thread through 128-bit packs.
template <class ElementType>
struct alignas(16) Packed128 {
    static constexpr const size_t size = sizeof(int4) / sizeof(ElementType);
    ElementType payload[size];
    __device__ ElementType& operator[](int index) { return payload[index]; }
    __device__ const ElementType& operator[](int index) const { return payload[index]; }
};
typedef Packed128<float> x128;

__global__ void gelu_backward(x128* d_in_out, const x128* inp, int packs) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx >= packs) return;
    x128 dinp;
    x128 packed_inp = inp[idx];
    x128 packed_dout = d_in_out[idx];
    for (int k = 0; k < packed_inp.size; ++k) {
        float x = (float)packed_inp[k];
        float cube = 0.044715f * x * x * x;
        float tanh_arg = GELU_SCALING_FACTOR * (x + cube);
        float tanh_out = tanhf(tanh_arg);
        float coshf_out = coshf(tanh_arg);
        float sech_out = 1.0f / (coshf_out * coshf_out);
        float local_grad =
            0.5f * (1.0f + tanh_out) + x * 0.5f * sech_out * GELU_SCALING_FACTOR * (1.0f + 3.0f * 0.044715f * x * x);
        dinp[k] = (float)(local_grad * (float)packed_dout[k]);
    }
    d_in_out[idx] = dinp;
}
