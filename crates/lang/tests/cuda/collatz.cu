__global__ void collatz(const unsigned long long* numbers, unsigned* lengths, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned long long x = numbers[i];
        unsigned length = 0;
        while (x != 1) {
            x = (x & 1) ? 3 * x + 1 : x / 2;
            length++;
        }
        lengths[i] = length;
    }
}
