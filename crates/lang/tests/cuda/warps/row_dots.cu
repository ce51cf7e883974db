#include <cub/warp/warp_reduce.cuh>
#include <cub/block/block_reduce.cuh>

template <int BLOCK>
__global__ void row_dots(const double* matrix, const double* vec, double* dots, double* largest, int rows, int cols) {
    using WarpReduce = cub::WarpReduce<double>;
    using BlockReduce = cub::BlockReduce<double, BLOCK>;
    __shared__ typename WarpReduce::TempStorage warp_storage[BLOCK / 32];
    __shared__ typename BlockReduce::TempStorage block_storage;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = blockIdx.x * (BLOCK / 32) + warp;
    double dot = 0.0;
    if (row < rows)
        for (int c = lane; c < cols; c += 32) dot += matrix[row * cols + c] * vec[c];
    dot = WarpReduce(warp_storage[warp]).Sum(dot);
    if (lane == 0 && row < rows) dots[row] = dot;
    double top = BlockReduce(block_storage).Reduce(lane == 0 && row < rows ? fabs(dot) : 0.0, cub::Max());
    if (threadIdx.x == 0) largest[blockIdx.x] = top;
}

int main() { row_dots<64><<<3, 64>>>(nullptr, nullptr, nullptr, nullptr, 0, 0); }
