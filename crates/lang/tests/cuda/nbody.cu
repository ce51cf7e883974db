#define P 32
#define SOFTENING 0.01f
__device__ float3 pull(float4 a, float4 b, float3 sum) {
    float3 r;
    r.x = b.x - a.x;
    r.y = b.y - a.y;
    r.z = b.z - a.z;
    float square = r.x * r.x + r.y * r.y + r.z * r.z + SOFTENING;
    float inverse = rsqrtf(square);
    float s = b.w * inverse * inverse * inverse;
    sum.x += r.x * s;
    sum.y += r.y * s;
    sum.z += r.z * s;
    return sum;
}
__global__ void nbody(const float4* bodies, float3* accelerations, int n) {
    __shared__ float4 tile[P];
    int i = blockIdx.x * P + threadIdx.x;
    float4 mine = i < n ? bodies[i] : make_float4(0.f, 0.f, 0.f, 0.f);
    float3 sum = {0.0f, 0.0f, 0.0f};
    for (int start = 0; start < n; start += P) {
        int j = start + threadIdx.x;
        tile[threadIdx.x] = j < n ? bodies[j] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int k = 0; k < P; k++) sum = pull(mine, tile[k], sum);
        __syncthreads(); // before the next tile
    }
    if (i < n) accelerations[i] = sum;
}
