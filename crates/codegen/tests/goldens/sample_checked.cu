__device__ __noinline__ void bn_bad(long long i, long long* status, long long code) {
    if (atomicCAS((unsigned long long*)status, 0ull, (unsigned long long)code) == 0ull) status[1] = i;
    asm volatile("exit;");
}
template <class I> __device__ __forceinline__ I bn_at(I i, long long n, int width, long long* status, long long code) {
    if (i < 0 || i > n - width) bn_bad(i, status, code);
    return i;
}
template <class I> __device__ __forceinline__ I bn_aligned(I i, int width, long long* status, long long code) {
    if (i % width != 0) bn_bad(i, status, code);
    return i;
}
__device__ __forceinline__ float bn_exp_f32(float a) {
    const bool t0 = 89.0f < a;
    const float t1 = t0 ? 89.0f : a;
    const bool t2 = t1 < -104.5f;
    const float t3 = t2 ? -104.5f : t1;
    const float t4 = fmaf(t3, 1.442695f, 12582912.0f);
    const float t5 = t4 - 12582912.0f;
    const int t6 = __float_as_int(t4);
    const float t7 = fmaf(t5, -0.69314575f, t3);
    const float t8 = fmaf(t5, -1.4286068e-6f, t7);
    const float t9 = fmaf(0.0001984127f, t8, 0.0013888889f);
    const float t10 = fmaf(t9, t8, 0.008333334f);
    const float t11 = fmaf(t10, t8, 0.041666668f);
    const float t12 = fmaf(t11, t8, 0.16666667f);
    const float t13 = fmaf(t12, t8, 0.5f);
    const float t14 = fmaf(t13, t8, 1.0f);
    const float t15 = fmaf(t14, t8, 1.0f);
    const int t16 = (int)((unsigned)t6 - (unsigned)1262485504);
    const int t17 = t16 >> (1 & 31);
    const int t18 = (int)((unsigned)t16 - (unsigned)t17);
    const int t19 = (int)((unsigned)t17 + (unsigned)127);
    const int t20 = (int)((unsigned)t19 << (23 & 31));
    const float t21 = __int_as_float(t20);
    const int t22 = (int)((unsigned)t18 + (unsigned)127);
    const int t23 = (int)((unsigned)t22 << (23 & 31));
    const float t24 = __int_as_float(t23);
    const float t25 = t15 * t21;
    const float t26 = t25 * t24;
    return t26;
}
__device__ __forceinline__ float bn_tanh_f32(float a) {
    const float t0 = a * a;
    const float t1 = fmaf(0.0022927448f, t0, -0.008343945f);
    const float t2 = fmaf(t1, t0, 0.021768918f);
    const float t3 = fmaf(t2, t0, -0.053959258f);
    const float t4 = fmaf(t3, t0, 0.13333304f);
    const float t5 = fmaf(t4, t0, -0.33333334f);
    const float t6 = fmaf(t0, t5, 1.0f);
    const float t7 = a * t6;
    const float t8 = fabsf(a);
    const float t9 = t8 + t8;
    const float t10 = bn_exp_f32(t9);
    const float t11 = t10 + 1.0f;
    const float t12 = 2.0f / t11;
    const float t13 = 1.0f - t12;
    const bool t14 = a < 0.0f;
    const float t15 = -t13;
    const float t16 = t14 ? t15 : t13;
    const bool t17 = t8 < 0.625f;
    const float t18 = t17 ? t7 : t16;
    return t18;
}
extern "C" __global__ void __launch_bounds__(256)
sample(double* __restrict__ out, const float* __restrict__ x, long long* bn_status, long long bn_code) {
    for (unsigned i_ = (unsigned)blockIdx.x * blockDim.x + threadIdx.x; i_ < 10u;
         i_ += (unsigned)gridDim.x * blockDim.x) {
        const int index = (int)i_;
        double total_0 = 0.0;
        int j_1 = 0;
        const int v2 = index * 5;
        for (j_1 = 0; j_1 < 5; ++j_1) {
            const int v3 = j_1;
            const int v4 = v2 + v3;
            const float v5 = x[bn_at(v4, 50, 1, bn_status, bn_code + 2)];
            const float v6 = bn_tanh_f32(v5);
            const double v7 = (double)v6;
            const double v8 = total_0;
            const double v9 = v8 + v7;
            total_0 = v9;
        }
        const double v10 = total_0;
        const bool v12 = v10 < 0.0;
        if (v12) {
            out[bn_at(index, 10, 1, bn_status, bn_code + 1)] = 0.0;
        } else {
            out[bn_at(index, 10, 1, bn_status, bn_code + 1)] = v10;
        }
    }
}
