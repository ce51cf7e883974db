//! Faults of CUDA kernels with their source lines; and files whose other contents must not affect a
//! kernel.

use bornite_ir::interp::run;
use bornite_ir::{Arg, Scalar, Value, load_scalar, store_scalar};
use bornite_lang::LaunchRequest;
use bornite_lang::cuda::CudaModule;

/// Runs the kernel `k` of a text over the 64 numbers `0, 1, …` in blocks of `threads` threads: the
/// numbers afterwards, or the fault with its line.
fn outcome(text: &str, threads: u32) -> Result<Vec<i64>, String> {
    outcome_of(text, "k", threads)
}

fn outcome_of(text: &str, name: &str, threads: u32) -> Result<Vec<i64>, String> {
    let module = CudaModule::parse("k.cu", text).map_err(|errors| errors.to_string())?;
    let mut request = LaunchRequest::new([2, 1, 1], [threads, 1, 1]).length("x", 64);
    request.shared_bytes = 256;
    let lowered = module.kernel(name, &request).map_err(|errors| errors.to_string())?;
    let scalar = lowered.kernel.params[0].ty.as_scalar().unwrap_or(Scalar::I32);
    let mut words = vec![0u64; 64];
    (0..64).for_each(|n| store_scalar(&mut words, n * scalar.bytes(), Value::from_f64(scalar, n as f64)));
    match run(&lowered.kernel, &mut [Arg::Write(&mut words)]) {
        Ok(()) => Ok((0..64).map(|n| load_scalar(&words, n * scalar.bytes(), scalar).as_f64() as i64).collect()),
        Err(fault) => Err(format!("line {}: {}", lowered.line_of(&fault).unwrap_or(0), fault.kind)),
    }
}

#[test]
fn faults_are_reported_with_their_line() {
    let cases: &[(&str, u32, &str)] = &[
        (
            "__constant__ int C[2][3] = {{1, 2, 3}, {4, 5, 6}};\n__global__ void k(int* x) {\n  int i = threadIdx.x;\n  x[i] = C[0][i];\n}",
            4,
            "line 4: index 3 is outside 'C' of 3 elements",
        ),
        (
            "const int D[4] = {1, 2, 3, 4};\n__global__ void k(int* x) {\n  x[threadIdx.x] = D[threadIdx.x];\n}",
            5,
            "line 3: index 4 is outside 'D' of 4 elements",
        ),
        (
            "__device__ const int D[4] = {1, 2, 3, 4};\n__device__ int f(int i) {\n  return D[i - 1];\n}\n__global__ void k(int* x) {\n  x[0] = f(threadIdx.x);\n}",
            2,
            "line 3: index -1 is outside 'D' of 4 elements",
        ),
        (
            "__global__ void k(int* x) {\n  int a[3] = {1, 2, 3};\n  a[threadIdx.x] = 5;\n  x[blockIdx.x * 8 + threadIdx.x] = a[0];\n}",
            4,
            "line 3: index 3 is outside 'a' of 3 elements",
        ),
        (
            "#include <cassert>\n__global__ void k(int* x) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  assert(x[i] < 5 && \"small\");\n  x[i] = 1;\n}",
            8,
            "line 4: 'x[i] < 5' does not hold, in thread [5, 0, 0] of block [0, 0, 0]",
        ),
        (
            "__global__ void k(int* x) {\n  int v = x[threadIdx.x];\n  v += __shfl_xor_sync(0xffffffff, v, 16);\n  x[threadIdx.x] = v;\n}",
            48,
            "line 3: 16 of 32 threads of a warp take part in a shuffle",
        ),
        // A plain read concurrent with atomics is a race, unless it is the initial read of a
        // compare-and-swap loop.
        (
            "__global__ void k(unsigned* x) {\n  atomicAdd(&x[0], 1u);\n  x[1 + blockIdx.x * 32 + threadIdx.x % 31] =\n    x[0];\n}",
            2,
            "line 4: race on 'x[0]'",
        ),
        (
            "__global__ void k(unsigned* x) {\n  unsigned old = x[0], assumed;\n  do { assumed = old; old = atomicCAS(&x[0], assumed, old + 1); } while (assumed != old);\n}",
            2,
            "line 3: race on 'x[0]'",
        ),
    ];
    for (text, threads, expected) in cases {
        let found = outcome(text, *threads).expect_err(text);
        assert!(found.starts_with(expected), "{text}\nexpected: {expected}\nfound: {found}");
    }
}

