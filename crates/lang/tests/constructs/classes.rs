//! Structs with functions: members, constructors, operators, functors, static members.

use super::{check, check_errors};

#[test]
fn operators() {
    check(&[
        (
            "__device__ float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
            __device__ float2 operator*(const float2& a, float s) { return make_float2(a.x * s, a.y * s); }
            __device__ float2 operator*(float s, const float2& a) { return a * s; }
            __device__ void operator+=(float2& a, const float2& b) { a.x += b.x; a.y += b.y; }
            __device__ float2 operator-(float2 a) { return make_float2(-a.x, -a.y); }
            __device__ bool operator==(float2 a, float2 b) { return a.x == b.x && a.y == b.y; }
            __global__ void k(float* x) {
                float2 a = make_float2(1, 2), b = make_float2(10, 20);
                float2 c = a + b * 2 + 3 * a;
                c += a;
                c = -c;
                x[0] = c.x; x[1] = c.y; x[2] = c == make_float2(-25, -50); x[3] = a == b;
            }",
            &[-25.0, -50.0, 1.0, 0.0],
        ),
        (
            "struct Complex {
                float re, im;
                __device__ Complex(float r, float i) : re(r), im(i) {}
                __device__ Complex(float r) : re(r), im(0) {}
                __device__ Complex operator*(const Complex& o) const {
                    return Complex(re * o.re - im * o.im, re * o.im + im * o.re);
                }
                __device__ Complex& operator+=(const Complex& o) { re += o.re; im += o.im; return *this; }
                __device__ float norm() const { return re * re + im * im; }
            };
            __global__ void k(float* x) {
                Complex z(1, 2), c = 3.0f;
                z += c;
                (z += Complex(0, 1)) += c;
                z = z * Complex(0, 1);
                x[0] = z.re; x[1] = z.im; x[2] = z.norm();
            }",
            &[-3.0, 7.0, 58.0],
        ),
        // An operator of a template; built-in operators of numbers remain.
        (
            "template <class T> struct Vec { T x, y; };
            template <class T> __device__ Vec<T> operator-(Vec<T> a, Vec<T> b) { return Vec<T>{a.x - b.x, a.y - b.y}; }
            __global__ void k(int* x) {
                Vec<int> a{5, 7}, b{1, 2};
                Vec<int> c = a - b;
                x[0] = c.x - c.y; x[1] = 9 - 4; x[2] = (a - b - b).x;
            }",
            &[-1.0, 5.0, 3.0],
        ),
    ]);
}

#[test]
fn member_functions() {
    check(&[
        (
            "class Counter {
                int n = 3;
            public:
                __device__ void add(int by) { n += by; }
                __device__ int get() const { return n; }
                __device__ int twice() const { return 2 * get(); }
                __host__ void host_only() { printf(\"%d\", n); }
            };
            __global__ void k(int* x) {
                Counter c;
                c.add(4);
                Counter* p = &c;
                p->add(10);
                x[0] = c.get(); x[1] = c.twice();
            }",
            &[17.0, 34.0],
        ),
        (
            "struct Grid {
                int w;
                __device__ int at(int r, int c) const { return r * this->w + c; }
                __device__ int early(int v) const { for (int i = 0; i < w; ++i) { if (i == v) return i * 10; } return -1; }
            };
            __global__ void k(int* x) {
                Grid g{8};
                x[0] = g.at(2, 3); x[1] = g.early(5); x[2] = g.early(99);
            }",
            &[19.0, 50.0, -1.0],
        ),
        // Objects in memory, and an element that a member function changes.
        (
            "struct Cell { int v; __device__ void bump() { v++; } };
            __global__ void k(int* x) {
                __shared__ Cell cells[4];
                for (int i = 0; i < 4; ++i) cells[i].v = i;
                cells[2].bump();
                x[0] = cells[2].v; x[1] = cells[1].v;
            }",
            &[3.0, 1.0],
        ),
        (
            "struct Row { float a[4]; __device__ float& operator[](int i) { return a[i]; }
                __device__ float operator[](int i) const { return a[i] * 10; } };
            __device__ float read(const Row& r) { return r[1]; }
            __global__ void k(float* x) {
                Row r;
                for (int i = 0; i < 4; ++i) r[i] = i * i;
                x[0] = r[3]; x[1] = read(r);
            }",
            &[9.0, 10.0],
        ),
        // Definitions outside of the struct.
        (
            "template <class T> struct Pair { T a, b; __device__ T sum() const; __device__ void swap(); };
            template <class U> __device__ U Pair<U>::sum() const { return a + b; }
            template <class U> __device__ void Pair<U>::swap() { U t = a; a = b; b = t; }
            __global__ void k(int* x) {
                Pair<int> p{3, 4};
                p.swap();
                x[0] = p.a; x[1] = p.sum();
            }",
            &[4.0, 7.0],
        ),
    ]);
}

