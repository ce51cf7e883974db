#include <curand_kernel.h>

class XorShift32 {
public:
    __device__ explicit XorShift32(unsigned int seed) : state(seed ? seed : 0x9E3779B9u) {}
    __device__ unsigned int next() {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        return state;
    }
    __device__ float uniform() { return (next() >> 8) * (1.0f / 16777216.0f); }

private:
    unsigned int state;
};

// Points of a thread inside the quarter circle.
__global__ void xorshift_pi(unsigned int* hits, unsigned int seed, int samples, int threads) {
    extern __shared__ unsigned int counts[];
    const int tid = threadIdx.x, gid = blockIdx.x * blockDim.x + tid;
    unsigned int mine = 0;
    if (gid < threads) {
        XorShift32 rng(seed + 747796405u * gid);
        for (int s = 0; s < samples; s++) {
            float x = rng.uniform(), y = rng.uniform();
            mine += x * x + y * y <= 1.0f;
        }
    }
    counts[tid] = mine;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) counts[tid] += counts[tid + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(hits, counts[0]);
}
