// Correlation of packed signed bytes, four products an instruction.
__global__ void dp4a_conv(const int* __restrict__ signal, const int* __restrict__ taps, int* __restrict__ out, int n, int width) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + width > n) return;
    int acc = 0;
    for (int k = 0; k < width; ++k) acc = __dp4a(signal[i + k], taps[k], acc);
    out[i] = acc;
}
