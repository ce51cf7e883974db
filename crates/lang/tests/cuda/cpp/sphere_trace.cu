#include <cstdio>
#include <cuda_runtime.h>

namespace geometry {
struct Vec3 {
    float x, y, z;
    __host__ __device__ Vec3() : x(0.f), y(0.f), z(0.f) {}
    __host__ __device__ Vec3(float x_, float y_, float z_) : x(x_), y(y_), z(z_) {}
    __host__ __device__ Vec3 operator+(const Vec3& o) const { return Vec3(x + o.x, y + o.y, z + o.z); }
    __host__ __device__ Vec3 operator-(const Vec3& o) const { return Vec3(x - o.x, y - o.y, z - o.z); }
    __host__ __device__ Vec3 operator*(float s) const { return Vec3(x * s, y * s, z * s); }
    __host__ __device__ float dot(const Vec3& o) const { return x * o.x + y * o.y + z * o.z; }
    __host__ __device__ Vec3 normalized() const { return *this * (1.0f / sqrtf(dot(*this))); }
};

namespace detail {
// Distance to the nearer intersection, or -1.
__device__ __forceinline__ float hit(const Vec3& origin, const Vec3& dir, const Vec3& center, float radius) {
    Vec3 oc = origin - center;
    float b = oc.dot(dir), c = oc.dot(oc) - radius * radius;
    float disc = b * b - c;
    return disc < 0.f ? -1.f : -b - sqrtf(disc);
}
} // namespace detail
} // namespace geometry

namespace geo = geometry;

__global__ void sphere_trace(const float4* __restrict__ spheres, int count, float* image, int width, int height) {
    const int px = blockIdx.x * blockDim.x + threadIdx.x;
    const int py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height) return;
    const geo::Vec3 origin(0.f, 0.f, -5.f), light = geo::Vec3(1.f, 1.f, -1.f).normalized();
    const geo::Vec3 dir = geo::Vec3((px + 0.5f) / width - 0.5f, (py + 0.5f) / height - 0.5f, 1.f).normalized();
    float nearest = 1e30f, shade = 0.f;
    for (int s = 0; s < count; ++s) {
        const float4 sphere = spheres[s];
        const geo::Vec3 center(sphere.x, sphere.y, sphere.z);
        const float t = geo::detail::hit(origin, dir, center, sphere.w);
        if (t > 0.f && t < nearest) {
            nearest = t;
            geo::Vec3 normal = (origin + dir * t - center).normalized();
            shade = fmaxf(0.f, normal.dot(light));
        }
    }
    image[py * width + px] = shade;
}

int main() {
    dim3 block(8, 4), grid((21 + 7) / 8, (13 + 3) / 4);
    float4* spheres;
    float* image;
    cudaMalloc(&spheres, 3 * sizeof(float4));
    cudaMalloc(&image, 21 * 13 * sizeof(float));
    sphere_trace<<<grid, block>>>(spheres, 3, image, 21, 13);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
