#define BLOCK_SIZE 16
#define SCORE(a, b) ((a) == (b) ? 5 : -3)

__device__ __host__ int maximum(int a, int b, int c) {
    int k;
    if (a <= b) k = b;
    else k = a;
    if (k <= c) return c;
    else return k;
}

// Needleman-Wunsch on one tile: anti-diagonals of the score matrix one after the other.
__global__ void needle_tile(const char* __restrict__ first, const char* __restrict__ second, int* matrix_cuda, int cols,
                            int penalty) {
    __shared__ int temp[BLOCK_SIZE + 1][BLOCK_SIZE + 1];
    __shared__ char ref[BLOCK_SIZE];
    int tx = threadIdx.x;
    if (tx == 0) temp[0][0] = 0;
    temp[tx + 1][0] = -penalty * (tx + 1);
    temp[0][tx + 1] = -penalty * (tx + 1);
    ref[tx] = second[tx];
    __syncthreads();
    const char mine = first[tx];
    for (int m = 0; m < BLOCK_SIZE; m++) {
        if (tx <= m) {
            int t_index_x = tx + 1, t_index_y = m - tx + 1;
            temp[t_index_y][t_index_x] =
                maximum(temp[t_index_y - 1][t_index_x - 1] + SCORE(mine, ref[t_index_y - 1]),
                        temp[t_index_y][t_index_x - 1] - penalty, temp[t_index_y - 1][t_index_x] - penalty);
        }
        __syncthreads();
    }
    for (int m = BLOCK_SIZE - 2; m >= 0; m--) {
        if (tx <= m) {
            int t_index_x = tx + BLOCK_SIZE - m, t_index_y = BLOCK_SIZE - tx;
            temp[t_index_y][t_index_x] =
                maximum(temp[t_index_y - 1][t_index_x - 1] + SCORE(first[t_index_x - 1], ref[t_index_y - 1]),
                        temp[t_index_y][t_index_x - 1] - penalty, temp[t_index_y - 1][t_index_x] - penalty);
        }
        __syncthreads(); // the lower triangle
    }
    for (int ty = 0; ty <= BLOCK_SIZE; ty++) matrix_cuda[ty * cols + tx + 1] = temp[ty][tx + 1];
    if (tx == 0)
        for (int ty = 0; ty <= BLOCK_SIZE; ty++) matrix_cuda[ty * cols] = temp[ty][0];
}
