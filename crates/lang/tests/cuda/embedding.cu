__global__ void embedding(const int64_t* tokens, const float* table, const float* positions, float* out, int T, int C) {
    int t = blockIdx.x;
    int64_t token = tokens[t];
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        out[t * C + c] = table[token * C + c] + positions[(t % T) * C + c];
    }
}
