// launch: grid=2 block=16
// args: x=range:512 out=zeros:32 rows=16 cols=32
// fault: race
// says: a write by thread [0, 0, 0] of block [0, 0, 0] and a write by thread [0, 0, 0] of block [1, 0, 0]
__global__ void column_sums(const float* x, float* out, int rows, int cols) {
#ifdef FAULT
    int c = threadIdx.x;
#else
    int c = blockIdx.x * blockDim.x + threadIdx.x;
#endif
    float sum = 0.0f;
    for (int r = 0; r < rows; ++r) sum += x[r * cols + c];
    out[c] = sum;  // FIRST SECOND
}
