// launch: grid=1 block=32
// args: x=range:64 y=zeros:32 n=64
// fault: statement_limit
// says: still running after 100000 statements
__global__ void sums(const float* x, float* y, int n) {
    float sum = 0.0f;
    int i = threadIdx.x;
    while (i < n) {
        sum += x[i];
#ifndef FAULT
        i += blockDim.x;
#endif
    }
    y[threadIdx.x] = sum;
}
