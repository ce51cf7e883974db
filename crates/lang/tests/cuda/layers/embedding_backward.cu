// Gradients of token and position embeddings by atomics, four columns a thread.
__global__ void embedding_backward(float* dwte, float* dwpe, const float* dout, const int* inp, int B, int T, int C) {
    int idx = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (idx < B * T * C) {
        int bt = idx / C;
        int t = bt % T;
        int c = idx % C;
        int ix = inp[bt];
        float4 g = *reinterpret_cast<const float4*>(&dout[idx]);
        float* dwte_ix = dwte + ix * C + c;
        float* dwpe_t = dwpe + t * C + c;
        const float parts[4] = {g.x, g.y, g.z, g.w};
#pragma unroll 4
        for (int k = 0; k < 4; ++k) {
            atomicAdd(dwte_ix + k, parts[k]);
            atomicAdd(&dwpe_t[k], parts[k]);
        }
    }
}