#[test]
fn compare_and_swap_loops_run() {
    let guide = |ty: &str, word: &str, to: &str, back: &str| {
        format!(
            "__device__ {ty} add({ty}* address, {ty} val) {{
                {word}* bits = ({word}*)address;
                {word} old = *bits, assumed;
                do {{
                    assumed = old;
                    old = atomicCAS(bits, assumed, {to}(val + {back}(assumed)));
                }} while (assumed != old);
                return {back}(old);
            }}
            __global__ void k({ty}* x) {{ add(x, x[blockIdx.x * 16 + threadIdx.x + 1]); }}"
        )
    };
    let double = guide("double", "unsigned long long int", "__double_as_longlong", "__longlong_as_double");
    let single = guide("float", "int", "__float_as_int", "__int_as_float");
    let plain = "__device__ unsigned most(unsigned* a, unsigned v) {
            unsigned old = *a, assumed;
            do { assumed = old; old = atomicCAS(a, assumed, max(v, assumed)); } while (assumed != old);
            return old;
        }
        __global__ void k(unsigned* x) { most(x, x[blockIdx.x * 16 + threadIdx.x + 1]); }";
    let exchanged = "__global__ void k(float* x) {
            int old = atomicExch((int*)x, __float_as_int(7.0f));
            if (threadIdx.x == 0) x[1 + blockIdx.x] = __int_as_float(old);
        }";
    for (text, threads, first) in [(&double[..], 16, 528), (&single, 16, 528), (plain, 16, 32), (exchanged, 1, 7)] {
        assert_eq!(outcome(text, threads).map(|x| x[0]), Ok(first), "{text}");
    }
}

/// Template arguments are converted to the parameter's type; narrowing is an error, as in C++.
#[test]
fn template_arguments_are_converted() {
    let cases: &[(&str, &str, i64)] = &[
        ("template<unsigned N> __device__ int f(int x) { return N < x; }", "f<4294967295>(5)", 0),
        ("template<unsigned N> __device__ int f(int x) { return x < N; }", "f<4294967295>(5)", 1),
        ("template<bool N> __device__ int f(int x) { return N + x; }", "f<1>(10)", 11),
        ("template<bool N = 1> __device__ int f(int x) { return N + x; }", "f(10)", 11),
        ("template<unsigned char N> __device__ int f(int x) { return N + x; }", "f<255>(10)", 265),
    ];
    for (param, arg) in [("unsigned N", "-1"), ("bool N", "7"), ("unsigned char N", "259"), ("bool N = 7", "")] {
        let text = format!(
            "template<{param}> __device__ int f() {{ return N; }}\n__global__ void k(int* x) {{ x[0] = f<{arg}>(); }}"
        );
        let found = outcome(&text, 1);
        assert!(found.as_ref().is_err_and(|error| error.contains("is out of the range")), "{text}: {found:?}");
    }
    for (function, call, expected) in cases {
        let text = format!("{function}\n__global__ void k(int* x) {{ if (blockIdx.x == 0) x[0] = {call}; }}");
        assert_eq!(outcome(&text, 1).map(|x| x[0]), Ok(*expected), "{text}");
    }
    let kernels: &[(&str, &str, &str, i64)] = &[
        ("long long N", "N / 1000", "k<5000000000>", 5_000_000),
        ("unsigned long long N", "N >> 60", "k<18446744073709551615>", 15),
        ("bool N", "N + 10", "k<1>", 11),
        ("class T, T N", "N / 2", "k<unsigned, 4000000000>", 2_000_000_000),
        ("class T, T N = 100", "N", "k<signed char>", 100),
    ];
    for (params, value, name, expected) in kernels {
        let text = format!("template<{params}> __global__ void k(int* x) {{ if (blockIdx.x == 0) x[0] = {value}; }}");
        assert_eq!(outcome_of(&text, name, 1).map(|x| x[0]), Ok(*expected), "{text}");
    }
    let rejected = outcome_of("struct S { int a; };\ntemplate<S N> __global__ void k(int* x) { x[0] = 1; }", "k<1>", 1);
    assert!(rejected.as_ref().is_err_and(|error| error.contains("neither a type nor an integer")), "{rejected:?}");
}

