// launch: grid=2 block=32
// args: x=range:128 y=zeros:128 cols=64
// fault: race
// says: race on 'mean[0]': a write by thread [0, 0, 0]
__global__ void layer_norm(const float* x, float* y, int cols) {
    __shared__ float mean, inverse;
    const float* row = x + blockIdx.x * cols;
    float sum = 0.0f, squares = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 32) {
        sum += row[c];
        squares += row[c] * row[c];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
        squares += __shfl_down_sync(0xffffffffu, squares, offset);
    }
    if (threadIdx.x == 0) {
        mean = sum / cols;  // FIRST
        inverse = rsqrtf(squares / cols - (sum / cols) * (sum / cols) + 1e-5f);
    }
#ifndef FAULT
    __syncthreads();
#endif
    for (int c = threadIdx.x; c < cols; c += 32)
        y[blockIdx.x * cols + c] = (row[c] - mean) * inverse;  // SECOND
}
