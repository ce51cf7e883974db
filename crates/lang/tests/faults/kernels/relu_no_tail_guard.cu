// launch: grid=2 block=64
// args: y=range:100 n=100
// fault: out_of_bounds
// says: index 100 is outside 'y' of 100 elements, in thread [36, 0, 0] of block [1, 0, 0]
__global__ void relu(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef FAULT
    if (i >= n) return;
#endif
    y[i] = fmaxf(y[i], 0.0f);  // HERE
}
