#define TOP 4
// The TOP largest of each row, largest first, by insertion into a list in registers.
__global__ void top_k(const float* rows, float* best, int count, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= count) return;
    float list[TOP];
    for (int k = 0; k < TOP; ++k) list[k] = -INFINITY;
    for (int c = 0; c < columns; ++c) {
        float x = rows[row * columns + c];
        for (int k = 0; k < TOP; ++k) {
            if (x > list[k]) {
                float moved = list[k];
                list[k] = x;
                x = moved;
            }
        }
    }
    for (int k = 0; k < TOP; ++k) best[row * TOP + k] = list[k];
}
