#define BLOCK 64
// The largest value of each row and where it is; of equal ones, the first.
__global__ void argmax(const float* rows, int* where, int columns) {
    __shared__ float best[BLOCK];
    __shared__ int at[BLOCK];
    const float* row = rows + blockIdx.x * columns;
    float largest = -INFINITY;
    int place = 0;
    for (int c = threadIdx.x; c < columns; c += BLOCK) {
        if (row[c] > largest) {
            largest = row[c];
            place = c;
        }
    }
    best[threadIdx.x] = largest;
    at[threadIdx.x] = place;
    __syncthreads();
    for (int step = BLOCK / 2; step >= 1; step /= 2) {
        if (threadIdx.x < step) {
            float other = best[threadIdx.x + step];
            int there = at[threadIdx.x + step];
            bool better = other > best[threadIdx.x] || (other == best[threadIdx.x] && there < at[threadIdx.x]);
            if (better) {
                best[threadIdx.x] = other;
                at[threadIdx.x] = there;
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) where[blockIdx.x] = at[0];
}
