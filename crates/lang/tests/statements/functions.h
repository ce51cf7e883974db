// Functions whose statements our front end and g++ must understand alike. Each is given eight numbers and returns one.
__device__ int falls_through(int* x, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        switch (x[i] & 7) {
            case 0: sum += 1;
            case 1: sum += 10; break;
            case 2:
            case 3: { sum += 100; if (x[i] > 50) break; sum += 7; break; }
            default: sum += 1000;
            case 6: sum ^= 5; continue;
            case 7: return sum;
        }
        sum *= 3;
    }
    return sum;
}
__device__ int continues(int* x, int n) {
    int i = 0, sum = 0;
    do {
        if (x[i] % 3 == 0) continue;
        sum += x[i];
        if (sum > 200) break;
    } while (++i < n);
    while (i-- > 0) {
        if (x[i] & 1) continue;
        for (int k = i; ; k += 2) {
            if (k >= n) break;
            if (x[k] % 5 == 1) continue;
            sum -= k;
        }
    }
    return sum;
}
__device__ int first_pair(int* x, int n, int wanted) {
    for (int a = 0; a < n; a++) {
        for (int b = a + 1; b < n; b++) {
            if (x[a] + x[b] == wanted) return a * 10 + b;
            while (x[b] < 0) {
                if (x[b] == -wanted) return -b;
                break;
            }
        }
    }
    return -1;
}
__device__ int nested_returns(int* x, int n) {
    int found = 0;
    for (int w = 0; w < 60; w++) found += first_pair(x, n, w) * (w + 1);
    return found;
}
__device__ void two(int& a, int& b) { int t = a; a = b - 1; b = t + 1; }
__device__ void bump(int* p) { *p += 2; p[1] -= 1; }
__device__ int references(int* x, int n) {
    int a = x[0], b = x[1];
    two(a, b);
    two(x[2], a);
    bump(x + 3);
    bump(&x[5]);
    int& alias = x[7];
    alias++;
    alias *= 2;
    const int& fixed = alias;
    return a * 3 + b + fixed;
}
__device__ int pointers(int* x, int n) {
    int* p = x;
    int sum = 0;
    for (int* end = x + n; p < end; ++p) sum = sum * 3 + *p;
    p -= 2;
    sum += *p++;
    sum += *--p - p[-1];
    int* q = p - 3;
    sum += (int)(p - q) * 100;
    *q = sum;
    return sum;
}
__device__ int steps(int* x, int n) {
    int i = 0;
    int a = i++ * 10;
    int b = ++i;
    int c = (a += 5, b -= 1, a * b);
    x[i++] = c;
    x[i] += x[i - 1]--;
    int d = x[0] = x[1] = 9;
    unsigned char wraps = 250;
    wraps += 10;
    short s = 1;
    s <<= 15;
    return a + b + c + d + i + wraps + s;
}
__device__ int guarded(int* x, int n) {
    int calls = 0;
    for (int i = -2; i < n + 2; i++) {
        if (i >= 0 && i < n && x[i] > 10 && ++calls) x[i] = calls;
        if (i < 0 || i >= n || x[i] < 0 || !(x[i] & 1)) calls += 100;
        int safe = i >= 0 && i < n ? x[i] : -1;
        calls += safe > 3 ? (safe > 6 ? 2 : 1) : safe == 0;
    }
    return calls;
}
struct Pair { int a; short b; };
__device__ Pair turned(Pair p) { Pair q = {p.b, (short)p.a}; q.a += 1; return q; }
__device__ int structs(int* x, int n) {
    Pair p;
    p.a = x[0];
    p.b = (short)x[1];
    Pair copy = p;
    copy.b++;
    p = turned(copy);
    Pair all = turned(turned(p));
    return p.a * 100 + p.b * 10 + all.a - copy.a;
}
template <typename T, int N> __device__ T powered(T x) { T r = 1; for (int k = 0; k < N; k++) r *= x; return r; }
template <typename T> __device__ T larger(T a, T b) { return a < b ? b : a; }
__device__ int generic(int* x, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += (int)powered<float, 2>(x[i] % 10) + powered<long long, 3>(x[i] % 7) + larger(x[i], 5);
    return sum + (int)larger(2.5, 1.5);
}
__device__ int arrays(int* x, int n) {
    int grid[2][3] = {{1, 2, 3}, {4, 5}};
    int counts[8] = {};
    const int weights[4] = {3, -1, 4, 1};
    for (int i = 0; i < n; i++) counts[x[i] & 7]++;
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 3; c++) grid[r][c] += counts[r * 3 + c] * weights[c];
    int at = x[0] & 1, sum = 0;
    grid[at][1 - at] = 77;
    for (int k = 0; k < 8; k++) sum = sum * 2 + counts[k];
    for (int r = 1; r >= 0; r--) for (int c = 0; c < 3; c++) sum = sum * 7 + grid[r][c];
    return sum + weights[x[1] & 3];
}
__device__ int shadows(int* x, int n) {
    int i = 5;
    { int i = 7; x[0] += i; { long long i = 1ll << 33; x[1] += (int)(i >> 30); } x[2] += i; }
    for (int i = 0, k = n; i < k; i++, k--) x[i] -= k;
    if (n > 3) { int n = 2; x[n] = n; } else x[0] = 1;
    return i + n;
}
