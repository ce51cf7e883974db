__device__ unsigned next_random(unsigned& state) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}
// Points in the unit square that lie in the circle.
__global__ void monte_carlo(unsigned long long* inside, int tries, unsigned seed) {
    unsigned state = seed + 7919u * (blockIdx.x * blockDim.x + threadIdx.x) + 1u;
    int hits = 0;
    for (int t = 0; t < tries; t++) {
        float x = next_random(state) * 2.3283064e-10f;
        float y = next_random(state) * 2.3283064e-10f;
        if (x * x + y * y <= 1.0f) ++hits;
    }
    atomicAdd(inside, (unsigned long long)hits);
}
