// launch: grid=1 block=32
// args: x=range:36 w=ones:5 y=zeros:32
// fault: out_of_bounds
// says: index 5 is outside 'w' of 5 elements
__global__ void convolve(const float* x, const float* w, float* y) {
    float sum = 0.0f;
#ifdef FAULT
    for (int k = 0; k <= 5; ++k)
#else
    for (int k = 0; k < 5; ++k)
#endif
        sum += w[k] * x[threadIdx.x + k];  // HERE
    y[threadIdx.x] = sum;
}
