#include <stdint.h>
#define EMPTY 0xffffffffu
#define CAPACITY 256

struct KeyValue {
    uint32_t key;
    uint32_t value;
};

// 32-bit finalizer of a well-known hash.
__device__ uint32_t hash(uint32_t k) {
    k ^= k >> 16;
    k *= 0x85ebca6b;
    k ^= k >> 13;
    k *= 0xc2b2ae35;
    k ^= k >> 16;
    return k & (CAPACITY - 1);
}

// Builds a table with open addressing in shared memory, then looks up all probes.
__global__ void hash_join(const KeyValue* build, int nbuild, const uint32_t* probes, uint32_t* out, int nprobe) {
    __shared__ uint32_t keys[CAPACITY];
    __shared__ uint32_t values[CAPACITY];
    for (int i = threadIdx.x; i < CAPACITY; i += blockDim.x) {
        keys[i] = EMPTY;
        values[i] = 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < nbuild; i += blockDim.x) {
        const uint32_t key = build[i].key;
        uint32_t slot = hash(key);
        while (true) {
            uint32_t prev = atomicCAS(&keys[slot], EMPTY, key);
            if (prev == EMPTY || prev == key) {
                atomicAdd(&values[slot], build[i].value);
                break;
            }
            slot = (slot + 1) & (CAPACITY - 1);
        }
    }
    __syncthreads(); // the table is complete
    for (int i = threadIdx.x; i < nprobe; i += blockDim.x) {
        uint32_t slot = hash(probes[i]), found = 0;
        for (; keys[slot] != EMPTY; slot = (slot + 1) & (CAPACITY - 1)) {
            if (keys[slot] == probes[i]) {
                found = values[slot];
                break;
            }
        }
        out[i] = found;
    }
}
