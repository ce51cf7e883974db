// launch: grid=1 block=32
// args: x=mod7:32 out=zeros:32
// fault: partial_warp
// says: of 32 threads of a warp take part in a vote
__global__ void count(const int* x, int* out) {
    int v = x[threadIdx.x];
#ifdef FAULT
    if (v > 2) out[threadIdx.x] = __popc(__ballot_sync(0xffffffff, v > 4));  // HERE
#else
    unsigned large = __ballot_sync(0xffffffff, v > 4);
    if (v > 2) out[threadIdx.x] = __popc(large);
#endif
}
