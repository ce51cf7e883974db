// A loop in steps of the whole grid, so that any launch covers any length.
__global__ void vector_add(const float *a, const float *b, float *c, size_t n) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)blockDim.x * gridDim.x) {
        c[i] = a[i] + b[i];
    }
}
