enum { PLUS, MINUS, TIMES, OVER, POWER = 10 };
__device__ int calculate(int op, int a, int b) {
    int result = 1;
    switch (op) {
        case PLUS: return a + b;
        case MINUS: return a - b;
        case TIMES: return a * b;
        case OVER: return b == 0 ? 0 : a / b;
        case POWER:
            for (int k = 0; k < b; k++) result *= a;
            break;
        default: result = -1;
    }
    return result;
}
__global__ void calculator(const char* ops, const int* a, const int* b, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = calculate(ops[i], a[i], b[i]);
}
