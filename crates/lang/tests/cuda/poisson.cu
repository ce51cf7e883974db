struct Grid {
    int nx, ny;
    float h;
};
__device__ inline int place(Grid g, int x, int y) { return y * g.nx + x; }
// Red points or black points of one sweep of Gauss and Seidel, in place.
__global__ void poisson(float* u, const float* f, Grid grid, int color) {
    const int x = 1 + blockIdx.x * blockDim.x + threadIdx.x;
    const int y = 1 + blockIdx.y * blockDim.y + threadIdx.y;
    if (x < grid.nx - 1 && y < grid.ny - 1 && ((x + y) & 1) == color) {
        float around = u[place(grid, x - 1, y)] + u[place(grid, x + 1, y)] + u[place(grid, x, y - 1)] + u[place(grid, x, y + 1)];
        u[place(grid, x, y)] = 0.25f * (around - grid.h * grid.h * f[place(grid, x, y)]);
    }
}
