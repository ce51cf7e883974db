#define BLOCK_SIZE 8
#define IN_RANGE(x, min, max) ((x) >= (min) && (x) <= (max))
#define CLAMP_RANGE(x, min, max) x = (x < (min)) ? min : ((x > (max)) ? max : x)
#define MIN(a, b) ((a) <= (b) ? (a) : (b))

// Temperature of a chip: a tile with halo takes several steps before it is stored.
__global__ void hotspot_tile(int iteration, float* power, float* temp_src, float* temp_dst, int grid_cols, int grid_rows,
                             int border, float cap, float rx, float ry, float rz, float amb) {
    __shared__ float temp_on_cuda[BLOCK_SIZE][BLOCK_SIZE];
    __shared__ float power_on_cuda[BLOCK_SIZE][BLOCK_SIZE];
    __shared__ float temp_t[BLOCK_SIZE][BLOCK_SIZE];
    int bx = blockIdx.x, by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
    int small_block = BLOCK_SIZE - iteration * 2;
    int blkY = small_block * by - border, blkX = small_block * bx - border;
    int yidx = blkY + ty, xidx = blkX + tx;
    int index = grid_cols * yidx + xidx;
    bool inside = IN_RANGE(yidx, 0, grid_rows - 1) && IN_RANGE(xidx, 0, grid_cols - 1);
    if (inside) {
        temp_on_cuda[ty][tx] = temp_src[index];
        power_on_cuda[ty][tx] = power[index];
    }
    __syncthreads();

    int validYmin = blkY < 0 ? -blkY : 0, validXmin = blkX < 0 ? -blkX : 0;
    int validYmax = MIN(BLOCK_SIZE - 1, grid_rows - 1 - blkY), validXmax = MIN(BLOCK_SIZE - 1, grid_cols - 1 - blkX);
    int N = ty - 1, S = ty + 1, W = tx - 1, E = tx + 1;
    CLAMP_RANGE(N, validYmin, validYmax);
    CLAMP_RANGE(S, validYmin, validYmax);
    CLAMP_RANGE(W, validXmin, validXmax);
    CLAMP_RANGE(E, validXmin, validXmax);

    bool computed = false;
    for (int i = 0; i < iteration; i++) {
        computed = false;
        if (IN_RANGE(tx, i + 1, BLOCK_SIZE - i - 2) && IN_RANGE(ty, i + 1, BLOCK_SIZE - i - 2) && inside) {
            computed = true;
            temp_t[ty][tx] =
                temp_on_cuda[ty][tx] +
                cap * (power_on_cuda[ty][tx] + (temp_on_cuda[S][tx] + temp_on_cuda[N][tx] - 2.0f * temp_on_cuda[ty][tx]) * ry +
                       (temp_on_cuda[ty][E] + temp_on_cuda[ty][W] - 2.0f * temp_on_cuda[ty][tx]) * rx +
                       (amb - temp_on_cuda[ty][tx]) * rz);
        }
        __syncthreads();
        if (i == iteration - 1) break;
        if (computed) temp_on_cuda[ty][tx] = temp_t[ty][tx];
        __syncthreads();
    }
    if (computed) temp_dst[index] = temp_t[ty][tx];
}
