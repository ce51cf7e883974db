struct Buffers {
    float* now;
    float* next;
    __device__ void swap() {
        float* old = now;
        now = next;
        next = old;
    }
};

__device__ float* buffer_of(float* a, float* b, int step) {
    if (step & 1) return b;
    return a;
}

// Steps of smoothing between two buffers that exchange their roles.
__global__ void buffer_pair(float* a, float* b, float* out, int n, int steps) {
    Buffers buffers = {a, b};
    const int i = threadIdx.x;
    for (int s = 0; s < steps; ++s) {
        const int left = i > 0 ? i - 1 : 0, right = i + 1 < n ? i + 1 : n - 1;
        buffers.next[i] = 0.25f * buffers.now[left] + 0.5f * buffers.now[i] + 0.25f * buffers.now[right];
        __syncthreads();
        buffers.swap();
    }
    out[i] = buffer_of(a, b, steps)[i];
}
