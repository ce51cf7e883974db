// launch: grid=4 block=32
// args: x=range:100 y=zeros:100 a=2 n=100
// fault: out_of_bounds
// says: index 100 is outside 'x' of 100 elements, in thread [4, 0, 0] of block [3, 0, 0]
__global__ void saxpy(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FAULT
    if (i <= n)
#else
    if (i < n)
#endif
        y[i] = a * x[i] + y[i];  // HERE
}
