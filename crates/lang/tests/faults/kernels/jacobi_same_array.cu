// launch: grid=2x2 block=4x4
// args: u=range:100 v=zeros:100 n=10
// fault: race
// says: race on 'u[
__global__ void jacobi(float* u, float* v, int n) {
    int x = blockIdx.x * 4 + threadIdx.x + 1, y = blockIdx.y * 4 + threadIdx.y + 1;
    float mean = 0.25f * (u[y * n + x - 1] + u[y * n + x + 1]  // FIRST
                        + u[(y - 1) * n + x]
                        + u[(y + 1) * n + x]);
#ifdef FAULT
    u[y * n + x] = mean;  // SECOND
#else
    v[y * n + x] = mean;
#endif
}
