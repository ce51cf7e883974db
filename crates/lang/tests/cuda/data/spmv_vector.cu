#define WARP_SIZE 32

// Sparse matrix times vector in CSR: THREADS_PER_VECTOR threads share a row.
template <typename IndexType, typename ValueType, unsigned int VECTORS_PER_BLOCK, unsigned int THREADS_PER_VECTOR>
__global__ void spmv_vector(const IndexType num_rows, const IndexType* __restrict__ Ap, const IndexType* __restrict__ Aj,
                            const ValueType* __restrict__ Ax, const ValueType* __restrict__ x, ValueType* __restrict__ y) {
    __shared__ IndexType ptrs[VECTORS_PER_BLOCK][2];
    const IndexType THREADS_PER_BLOCK = VECTORS_PER_BLOCK * THREADS_PER_VECTOR;
    const IndexType thread_id = THREADS_PER_BLOCK * blockIdx.x + threadIdx.x;
    const IndexType thread_lane = threadIdx.x & (THREADS_PER_VECTOR - 1);
    const IndexType vector_id = thread_id / THREADS_PER_VECTOR;
    const IndexType vector_lane = threadIdx.x / THREADS_PER_VECTOR;
    const IndexType num_vectors = VECTORS_PER_BLOCK * gridDim.x;

    for (IndexType row = vector_id; row < num_rows; row += num_vectors) {
        if (thread_lane < 2) ptrs[vector_lane][thread_lane] = Ap[row + thread_lane];
        __syncwarp();
        const IndexType row_start = ptrs[vector_lane][0];
        const IndexType row_end = ptrs[vector_lane][1];
        ValueType sum = 0;
        for (IndexType jj = row_start + thread_lane; jj < row_end; jj += THREADS_PER_VECTOR) sum += Ax[jj] * x[Aj[jj]];
        for (int offset = THREADS_PER_VECTOR / 2; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xffffffff, sum, offset, THREADS_PER_VECTOR);
        if (thread_lane == 0) y[row] = sum;
        __syncwarp();
    }
}

int main() { spmv_vector<int, double, 8, 8><<<2, 64>>>(0, 0, 0, 0, 0, 0); }
