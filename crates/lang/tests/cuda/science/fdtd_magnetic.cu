#include <cuda_runtime.h>
typedef double DATA_TYPE;
#define DIM_THREAD_BLOCK_X 8
#define DIM_THREAD_BLOCK_Y 4

// Magnetic field of a 2-D finite-difference time-domain step.
__global__ void fdtd_magnetic(int nx, int ny, DATA_TYPE* ex, DATA_TYPE* ey, DATA_TYPE* hz) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if ((i < (nx - 1)) && (j < (ny - 1))) {
        hz[i * ny + j] = hz[i * ny + j] -
                         0.7 * (ex[i * ny + (j + 1)] - ex[i * ny + j] + ey[(i + 1) * ny + j] - ey[i * ny + j]);
    }
}

void fdtd(int nx, int ny, DATA_TYPE* ex, DATA_TYPE* ey, DATA_TYPE* hz) {
    dim3 block(DIM_THREAD_BLOCK_X, DIM_THREAD_BLOCK_Y);
    dim3 grid((size_t)(ceil(((float)ny) / ((float)block.x))), (size_t)ceil(((float)nx) / ((float)block.y)));
    fdtd_magnetic<<<grid, block>>>(nx, ny, ex, ey, hz);
    cudaDeviceSynchronize();
}
