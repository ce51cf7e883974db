// Vertices at one distance find those at the next. -1: not found yet.
__global__ void bfs_step(const int* starts, const int* edges, int* distance, int* found, int level, int vertices) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= vertices || level != atomicAdd(&distance[v], 0)) return;
    for (int e = starts[v]; e < starts[v + 1]; ++e) {
        int neighbour = edges[e];
        if (atomicCAS(&distance[neighbour], -1, level + 1) == -1) {
            atomicExch(found, 1);
        }
    }
}
