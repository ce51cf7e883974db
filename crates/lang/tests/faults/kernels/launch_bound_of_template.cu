// launch: grid=1 block=16x16
// args: y=range:256
// kernel: add_one<64>, add_one<256>
// error: a block of 256 threads exceeds '__launch_bounds__(128)'
template <int N>
__global__ void __launch_bounds__(2 * N, 2)  // HERE
add_one(float* y) {
    y[threadIdx.y * 16 + threadIdx.x] += 1.0f;
}
