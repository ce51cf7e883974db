#define at(x, y, z) (((z) * ny + (y)) * nx + (x))

// Seven-point stencil: a plane of threads marches through z with the column in registers.
__global__ void heat3d(const double* __restrict__ src, double* __restrict__ dst, int nx, int ny, int nz, double c0, double c1) {
    int x = blockIdx.x * blockDim.x + threadIdx.x + 1;
    int y = blockIdx.y * blockDim.y + threadIdx.y + 1;
    int z0 = blockIdx.z * 4 + 1;
    if (x >= nx - 1 || y >= ny - 1 || z0 >= nz - 1) return;
    double below = src[at(x, y, z0 - 1)], here = src[at(x, y, z0)], above;
    for (int z = z0; z < min(z0 + 4, nz - 1); ++z) {
        above = src[at(x, y, z + 1)];
        double around = src[at(x - 1, y, z)] + src[at(x + 1, y, z)] + src[at(x, y - 1, z)] + src[at(x, y + 1, z)];
        dst[at(x, y, z)] = c0 * here + c1 * (around + below + above);
        below = here;
        here = above;
    }
}
#undef at