/// Kernels that reverse each block of 32 numbers through shared memory, declared in many ways.
#[test]
fn shared_memory_can_be_declared_in_many_ways() {
    let kernel = |before: &str, body: &str| {
        format!(
            "{before}\n__global__ void k(int* x) {{ int i = blockIdx.x * 32 + threadIdx.x, t = threadIdx.x; {body} }}"
        )
    };
    let cases: &[(&str, &str)] = &[
        (
            "template <typename T, int N> __device__ T turned(T v) {
                __shared__ T s[N];
                s[threadIdx.x % N] = v; __syncthreads(); T r = s[N - 1 - threadIdx.x % N]; __syncthreads(); return r;
            }",
            "int v = turned<int, 32>(x[i]); float h = turned<float, 32>(v * 0.5f); x[i] = (int)(turned<double, 32>(h) * 2);",
        ),
        (
            "template <int N> __device__ int turned(int v) {
                __shared__ int s[N];
                s[threadIdx.x % N] = v; __syncthreads(); int r = s[N - 1 - threadIdx.x % N]; __syncthreads(); return r;
            }",
            "int v = x[i]; if (blockDim.x == 4) v = turned<4>(v); x[i] = turned<32>(v);",
        ),
        (
            "#define TWO __shared__ int a[32]; __shared__ int b[32];",
            "TWO a[t] = x[i]; b[t] = 5; __syncthreads(); x[i] = a[31 - t] + b[t] - 5;",
        ),
        (
            "__device__ void stage(const int* x) { extern __shared__ int s[]; s[threadIdx.x] = x[0]; }",
            "extern __shared__ int s[]; stage(x + i); __syncthreads(); x[i] = s[31 - t];",
        ),
        (
            "extern __shared__ int s[];\n__device__ int last() { return s[31]; }",
            "s[t] = x[i]; __syncthreads(); x[i] = s[31 - t] + last() - s[31];",
        ),
        (
            "__shared__ int s[32];\n__shared__ int one;\n__device__ int put(int at) { return s[at]; }",
            "s[t] = x[i]; if (t == 3) one = 4; __syncthreads(); x[i] = put(31 - t) + (t > 3 ? one : 4) - 4;",
        ),
        // All dynamic shared memory starts at the same address.
        (
            "",
            "extern __shared__ int a[]; extern __shared__ unsigned b[]; a[t] = x[i]; __syncthreads(); x[i] = (int)b[31 - t];",
        ),
        (
            "template <typename T> __device__ T turned(T v) {
                extern __shared__ __align__(16) unsigned char raw[];
                T* s = reinterpret_cast<T*>(raw);
                s[threadIdx.x] = v; __syncthreads(); T r = s[31 - threadIdx.x]; __syncthreads(); return r;
            }",
            "x[i] = (int)turned<double>(x[i]);",
        ),
        ("", "extern __shared__ float4 raw[]; int* s = (int*)raw; s[t] = x[i]; __syncthreads(); x[i] = s[31 - t];"),
        (
            "__device__ void fill(int* p, int n) { for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = 1; }",
            "__shared__ int s[4][8]; fill((int*)s, 32); __syncthreads(); s[t / 8][t % 8] += x[i] - 1; __syncthreads();
             int* flat = &s[0][0]; int* row = s[3 - t / 8]; x[i] = flat[31 - t] + row[7 - t % 8] - ((int*)s)[31 - t];",
        ),
    ];
    let reversed: Vec<i64> = (0..64).map(|i| i / 32 * 32 + 31 - i % 32).collect();
    for (before, body) in cases {
        let text = kernel(before, body);
        assert_eq!(outcome(&text, 32), Ok(reversed.clone()), "{text}");
    }
    let rejected: &[(&str, &str, &str)] = &[
        (
            "",
            "__shared__ int s[4][8]; ((int*)s)[t] = 1; __syncthreads(); x[i] = s[0][t];",
            "index 8 is outside 's, dimension 1' of 8 elements",
        ),
        (
            "__device__ double first() { extern __shared__ double d[]; return d[0]; }",
            "extern __shared__ int s[]; s[0] = first();",
            "'s[0]' is read before it is written",
        ),
    ];
    for (before, body, expected) in rejected {
        let found = outcome(&kernel(before, body), 32);
        assert!(found.as_ref().is_err_and(|error| error.contains(expected)), "{body}: {found:?}");
    }
}

