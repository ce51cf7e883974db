#define WARPS 4
__device__ float block_sum(float v, float* shared) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
    __syncthreads();
    float total = 0.0f;
    for (int w = 0; w < WARPS; w++) total += shared[w];
    return total;
}
__global__ void layer_norm(const float* x, const float* gamma, const float* beta, float* y, int width, float eps) {
    __shared__ float sums[WARPS];
    const float* row = x + blockIdx.x * width;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < width; c += blockDim.x) sum += row[c];
    float mean = block_sum(sum, sums) / width;
    float square = 0.0f;
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        float d = row[c] - mean;
        square += d * d;
    }
    float scale = rsqrtf(block_sum(square, sums) / width + eps);
    for (int c = threadIdx.x; c < width; c += blockDim.x)
        y[blockIdx.x * width + c] = (row[c] - mean) * scale * gamma[c] + beta[c];
}
