extern "C" __global__ void __launch_bounds__(256)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out) {
    __shared__ float tile_a[16][16];
    __shared__ float tile_b[16][16];
    float sum_0 = 0.0f;
    int step_1 = 0;
    int inner_2 = 0;
    const int v5 = (int)blockIdx.y * 16;
    const int v6 = v5 + (int)threadIdx.y;
    const int v8 = (int)blockIdx.x * 16;
    const int v9 = v8 + (int)threadIdx.x;
    const bool v11 = v6 < 64;
    const bool v13 = v9 < 64;
    for (step_1 = 0; step_1 < 4; ++step_1) {
        const int v16 = step_1;
        const int v18 = v16 * 16;
        const int v19 = v18 + (int)threadIdx.x;
        const bool v21 = v19 < 64;
        const bool v22 = v21 & v11;
        if (v22) {
            const float v23 = a[v6 * 64 + v19];
            tile_a[(int)threadIdx.y][(int)threadIdx.x] = v23;
        } else {
            tile_a[(int)threadIdx.y][(int)threadIdx.x] = 0.0f;
        }
        const int v25 = v16 * 16;
        const int v26 = v25 + (int)threadIdx.y;
        const bool v28 = v26 < 64;
        const bool v29 = v28 & v13;
        if (v29) {
            const float v30 = b[v26 * 64 + v9];
            tile_b[(int)threadIdx.y][(int)threadIdx.x] = v30;
        } else {
            tile_b[(int)threadIdx.y][(int)threadIdx.x] = 0.0f;
        }
        __syncthreads();
        for (inner_2 = 0; inner_2 < 16; ++inner_2) {
            const int v32 = inner_2;
            const float v33 = tile_a[(int)threadIdx.y][v32];
            const float v34 = tile_b[v32][(int)threadIdx.x];
            const float v35 = sum_0;
            const float v36 = fmaf(v33, v34, v35);
            sum_0 = v36;
        }
        __syncthreads();
    }
    const bool v37 = v11 & v13;
    if (v37) {
        const float v38 = sum_0;
        out[v6 * 64 + v9] = v38;
    }
}
