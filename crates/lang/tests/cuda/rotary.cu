__global__ void rotary(float* x, int heads, int dim) {
    int position = blockIdx.x, head = blockIdx.y, k = threadIdx.x;
    if (k < dim / 2) {
        float angle = position * powf(10000.0f, -2.0f * k / dim);
        float s, c;
        sincosf(angle, &s, &c);
        float* pair = x + (position * heads + head) * dim + 2 * k;
        float a = pair[0], b = pair[1];
        pair[0] = a * c - b * s;
        pair[1] = a * s + b * c;
    }
}
