// A sparse matrix by rows times a vector; a thread a row.
__global__ void spmv(int rows, const int* row_start, const int* column, const float* value, const float* x, float* y) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        float sum = 0;
        const int end = row_start[row + 1];
        for (int at = row_start[row]; at < end; at++) sum += value[at] * __ldg(&x[column[at]]);
        y[row] = sum;
    }
}
