#define MAX_EXPERTS 16
#define TOPK 2

// Softmax over experts, the two largest weights of each token, normalized again.
__global__ void moe_gating(const float* logits, float* weights, int* experts, int tokens, int num_experts) {
    const int token = blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= tokens) return;
    float prob[MAX_EXPERTS];
    float top = -INFINITY;
    for (int e = 0; e < num_experts; ++e) top = fmaxf(top, logits[token * num_experts + e]);
    for (int e = 0; e < MAX_EXPERTS; ++e)
        prob[e] = e < num_experts ? expf(logits[token * num_experts + e] - top) : -1.0f;

    float total = 0.f;
    int chosen[TOPK];
#pragma unroll
    for (int k = 0; k < TOPK; ++k) {
        int best = 0;
        float value = -2.0f;
        for (int e = 0; e < MAX_EXPERTS; ++e) {
            bool taken = false;
            for (int j = 0; j < k; ++j) taken |= chosen[j] == e;
            if (!taken && prob[e] > value) {
                value = prob[e];
                best = e;
            }
        }
        chosen[k] = best;
        experts[token * TOPK + k] = best;
        weights[token * TOPK + k] = value;
        total += value;
    }
    for (int k = 0; k < TOPK; ++k) weights[token * TOPK + k] /= total;
}
