__device__ __host__ inline unsigned hash(unsigned x) {
    x = (x ^ 61) ^ (x >> 16);
    x *= 9;
    x = x ^ (x >> 4);
    x *= 0x27d4eb2d;
    x = x ^ (x >> 15);
    return x;
}
__global__ void dropout(const float* x, float* y, unsigned char* kept, float rate, unsigned seed, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        bool keep = hash(i ^ seed) >= (unsigned)(rate * 4294967295.0);
        kept[i] = keep;
        y[i] = keep ? x[i] / (1 - rate) : 0;
    }
}