/// Functions of the file that overload CUDA functions, and expressions with compile-time values.
#[test]
fn names_resolve_as_in_cuda() {
    let cases: &[(&str, &str, i64)] = &[
        (
            "__device__ float max(float a, float b, float c) { return fmaxf(a, fmaxf(b, c)); }",
            "max(1.f, 5.f, 3.f) + max(2, 3)",
            8,
        ),
        (
            "__device__ float2 min(float2 a, float2 b) { return make_float2(7, min(a.y, b.y)); }",
            "min(make_float2(1, 2), make_float2(3, 4)).x + min(make_float2(1, 2), make_float2(3, 1)).y * 10 + min(4, 5)",
            21,
        ),
        // CUDA's function is not a template, so it is preferred; it returns the operand that is not
        // NaN.
        ("template <typename T> __device__ T max(T a, T b) { return a > b ? a : b; }", "max(1.0f, NAN)", 1),
        (
            "namespace own { template <typename T> __device__ T max(T a, T b) { return a > b ? a : 8; } }",
            "own::max(1.0f, NAN)",
            8,
        ),
        ("__device__ float max(float a, float b) { return 9; }", "max(1.0f, 2.0f) * 10 + max(1, 2)", 92),
        ("__device__ float clamp(float x, float lo, float hi) { return 7; }", "clamp(5, 0, 1)", 7),
        (
            "__device__ float atomicMax(float* a, float v) { return *a + v; }
             __device__ float used() { float f = 1; return atomicMax(&f, 2); }",
            "atomicMax(&x[1], 0) * 100 + used()",
            103,
        ),
        (
            "__device__ float2 __shfl_xor_sync(unsigned m, float2 v, int by) {
                return make_float2(__shfl_xor_sync(m, v.x, by), 3);
            }",
            "__shfl_xor_sync(0xffffffffu, make_float2(4, 5), 1).x + __shfl_xor_sync(0xffffffffu, 6, 1)",
            10,
        ),
        (
            "__device__ int f(__half x) { return 1; }\n__device__ int f(int x) { return 2; }",
            "f(__float2half(1.0f)) * 10 + f((short)3)",
            12,
        ),
        ("", "__LINE__", 2),
        ("#define HERE \\\n __LINE__", "HERE", 3),
        ("", "std::numeric_limits<int>::max() % 1000 + (cuda::std::numeric_limits<float>::lowest() < -3e38f)", 648),
        (
            "template <typename T> __device__ bool top(T x) { return x == std::numeric_limits<T>::max(); }",
            "top<unsigned char>(255) + top<short>(255)",
            1,
        ),
        (
            "constexpr int half_of(int n) { return n / 2; }
             template <int N> __device__ int sized() { int a[half_of(N)] = {}; return sizeof a; }",
            "sized<6>()",
            12,
        ),
        (
            "__device__ float turn(float x) { float s, c; sincospif(x, &s, &c); return s * 10 + c; }",
            "turn(0.5f) + turn(1.0f)",
            9,
        ),
        (
            "__device__ float turn(float x) { float s, c; __sincosf(x, &s, &c); return s + c; }",
            "turn(0.0f) + __exp10f(2.0f)",
            101,
        ),
    ];
    for (before, value, expected) in cases {
        let text = format!(
            "{before}\n__global__ void k(int* x) {{ int v = {value}; if (blockIdx.x + threadIdx.x == 0) x[0] = v; }}"
        );
        assert_eq!(outcome(&text, 32).map(|x| x[0]), Ok(*expected), "{text}");
    }
}

