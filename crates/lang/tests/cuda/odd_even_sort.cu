template <typename T>
__device__ void swap_values(T& a, T& b) {
    T kept = a;
    a = b;
    b = kept;
}
__global__ void odd_even_sort(float* values, int n) {
    int t = threadIdx.x;
    for (int round = 0; round < n; ++round) {
        int at = 2 * t + (round & 1);
        if (at + 1 < n && values[at] > values[at + 1]) swap_values(values[at], values[at + 1]);
        __syncthreads();
    }
}
