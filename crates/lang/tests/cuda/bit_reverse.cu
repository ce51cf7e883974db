// The order in which a fast Fourier transform takes its input.
__global__ void bit_reverse(const float2* in, float2* out, int bits) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned n = 1u << bits;
    if (i < n) out[__brev(i) >> (32 - bits)] = in[i];
}
