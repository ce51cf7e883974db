#define SQRT_2_OVER_PI 0.7978845608f
__device__ __forceinline__ float gelu_of(float x) {
    float inner = SQRT_2_OVER_PI * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
}
// Four elements at a time.
__global__ void gelu(const float* in, float* out, int n4) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) {
        float4 v = reinterpret_cast<const float4*>(in)[i];
        v.x = gelu_of(v.x);
        v.y = gelu_of(v.y);
        v.z = gelu_of(v.z);
        v.w = gelu_of(v.w);
        reinterpret_cast<float4*>(out)[i] = v;
    }
}
