// Luminance of RGBA pixels in fixed point, with streaming loads and stores.
__global__ void rgba_gray(const uchar4* __restrict__ rgba, unsigned char* __restrict__ gray, int rows, int cols) {
    for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y) {
        for (int c = blockIdx.x * blockDim.x + threadIdx.x; c < cols; c += gridDim.x * blockDim.x) {
            const uchar4 p = __ldcs(&rgba[r * cols + c]);
            const unsigned y = 77u * p.x + 150u * p.y + 29u * p.z;
            __stcs(&gray[r * cols + c], (unsigned char)((y + 128u) >> 8));
        }
    }
}
