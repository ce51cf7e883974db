#define ROUND(c, k) \
    { \
        unsigned h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x; \
        unsigned h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z; \
        c = make_uint4(h1 ^ c.y ^ k.x, l1, h0 ^ c.w ^ k.y, l0); \
    }
// Random words from a counter: the same wherever and in whatever order they are made.
__global__ void philox(uint4* out, int n, unsigned seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        uint4 counter = {(unsigned)i, 0u, 0u, 0u};
        uint2 key = make_uint2(seed, 0x1234u);
        for (int r = 0; r < 10; r++) {
            ROUND(counter, key);
            key.x += 0x9E3779B9u;
            key.y += 0xBB67AE85u;
        }
        out[i] = counter;
    }
}
