// launch: grid=1 block=64
// args: x=mod7:64
// fault: race
// says: race on 'keys[
__global__ void sort(int* x) {
    __shared__ int keys[64];
    int t = threadIdx.x;
    keys[t] = x[t];
    __syncthreads();
    for (int k = 2; k <= 64; k *= 2) {
        for (int j = k / 2; j > 0; j /= 2) {
            int other = t ^ j;
            if (other > t) {
                int a = keys[t], b = keys[other];  // SECOND
                bool ascending = (t & k) == 0;
                if ((a > b) == ascending) {
                    keys[t] = b;
                    keys[other] = a;  // FIRST
                }
            }
#ifndef FAULT
            __syncthreads();
#endif
        }
    }
    __syncthreads();
    x[t] = keys[t];
}
