// launch: grid=1 block=64
// args: x=range:256 y=zeros:256
// fault: race
// says: race on 'total[
__global__ void norms(const float* x, float* y) {
    __shared__ float total[2];
    int t = threadIdx.x, warp = t / 32;
    for (int row = 0; row < 4; ++row) {
        float v = x[row * 64 + t] * x[row * 64 + t];
        for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
        if (t % 32 == 0) total[warp] = v;  // SECOND
        __syncthreads();
        y[row * 64 + t] = x[row * 64 + t] / sqrtf(total[0] + total[1] + 1.0f);  // FIRST
#ifndef FAULT
        __syncthreads();
#endif
    }
}
