// launch: grid=1 block=64
// args: x=range:64 out=zeros:64
// fault: race
// says: race on 'temp[0]': a read by thread [1, 0, 0]
__global__ void inclusive_scan(const int* x, int* out) {
    __shared__ int temp[64];
    int t = threadIdx.x;
    temp[t] = x[t];
    __syncthreads();
    for (int offset = 1; offset < 64; offset *= 2) {
        int left = t >= offset ? temp[t - offset] : 0;  // FIRST
#ifndef FAULT
        __syncthreads();
#endif
        temp[t] += left;  // SECOND
        __syncthreads();
    }
    out[t] = temp[t];
}
