// Heat in three dimensions, one explicit step.
__global__ void heat(const float* now, float* then, int3 size, float r) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x < 1 || y < 1 || z < 1 || x >= size.x - 1 || y >= size.y - 1 || z >= size.z - 1) return;
    int row = size.x, plane = size.x * size.y;
    const float* p = now + z * plane + y * row + x;
    then[z * plane + y * row + x] =
        *p + r * (p[1] + p[-1] + p[row] + p[-row] + p[plane] + *(p - plane) - 6.0f * p[0]);
}
