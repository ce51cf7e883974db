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
__device__ __forceinline__ float bn_max(float a, float b) {
    return a != a || b != b ? __int_as_float(0x7fffffff) : fmaxf(a, b);
}
__device__ __forceinline__ double bn_max(double a, double b) {
    return a != a || b != b ? __longlong_as_double(0x7fffffffffffffffLL) : fmax(a, b);
}
template <class T> __device__ __forceinline__ T bn_max(T a, T b) { return a > b ? a : b; }
__device__ __forceinline__ int bn_to_i32(float a) { return __float2int_rz(a); }
__device__ __forceinline__ int bn_to_i32(double a) { return a != a ? 0 : __double2int_rz(a); }
__device__ __forceinline__ float bn_exp_f32(float a) {
    const bool t0 = 89.0f < a;
    const float t1 = t0 ? 89.0f : a;
    const bool t2 = t1 < -104.5f;
    const float t3 = t2 ? -104.5f : t1;
    const float t4 = t3 * 1.442695f;
    const float t5 = rintf(t4);
    const float t6 = fmaf(t5, -0.69314575f, t3);
    const float t7 = fmaf(t5, -1.4286068e-6f, t6);
    const float t8 = fmaf(0.0001984127f, t7, 0.0013888889f);
    const float t9 = fmaf(t8, t7, 0.008333334f);
    const float t10 = fmaf(t9, t7, 0.041666668f);
    const float t11 = fmaf(t10, t7, 0.16666667f);
    const float t12 = fmaf(t11, t7, 0.5f);
    const float t13 = fmaf(t12, t7, 1.0f);
    const float t14 = fmaf(t13, t7, 1.0f);
    const int t15 = bn_to_i32(t5);
    const int t16 = t15 >> (1 & 31);
    const int t17 = (int)((unsigned)t15 - (unsigned)t16);
    const int t18 = (int)((unsigned)t16 + (unsigned)127);
    const int t19 = (int)((unsigned)t18 << (23 & 31));
    const float t20 = __int_as_float(t19);
    const int t21 = (int)((unsigned)t17 + (unsigned)127);
    const int t22 = (int)((unsigned)t21 << (23 & 31));
    const float t23 = __int_as_float(t22);
    const float t24 = t14 * t20;
    const float t25 = t24 * t23;
    return t25;
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
    const float t8 = -a;
    const float t9 = bn_max(a, t8);
    const float t10 = t9 + t9;
    const float t11 = bn_exp_f32(t10);
    const float t12 = t11 + 1.0f;
    const float t13 = 2.0f / t12;
    const float t14 = 1.0f - t13;
    const bool t15 = a < 0.0f;
    const float t16 = -t14;
    const float t17 = t15 ? t16 : t14;
    const bool t18 = t9 < 0.625f;
    const float t19 = t18 ? t7 : t17;
    return t19;
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
