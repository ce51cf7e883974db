__global__ void grayscale(const uchar4* rgba, unsigned char* gray, int pixels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pixels) {
        uchar4 p = rgba[i];
        gray[i] = 0.299f * p.x + 0.587f * p.y + 0.114f * p.z;
    }
}
