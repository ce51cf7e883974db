// Clears the bits of multiples; a thread a divisor, 32 numbers a word.
__global__ void sieve(unsigned* bits, int n) {
    int d = 2 + blockIdx.x * blockDim.x + threadIdx.x;
    if (d * d >= n) return;
    for (int multiple = d * d; multiple < n; multiple += d) {
        atomicAnd(&bits[multiple / 32], ~(1u << (multiple % 32)));
    }
}
