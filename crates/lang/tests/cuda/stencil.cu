#define RADIUS 3
#define SIZE 64
// The sum of 2 RADIUS + 1 neighbours; beyond the ends there are zeros.
__global__ void stencil(const int* in, int* out, int n) {
    __shared__ int line[SIZE + 2 * RADIUS];
    int g = threadIdx.x + blockIdx.x * SIZE;
    int l = threadIdx.x + RADIUS;
    line[l] = g < n ? in[g] : 0;
    if (threadIdx.x < RADIUS) {
        line[l - RADIUS] = g >= RADIUS ? in[g - RADIUS] : 0;
        line[l + SIZE] = g + SIZE < n ? in[g + SIZE] : 0;
    }
    __syncthreads();
    int result = 0;
    for (int offset = -RADIUS; offset <= RADIUS; offset++) result += line[l + offset];
    if (g < n) out[g] = result;
}
