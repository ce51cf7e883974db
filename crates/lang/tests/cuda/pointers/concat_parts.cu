// Three arrays, one after the other; a thread finds its part in a table of pointers.
__global__ void concat_parts(const float* a, const float* b, const float* c, int na, int nb, int nc, float* out) {
    const float* parts[3] = {a, b, c};
    const int sizes[3] = {na, nb, nc};
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int at = i;
    for (int p = 0; p < 3; ++p) {
        if (i < sizes[p]) {
            out[at] = parts[p][i];
            return;
        }
        i -= sizes[p];
    }
}
