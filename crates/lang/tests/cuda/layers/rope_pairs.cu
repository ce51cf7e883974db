// Rotary position embedding of q and k in place; x is (tokens, heads, dim) as pairs.
#define THETA 10000.0f

__global__ void rope_pairs(float2* __restrict__ q, float2* __restrict__ k, const int* __restrict__ positions,
                           int heads, int kv_heads, int half_dim) {
    const int token = blockIdx.x;
    const int head = blockIdx.y;
    const int pos = positions[token];
    for (int d = threadIdx.x; d < half_dim; d += blockDim.x) {
        const float freq = 1.0f / powf(THETA, (float)d / half_dim);
        float sn, cs;
        sincosf(pos * freq, &sn, &cs);
        {
            float2& pair = q[(token * heads + head) * half_dim + d];
            pair = make_float2(pair.x * cs - pair.y * sn, pair.x * sn + pair.y * cs);
        }
        // Fewer heads of keys than of queries.
        if (head < kv_heads) {
            const int at = (token * kv_heads + head) * half_dim + d;
            float2 pair = k[at];
            float2 rotated;
            rotated.x = pair.x * cs - pair.y * sn;
            rotated.y = pair.x * sn + pair.y * cs;
            k[at] = rotated;
        }
    }
}
