// launch: grid=1 block=32
// args: x=range:32 y=zeros:32
// fault: out_of_bounds
// says: index -1 is outside 'x' of 32 elements, in thread [0, 0, 0]
__global__ void difference(const float* x, float* y) {
    int i = threadIdx.x;
#ifdef FAULT
    float before = x[i - 1];  // HERE
#else
    float before = i > 0 ? x[i - 1] : 0.0f;
#endif
    y[i] = x[i] - before;
}
