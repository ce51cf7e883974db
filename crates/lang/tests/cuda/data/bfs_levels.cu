struct Node {
    int starting;
    int no_of_edges;
};

// Breadth-first search in one block, level by level, until no node was added.
__global__ void bfs_levels(const Node* g_graph_nodes, const int* g_graph_edges, int* g_cost, int no_of_nodes, int source) {
    extern __shared__ bool mask[];
    __shared__ int more;
    bool* updating = mask + no_of_nodes;
    for (int t = threadIdx.x; t < no_of_nodes; t += blockDim.x) {
        mask[t] = t == source;
        updating[t] = false;
        g_cost[t] = t == source ? 0 : -1;
    }
    int level = 0;
    do {
        __syncthreads();
        if (threadIdx.x == 0) more = 0;
        for (int tid = threadIdx.x; tid < no_of_nodes; tid += blockDim.x) {
            if (!mask[tid]) continue;
            mask[tid] = false;
            Node node = g_graph_nodes[tid];
            for (int i = node.starting; i < (node.no_of_edges + node.starting); i++) {
                atomicCAS(&g_cost[g_graph_edges[i]], -1, level + 1);
            }
        }
        __syncthreads();
        ++level;
        for (int tid = threadIdx.x; tid < no_of_nodes; tid += blockDim.x) {
            if (g_cost[tid] == level) {
                mask[tid] = true;
                atomicOr(&more, 1);
            }
        }
        __syncthreads();
    } while (more);
}
