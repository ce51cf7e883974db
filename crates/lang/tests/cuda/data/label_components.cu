// Connected components in one block: labels hook to smaller ones and jump until nothing changes.
__device__ int find_root(int* parent, int v) {
    int p = atomicAdd(&parent[v], 0);
    while (p != v) {
        v = p;
        p = atomicAdd(&parent[v], 0);
    }
    return v;
}

__device__ void unite(int* parent, int a, int b) {
    bool done;
    do {
        a = find_root(parent, a);
        b = find_root(parent, b);
        if (a == b) return;
        if (a < b) {
            int t = a;
            a = b;
            b = t;
        }
        int old = atomicCAS(&parent[a], a, b);
        done = old == a;
    } while (!done);
}

__global__ void label_components(int* parent, const int2* edges, int vertices, int count) {
    for (int v = threadIdx.x; v < vertices; v += blockDim.x) parent[v] = v;
    __syncthreads(); // every vertex is its own root
    for (int e = threadIdx.x; e < count; e += blockDim.x) unite(parent, edges[e].x, edges[e].y);
    __syncthreads();
    for (int v = threadIdx.x; v < vertices; v += blockDim.x) {
        int root = find_root(parent, v);
        atomicExch(&parent[v], root);
    }
}
