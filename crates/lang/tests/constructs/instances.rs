//! Instances of kernel templates: those that the file's own launches and explicit instances name.

use bornite_lang::cuda::CudaModule;

use super::run_kernel;

/// Names of the kernels of a text; a template without instances is marked.
fn kernels(text: &str) -> Vec<String> {
    let module = CudaModule::parse("k.cu", text).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    let name = |kernel: bornite_lang::cuda::CudaKernelInfo| match kernel.is_template {
        true => format!("{} (not instantiated)", kernel.name),
        false => kernel.name,
    };
    module.kernels().into_iter().map(name).collect()
}

#[test]
fn launches_instantiate_templates() {
    let kernel = "template <class T, int N> __global__ void k(T* x) { x[0] = N; }\n";
    let cases: &[(&str, &[&str])] = &[
        ("", &["k (not instantiated)"]),
        ("int main() { k<float, 4><<<1, 32>>>(x); }", &["k<float, 4>"]),
        (
            "int main() { k<float, 4> <<<grid(2), dim3(1, 2)>>>(x); k<double, 2 * 4><<<1, 1>>>(y); }",
            &["k<float, 4>", "k<double, (2 * 4)>"],
        ),
        ("int main() { k<float, 4><<<1, 1>>>(x); k<float,4><<<1, 1>>>(y); }", &["k<float, 4>"]),
        ("#define N 8\nint main() { k<int, N><<<1, 1>>>(x); }", &["k<int, 8>"]),
        ("const int size = 16;\nint main() { k<int, size><<<1, 1>>>(x); }", &["k<int, size>"]),
        (
            "int main() { const int block = 64; using real = double; k<real, block / 2><<<1, block>>>(x); }",
            &["k<double, (64 / 2)>"],
        ),
        ("int main() { cudaFuncSetAttribute(k<int, 1>, a, b); auto f = &k<int, 2>; }", &["k<int, 1>", "k<int, 2>"]),
        ("template __global__ void k<float, 4>(float*);", &["k<float, 4>"]),
        // Host templates are followed, with explicit and deduced arguments.
        (
            "template <class T> void run(T* p) { k<T, 3><<<1, 1>>>(p); }\nint main() { run<float>(a); int* b; run(b); }",
            &["k<float, 3>", "k<int, 3>"],
        ),
        (
            "template <class T> void run() { k<T, sizeof(T)><<<1, 1>>>(p); }\ntemplate <class U> void outer() { run<U*>(); run<U>(); }\nint main() { outer<short>(); }",
            &["k<short*, sizeof(short*)>", "k<short, sizeof(short)>"],
        ),
        ("template <class T> void run() { k<T, 3><<<1, 1>>>(p); }\nint main() {}", &["k (not instantiated)"]),
    ];
    for (host, expected) in cases {
        assert_eq!(kernels(&format!("{kernel}{host}")), *expected, "{host}");
    }
}

#[test]
fn arguments_of_launches_are_deduced() {
    let kernel = "struct Op { int by; };\ntemplate <class T, class F = int> __global__ void k(T* x, const T* y, T a, F f) { x[0] = a; }\n";
    let cases: &[(&str, &[&str])] = &[
        ("int main() { float *p, *q = p; k<<<1, 1>>>(p, q, 1.0f, 2); }", &["k<float, int>"]),
        ("void run(const double* in, int n) { k<<<1, 1>>>(&out[0], in + n, 1, Op{3}); }", &["k<double, Op>"]),
        ("void run() { k<<<1, 1>>>((unsigned*)raw, raw, 0, 'c'); }", &["k<unsigned, char>"]),
        ("void run() { int* table[4]; k<<<1, 1>>>(table[1], y, 0, f); }", &["k<int>"]),
        ("void run() { std::vector<float> v; k<<<1, 1>>>(v.data(), w, u, t); }", &["k (not instantiated)"]),
        ("void run() { float* p; k<double><<<1, 1>>>(p, p, 0, 1u); }", &["k<double, unsigned>"]),
    ];
    for (host, expected) in cases {
        assert_eq!(kernels(&format!("{kernel}{host}")), *expected, "{host}");
    }
}

#[test]
fn instances_run_with_their_arguments() {
    let text = "struct Twice { __device__ float operator()(float v) const { return 2 * v; } };
        template <class F, int N> __global__ void k(float* x) { F f; x[threadIdx.x] = f(x[threadIdx.x]) + N; }
        template <class F> void launch(float* p) { k<F, 3><<<1, 8>>>(p); }
        int main() { float* p; launch<Twice>(p); }";
    let module = CudaModule::parse("k.cu", text).unwrap();
    assert_eq!(run_kernel(&module, "k<Twice, 3>", 4).unwrap()[..5], [3.0, 5.0, 7.0, 9.0, 4.0]);
    assert_eq!(run_kernel(&module, "k<Twice,3>", 1).unwrap()[..2], [3.0, 1.0]);
    let text = "template <int N = 5> __global__ void k(int* x) { x[0] = N; }";
    assert_eq!(run_kernel(&CudaModule::parse("k.cu", text).unwrap(), "k<>", 1).unwrap()[0], 5.0);
    let missing = run_kernel(&module, "k", 1).unwrap_err();
    assert!(missing.contains("is a template"), "{missing}");
}
