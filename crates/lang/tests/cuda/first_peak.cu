// First local maximum of each row, or its last element if there is none.
__global__ void first_peak(const float* x, float* y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float peak;
    bool found = false;
    for (int i = 1; i + 1 < columns && !found; ++i) {
        const float* at = &x[row * columns + i];
        if (at[0] > at[-1] && at[0] > at[1]) {
            peak = at[0];
            found = true;
        }
    }
    if (!found) peak = x[row * columns + columns - 1];
    y[row] = peak;
}
