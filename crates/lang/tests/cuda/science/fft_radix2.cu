#include <cuComplex.h>
#define TWO_PI 6.283185307179586f

// Stockham FFT of 64 points in shared memory, one block per signal.
template <int N, int LOG>
__global__ void fft_radix2(const float2* in, float2* out, float sign) {
    __shared__ float2 ping[N];
    __shared__ float2 pong[N];
    const int j = threadIdx.x;
    const float2* signal = in + blockIdx.x * N;
    ping[j] = signal[j];
    ping[j + N / 2] = signal[j + N / 2];
    __syncthreads();
#pragma unroll
    for (int stage = 0; stage < LOG; ++stage) {
        const int p = 1 << stage, k = j & (p - 1);
        const float angle = sign * TWO_PI / 2.0f * k / p;
        const float c = cosf(angle), s = sinf(angle);
        float2 u0, u1;
        if (stage % 2 == 0) {
            u0 = ping[j];
            u1 = ping[j + N / 2];
        } else {
            u0 = pong[j];
            u1 = pong[j + N / 2];
        }
        const float2 t = make_float2(u1.x * c - u1.y * s, u1.x * s + u1.y * c);
        const int at = ((j - k) << 1) + k;
        const float2 a = make_float2(u0.x + t.x, u0.y + t.y), b = make_float2(u0.x - t.x, u0.y - t.y);
        if (stage % 2 == 0) {
            pong[at] = a;
            pong[at + p] = b;
        } else {
            ping[at] = a;
            ping[at + p] = b;
        }
        __syncthreads();
    }
    for (int i = j; i < N; i += N / 2) out[blockIdx.x * N + i] = LOG % 2 ? pong[i] : ping[i];
}

template __global__ void fft_radix2<64, 6>(const float2*, float2*, float);
