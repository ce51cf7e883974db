__global__ void softmax(const float* input, float* output, int columns) {
    extern __shared__ float scratch[];
    const float* x = input + (size_t)blockIdx.x * columns;
    float* y = output + (size_t)blockIdx.x * columns;
    int tid = threadIdx.x;
    float top = -FLT_MAX;
    for (int c = tid; c < columns; c += blockDim.x) top = fmaxf(top, x[c]);
    scratch[tid] = top;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (tid < s) scratch[tid] = fmaxf(scratch[tid], scratch[tid + s]);
        __syncthreads();
    }
    top = scratch[0];
    __syncthreads(); // all have read the largest
    float sum = 0.0f;
    for (int c = tid; c < columns; c += blockDim.x) {
        float e = expf(x[c] - top);
        y[c] = e;
        sum += e;
    }
    scratch[tid] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (tid < s) scratch[tid] += scratch[tid + s];
        __syncthreads();
    }
    float scale = 1.0f / scratch[0];
    for (int c = tid; c < columns; c += blockDim.x) y[c] *= scale;
}
