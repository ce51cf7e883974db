struct __align__(16) Quat {
    float w, x, y, z;
    __host__ __device__ Quat conj() const { return Quat{w, -x, -y, -z}; }
};

__host__ __device__ inline Quat operator*(const Quat& a, const Quat& b) {
    return {a.w * b.w - a.x * b.x - a.y * b.y - a.z * b.z, a.w * b.x + a.x * b.w + a.y * b.z - a.z * b.y,
            a.w * b.y - a.x * b.z + a.y * b.w + a.z * b.x, a.w * b.z + a.x * b.y - a.y * b.x + a.z * b.w};
}

__host__ __device__ inline Quat normalize(Quat q) {
    const float s = rsqrtf(q.w * q.w + q.x * q.x + q.y * q.y + q.z * q.z);
    q.w *= s;
    q.x *= s, q.y *= s, q.z *= s;
    return q;
}

__device__ inline float3 rotate(const Quat& q, float3 v) {
    const Quat p = q * Quat{0.f, v.x, v.y, v.z} * q.conj();
    return make_float3(p.x, p.y, p.z);
}

// Rotates each point by the product of its bones' rotations.
__global__ void quaternion(const Quat* bones, const int2* chain, float3* points, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        const int2 link = __ldg(&chain[i]);
        const Quat q = normalize(bones[link.x]) * normalize(bones[link.y]);
        points[i] = rotate(q, points[i]);
    }
}
