//! Declarations, templates and library names.

use super::{check, check_errors};

#[test]
fn declarations() {
    check(&[
        (
            "constexpr unsigned int width(16); const int half_width(width / 2);
            __global__ void k(int* x) { x[0] = width; x[1] = half_width; }",
            &[16.0, 8.0],
        ),
        (
            "__global__ void k(int* x) {
                volatile __shared__ int s[4];
                const static int n = 3;
                s[n] = 5; x[0] = s[n];
            }",
            &[5.0],
        ),
        (
            "template <class T> constexpr T twice = T(2); template <class K, class V> constexpr K empty_key = ~K(0);
            __global__ void k(float* x) { x[0] = twice<float> * 1.5f; x[1] = (empty_key<unsigned, int> == 0xffffffffu); }",
            &[3.0, 1.0],
        ),
        (
            "__managed__ int total; __device__ __managed__ int other;
            __global__ void k(int* x) { x[0] = 4; }",
            &[4.0],
        ),
        (
            "namespace util { __device__ int f(int a) { return a + 1; } }
            namespace u = util;
            __global__ void k(int* x) { namespace v = util; x[0] = u::f(1) + v::f(2); }",
            &[5.0],
        ),
        (
            "__global__ void k(int* x) { uchar4 c = make_uchar4(x[1] + 255, 300, -1, 7); x[0] = c.x; x[1] = c.y; x[2] = c.z; }",
            &[0.0, 44.0, 255.0],
        ),
        ("__global__ void k(double* x) { x[0] = UINT32_MAX; x[1] = M_PI_2 > 1.57; x[2] = INT16_MIN; }", &[4294967295.0, 1.0, -32768.0]),
    ]);
}

#[test]
fn type_traits() {
    check(&[(
        "#include <type_traits>
        template <class T> __device__ int kind() {
            if constexpr (std::is_same_v<T, float>) { return 1; }
            else if constexpr (std::is_same<T, double>::value) { return T(2); }
            else { T v; return v.field; }
        }
        __global__ void k(int* x) {
            x[0] = kind<float>(); x[1] = kind<double>();
            x[2] = std::is_integral<char>::value + std::is_floating_point_v<int>;
            x[3] = std::is_same<int, unsigned>();
        }",
        &[1.0, 2.0, 1.0, 0.0],
    )]);
}

#[test]
fn multidimensional_parameters() {
    check(&[
        (
            "__device__ int at(const int a[][4], int r, int c) { return a[r][c]; }
            __device__ int sum(int (*a)[4]) { int s = 0; for (int i = 0; i < 2; ++i) for (int j = 0; j < 4; ++j) s += a[i][j]; return s; }
            __global__ void k(int x[][4]) { x[3][1] = 100 + at(x, 1, 2) + sum(x); x[0][0] = x[3][1] + x[2][3]; }",
            &[145.0, 1.0],
        ),
        (
            "__global__ void k(float (*x)[2][3]) { x[1][1][2] = 50; x[0][0][0] = x[1][0][1]; }",
            &[7.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 50.0],
        ),
    ]);
    check_errors(&[
        ("__global__ void k(int x[][4]) { x[0][4] = 1; }", "index 4 is out of bounds"),
        ("__global__ void k(int x[][4]) { x[x[0][2] + 14][0] = 1; }", "outside"),
        (
            "__device__ int f(int a[][3]) { return a[0][1]; }\n__global__ void k(int x[][4]) { x[0][0] = f(x); }",
            "the rows of this array differ",
        ),
    ]);
}
