#define FULL 0xFFFFFFFFu

// Minimum, maximum, sum and union of bits of each row, by the warp-wide reductions of sm_80.
__global__ void warp_extremes(const int* rows, int* results, int columns) {
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    int low = 0x7fffffff, high = -0x7fffffff - 1, sum = 0;
    unsigned bits = 0, common = ~0u;
    for (int c = lane; c < columns; c += 32) {
        const int v = rows[row * columns + c];
        low = min(low, v);
        high = max(high, v);
        sum += v;
        bits |= 1u << (v & 31);
        common &= v;
    }
    low = __reduce_min_sync(FULL, low);
    high = __reduce_max_sync(FULL, high);
    sum = __reduce_add_sync(FULL, sum);
    bits = __reduce_or_sync(FULL, bits);
    common = __reduce_and_sync(FULL, common);
    if (lane == 0) {
        int* out = results + row * 5;
        *out++ = low;
        *out++ = high;
        *out++ = sum;
        *out++ = __popc(bits);
        *out = (int)common;
    }
}
