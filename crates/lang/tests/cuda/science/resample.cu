// Systematic resampling of a particle filter by binary search in the cumulative weights.
__device__ int findIndexBin(const double* CDF, int beginIndex, int endIndex, double value) {
    while (beginIndex < endIndex) {
        int middleIndex = beginIndex + ((endIndex - beginIndex) >> 1);
        if (CDF[middleIndex] >= value) endIndex = middleIndex;
        else beginIndex = middleIndex + 1;
    }
    return beginIndex;
}

__global__ void resample(const double* arrayX, const double* CDF, double start, double* xj, int Nparticles) {
    int block_id = blockIdx.x;
    int i = blockDim.x * block_id + threadIdx.x;
    if (i < Nparticles) {
        double u = (start + i) / ((double)(Nparticles)) * CDF[Nparticles - 1];
        int index = findIndexBin(CDF, 0, Nparticles - 1, u);
        if (index == -1) {
            index = Nparticles - 1;
        }
        xj[i] = arrayX[index];
    }
    __syncthreads();
}
