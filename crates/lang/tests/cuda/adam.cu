struct Hyper {
    float rate, beta1, beta2, eps, decay;
};
__global__ void adam(float* p, const float* g, float* m, float* v, Hyper h, int step, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float grad = g[i];
    m[i] = h.beta1 * m[i] + (1 - h.beta1) * grad;
    v[i] = h.beta2 * v[i] + (1 - h.beta2) * grad * grad;
    float m_hat = m[i] / (1.0f - powf(h.beta1, step));
    float v_hat = v[i] / (1.0f - powf(h.beta2, step));
    p[i] -= h.rate * (m_hat / (sqrtf(v_hat) + h.eps) + h.decay * p[i]);
}
