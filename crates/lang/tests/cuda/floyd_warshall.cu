// Paths by way of vertex k.
__global__ void floyd_warshall(int* d, int n, int k) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y;
    if (j < n) {
        int through = d[i * n + k] + d[k * n + j];
        if (through < d[i * n + j]) d[i * n + j] = through;
    }
}
