struct Welford {
    float mean, m2;
    int count;
    __device__ __forceinline__ void push(float v) {
        count++;
        const float delta = v - mean;
        mean += delta / count;
        m2 += delta * (v - mean);
    }
    __device__ __forceinline__ void merge(const Welford& o) {
        if (o.count == 0) return;
        const int total = count + o.count;
        const float delta = o.mean - mean;
        mean += delta * o.count / total;
        m2 += o.m2 + delta * delta * count * o.count / total;
        count = total;
    }
    __device__ __forceinline__ Welford shuffled(int offset) const {
        Welford o;
        o.mean = __shfl_xor_sync(0xffffffffu, mean, offset, 32);
        o.m2 = __shfl_xor_sync(0xffffffffu, m2, offset, 32);
        o.count = __shfl_xor_sync(0xffffffffu, count, offset, 32);
        return o;
    }
};

// Mean and variance of each row, a warp per row.
__global__ void welford(const float* x, float2* stats, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    Welford w = {0.f, 0.f, 0};
    for (int c = threadIdx.x; c < cols; c += 32) w.push(x[row * cols + c]);
    for (int offset = 16; offset > 0; offset /= 2) w.merge(w.shuffled(offset));
    if (threadIdx.x == 0) stats[row] = make_float2(w.mean, w.m2 / w.count);
}
