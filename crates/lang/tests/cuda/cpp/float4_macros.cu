#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>

#define WARP_SIZE 32
#define FLOAT4(value) (reinterpret_cast<float4*>(&(value))[0])
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define CUDA_CHECK(call)                                                              \
    do {                                                                              \
        cudaError_t err = (call);                                                     \
        if (err != cudaSuccess) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

#define LANEWISE(r, a, b, OP) \
    r.x = a.x OP b.x;         \
    r.y = a.y OP b.y;         \
    r.z = a.z OP b.z;         \
    r.w = a.w OP b.w

// c = (a + b) * a, with a scalar tail.
__global__ void float4_macros(float* a, float* b, float* c, int N) {
    int idx = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (idx + 3 < N) {
        float4 reg_a = FLOAT4(a[idx]);
        float4 reg_b = FLOAT4(b[idx]);
        float4 reg_c;
        LANEWISE(reg_c, reg_a, reg_b, +);
        LANEWISE(reg_c, reg_c, reg_a, *);
        FLOAT4(c[idx]) = reg_c;
    } else if (idx < N) {
        for (int i = idx; i < N; i++) c[i] = (a[i] + b[i]) * a[i];
    }
}

int main(int argc, char** argv) {
    const int N = 1003;
    float *a, *b, *c;
    CUDA_CHECK(cudaMalloc((void**)&a, N * sizeof(float)));
    CUDA_CHECK(cudaMalloc((void**)&b, N * sizeof(float)));
    CUDA_CHECK(cudaMalloc((void**)&c, N * sizeof(float)));
    float4_macros<<<CEIL_DIV(CEIL_DIV(N, 4), 2 * WARP_SIZE), 2 * WARP_SIZE>>>(a, b, c, N);
    CUDA_CHECK(cudaGetLastError());
    return 0;
}
