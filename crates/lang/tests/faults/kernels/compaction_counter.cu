// launch: grid=1 block=64
// args: x=mod7:64 out=zeros:64 count=zeros:1
// fault: race
// says: race on 'count[0]'
__global__ void compact(const int* x, int* out, int* count) {
    int v = x[threadIdx.x];
    if (v > 3) {
#ifdef FAULT
        int at = count[0];  // FIRST
        count[0] = at + 1;  // SECOND
#else
        int at = atomicAdd(count, 1);
#endif
        out[at] = 1;
    }
}