/// Files whose kernel `k` adds 1 to each number.
#[test]
fn host_code_is_skipped() {
    let kernel = "__global__ void k(int* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }\n";
    let around: &[(&str, &str)] = &[
        (
            "#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { fprintf(stderr, \"%s %d\", #call, __LINE__); exit(1); } } while (0)\n#define GLUE(a, b) a##b\n#define LOG(...) fprintf(stderr, __VA_ARGS__)\n",
            "int main() { int* d; CHECK(cudaMalloc(&d, 4)); LOG(\"x %d\", 3); int GLUE(a, b) = 1; k<<<1, 1>>>(d); }\n",
        ),
        (
            "class Timer { public: Timer() : t0(0) {} double stop() { return 0; } private: double t0; };\nstruct Opt { std::string name; int n = 5; std::vector<int> v; void parse(int argc, char** argv); };\nstruct GpuTimer { cudaEvent_t start; cudaEvent_t stop; };\nunion Word { int i; float f; };\nenum class Level { Low, High };\n",
            "int main() { Timer t; auto f = [&](int a) { return a + 1; }; return f(1); }\n",
        ),
        (
            "using F = std::function<void(int)>; typedef void (*fn)(int); const std::string name = \"x\"; static std::map<int, int> cache = {{1, 2}, {3, 4}};\ntemplate <typename T = float> T sum(const std::vector<T>& v) { T s = 0; for (auto x : v) s += x; return s; }\ntemplate <typename T> class Stack { T* all; public: void push(T x) {} };\n",
            "template class Stack<int>;\nnamespace fs = std::filesystem;\n",
        ),
        (
            "const char* source = R\"(__global__ void inner(float* y) { y[0] = undefined; })\";\n",
            "const char* other = R\"end()\")end\";\n",
        ),
        (
            "\u{feff}#include <vector>\n",
            "extern \"C\" { void f(int); }\nnamespace a::b { inline namespace c { int g(); } }\n",
        ),
    ];
    for (before, after) in around {
        let text = format!("{before}{kernel}{after}");
        let expected: Vec<i64> = (1..=64).collect();
        assert_eq!(outcome(&text, 32), Ok(expected), "{text}");
    }
}

/// Unsupported constructs in one function do not affect others, and are reported where they are
/// used.
#[test]
fn unsupported_function_does_not_affect_others() {
    let text = "__device__ float3 operator*(float3 a, float s) { asm(\"nop;\"); return make_float3(a.x * s, 0, 0); }
        __device__ int slow(int x) { auto f = [](int v) { return v; }; return f(x); }
        __device__ int slow(float x) { return 1; }
        __global__ void one(int* x) { asm(\"nop;\"); }
        __global__ void k(int* x) { x[blockIdx.x * 32 + threadIdx.x] += 1; }
        __global__ void two(int* x) { x[0] = slow(x[1]); }
        __global__ void six(int* x) { x[0] = (make_float3(1, 2, 3) * 2.0f).x; }";
    let module = CudaModule::parse("k.cu", text).unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<String> = module.kernels().into_iter().map(|kernel| kernel.name).collect();
    assert_eq!(names, ["one", "k", "two", "six"]);
    assert_eq!(outcome(text, 32), Ok((1..=64).collect()));
    let errors =
        [("one", "'asm' is not supported"), ("two", "a lambda is not supported"), ("six", "'asm' is not supported")];
    for (name, expected) in errors {
        let found = outcome_of(text, name, 32);
        assert!(found.as_ref().is_err_and(|error| error.contains(expected)), "{name}: {found:?}");
    }
    // A syntax error, too, affects only the kernels that use the function.
    let wrong = text.replace("return 1;", "return 1");
    assert_eq!(outcome(&wrong, 32), Ok((1..=64).collect()));
    assert!(outcome_of(&wrong, "two", 32).is_err_and(|error| error.contains("expected ';'")));
}
