__global__ void max_pool(const float* in, float* out, int channels, int height, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int oh = height / 2, ow = width / 2;
    if (i >= channels * oh * ow) return;
    int x = i % ow, y = i / ow % oh, c = i / (ow * oh);
    const float* window = &in[(c * height + 2 * y) * width + 2 * x];
    out[i] = max(max(window[0], window[1]), max(window[width], window[width + 1]));
}
