#define OFFSET(row, col, ld) ((row) * (ld) + (col))

// C = relu(A * B + bias), each thread computes TM x TN outputs of a BM x BN tile.
template <const int BM = 32, const int BN = 32, const int BK = 8, const int TM = 4, const int TN = 2>
__global__ void linear_relu(const float* A, const float* B, const float* bias, float* C, int M, int N, int K) {
    __shared__ float s_a[BK][BM], s_b[BK][BN];
    const int tid = threadIdx.y * blockDim.x + threadIdx.x;
    const int threads = blockDim.x * blockDim.y;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    float acc[TM][TN] = {{0.0f}};

    for (int bk = 0; bk < K; bk += BK) {
        for (int i = tid; i < BM * BK; i += threads) {
            int m = i / BK, k = i % BK;
            s_a[k][m] = row0 + m < M && bk + k < K ? A[OFFSET(row0 + m, bk + k, K)] : 0.f;
        }
        for (int i = tid; i < BK * BN; i += threads) {
            int k = i / BN, n = i % BN;
            s_b[k][n] = bk + k < K && col0 + n < N ? B[OFFSET(bk + k, col0 + n, N)] : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; k++)
#pragma unroll
            for (int m = 0; m < TM; m++)
#pragma unroll
                for (int n = 0; n < TN; n++)
                    acc[m][n] += s_a[k][threadIdx.y * TM + m] * s_b[k][threadIdx.x * TN + n];
        __syncthreads(); // before the next tile
    }
    for (int m = 0; m < TM; m++) {
        for (int n = 0; n < TN; n++) {
            const int r = row0 + threadIdx.y * TM + m, c = col0 + threadIdx.x * TN + n;
            if (r < M && c < N) C[OFFSET(r, c, N)] = fmaxf(acc[m][n] + bias[c], 0.0f);
        }
    }
}

void launch(const float* a, const float* b, const float* bias, float* c, int M, int N, int K) {
    linear_relu<><<<dim3((N + 31) / 32, (M + 31) / 32), dim3(16, 8)>>>(a, b, bias, c, M, N, K);
}