#[test]
fn functors_and_static_members() {
    check(&[
        (
            "struct Max { __device__ float operator()(float a, float b) const { return a > b ? a : b; } };
            template <class T> struct Plus { __device__ T operator()(T a, T b) const { return a + b; } };
            template <class Op> __device__ float fold(float a, float b, float c, Op op) { return op(op(a, b), c); }
            __global__ void k(float* x) {
                Max max_of;
                x[0] = fold(1, 5, 3, max_of);
                x[1] = fold(1, 5, 3, Plus<float>());
                x[2] = Max()(2, 8);
            }",
            &[5.0, 9.0, 8.0],
        ),
        (
            "struct Scale { int by; __device__ Scale(int b) : by{b} {} __device__ int operator()(int v) { return v * by++; } };
            __global__ void k(int* x) { Scale s(3); x[0] = s(2); x[1] = s(2); }",
            &[6.0, 8.0],
        ),
        (
            "template <int N> struct Tile {
                static constexpr int size = N * N;
                static __device__ int area(int k) { return size * k; }
            };
            enum class Mode { off, on = 4, more };
            enum Plain { first, second };
            __global__ void k(int* x) {
                x[0] = Tile<3>::size; x[1] = Tile<4>::area(2); x[2] = (int)Mode::more; x[3] = Plain::second;
                Mode m = Mode::on;
                x[4] = m == Mode::on;
            }",
            &[9.0, 32.0, 5.0, 1.0, 1.0],
        ),
        // Static members as sizes, also through an object.
        (
            "template <class T> struct Pack {
                static constexpr int bytes = 16;
                static constexpr const size_t size = bytes / sizeof(T);
                T payload[size];
            };
            __global__ void k(int* x) {
                Pack<int> p; Pack<short> q;
                for (int i = 0; i < p.size; ++i) p.payload[i] = 3 * i;
                x[0] = p.payload[3]; x[1] = sizeof(p); x[2] = q.size; x[3] = sizeof(q);
            }",
            &[9.0, 16.0, 8.0, 16.0],
        ),
        // The default constructor runs for every iteration.
        (
            "struct Acc { int n; __device__ Acc() { n = 5; } __device__ void add(int v) { n += v; } };
            __global__ void k(int* x) {
                for (int i = 0; i < 3; ++i) { Acc a; a.add(i); x[i] = a.n; }
            }",
            &[5.0, 6.0, 7.0],
        ),
    ]);
}

#[test]
fn unsupported_members_are_reported_where_they_are_used() {
    let text = "struct S { int a;
            __device__ S(const S& o) : a(o.a + 1) {}
        };
        struct T { int a; __device__ int bad() { goto end; end: return a; } __device__ int good() { return a; } };
        __global__ void k(int* x) { T t{7}; x[0] = t.good(); }
        __global__ void copies(int* x) { S s; x[0] = 1; }
        __global__ void calls(int* x) { T t{7}; x[0] = t.bad(); }";
    check(&[(text, &[7.0])]);
    check_errors(&[
        (&text.replace(" k(", " j(").replace("copies", "k"), "a copy constructor or destructor is not supported"),
        (&text.replace(" k(", " j(").replace("calls", "k"), "'goto' is not supported"),
        ("struct S { int a; };\n__global__ void k(int* x) { S s{1}; x[0] = s.f(); }", "no member function 'f'"),
        (
            "struct S { int a; __device__ S(int v) : a(v) {} };\n__global__ void k(int* x) { S s(1, 2); }",
            "no '__device__' constructor",
        ),
        ("struct S { int a; };\n__global__ void k(int* x) { S s{1}; x[0] = s(2); }", "cannot be called"),
        ("__global__ void k(int* x) { const int n = this->n; }", "'this' outside a member function"),
    ]);
}

