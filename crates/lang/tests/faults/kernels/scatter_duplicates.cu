// launch: grid=1 block=32
// args: where=mod7:32 x=range:32 out=zeros:32
// fault: race
// says: race on 'out[0]': a write by thread [0, 0, 0] of block [0, 0, 0] and a write by thread [7, 0, 0]
__global__ void scatter(const int* where, const float* x, float* out) {
    int i = threadIdx.x;
#ifdef FAULT
    out[where[i]] = x[i];  // FIRST SECOND
#else
    out[i] = x[where[i]];
#endif
}
