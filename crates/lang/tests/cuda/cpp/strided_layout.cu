#include <stdint.h>

// Layouts as types: the kernel is written once for rows and columns first.
template <bool RowMajor>
struct Layout {
    int rows, cols;
    __host__ __device__ __forceinline__ int operator()(int r, int c) const {
        if constexpr (RowMajor) {
            return r * cols + c;
        } else {
            return c * rows + r;
        }
    }
    __host__ __device__ bool contains(int r, int c) const { return r < rows && c < cols; }
};

using RowMajorLayout = Layout<true>;
typedef Layout<false> ColMajorLayout;

#define TILE 8

// out (columns first) = alpha * in (rows first) + beta * out
template <class In, class Out>
__global__ void strided_layout(const double* in, double* out, In from, Out to, double alpha, double beta) {
    __shared__ double tile[TILE][TILE + 1];
    int r = blockIdx.y * TILE + threadIdx.y, c = blockIdx.x * TILE + threadIdx.x;
    if (from.contains(r, c)) tile[threadIdx.y][threadIdx.x] = in[from(r, c)];
    __syncthreads();
    r = blockIdx.y * TILE + threadIdx.x;
    c = blockIdx.x * TILE + threadIdx.y;
    if (to.contains(r, c)) {
        double& target = out[to(r, c)];
        target = alpha * tile[threadIdx.x][threadIdx.y] + beta * target;
    }
}

void transpose(const double* in, double* out, int rows, int cols) {
    dim3 grid((cols + TILE - 1) / TILE, (rows + TILE - 1) / TILE), block(TILE, TILE);
    strided_layout<RowMajorLayout, ColMajorLayout>
        <<<grid, block>>>(in, out, RowMajorLayout{rows, cols}, ColMajorLayout{rows, cols}, 1.0, 0.0);
}
