// launch: grid=4 block=32
// args: x=range:128 y=range:128 result=zeros:1
// fault: race
// says: race on 'result[0]': a write by thread [0, 0, 0] of block [0, 0, 0] and a read by thread [0, 0, 0] of block [1, 0, 0]
__global__ void dot(const float* x, const float* y, float* result) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i] * y[i];
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffff, v, offset);
    if (threadIdx.x == 0) {
#ifdef FAULT
        *result += v;  // FIRST SECOND
#else
        atomicAdd(result, v);
#endif
    }
}
