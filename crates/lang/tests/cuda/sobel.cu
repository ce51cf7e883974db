__global__ void sobel(const unsigned char *src, unsigned char *dst, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x > 0 && y > 0 && x < width - 1 && y < height - 1) {
        const unsigned char *above = src + (y - 1) * width + x;
        const unsigned char *here = above + width;
        const unsigned char *below = here + width;
        int gx = above[1] - above[-1] + 2 * (here[1] - here[-1]) + below[1] - below[-1];
        int gy = below[-1] + 2 * below[0] + below[1] - above[-1] - 2 * above[0] - above[1];
        int size = (int)sqrtf((float)(gx * gx + gy * gy));
        dst[y * width + x] = size > 255 ? 255 : size;
    }
}
