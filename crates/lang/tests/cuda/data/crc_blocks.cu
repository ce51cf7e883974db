#include <cstdint>

__constant__ uint32_t crc_table[256];

// CRC-32 of each record, from words with the bytes taken apart.
__global__ void crc_blocks(const uint32_t* data, uint32_t* crc, int words, int records) {
    const int r = blockDim.x * blockIdx.x + threadIdx.x;
    if (r < records) {
        uint32_t c = ~0u;
        for (int w = 0; w < words; w++) {
            uint32_t v = data[r * words + w];
            for (int byte = 0; byte < 4; byte++, v >>= 8) c = crc_table[(c ^ v) & 0xff] ^ (c >> 8);
        }
        crc[r] = ~c;
    }
}
