// One pass of a radix sort over one bit, for one block: zeros keep their order before ones.
__global__ void radix_step(unsigned* keys, int bit) {
    __shared__ unsigned sorted[64];
    __shared__ int zeros[2];
    unsigned key = keys[threadIdx.x];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    bool one = (key >> bit) & 1;
    unsigned votes = __ballot_sync(0xffffffff, !one);
    if (lane == 0) zeros[warp] = __popc(votes);
    __syncthreads();
    int before = __popc(votes & ((1u << lane) - 1)) + (warp == 1 ? zeros[0] : 0);
    int all = zeros[0] + zeros[1];
    int place = one ? all + threadIdx.x - before : before;
    sorted[place] = key;
    __syncthreads();
    keys[threadIdx.x] = sorted[threadIdx.x];
}
