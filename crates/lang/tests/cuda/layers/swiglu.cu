#define BLOCK 128
#define DIVUP(x, y) (((x) + (y) - 1) / (y))

static __device__ __forceinline__ float silu(float x) { return x / (1.0f + __expf(-x)); }

// y = silu(gate) * up, both halves of one row of a fused projection.
__global__ void __launch_bounds__(BLOCK, 4) swiglu(const float* __restrict__ xb, float* __restrict__ y, int rows, int hidden) {
    const int vectors = hidden / 4;
    const int idx = blockIdx.x * BLOCK + threadIdx.x;
    if (idx >= rows * vectors) return;
    const int row = idx / vectors, col = idx % vectors;
    const float4* gate = (const float4*)(xb + row * 2 * hidden) + col;
    const float4* up = gate + vectors;
    const float4 g = *gate, u = *up;
    float4 r;
    r.x = silu(g.x) * u.x;
    r.y = silu(g.y) * u.y;
    r.z = silu(g.z) * u.z;
    r.w = silu(g.w) * u.w;
    reinterpret_cast<float4*>(y)[idx] = r;
}

extern "C" void swiglu_forward(const float* x, float* y, int rows, int hidden, cudaStream_t stream) {
    swiglu<<<DIVUP(rows * hidden / 4, BLOCK), BLOCK, 0, stream>>>(x, y, rows, hidden);
}
