// One block per query and head: scores in dynamic shared memory, causal, grouped heads of keys.
__inline__ __device__ float warpSum(float val) {
    for (int mask = 16; mask > 0; mask >>= 1) val += __shfl_xor_sync(0xffffffff, val, mask, 32);
    return val;
}
__inline__ __device__ float warpMax(float val) {
    for (int mask = 16; mask > 0; mask >>= 1) val = max(val, __shfl_xor_sync(0xffffffff, val, mask, 32));
    return val;
}

template <int HEAD_DIM>
__global__ void attention_row(const float* q, const float* k, const float* v, float* out, int T, int heads, int group) {
    extern __shared__ float scores[];
    const int t = blockIdx.x, h = blockIdx.y;
    const int kv_heads = heads / group, kvh = h / group;
    const int lane = threadIdx.x & 31;
    const float* query = q + (t * heads + h) * HEAD_DIM;

    for (int s = threadIdx.x; s <= t; s += blockDim.x) {
        const float* key = k + (s * kv_heads + kvh) * HEAD_DIM;
        float dot = 0.f;
#pragma unroll
        for (int d = 0; d < HEAD_DIM; d++) dot = fmaf(query[d], key[d], dot);
        scores[s] = dot * rsqrtf((float)HEAD_DIM);
    }
    __syncthreads();

    // Every warp reduces all scores, so that nothing has to be shared.
    float top = -1e20f;
    for (int s = lane; s <= t; s += 32) top = fmaxf(top, scores[s]);
    top = warpMax(top);
    float sum = 0.f;
    for (int s = lane; s <= t; s += 32) sum += expf(scores[s] - top);
    sum = warpSum(sum);

    for (int d = threadIdx.x; d < HEAD_DIM; d += blockDim.x) {
        float acc = 0.f;
        for (int s = 0; s <= t; s++) acc += expf(scores[s] - top) / sum * v[(s * kv_heads + kvh) * HEAD_DIM + d];
        out[(t * heads + h) * HEAD_DIM + d] = acc;
    }
}

template __global__ void attention_row<24>(const float*, const float*, const float*, float*, int, int, int);
