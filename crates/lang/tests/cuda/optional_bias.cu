// Adds one of two bias vectors to the rows that have one.
__global__ void optional_bias(const float* x, const float* even, const float* odd, float* y, int n, int biased) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int column = i % 10;
    const float* bias = nullptr;
    if (column < biased) {
        bias = column % 2 == 0 ? even : odd;
    }
    float value = x[i];
    if (bias != nullptr) value += bias[column / 2];
    y[i] = value;
}
