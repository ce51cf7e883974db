// A step on a torus.
__global__ void game_of_life(const bool* alive, bool* next, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int neighbours = 0;
    for (int dy = -1; dy <= 1; dy++) {
        for (int dx = -1; dx <= 1; dx++) {
            if (dx == 0 && dy == 0) continue;
            neighbours += alive[(y + dy + h) % h * w + (x + dx + w) % w];
        }
    }
    next[y * w + x] = neighbours == 3 || (alive[y * w + x] && neighbours == 2);
}
