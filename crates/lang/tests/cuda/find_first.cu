// The first place of a value in each row, or -1; a function that returns from its loop.
__device__ int first_of(const int* row, int n, int wanted) {
    for (int k = 0; k < n; k++) {
        if (row[k] == wanted) return k;
    }
    return -1;
}
__global__ void find_first(const int* table, const int* wanted, int* where, int rows, int columns) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) where[r] = first_of(table + r * columns, columns, wanted[r]);
}
