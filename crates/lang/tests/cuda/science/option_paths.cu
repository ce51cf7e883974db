#include <math.h>
#define PI 3.14159265358979f

// A linear congruential generator and the Box-Muller transform.
__device__ unsigned int lcg(unsigned int* state) { return *state = 1664525u * *state + 1013904223u; }
__device__ float uniform(unsigned int* state) { return (float)((lcg(state) >> 8) + 1) / 16777217.0f; }
__device__ void box_muller(float u1, float u2, float* n1, float* n2) {
    float radius = sqrtf(-2.0f * logf(u1));
    *n1 = radius * cosf(2.0f * PI * u2);
    *n2 = radius * sinf(2.0f * PI * u2);
}

// Arithmetic Asian call: payoff of each path.
__global__ void option_paths(float* payoffs, float spot, float strike, float drift, float vol, int steps, int paths,
                             unsigned int seed) {
    int path = blockIdx.x * blockDim.x + threadIdx.x;
    if (path >= paths) return;
    unsigned int state = seed ^ (path * 2654435761u);
    float log_price = logf(spot), total = 0.0f;
    for (int s = 0; s < steps; s += 2) {
        float n1, n2;
        float u1 = uniform(&state), u2 = uniform(&state);
        box_muller(u1, u2, &n1, &n2);
        log_price += drift + vol * n1;
        total += expf(log_price);
        log_price += drift + vol * n2;
        total += expf(log_price);
    }
    payoffs[path] = fmaxf(total / steps - strike, 0.0f);
}
