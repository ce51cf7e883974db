// Warp-aggregated histogram: one atomic for all lanes with the same key.
__global__ void match_histogram(const int* __restrict__ keys, int* counts, int n) {
    const int lane = threadIdx.x & 31;
    const int padded = (n + 31) / 32 * 32;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < padded; i += gridDim.x * blockDim.x) {
        const int key = i < n ? keys[i] : -1;
        const unsigned peers = __match_any_sync(0xffffffffu, key);
        const int leader = __ffs(peers) - 1;
        int all_same = 0;
        const unsigned same = __match_all_sync(0xffffffffu, key, &all_same);
        if (key >= 0 && lane == leader) atomicAdd(&counts[key], __popc(peers));
        if (all_same && lane == 0 && same != peers) counts[key] = -1;
    }
}
