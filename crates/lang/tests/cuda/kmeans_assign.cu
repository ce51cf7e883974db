__global__ void kmeans_assign(const float2* points, const float2* centers, int* nearest, int* counts, int n, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 p = points[i];
    int best = 0;
    float least = FLT_MAX;
    for (int c = 0; c < k; c++) {
        float dx = p.x - centers[c].x, dy = p.y - centers[c].y;
        float d = dx * dx + dy * dy;
        if (d < least) {
            least = d;
            best = c;
        }
    }
    nearest[i] = best;
    atomicAdd(&counts[best], 1);
}
