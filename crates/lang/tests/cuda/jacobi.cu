// One sweep of Jacobi's method for Laplace's equation; the border stays.
__global__ void jacobi(const float* u, float* next, int nx, int ny) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= nx || j >= ny) return;
    int at = j * nx + i;
    bool border = i == 0 || j == 0 || i == nx - 1 || j == ny - 1;
    next[at] = border ? u[at] : 0.25f * (u[at - 1] + u[at + 1] + u[at - nx] + u[at + nx]);
}
