// Sorts rows of 100 numbers: each thread copies one into local memory and sorts it by insertion.
__device__ void insert(int* sorted, int count, int value) {
    int at = count;
    while (at > 0 && sorted[at - 1] > value) {
        sorted[at] = sorted[at - 1];
        --at;
    }
    sorted[at] = value;
}

__global__ void private_sort(const int* x, int* y, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int sorted[100];
    for (int i = 0; i < 100; ++i) {
        insert(sorted, i, x[row * 100 + i]);
    }
    for (int i = 0; i < 100; ++i) {
        y[row * 100 + i] = sorted[i];
    }
}
