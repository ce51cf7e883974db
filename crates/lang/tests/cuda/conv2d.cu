#define K 3
__constant__ float filter[K][K];
__global__ void conv2d(const float* image, float* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width - K + 1 || y >= height - K + 1) return;
    float sum = 0;
    for (int dy = 0; dy < K; dy++) {
        for (int dx = 0; dx < K; dx++) {
            sum += image[(y + dy) * width + x + dx] * filter[dy][dx];
        }
    }
    out[y * (width - K + 1) + x] = sum;
}
