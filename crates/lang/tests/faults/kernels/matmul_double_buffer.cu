// launch: grid=1 block=64
// args: a=range:512 out=zeros:64
// fault: race
// says: race on 'stage[0][
__global__ void pipeline(const float* a, float* out) {
    __shared__ float stage[2][64];
    int t = threadIdx.x;
    stage[0][t] = a[t];
    __syncthreads();
    float sum = 0.0f;
    for (int k = 0; k < 8; ++k) {
#ifdef FAULT
        int next = k & 1;
#else
        int next = (k + 1) & 1;
#endif
        if (k + 1 < 8) stage[next][t] = a[(k + 1) * 64 + t];  // FIRST
        sum += stage[k & 1][(t + 1) % 64];  // SECOND
        __syncthreads();
    }
    out[t] = sum;
}