#[test]
fn objects_in_objects() {
    check(&[(
        "struct S {
            int a, b;
            __device__ S& set(int v) { a = v; return *this; }
            __device__ static S make(int v) { S s; s.a = v; s.b = v + 1; return s; }
        };
        struct T { S s; int n = 2; __device__ T() : s(S::make(4)) {} __device__ int get() const { return s.a * 10 + s.b + n; } };
        struct Add { int k; __device__ int operator()(int v) const { return v + k; } };
        template <class F> __device__ int twice(F f, int v) { return f(f(v)); }
        __device__ int side(int* c) { return ++*c; }
        __device__ float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
        __global__ void k(int* x) {
            T t; x[0] = t.get();
            S s; s.set(3).set(7); x[1] = s.a;
            x[2] = twice(Add{5}, 1);
            int c = 0;
            float2 v = make_float2(side(&c), 1) + make_float2(side(&c), 1);
            x[3] = v.x; x[4] = c;
            const S cs = S::make(8); x[5] = cs.b;
            S copy = cs; copy.set(1); x[6] = cs.a + copy.a;
        }",
        &[47.0, 7.0, 11.0, 3.0, 2.0, 9.0, 9.0],
    )]);
}

/// Programs that C++ rejects.
#[test]
fn const_private_and_explicit() {
    check_errors(&[
        (
            "struct S { int n; __device__ int f() const { n = 2; return n; } };\n__global__ void k(int* x) { S s{1}; x[0] = s.f(); }",
            "const",
        ),
        (
            "struct S { int n; __device__ int f() const { this->n++; return n; } };\n__global__ void k(int* x) { S s{1}; x[0] = s.f(); }",
            "const",
        ),
        (
            "struct S { int a[2]; __device__ int f() const { a[1] = 2; return a[1]; } };\n__global__ void k(int* x) { S s; x[0] = s.f(); }",
            "const",
        ),
        (
            "class S { int n; public: int m; };\n__global__ void k(int* x) { S s; s.m = 1; x[0] = s.n; }",
            "'n' is a private member of 'S'",
        ),
        (
            "struct S { __device__ int g() { return 1; } private: __device__ int f() { return 2; } };\n__global__ void k(int* x) { S s; x[0] = s.f(); }",
            "'f' is a private member of 'S'",
        ),
        (
            "struct S { private: int n = 3; };\n__device__ int f(const S* s) { return s->n; }\n__global__ void k(int* x) { S s; x[0] = f(&s); }",
            "'n' is a private member of 'S'",
        ),
        (
            "struct S { int n; explicit __device__ S(int v) : n(v) {} };\n__global__ void k(int* x) { S s = 5; x[0] = s.n; }",
            "its constructor is explicit",
        ),
        (
            "struct S { int n; __device__ explicit S(int v) : n(v) {} };\n__device__ int f(S s) { return s.n; }\n__global__ void k(int* x) { x[0] = f(5); }",
            "explicit",
        ),
        (
            "struct S { int n; __device__ S(int v); };\n__device__ S::S(int v) : n(v) {}\n__global__ void k(int* x) { S s(5); x[0] = s.n; }",
            "a constructor that is defined outside of its struct is not supported",
        ),
        (
            "template <unsigned char N> __device__ int g() { return N; }\n__global__ void k(int* x) { x[0] = g<300>(); }",
            "template argument 300 is out of the range of parameter 'N'",
        ),
        (
            "template <unsigned N> struct S { int n = N; };\n__global__ void k(int* x) { S<-1> s; x[0] = s.n; }",
            "template argument -1 is out of the range",
        ),
        (
            "template <bool B> __device__ int g() { return B; }\n__global__ void k(int* x) { x[0] = g<2>(); }",
            "template argument 2 is out of the range",
        ),
    ]);
    check(&[
        (
            "class S { int n; __device__ int twice() const { return 2 * n; } public: explicit __device__ S(int v) : n(v) {}\n\
             __device__ int get(const S& o) const { return twice() + o.n + this->n; } };\n\
             struct T { S s; __device__ T(int v) : s(v + 1) {} };\n\
             __global__ void k(int* x) { S a(3), b{4}; x[0] = a.get(b); x[1] = S(1).get(a); x[2] = ((S)7).get(b); x[3] = T(1).s.get(b); x[4] = static_cast<S>(2).get(b); }",
            &[13.0, 6.0, 25.0, 10.0, 10.0],
        ),
        (
            "class S { int n; public: __device__ S(int v) : n(v) {} friend __device__ int operator+(S a, S b) { return a.n + b.n; } };\n\
             __global__ void k(int* x) { S a = 3; x[0] = a + S(4); }",
            &[7.0],
        ),
        (
            "template <signed char N, bool B> __device__ int g() { return B ? N : 0; }\n__global__ void k(int* x) { x[0] = g<-128, 1>(); x[1] = g<5, true>(); }",
            &[-128.0, 5.0],
        ),
    ]);
}
