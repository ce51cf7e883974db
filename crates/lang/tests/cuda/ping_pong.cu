// Repeated smoothing of rows of 80 numbers between two local arrays that exchange their roles.
#define WIDTH 80

__device__ void smooth(const double* from, double* to) {
    for (int i = 0; i < WIDTH; ++i) {
        double left = i > 0 ? from[i - 1] : 0.0;
        double right = i + 1 < WIDTH ? from[i + 1] : 0.0;
        to[i] = (left + 2.0 * from[i] + right) / 4.0;
    }
}

__global__ void ping_pong(const double* x, double* y, int steps) {
    double first[WIDTH], second[WIDTH];
    int row = threadIdx.x;
    for (int i = 0; i < WIDTH; ++i) first[i] = x[row * WIDTH + i];
    double* from = first;
    double* to = second;
    for (int step = 0; step < steps; ++step) {
        smooth(from, to);
        double* other = from;
        from = to;
        to = other;
    }
    for (int i = 0; i < WIDTH; ++i) y[row * WIDTH + i] = from[i];
}
