#define LIMIT 60

struct cuComplex {
    float r;
    float i;
    __device__ cuComplex(float a, float b) : r(a), i(b) {}
    __device__ float magnitude2(void) { return r * r + i * i; }
    __device__ cuComplex operator*(const cuComplex& a) { return cuComplex(r * a.r - i * a.i, i * a.r + r * a.i); }
    __device__ cuComplex operator+(const cuComplex& a) { return cuComplex(r + a.r, i + a.i); }
};

// Number of iterations until the orbit of a pixel leaves the disc of radius 2.
__device__ int escape_time(int x, int y, int w, int h, cuComplex c) {
    const float scale = 1.5f;
    cuComplex z(scale * (float)(w / 2 - x) / (w / 2), scale * (float)(h / 2 - y) / (h / 2));
    int n = 0;
    for (; n < LIMIT; n++) {
        z = z * z + c;
        if (z.magnitude2() > 4.0f) break;
    }
    return n;
}

__global__ void julia_set(unsigned char* ptr, float re, float im, int w, int h) {
    // One thread per pixel of a flattened 2-D grid of blocks.
    int x = threadIdx.x + blockIdx.x * blockDim.x;
    int y = threadIdx.y + blockIdx.y * blockDim.y;
    int offset = x + y * w;
    if (x < w && y < h) {
        int n = escape_time(x, y, w, h, cuComplex(re, im));
        ptr[offset * 4 + 0] = n;
        ptr[offset * 4 + 1] = n == LIMIT ? 255 : 0;
        ptr[offset * 4 + 2] = 0;
        ptr[offset * 4 + 3] = 255;
    }
}
