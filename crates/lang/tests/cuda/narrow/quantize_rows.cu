// Symmetric quantization of rows to int8: largest magnitude, then rounding to nearest.
template <typename scalar_t>
__global__ void quantize_rows(const scalar_t* __restrict__ input, signed char* __restrict__ out, float* __restrict__ scale,
                              const int hidden) {
    const int tid = threadIdx.x;
    const long token = blockIdx.x;
    float absmax = 0.0f;
    for (int i = tid; i < hidden; i += blockDim.x) {
        float val = static_cast<float>(input[token * hidden + i]);
        val = val > 0.0f ? val : -val;
        absmax = val > absmax ? val : absmax;
    }
    __shared__ unsigned int shared_max;
    if (tid == 0) shared_max = 0u;
    __syncthreads();
    // Bits of floats that are not negative are ordered as integers.
    atomicMax(&shared_max, __float_as_uint(absmax));
    __syncthreads();
    const float top = __uint_as_float(shared_max);
    const float inverse = top == 0.f ? 0.f : 127.0f / top;
    if (tid == 0) scale[token] = top / 127.0f;
    for (int i = tid; i < hidden; i += blockDim.x) {
        const float q = rintf(static_cast<float>(input[token * hidden + i]) * inverse);
        out[token * hidden + i] = static_cast<signed char>(fminf(fmaxf(q, -128.f), 127.f));
    }
}

template __global__ void quantize_rows<float>(const float*, signed char*, float*, const int);
