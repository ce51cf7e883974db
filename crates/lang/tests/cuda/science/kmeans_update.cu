#define K 4
#define DIM 3

// Assigns points to the nearest centroid and sums the new ones in shared memory first.
__global__ void kmeans_update(const float* points, const float* centroids, float* sums, int* counts, int* labels, int n) {
    __shared__ float s_centroids[K * DIM];
    __shared__ float s_sums[K * DIM];
    __shared__ int s_counts[K];
    const int tid = threadIdx.x;
    if (tid < K * DIM) {
        s_centroids[tid] = centroids[tid];
        s_sums[tid] = 0.f;
    }
    if (tid < K) s_counts[tid] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + tid; i < n; i += gridDim.x * blockDim.x) {
        float best = 3.402823466e+38F;
        int label = -1;
        for (int k = 0; k < K; k++) {
            float dist = 0.f;
            for (int d = 0; d < DIM; d++) {
                float diff = points[d * n + i] - s_centroids[k * DIM + d];
                dist += diff * diff;
            }
            if (dist < best) best = dist, label = k;
        }
        labels[i] = label;
        for (int d = 0; d < DIM; d++) atomicAdd(&s_sums[label * DIM + d], points[d * n + i]);
        atomicAdd(s_counts + label, 1);
    }
    __syncthreads();
    if (tid < K * DIM) atomicAdd(&sums[tid], s_sums[tid]);
    if (tid < K) atomicAdd(&counts[tid], s_counts[tid]);
}
