__global__ void timed(float* x, long long* cycles) {
    long long start = clock64();
    x[threadIdx.x] *= 2.0f;
    cycles[0] = strat;
}
