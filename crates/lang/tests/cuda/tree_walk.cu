// Sums the leaves of a binary tree below each thread's node, with an explicit stack of nodes.
struct Node {
    int index;
    short depth;
};

__global__ void tree_walk(const float* leaves, float* sums, int levels) {
    Node stack[20];
    int top = 0;
    stack[top].index = threadIdx.x;
    stack[top].depth = 3;
    ++top;
    float sum = 0.0f;
    while (top > 0) {
        Node node = stack[--top];
        if (node.depth == levels) {
            sum += leaves[node.index];
            continue;
        }
        Node child;
        child.depth = node.depth + 1;
        for (int side = 1; side >= 0; --side) {
            child.index = node.index * 2 + side;
            stack[top++] = child;
        }
    }
    sums[threadIdx.x] = sum;
}
