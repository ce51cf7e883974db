// Exclusive running sums: sums going up a tree, then down again.
template <int COUNT>
__global__ void scan_blelloch(float *out, const float *in) {
    __shared__ float tree[COUNT];
    const int t = threadIdx.x;
    const int base = blockIdx.x * COUNT;
    tree[2 * t] = in[base + 2 * t];
    tree[2 * t + 1] = in[base + 2 * t + 1];
    int offset = 1;
    for (int d = COUNT >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) {
            int a = offset * (2 * t + 1) - 1;
            int b = offset * (2 * t + 2) - 1;
            tree[b] += tree[a];
        }
        offset *= 2;
    }
    if (t == 0) tree[COUNT - 1] = 0;
    for (int d = 1; d < COUNT; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int a = offset * (2 * t + 1) - 1;
            int b = offset * (2 * t + 2) - 1;
            float kept = tree[a];
            tree[a] = tree[b];
            tree[b] += kept;
        }
    }
    __syncthreads(); // before the results are read
    out[base + 2 * t] = tree[2 * t];
    out[base + 2 * t + 1] = tree[2 * t + 1];
}
template __global__ void scan_blelloch<64>(float *out, const float *in);
