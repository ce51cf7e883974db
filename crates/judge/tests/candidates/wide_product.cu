//# problem {"sizes": {"n": "4..300"}, "args": {"y": "uninitialized:n", "a": "randint(-2000000,2000000):n", "b": "randint(-2000000,2000000):n", "n": "n"}, "launch": {"dim": "n", "block": 64}}
//# reference
__global__ void product(long long* y, const int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (long long)a[i] * b[i];
}
//# right by parts
__global__ void product(long long* y, const int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long high = a[i] >> 10, low = a[i] & 1023;
    y[i] = (high * b[i] << 10) + low * b[i];
}
//# right operands exchanged
__global__ void product(long long* y, const int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = b[i] * (long long)a[i];
}
//# right in doubles, which are exact here
__global__ void product(long long* y, const int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (long long)((double)a[i] * (double)b[i]);
}
//# wrong overflow
__global__ void product(long long* y, const int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (long long)(a[i] * b[i]);
}
//# wrong rounded
__global__ void product(long long* y, const int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (long long)((float)a[i] * (float)b[i]);
}
//# wrong unsigned
__global__ void product(long long* y, const int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (long long)((unsigned long long)(unsigned)a[i] * (unsigned)b[i]);
}
//# wrong input overwritten
__global__ void product(long long* y, int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = (long long)a[i] * b[i];
    a[i] = 0;
}
//# wrong element type
__global__ void product(int* y, const int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] * b[i];
}
//# cheating index
__global__ void product(long long* y, const int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = i;
}
