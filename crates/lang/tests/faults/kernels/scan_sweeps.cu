// launch: grid=1 block=32
// args: x=range:64 out=zeros:64
// fault: race
// says: race on 'temp[
__global__ void exclusive_scan(const int* x, int* out) {
    __shared__ int temp[64];
    int t = threadIdx.x, offset = 1;
    temp[2 * t] = x[2 * t];
    temp[2 * t + 1] = x[2 * t + 1];
    for (int d = 32; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) temp[offset * (2 * t + 2) - 1] += temp[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0) temp[63] = 0;
    for (int d = 1; d < 64; d *= 2) {
        offset >>= 1;
#ifdef FAULT
        if (d < 4)
#endif
        __syncthreads();
        if (t < d) {
            int left = temp[offset * (2 * t + 1) - 1];
            temp[offset * (2 * t + 1) - 1] = temp[offset * (2 * t + 2) - 1];  // SECOND
            temp[offset * (2 * t + 2) - 1] += left;  // FIRST
        }
    }
    __syncthreads();
    out[2 * t] = temp[2 * t];
    out[2 * t + 1] = temp[2 * t + 1];
}
