struct Particle {
    float3 position;
    float3 velocity;
    float mass;
};
__device__ float3 operator_plus(float3 a, float3 b) { return make_float3(a.x + b.x, a.y + b.y, a.z + b.z); }
__device__ float3 times(float3 a, float s) {
    float3 r = {a.x * s, a.y * s, a.z * s};
    return r;
}
__global__ void particles(Particle* all, float3 force, float dt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Particle p = all[i];
    p.velocity = operator_plus(p.velocity, times(force, dt / p.mass));
    p.position = operator_plus(p.position, times(p.velocity, dt));
    if (p.position.y < 0.0f) {
        p.position.y = -p.position.y;
        p.velocity.y *= -0.5f;
    }
    all[i] = p;
}
