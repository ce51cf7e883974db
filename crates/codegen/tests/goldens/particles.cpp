#include <cmath>
#include <cstdio>
#include <cstring>
struct f32x3 { float x, y, z; };
struct Particle { f32x3 position; f32x3 velocity; float mass; };
static inline float bn_dot_f32x3_f32x3(f32x3 a, f32x3 b) {
    const float t0 = a.x * b.x;
    const float t1 = fmaf(a.y, b.y, t0);
    const float t2 = fmaf(a.z, b.z, t1);
    return t2;
}
static inline f32x3 bounced(f32x3 velocity, float height) {
    const float v2 = velocity.y;
    const bool v4 = height >= 0.0f;
    const bool v5 = v2 >= 0.0f;
    const bool v6 = v4 | v5;
    if (v6) {
        return velocity;
    }
    const float v8 = v2 * -0.5f;
    f32x3 v9 = velocity;
    v9.y = v8;
    return v9;
}
extern "C" void particles(Particle* __restrict particles_, float* __restrict energy, int n, float dt, f32x3 gravity) {
    for (long long task_index = 0; task_index < n; ++task_index) {
        const int index = (int)task_index;
        const Particle v4 = particles_[index];
        const f32x3 v5 = v4.position;
        const f32x3 v6 = v4.velocity;
        const float v7 = v4.mass;
        const f32x3 v8 = {dt, dt, dt};
        const f32x3 v9 = {fmaf(gravity.x, v8.x, v6.x), fmaf(gravity.y, v8.y, v6.y), fmaf(gravity.z, v8.z, v6.z)};
        const f32x3 v10 = {fmaf(v9.x, v8.x, v5.x), fmaf(v9.y, v8.y, v5.y), fmaf(v9.z, v8.z, v5.z)};
        const float v11 = v10.y;
        const f32x3 v12 = bounced(v9, v11);
        const Particle v13 = {v10, v12, v7};
        particles_[index] = v13;
        const float v14 = bn_dot_f32x3_f32x3(v12, v12);
        const float v16 = v7 * 0.5f;
        const float v17 = v16 * v14;
        energy[index] = v17;
    }
}
