#define N 128
// Inclusive running sums of each block of N, by doubling, between two buffers.
__global__ void scan_hillis(const int* in, int* out) {
    __shared__ int buffer[2][N];
    int t = threadIdx.x, from = 0, to = 1;
    buffer[from][t] = in[blockIdx.x * N + t];
    __syncthreads();
    for (int reach = 1; reach < N; reach *= 2) {
        if (t >= reach)
            buffer[to][t] = buffer[from][t] + buffer[from][t - reach];
        else
            buffer[to][t] = buffer[from][t];
        __syncthreads();
        from = 1 - from;
        to = 1 - to;
    }
    out[blockIdx.x * N + t] = buffer[from][t];
}
