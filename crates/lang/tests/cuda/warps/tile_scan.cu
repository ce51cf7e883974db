#include <cooperative_groups.h>

using namespace cooperative_groups;

// Inclusive sum over the threads of a tile.
template <int N>
__device__ int inclusive_sum(const thread_block_tile<N>& tile, int value) {
    for (int offset = 1; offset < tile.size(); offset *= 2) {
        int below = tile.shfl_up(value, offset);
        if (tile.thread_rank() >= offset) value += below;
    }
    return value;
}

// Row starts of a compressed matrix from row lengths: 16 lengths per tile.
__global__ void tile_scan(const int* lengths, int* starts, int n) {
    __shared__ int totals[16];
    thread_block block = this_thread_block();
    auto tile = tiled_partition<16>(block);
    int i = block.thread_rank();
    int own = i < n ? lengths[i] : 0;
    int sum = inclusive_sum(tile, own);
    if (tile.thread_rank() == tile.size() - 1) totals[tile.meta_group_rank()] = sum;
    block.sync();
    int before = 0;
    for (int t = 0; t < tile.meta_group_rank(); t++) before += totals[t];
    if (i < n) {
        starts[i + 1] = before + sum;
        if (i == 0) starts[0] = 0;
    }
}
