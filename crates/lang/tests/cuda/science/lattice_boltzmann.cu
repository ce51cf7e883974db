#define Q 9
#define IDX(q, x, y) (((q) * ny + (y)) * nx + (x))

__constant__ int cx[Q];
__constant__ int cy[Q];
__constant__ float weights[Q];

// D2Q9 lattice Boltzmann: pulls populations from neighbours of a periodic lattice, then relaxes them.
__global__ void lattice_boltzmann(const float* __restrict__ f_in, float* __restrict__ f_out, int nx, int ny, float omega) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || y >= ny) return;
    float f[Q];
    float rho = 0.f, ux = 0.f, uy = 0.f;
#pragma unroll
    for (int q = 0; q < Q; ++q) {
        const int xs = (x - cx[q] + nx) % nx, ys = (y - cy[q] + ny) % ny;
        f[q] = f_in[IDX(q, xs, ys)];
        rho += f[q];
        ux += f[q] * cx[q];
        uy += f[q] * cy[q];
    }
    ux /= rho;
    uy /= rho;
    const float u2 = 1.5f * (ux * ux + uy * uy);
    for (int q = 0; q < Q; ++q) {
        const float cu = 3.0f * (cx[q] * ux + cy[q] * uy);
        const float feq = weights[q] * rho * (1.0f + cu + 0.5f * cu * cu - u2);
        f_out[IDX(q, x, y)] = f[q] + omega * (feq - f[q]);
    }
}
