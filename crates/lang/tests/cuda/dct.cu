#define PI 3.14159265f
// Cosine transforms of blocks of 8 by 8, by rows and then by columns.
__global__ void dct(const float* in, float* out, int width) {
    __shared__ float a[8][9], b[8][9];
    int x = threadIdx.x, y = threadIdx.y;
    int at = (blockIdx.y * 8 + y) * width + blockIdx.x * 8 + x;
    a[y][x] = in[at];
    __syncthreads();
    float sum = 0.0f;
    for (int k = 0; k < 8; k++) sum += a[y][k] * cosf((2 * k + 1) * x * PI / 16.0f);
    b[y][x] = sum * (x == 0 ? 0.35355339f : 0.5f);
    __syncthreads(); // rows are done
    sum = 0.0f;
    for (int k = 0; k < 8; k++) sum += b[k][x] * cosf((2 * k + 1) * y * PI / 16.0f);
    out[at] = sum * (y == 0 ? 0.35355339f : 0.5f);
}
