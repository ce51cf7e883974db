#define SWAP(a, b)                 \
    {                              \
        unsigned char lo = min(a, b); \
        b = max(a, b);             \
        a = lo;                    \
    }

// Median of 3x3 pixels by a sorting network; borders repeat.
__global__ void median_filter(const unsigned char* src, unsigned char* dst, int width, int height, int pitch) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    unsigned char v[9];
    int k = 0;
#pragma unroll
    for (int dy = -1; dy <= 1; dy++)
#pragma unroll
        for (int dx = -1; dx <= 1; dx++) {
            const int sx = min(max(x + dx, 0), width - 1), sy = min(max(y + dy, 0), height - 1);
            v[k++] = src[sy * pitch + sx];
        }
    SWAP(v[1], v[2]); SWAP(v[4], v[5]); SWAP(v[7], v[8]);
    SWAP(v[0], v[1]); SWAP(v[3], v[4]); SWAP(v[6], v[7]);
    SWAP(v[1], v[2]); SWAP(v[4], v[5]); SWAP(v[7], v[8]);
    SWAP(v[0], v[3]); SWAP(v[5], v[8]); SWAP(v[4], v[7]);
    SWAP(v[3], v[6]); SWAP(v[1], v[4]); SWAP(v[2], v[5]);
    SWAP(v[4], v[7]); SWAP(v[4], v[2]); SWAP(v[6], v[4]);
    SWAP(v[4], v[2]);
    dst[y * pitch + x] = v[4];
}
