typedef unsigned char byte;
__device__ int clamped(int v, int high) { return min(max(v, 0), high); }
// A blur of grey pixels by weights 1 2 1 in both directions.
__global__ void gaussian_blur(const byte* in, byte* out, int w, int h) {
    const int weight[3] = {1, 2, 1};
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h) {
        int sum = 0;
        for (int j = -1; j <= 1; j++)
            for (int i = -1; i <= 1; i++)
                sum += weight[j + 1] * weight[i + 1] * in[clamped(y + j, h - 1) * w + clamped(x + i, w - 1)];
        out[y * w + x] = (byte)((sum + 8) / 16);
    }
}
