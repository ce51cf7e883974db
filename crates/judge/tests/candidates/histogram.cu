//# problem {"sizes": {"n": "1..600", "bins": "2..40"}, "args": {"counts": "zeros:bins", "x": "randint(0,bins):n", "n": "n", "bins": "bins"}, "launch": {"dim": "n", "block": 64}}
//# reference
__global__ void histogram(int* counts, const int* x, int n, int bins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&counts[x[i]], 1);
}
//# right in shared memory
__global__ void histogram(int* counts, const int* x, int n, int bins) {
    __shared__ int local[64];
    for (int b = threadIdx.x; b < bins; b += blockDim.x) local[b] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&local[x[i]], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += blockDim.x) atomicAdd(&counts[b], local[b]);
}
//# right one thread per bin
//# launch {"dim": "bins", "block": 32}
__global__ void histogram(int* counts, const int* x, int n, int bins) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= bins) return;
    int count = 0;
    for (int i = 0; i < n; i++) count += x[i] == b;
    counts[b] = count;
}
//# right sequential
//# launch {"grid": 1, "block": 1}
__global__ void histogram(int* counts, const int* x, int n, int bins) {
    for (int i = 0; i < n; i++) counts[x[i]]++;
}
//# fault race not atomic
__global__ void histogram(int* counts, const int* x, int n, int bins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) counts[x[i]] += 1;
}
//# fault uninitialized bins not cleared
__global__ void histogram(int* counts, const int* x, int n, int bins) {
    __shared__ int local[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&local[x[i]], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += blockDim.x) atomicAdd(&counts[b], local[b]);
}
//# wrong bin shifted
__global__ void histogram(int* counts, const int* x, int n, int bins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&counts[(x[i] + 1) % bins], 1);
}
//# wrong value added
__global__ void histogram(int* counts, const int* x, int n, int bins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&counts[x[i]], x[i]);
}
//# wrong overflow of a byte
//# launch {"dim": "bins", "block": 32}
__global__ void histogram(int* counts, const int* x, int n, int bins) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= bins) return;
    unsigned char count = 250;
    for (int i = 0; i < n; i++) count += x[i] == b;
    counts[b] = (int)count - 250;
}
//# fault race flush without atomics
__global__ void histogram(int* counts, const int* x, int n, int bins) {
    __shared__ int local[64];
    for (int b = threadIdx.x; b < bins; b += blockDim.x) local[b] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&local[x[i]], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += blockDim.x) counts[b] += local[b];
}
//# cheating even distribution
//# launch {"dim": "bins", "block": 32}
__global__ void histogram(int* counts, const int* x, int n, int bins) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b < bins) counts[b] = n / bins + (b < n % bins);
}
