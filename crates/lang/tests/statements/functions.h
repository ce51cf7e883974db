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
const int table[3][2] = {{1}, {2, 3}};
constexpr int cube[2][2][2] = {{{1}, {2, 3}}, {{4}}};
const int rows[][3] = {{1, 2}, {3}, {4, 5, 6}};
__device__ int braces(int* x, int n) {
    int a[2][3] = {{1}, {2, x[0]}};
    int flat[2][2] = {1, x[1], 3};
    int mixed[3][2] = {x[2], 7, {8}, 9};
    int deep[2][2][2] = {{{x[3]}, {2}}, {{3, 4}}};
    int sum = 0;
    for (int i = 0; i < 2; i++) for (int j = 0; j < 3; j++) sum = sum * 3 + a[i][j] + table[j][i] + rows[j][i];
    for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) sum = sum * 5 + flat[i][j] + cube[i][j][1] + deep[i][j][i];
    for (int i = 0; i < 3; i++) sum = sum * 2 + mixed[i][0] - mixed[i][1];
    return sum + (int)(sizeof(rows) / sizeof(rows[0][0])) + table[x[4] & 1][x[5] & 1];
}
template <typename T = int, int N = 1 + 2, typename U = T> __device__ U tripled(T x) { return (U)(x * N); }
template <typename T> __device__ int size();
template <> __device__ int size<float>() { return 400; }
template <> __device__ int size<double>() { return 800; }
template <typename T> __device__ int kind(T x) { return 1; }
template <> __device__ int kind<float>(float x) { return 2; }
template <int N> __device__ int factorial() { if constexpr (N <= 1) return 1; else return N * factorial<N - 1>(); }
__device__ int scaled(int x, int by = 3, int more = 1 << 2);
__device__ int scaled(int x, int by, int more) { return x * by + more; }
__device__ int defaults(int* x, int n) {
    long long wide = tripled<long long>(x[0]);
    int sum = (int)wide + tripled(x[1]) + (int)tripled<float, 2>(1.5f) + (int)tripled<double, 5, short>(x[2]);
    sum += size<float>() + size<double>() + kind(x[3]) * 10 + kind(1.0f) * 100 + factorial<5>();
    return sum + scaled(x[4]) + scaled(x[5], 7) * 3 + scaled(1, 2, x[6]);
}
template <typename T, int N = 3> struct Many { T all[N]; int used; };
struct Grid { short cells[2][3]; int id; };
template <typename T, int N> __device__ T total(Many<T, N> m) { T sum = 0; for (int i = 0; i < N; i++) sum += m.all[i]; return sum * m.used; }
__device__ int members(int* x, int n) {
    Many<int> m = {{x[0], x[1], x[2]}, 2};
    Many<long long, 2> w = {{1}, 5};
    w.all[1] = x[3];
    m.all[x[4] & 1] += 7;
    Grid g = {{{1, 2}, {4}}, x[5]};
    g.cells[x[6] & 1][x[7] & 1]++;
    int sum = 0;
    for (int r = 0; r < 2; r++) for (int c = 0; c < 3; c++) sum = sum * 3 + g.cells[r][c];
    return sum + total(m) + (int)total(w) + g.id;
}
namespace outer { namespace inner { __device__ int half(int x) { return x / 2; } struct Box { int w; }; } using inner::half; }
__device__ int spaces(int* x, int n) {
    using namespace outer;
    outer::inner::Box box = {x[0]};
    return outer::half(x[1]) + ::outer::inner::half(box.w);
}
enum Mode : int { FIRST, SECOND = 5, THIRD };
__device__ int literals(int* x, int n) {
    [[maybe_unused]] int unused = 3;
    double d = 0x1.8p3 + 0x1p-1;
    Mode mode = THIRD;
    int* p = x[0] > 5 ? x + 1 : x + 2;
    if (p != nullptr && x) *p += 1;
    return '\x41' + '\377' + '\n' + (int)(d * 4) + (int)(0x1p3f) + mode + *p;
}
__device__ int unnamed(int x, int) { return x; }
__device__ int views(int* x, int n) {
    float f = (float)x[0];
    int bits = *(int*)&f;
    unsigned* words = (unsigned*)x;
    words[1] = words[2] / 3u;
    float* floats = (float*)(x + 3);
    floats[0] = 1.5f;
    return bits + x[1] + x[3] + unnamed(x[4], 1);
}
typedef int Cell;
typedef Cell Alias;
struct Boxed { Cell a; };
__device__ void cut(float* x) { Cell a = (Cell)x[0]; x[0] = a; }
__device__ void put(float* x, Cell v) { x[0] = v; }
__device__ Cell same(Cell x) { return x; }
template <typename T> __device__ int weight(Many<T, 2> m) { return m.used * 3; }
__device__ int weight(int x) { return x; }
template <typename Cell> __device__ int from_template(Cell x) {
    float y[1], z[1];
    y[0] = x;
    cut(y);
    put(z, x);
    Boxed b;
    b.a = x;
    Alias c = x;
    Cell own = x;
    return (int)(y[0] * 8) + (int)(z[0] * 16) + (int)(b.a * 32) + (int)(c * 64) + (int)(same(x) * 128) + (int)(own * 256);
}
__device__ int callees(int* x, int n) {
    Many<long long, 2> m = {{1, 2}, x[1]};
    return from_template(x[0] * 0.37f) + weight(m) + weight(x[2]) + total<int, 2>({{x[3], x[4]}, 3});
}
const int SPECIAL = 4;
template <int N> __device__ int which() { return N; }
template <> __device__ int which<SPECIAL>() { return 1000; }
template <int N> __device__ int only();
template <> __device__ int only<SPECIAL>() { return 7; }
template <> __device__ int only<2>() { return 9; }
template <int SPECIAL> __device__ int asks() { return which<SPECIAL>() * 10 + which<4>() + only<SPECIAL>() * 5 + only<4>(); }
template <typename T> struct Nest { T in; };
template <typename T = Nest<Nest<Nest<int>>>> __device__ int innermost(T x) { return x.in.in.in; }
__device__ int specials(int* x, int n) {
    Nest<Nest<Nest<int>>> deep;
    deep.in.in.in = x[0];
    return asks<2>() + asks<4>() * 3 + innermost(deep);
}
template <unsigned N> __device__ int below(int x) { return x < N; }
template <long long N> __device__ long long wide() { return N; }
template <typename T, T N = 7> __device__ int typed() { return N / 3; }
template <Mode M> __device__ int moded() { return M * 2; }
template <bool B> __device__ int flagged() { return B + 10; }
template <> __device__ int flagged<true>() { return 5; }
template <unsigned N> struct Sized { int all[N]; };
template <unsigned N> __device__ int last(Sized<N> s, int x) { return s.all[N - 1] + (x - 50 < N - 1); }
__device__ int typed_arguments(int* x, int n) {
    Sized<3> s = {{1, 2, x[2]}};
    int sum = below<4000000000u>(x[0]) + 2 * below<10>(x[1]) + (int)(wide<5000000000>() / 1000) + (int)wide<-3>();
    sum += typed<unsigned, 4000000000u>() + typed<int>() + typed<signed char, -100>() + moded<THIRD>();
    return sum + flagged<true>() + flagged<false>() * 100 + last(s, x[3]);
}
__device__ int ranked(int x) { return 1; }
__device__ int ranked(double x) { return 2; }
__device__ int whole(float x) { return 1; }
__device__ int whole(int x) { return 2; }
__device__ int signs(unsigned x) { return 1; }
__device__ int signs(int x) { return 2; }
template <typename T> __device__ int shaped(T* x) { return 1; }
template <typename T> __device__ int shaped(T x) { return 2; }
template <typename T> __device__ int alike(T a, T b) { return 1; }
__device__ int alike(float a, int b) { return 2; }
template <typename T> __device__ int leading(const T* p) { return (int)p[0] * 2; }
__device__ int leading(const int* p) { return p[0] * 5; }
__device__ int pointed(int* p) { return 1; }
__device__ int pointed(const int* p) { return 2; }
__device__ int held(int& x) { return 1; }
__device__ int held(const int& x) { return 2; }
__device__ int several(int a, float b) { return 1; }
__device__ int several(float a, float b) { return 2; }
__device__ int several(int a, int b, int c = 4) { return c; }
__device__ int overloads(int* x, int n) {
    short s = (short)x[0];
    unsigned char c = (unsigned char)x[1];
    bool b = x[2] > 0;
    float f = x[3] * 0.5f;
    int local[2] = {x[5], x[6]};
    const int* fixed = x;
    int sum = ranked(f) + 3 * ranked(s) + 9 * ranked('a') + 27 * ranked(2.5);
    sum = sum * 5 + whole(s) + 3 * whole(c) + 9 * whole(b) + 27 * whole(f) + 81 * whole(x[4]);
    sum = sum * 5 + signs(s) + 3 * signs(c) + 9 * signs(7u) + 27 * signs(x[0]);
    sum = sum * 5 + shaped(x) + 3 * shaped(f) + 9 * shaped(local) + 27 * shaped(&x[1]);
    sum = sum * 5 + alike(f, 3) + 3 * alike(f, f) + 9 * alike(3, 4) + 27 * alike<int>(f, 4);
    sum = sum * 5 + leading(local) + leading(x) + leading(fixed) + leading(&f);
    sum = sum * 5 + pointed(x) + 3 * pointed(fixed) + 9 * pointed(local) + 27 * pointed(fixed + 1);
    sum = sum * 5 + held(x[7]) + 3 * held(5) + 9 * held(sum) + several(1, 2.0f) + 3 * several(f, f) + 9 * several(1, 2);
    return sum + several(1, 2, x[4]);
}
__device__ int puns(int* x, int n) {
    float f = (float)x[0];
    int i = x[1] & 0xffff;
    float many[2] = {1.5f, 2.5f};
    int sum = reinterpret_cast<int&>(f) + (int)((unsigned&)f >> 3) + (int)static_cast<const float&>(i) + (int)(const float&)i;
    (float&)i = 1.5f;
    reinterpret_cast<int&>(many[x[2] & 1]) ^= 1 << 22;
    *(int*)&many[x[4] & 1] += 1 << 20;
    reinterpret_cast<unsigned&>(x[3]) /= 3u;
    return sum + i + (int)(many[0] * 8 + many[1] * 64) + x[3];
}
__device__ int taken(const int*& p) { int v = *p; p++; return v; }
__device__ void advanced(int*& p, int by) { p += by; }
template <typename T> __device__ void exchanged(T& a, T& b) { T t = a; a = b; b = t; }
__device__ int moved_pointers(int* x, int n) {
    const int* p = x;
    int sum = taken(p);
    sum = sum * 3 + taken(p);
    int* q = x + 1;
    int* r = x;
    advanced(q, 2 + (x[0] & 1));
    *q += 100;
    exchanged(q, r);
    *q -= 7;
    *r += 1;
    exchanged(x[6], x[7]);
    sum = sum * 3 + taken(p);
    return sum + (int)(p - x) * 1000;
}
#define JOINED(a, b) ((a) * 10 + (b))
#define RENAMED JOINED
template <class A, class B> __device__ A added(A a, B b) { return a + b; }
template <bool B> __device__ int selected(int a, int b) { return B ? a : b; }
template <int A> __device__ int thrice(int x) { return selected<A == 3>(x, A) * (A) + selected<(A > 3)>(1, 2) - A; }
constexpr int rounded(int a, int b) { return (a + b - 1) / b; }
__device__ int lone(int x) { switch (x & 3) case 1: case 2: return 7; return 1; }
__device__ int spellings(int* x, int n) {
    int y = 0, all[rounded(9, 4)] = {1, 2, 3};
    int sum = x[0] > 3 ? y = 4, y + x[1] : 5;
    if (x[0] > 10 and not (x[1] == 3) or x[2] < 0) sum += 100;
    sum = sum * 3 + RENAMED(x[3], RENAMED(y, 4)) + (int)sizeof y + lone(x[4]);
    return sum * 3 + thrice<3>(x[5]) + thrice<4>(x[6]) + added(1, x[7]) + (x[5] xor 5) + all[rounded(9, 4) - 1];
}
// What is converted on the way out of a choice keeps what the conversion within it did.
__device__ int choices(int* x, int n) {
    float a = x[0] / 4.0f, b = x[1] / 8.0f;
    float whole = x[2] > 30 ? (int)a : (int)b;
    double exact = 1.0 / (x[3] + 100), narrow = x[2] > 30 ? (float)exact : (float)(exact * 3);
    long long far = ((long long)x[4] << 33) + x[5], low = x[2] > 30 ? (unsigned)far : 5u, most = x[2] > 30 ? -1u : 7u;
    int short_ = x[2] > 30 ? (signed char)(x[6] * 3) : (signed char)x[7];
    return (int)(whole * 8) + (narrow == exact) * 1000 + (int)(low % 1009) + (int)(most % 1013) + short_;
}
// Pointers and indices of other widths and signs than int.
__device__ int widths(int* x, int n) {
    unsigned u = n;
    long long far = 1ll << 40;
    int* end = x + u;
    int sum = end[-1] + *(end - u) + end[(size_t)0 - 2] + (x + far)[2 - far] + x[(unsigned char)259];
    for (const int* p = end; p-- != x;) sum = sum * 3 + *p;
    const int* middle = &x[u / 2];
    middle += (signed char)-1;
    sum += (int)(end - middle) * 7 + (middle < end) + (int)((x + far) - end == far - n);
    return sum + middle[u & 3] + middle[-(int)(u & 3)];
}
