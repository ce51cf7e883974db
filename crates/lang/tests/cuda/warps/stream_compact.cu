#include <cub/cub.cuh>
#include <cub/block/block_scan.cuh>

#define THREADS 96

// Keeps the positive elements in order, a block at a time, and counts them.
__global__ void stream_compact(const int* in, int* out, int* kept, int n) {
    typedef cub::BlockScan<int, THREADS> BlockScan;
    __shared__ typename BlockScan::TempStorage temp_storage;
    int base = 0;
    for (int start = 0; start < n; start += THREADS) {
        int i = start + threadIdx.x;
        int v = i < n ? in[i] : 0;
        int flag = v > 0, offset, total;
        BlockScan(temp_storage).ExclusiveSum(flag, offset, total);
        if (flag) out[base + offset] = v;
        base += total;
        __syncthreads(); // the storage is used again
    }
    if (threadIdx.x == 0) *kept = base;
}
