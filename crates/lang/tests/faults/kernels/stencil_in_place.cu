// launch: grid=2 block=32
// args: x=range:66 y=zeros:66
// fault: race
// says: race on 'x[
__global__ void heat(float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x + 1;
    float v = 0.5f * (x[i - 1] + x[i + 1]);  // FIRST
#ifdef FAULT
    x[i - 1] = v;  // SECOND
#else
    y[i - 1] = v;
#endif
}
