// Four by four results a thread, kept in registers.
constexpr int BM = 16, BN = 16, BK = 8, TM = 4, TN = 4;
__global__ void matmul_registers(const float* A, const float* B, float* C, int N, int K) {
    __shared__ float a[BM * BK];
    __shared__ float b[BK * BN];
    const int threads = (BM / TM) * (BN / TN);
    const int tr = threadIdx.x / (BN / TN), tc = threadIdx.x % (BN / TN);
    float acc[TM][TN] = {};
    float left[TM], right[TN];
    A += blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int n = threadIdx.x; n < BM * BK; n += threads) a[n] = A[(n / BK) * K + n % BK];
        for (int n = threadIdx.x; n < BK * BN; n += threads) b[n] = B[(n / BN) * N + n % BN];
        __syncthreads();
        A += BK;
        B += BK * N;
        for (int k = 0; k < BK; k++) {
            for (int m = 0; m < TM; m++) left[m] = a[(tr * TM + m) * BK + k];
            for (int n = 0; n < TN; n++) right[n] = b[k * BN + tc * TN + n];
            for (int m = 0; m < TM; m++)
                for (int n = 0; n < TN; n++) acc[m][n] += left[m] * right[n];
        }
        __syncthreads();
    }
    for (int m = 0; m < TM; m++)
        for (int n = 0; n < TN; n++)
            C[(blockIdx.y * BM + tr * TM + m) * N + blockIdx.x * BN + tc * TN + n] = acc[m][n];
}
