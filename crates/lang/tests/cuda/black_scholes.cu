__device__ float normal(float x) {
    return 0.5f * erfcf(-x * 0.70710678f);
}
__global__ void black_scholes(float* call, float* put, const float* spot, const float* strike, const float* years,
                              float rate, float volatility, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float root = sqrtf(years[i]);
        float d1 = (logf(spot[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / (volatility * root);
        float d2 = d1 - volatility * root;
        float discount = expf(-rate * years[i]);
        call[i] = spot[i] * normal(d1) - strike[i] * discount * normal(d2);
        put[i] = strike[i] * discount * normal(-d2) - spot[i] * normal(-d1);
    }
}
