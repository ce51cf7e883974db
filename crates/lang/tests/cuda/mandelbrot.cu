__global__ void mandelbrot(int* steps, int width, int height, double left, double top, double scale, int most) {
    int px = blockIdx.x * blockDim.x + threadIdx.x;
    int py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height) return;
    double cx = left + px * scale, cy = top + py * scale;
    double x = 0.0, y = 0.0;
    int n;
    for (n = 0; n < most; ++n) {
        double xx = x * x, yy = y * y;
        if (xx + yy > 4.0) break;
        y = 2.0 * x * y + cy;
        x = xx - yy + cx;
    }
    steps[py * width + px] = n;
}
