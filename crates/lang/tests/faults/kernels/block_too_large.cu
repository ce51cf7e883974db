// launch: grid=1 block=32x64
// clean: grid=1 block=32x32
// args: y=zeros:2048
// error: a block has 1 to 1024 threads
__global__ void fill(float* y) {  // HERE
    y[threadIdx.y * 32 + threadIdx.x] = 1.0f;
}
