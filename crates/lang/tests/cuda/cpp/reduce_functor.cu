#include <cfloat>
#include <cuda_runtime.h>

template <typename T>
struct MaxOp {
    static constexpr T identity = -FLT_MAX;
    __device__ __forceinline__ T operator()(const T& a, const T& b) const { return a > b ? a : b; }
};

template <typename T>
struct SumOp {
    static constexpr T identity = 0;
    __device__ __forceinline__ T operator()(const T& a, const T& b) const { return a + b; }
};

template <typename T, class Op>
__inline__ __device__ T warpReduce(T val, Op op) {
#pragma unroll
    for (int offset = warpSize / 2; offset > 0; offset >>= 1) {
        val = op(val, __shfl_down_sync(0xffffffff, val, offset));
    }
    return val;
}

// Reduces each row of a matrix by one block.
template <typename T, class Op, int BLOCK>
__global__ void reduce_functor(const T* __restrict__ in, T* __restrict__ out, int cols) {
    __shared__ T partial[BLOCK / 32];
    Op op;
    T acc = Op::identity;
    const T* row = in + (size_t)blockIdx.x * cols;
    for (int c = threadIdx.x; c < cols; c += BLOCK) acc = op(acc, row[c]);
    acc = warpReduce(acc, op);
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    if (lane == 0) partial[warp] = acc;
    __syncthreads();
    if (warp == 0) {
        acc = lane < BLOCK / 32 ? partial[lane] : Op::identity;
        acc = warpReduce(acc, op);
        if (lane == 0) out[blockIdx.x] = acc;
    }
}

template <typename T>
void launch(const T* in, T* out, int rows, int cols) {
    reduce_functor<T, MaxOp<T>, 128><<<rows, 128>>>(in, out, cols);
    reduce_functor<T, SumOp<T>, 128><<<rows, 128>>>(in, out, cols);
}

int main() {
    float *in = nullptr, *out = nullptr;
    launch<float>(in, out, 5, 301);
}
