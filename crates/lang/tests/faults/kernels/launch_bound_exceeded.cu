// launch: grid=2 block=256
// args: y=range:512
// error: a block of 256 threads exceeds '__launch_bounds__(128)'
#ifdef FAULT
constexpr int kThreads = 128;
#else
constexpr int kThreads = 256;
#endif
__global__ void __launch_bounds__(kThreads)  // HERE
scale(float* y) {
    y[blockIdx.x * blockDim.x + threadIdx.x] *= 2.0f;
}
