#define TILE 8

struct Matrix {
    int width, height, stride;
    float* elements;
};

__device__ float get(const Matrix m, int row, int column) { return m.elements[row * m.stride + column]; }
__device__ void set(Matrix m, int row, int column, float value) { m.elements[row * m.stride + column] = value; }

__device__ Matrix tile_of(Matrix m, int row, int column) {
    Matrix tile;
    tile.width = tile.height = TILE;
    tile.stride = m.stride;
    tile.elements = &m.elements[m.stride * TILE * row + TILE * column];
    return tile;
}

// C = A B in tiles; sizes are multiples of the tile.
__global__ void matrix_struct(Matrix a, Matrix b, Matrix c) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    const int row = threadIdx.y, column = threadIdx.x;
    Matrix out = tile_of(c, blockIdx.y, blockIdx.x);
    float sum = 0;
    for (int m = 0; m < a.width / TILE; ++m) {
        const Matrix left = tile_of(a, blockIdx.y, m), right = tile_of(b, m, blockIdx.x);
        as[row][column] = get(left, row, column);
        bs[row][column] = get(right, row, column);
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += as[row][k] * bs[k][column];
        __syncthreads();
    }
    set(out, row, column, sum);
}
