// launch: grid=1 block=32
// args: a=range:2048 x=range:64 y=zeros:32
// fault: race
// says: race on 'part[
__global__ void matvec(const float* a, const float* x, float* y) {
    __shared__ float part[32];
    int row = threadIdx.x;
    float sum = 0.0f;
    for (int base = 0; base < 64; base += 32) {
        part[row] = x[base + row];  // SECOND
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; ++k) sum += a[row * 64 + base + k] * part[k];  // FIRST
#ifndef FAULT
        __syncthreads();
#endif
    }
    y[row] = sum;
}
