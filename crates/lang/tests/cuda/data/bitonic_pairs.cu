#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__device__ inline void Comparator(uint& keyA, uint& valA, uint& keyB, uint& valB, uint dir) {
    uint t;
    if ((keyA > keyB) == dir) {
        t = keyA;
        keyA = keyB;
        keyB = t;
        t = valA;
        valA = valB;
        valB = t;
    }
}

// Sorts keys with their values, an array per block.
__global__ void bitonic_pairs(uint* d_Key, uint* d_Val, uint arrayLength, uint dir) {
    cg::thread_block cta = cg::this_thread_block();
    extern __shared__ uint s_data[];
    uint* s_key = s_data;
    uint* s_val = s_data + arrayLength;
    const uint first = blockIdx.x * arrayLength;
    for (uint i = threadIdx.x; i < arrayLength; i += blockDim.x) {
        s_key[i] = d_Key[first + i];
        s_val[i] = d_Val[first + i];
    }
    for (uint size = 2; size <= arrayLength; size <<= 1) {
        for (uint stride = size / 2; stride > 0; stride >>= 1) {
            cg::sync(cta);
            uint ddd = (size == arrayLength) ? dir : dir ^ ((threadIdx.x & (size / 2)) != 0);
            uint pos = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
            Comparator(s_key[pos + 0], s_val[pos + 0], s_key[pos + stride], s_val[pos + stride], ddd);
        }
    }
    cg::sync(cta); // sorted
    for (uint i = threadIdx.x; i < arrayLength; i += blockDim.x) {
        d_Key[first + i] = s_key[i];
        d_Val[first + i] = s_val[i];
    }
}
