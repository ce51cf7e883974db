#include <math_constants.h>

__device__ float blockMax(float v, float* scratch) {
    scratch[threadIdx.x] = v;
    __syncthreads();
    for (int s = blockDim.x >> 1; s > 0; s >>= 1) {
        if (threadIdx.x < s) scratch[threadIdx.x] = fmaxf(scratch[threadIdx.x], scratch[threadIdx.x + s]);
        __syncthreads();
    }
    float r = scratch[0];
    __syncthreads();
    return r;
}

__device__ float blockSum(float v, float* scratch) {
    scratch[threadIdx.x] = v;
    __syncthreads();
    for (int s = blockDim.x >> 1; s > 0; s >>= 1) {
        if (threadIdx.x < s) scratch[threadIdx.x] += scratch[threadIdx.x + s];
        __syncthreads();
    }
    float r = scratch[0];
    __syncthreads();
    return r;
}

// Loss of each token; logits become their own gradients. Columns from V to P are padding.
__global__ void fused_classifier(float* logits, float* losses, const int* targets, float dloss, int V, int P) {
    extern __shared__ float scratch[];
    float* row = &logits[(long long)blockIdx.x * P];
    const int target = targets[blockIdx.x];

    float thread_max = -CUDART_INF_F;
    for (int c = threadIdx.x; c < V; c += blockDim.x) thread_max = fmaxf(thread_max, row[c]);
    const float top = blockMax(thread_max, scratch);

    float thread_sum = 0.f;
    for (int c = threadIdx.x; c < V; c += blockDim.x) thread_sum += expf(row[c] - top);
    const float sum = blockSum(thread_sum, scratch);

    if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) - (row[target] - top);
    __syncthreads(); // the target's logit has been read
    for (int c = threadIdx.x; c < V; c += blockDim.x) {
        const float prob = expf(row[c] - top) / sum;
        const float indicator = c == target ? 1.0f : 0.0f;
        row[c] = (prob - indicator) * dloss;
    }
}
