#define D 16
#define BC 8
// Attention of one head: queries of a block against keys in tiles, without the matrix of scores.
__global__ void flash_attention(const float* Q, const float* K, const float* V, float* O, int length, float scale) {
    __shared__ float Ks[BC][D];
    __shared__ float Vs[BC][D];
    int q = blockIdx.x * blockDim.x + threadIdx.x;
    float query[D], out[D];
    for (int d = 0; d < D; d++) {
        query[d] = q < length ? Q[q * D + d] : 0.0f;
        out[d] = 0.0f;
    }
    float top = -INFINITY, sum = 0.0f;
    for (int start = 0; start < length; start += BC) {
        for (int n = threadIdx.x; n < BC * D; n += blockDim.x) {
            int row = start + n / D;
            Ks[n / D][n % D] = row < length ? K[row * D + n % D] : 0.0f;
            Vs[n / D][n % D] = row < length ? V[row * D + n % D] : 0.0f;
        }
        __syncthreads();
        for (int r = 0; r < BC && start + r < length; r++) {
            float score = 0.0f;
            for (int d = 0; d < D; d++) score += query[d] * Ks[r][d];
            score *= scale;
            float higher = fmaxf(top, score);
            float old = expf(top - higher), now = expf(score - higher);
            sum = sum * old + now;
            for (int d = 0; d < D; d++) out[d] = out[d] * old + now * Vs[r][d];
            top = higher;
        }
        __syncthreads(); // the tile is done with
    }
    if (q < length)
        for (int d = 0; d < D; d++) O[q * D + d] = out[d] / sum;
}
