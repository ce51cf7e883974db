#include <cuda_fp16.h>

#define LDST128BITS(value) (reinterpret_cast<float4*>(&(value))[0])

// c = a + b, eight halves a thread in one load.
__global__ void half8_add(half* a, half* b, half* c, int n) {
    const int i = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
    half pack_a[8], pack_b[8], pack_c[8];
    if (i + 7 < n) {
        LDST128BITS(pack_a[0]) = LDST128BITS(a[i]);
        LDST128BITS(pack_b[0]) = LDST128BITS(b[i]);
#pragma unroll
        for (int k = 0; k < 8; k += 2) {
            reinterpret_cast<half2&>(pack_c[k]) =
                __hadd2(reinterpret_cast<half2&>(pack_a[k]), reinterpret_cast<half2&>(pack_b[k]));
        }
        LDST128BITS(c[i]) = LDST128BITS(pack_c[0]);
    } else {
        for (int k = i; k < n; ++k) c[k] = __hadd(a[k], b[k]);
    }
}
