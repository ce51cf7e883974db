#include <cuda_bf16.h>
typedef __nv_bfloat16 floatX;

// Linear interpolation with two fused multiply-adds.
__device__ inline float lerp(float start, float end, float weight) { return fma(weight, end, fma(-weight, start, start)); }

template <typename Tp, typename Tg>
__device__ void adamw_update(Tp* params, float* master, const Tg* grads, float* m_memory, float* v_memory, size_t n,
                             float lr, float beta1, float beta2, float corr1, float corr2, float eps, float wd, float scale) {
    size_t idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx >= n) return;
    float grad = scale * (float)grads[idx];
    float m = m_memory[idx], v = v_memory[idx];
    m = lerp(grad, m, beta1);
    m_memory[idx] = m;
    v = lerp(grad * grad, v, beta2);
    v_memory[idx] = v;
    m /= corr1;
    v /= corr2;
    const float old = (master != NULL) ? master[idx] : (float)params[idx];
    const float updated = old - lr * (m / (sqrtf(v) + eps) + wd * old);
    params[idx] = (Tp)updated;
    if (master != NULL) master[idx] = updated;
}

template <typename Tp, typename Tg>
__global__ void adamw_master(Tp* params, float* master, const Tg* grads, float* m, float* v, size_t n, float lr,
                             float beta1, float beta2, float corr1, float corr2, float eps, float wd, float scale) {
    adamw_update(params, master, grads, m, v, n, lr, beta1, beta2, corr1, corr2, eps, wd, scale);
}

void update(floatX* p, float* w, floatX* g, float* m, float* v, size_t n, cudaStream_t s) {
    adamw_master<<<(n + 127) / 128, 128, 0, s>>>(p, w, g, m, v, n, 1e-3f, 0.9f, 0.95f, 0.1f, 0.05f, 1e-8f, 0.1f, 1.f);
}
