#include <cstddef>

template <class T>
__device__ float sumOfSquares(const T* data, size_t count) {
    size_t index = blockIdx.x * blockDim.x + threadIdx.x;
    size_t grid_width = blockDim.x * gridDim.x;
    float accumulator = 0.f;
    for (size_t i = index; i < count; i += grid_width) accumulator += (float)data[i] * (float)data[i];
    return accumulator;
}

using reduction_func_t = float (*)(float);

// Sum of squares of all gradients: each block adds its part.
template <class T>
__global__ void grad_norm(float* out, const T* data, size_t count) {
    __shared__ float shared_val[32];
    float val = sumOfSquares(data, count);
    const int lane_id = threadIdx.x % 32, warp_id = threadIdx.x / 32, num_warps = blockDim.x / 32;
    for (int offset = 16; offset > 0; offset /= 2) val += __shfl_xor_sync(0xFFFFFFFF, val, offset);
    if (lane_id == 0) { shared_val[warp_id] = val; }
    __syncthreads();
    val = (lane_id < num_warps) ? shared_val[lane_id] : 0.f;
    for (int offset = 16; offset > 0; offset /= 2) val += __shfl_xor_sync(0xFFFFFFFF, val, offset);
    if (threadIdx.x == 0) atomicAdd(out, val);
}

template <typename T>
void global_norm_squared(float* out, const T* values, size_t count) {
    grad_norm<<<3, 128>>>(out, values, count);
}
int main() { global_norm_squared<float>(nullptr, nullptr, 0); }
