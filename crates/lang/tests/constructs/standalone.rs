//! Kernels as standalone text: lowered to the same IR as in their file, for every launch.

use std::path::Path;

use bornite_ir::{Arg, Scalar, Value, interp, load_scalar};
use bornite_lang::LaunchRequest;
use bornite_lang::cuda::{CudaModule, PreprocessorOptions};

fn standalone(text: &str, kernel: Option<&str>) -> String {
    CudaModule::standalone("k.cu", text, None, &PreprocessorOptions::default(), kernel)
        .unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

fn launches() -> Vec<LaunchRequest> {
    let launch = |grid: [u32; 3], block: [u32; 3]| {
        let mut request = LaunchRequest::new(grid, block).shared_bytes(8 << 10);
        request.default_length = Some(1 << 20);
        request
    };
    vec![launch([1; 3], [32, 1, 1]), launch([7, 1, 1], [64, 1, 1]), launch([3, 2, 1], [8, 4, 2])]
}

/// IR of a kernel for several launches, without structs that it does not use, or errors.
fn lowered(module: &CudaModule, kernel: &str) -> Vec<Result<String, Vec<String>>> {
    let messages = |errors: bornite_lang::Errors| errors.diagnostics.into_iter().map(|one| one.message).collect();
    let used = |text: String| {
        let is_used = |line: &&str| match line.strip_prefix("struct ").and_then(|rest| rest.split(' ').next()) {
            Some(name) => text.matches(name).count() > 1,
            None => true,
        };
        text.lines().filter(is_used).collect::<Vec<_>>().join("\n")
    };
    let lower =
        |request| module.kernel(kernel, &request).map(|lowered| used(lowered.kernel.to_string())).map_err(messages);
    launches().into_iter().map(lower).collect()
}

/// Checks that the standalone text of a kernel is lowered to the same IR as the program.
pub fn check(program: &str, kernel: &str) {
    if program.contains("__LINE__") {
        return; // the lines of the text are others
    }
    let text = standalone(program, Some(kernel));
    let original = CudaModule::parse("k.cu", program).unwrap_or_else(|errors| panic!("{program}\n{errors}"));
    let emitted = CudaModule::parse("k.cu", &text).unwrap_or_else(|errors| panic!("{program}\n{text}\n{errors}"));
    assert_eq!(lowered(&emitted, kernel), lowered(&original, kernel), "{program}\n{text}");
}

/// All kernels of the test programs, each by itself and all of a file in one text.
#[test]
fn kernels_of_files_keep_their_ir() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut kernels = 0;
    for folder in [root.join("tests/cuda"), root.join("../../docs/kernels")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "cu") {
                continue;
            }
            let program = std::fs::read_to_string(&path).unwrap();
            let original = CudaModule::parse("k.cu", &program).unwrap();
            let all = CudaModule::parse("k.cu", &standalone(&program, None)).unwrap();
            let names =
                |module: &CudaModule| module.kernels().into_iter().map(|kernel| kernel.name).collect::<Vec<_>>();
            assert_eq!(names(&all), names(&original), "{}", path.display());
            for kernel in original.kernels() {
                let name = original.example_instance(&kernel.name);
                check(&program, &name);
                assert_eq!(lowered(&all, &name), lowered(&original, &name), "{}", path.display());
                kernels += 1;
            }
        }
    }
    assert!(kernels >= 60, "{kernels}");
}

const PROGRAM: &str = "/* The licence. */
#include <stdio.h>
#include <vector>
#define BLOCK 128
#define UNUSED 7
#define CAT(a, b) a##b
#define LIMIT_SMALL 100 // pasted
#ifdef DOUBLE
typedef double real;
#else
typedef float real; // the type
#endif
static_assert(BLOCK == 128, \"not about a declaration\");
namespace detail {
struct Pair { real a, b; };
static_assert(sizeof(Pair) == 2 * sizeof(real), \"layout\");
// Adds pairs.
__device__ Pair operator+(const Pair& x, const Pair& y) { return {x.a + y.a, x.b + y.b}; }
template <class T> __device__ T twice(T x);
template <class T> __device__ T twice(T x) { return x + x; }
template <> __device__ int twice<int>(int x) { return 3 * x; }
}
enum Mode { PLAIN, SQUARED = 4 };
__constant__ float table[3] = {1, 2, 3};
__device__ float unused_function(float x) { return x; }
std::vector<float> host_values;
int count_on_host() { return UNUSED; }

// Sums a table.
__global__ void __launch_bounds__(BLOCK) sum(const real* __restrict__ in, real* out, int n) { // here
    /* A comment
       in the kernel. */
#pragma unroll 4
    for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x) {
#if __CUDA_ARCH__ >= 10000
        out[i] = 0;
#else
        detail::Pair p = detail::Pair{in[i], table[i % 3]} + detail::Pair{1, 2};
        out[i] = detail::twice(p.a) + SQUARED + CAT(LIMIT_, SMALL);
#endif
    }
}

namespace { template <class T, int N> __global__ void fill(T* x) { x[threadIdx.x] = detail::twice<T>(N); } }

int main() {
    fill<int, 5><<<1, 32>>>(0);
    fill<float, BLOCK><<<1, 32>>>(0);
}
";

#[test]
fn names_comments_and_conditions_are_kept() {
    let text = standalone(PROGRAM, Some("sum"));
    for kept in [
        "/* The licence. */",
        "#define BLOCK 128\n",
        "#define LIMIT_SMALL 100 // pasted\n",
        "#ifdef DOUBLE\ntypedef double real;\n#else\ntypedef float real; // the type\n#endif\n",
        "// Adds pairs.\n__device__ Pair operator+(",
        "static_assert(sizeof(Pair)",
        "template <> __device__ int twice<int>",
        "enum Mode { PLAIN, SQUARED = 4 };",
        "__constant__ float table[3]",
        "\n\n// Sums a table.\n__global__ void __launch_bounds__(BLOCK) sum(const real* __restrict__ in, real* out, int n) { // here\n",
        "    /* A comment\n       in the kernel. */\n#pragma unroll 4\n",
        "#if __CUDA_ARCH__ >= 10000\n        out[i] = 0;\n#else\n",
    ] {
        assert!(text.contains(kept), "{kept}\n{text}");
    }
    for left_out in
        ["UNUSED", "unused_function", "count_on_host", "host_values", "main", "fill", "<vector>", "not about"]
    {
        assert!(!text.contains(left_out), "{left_out}\n{text}");
    }
    assert_eq!(text.matches("__restrict__").count(), 1, "{text}");
    check(PROGRAM, "sum");
    let options = PreprocessorOptions { defines: vec!["DOUBLE".into()], ..PreprocessorOptions::default() };
    let text = CudaModule::standalone("k.cu", PROGRAM, None, &options, Some("sum")).unwrap();
    assert!(text.starts_with("#define DOUBLE 1 // -D\n"), "{text}");
    let module = CudaModule::parse("k.cu", &text).unwrap();
    assert!(lowered(&module, "sum")[0].as_ref().unwrap().contains("f64"), "{text}");
}

#[test]
fn instances_of_host_code_become_explicit() {
    let all = standalone(PROGRAM, None);
    let module = CudaModule::parse("k.cu", &all).unwrap();
    let names: Vec<String> = module.kernels().into_iter().map(|kernel| kernel.name).collect();
    assert_eq!(names, ["sum", "fill<int, 5>", "fill<float, 128>"], "{all}");
    assert!(all.contains("namespace { template __global__ decltype(fill<int, 5>) fill<int, 5>; }\n"), "{all}");
    for kernel in ["fill<int, 5>", "fill<float, 128>", "fill<double, 3>"] {
        let text = standalone(PROGRAM, Some(kernel));
        assert_eq!(text.matches("decltype").count(), 1, "{text}");
        check(PROGRAM, kernel);
    }
    // The source's own instances stay, unless another one is selected.
    let program =
        "template <class T> __global__ void k(T* x) { *x = 1; }\ntemplate __global__ void k<int>(int*); // own\n";
    assert!(standalone(program, None).ends_with("template __global__ void k<int>(int*); // own\n"));
    assert!(!standalone(program, Some("k<float>")).contains("own"));
    check(program, "k<int>");
}

/// Parts of declarations in conditions, macros that declare kernels, attributes, tables in headers.
#[test]
fn declarations_of_any_shape_are_found() {
    for (program, kernels) in [
        (
            "#define KERNEL(name, op) __device__ int f_##name(int a) { return a op 2; } \\\n  \
          __global__ void name(int* x) { x[0] = f_##name(x[1]); }\nKERNEL(add, +)\nKERNEL(mul, *) int main() {}\n",
            &["add", "mul"][..],
        ),
        ("#ifdef WIDE\n__global__ void k(long* x)\n#else\n__global__ void k(int* x)\n#endif\n{ x[0] = 1; }\n", &["k"]),
        (
            "#define NOTHING\nNOTHING __attribute__((noinline)) __device__ int f() { return 1; }\n\
          [[maybe_unused]] __global__ void k(int* x) { x[0] = f(); }",
            &["k"],
        ),
        (
            "#define N 4\n__global__ void a(int* x) { x[0] = N; }\n#undef N\n#define N 5\n__global__ void b(int* x) { x[0] = N; }\n",
            &["a", "b"],
        ),
        (
            "struct S { int v; __device__ int get() const; };\n__device__ int S::get() const { return v + 1; }\n\
          __global__ void k(int* x) { S s{x[0]}; x[1] = s.get(); }\n",
            &["k"],
        ),
        (
            "#ifdef __cplusplus\nextern \"C\" {\n#endif\n__global__ void k(int* x) { x[0] = 1; }\n#ifdef __cplusplus\n}\n#endif\n",
            &["k"],
        ),
        (
            "const int A = 1, B = A + 1;\ntypedef struct node { int next; } Node, *NodePointer;\n\
          __global__ void k(Node* n) { n[0].next = B; }\n",
            &["k"],
        ),
        (
            "#pragma pack(push, 1)\nstruct P { char c; int i; };\n#pragma pack(pop)\n\
          __global__ void k(P* p, int* x) { x[0] = sizeof(P); }\n",
            &["k"],
        ),
        (
            "__global__ void k(int* x);\n__device__ int f(int);\nint main() { k<<<1, 1>>>(0); }\n\
          __global__ void k(int* x) { x[0] = f(2); }\n__device__ int f(int v) { return v; }\n",
            &["k"],
        ),
        (
            "\u{feff}// begin\n__device__ int a; __device__ int b; __global__ void k(int* x) { x[0] = 1; } // end\nint c;",
            &["k"],
        ),
    ] {
        kernels.iter().for_each(|kernel| check(program, kernel));
    }
}

#[test]
fn headers_are_inlined() {
    let folder = std::env::temp_dir().join(format!("bornite-standalone-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let main = folder.join("main.cu");
    let program = "#include \"a.h\"\n#include \"a.h\"\n#include <cmath>\n\
                   __constant__ int table[] = {\n#include \"table.inc\"\n};\n\
                   __global__ void k(uint32_t* x) { x[0] = ONE + table[1] + (uint32_t)std::max(FLT_MAX, 1.0f); }\n";
    for (name, text) in [
        ("main.cu", program),
        ("a.h", "// Licence of a.\n#ifndef A_H\n#define A_H\n#include \"b.h\"\nint host();\n#endif // A_H\n"),
        ("b.h", "#pragma once\n#define ONE 1 // one\n#define TWO 2\n"),
        ("table.inc", "1, 2, // two\n3\n"),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let options = PreprocessorOptions::default();
    let text = CudaModule::standalone("main.cu", program, Some(&main), &options, None).unwrap();
    for kept in [
        "#define ONE 1 // one\n",
        "= {\n1, 2, // two\n3\n};\n",
        "typedef unsigned int uint32_t;",
        "namespace std { using ::max;",
    ] {
        assert!(text.contains(kept), "{kept}\n{text}");
    }
    for left_out in ["A_H", "TWO", "once", "host", "a.h\"", ".inc\""] {
        assert!(!text.contains(left_out), "{left_out}\n{text}");
    }
    let original = CudaModule::load(&main, &options).unwrap();
    assert_eq!(lowered(&CudaModule::parse("k.cu", &text).unwrap(), "k"), lowered(&original, "k"), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A loop over the grid counts every element, whatever the launch of the emitted text.
#[test]
fn a_grid_stride_loop_counts_for_every_grid() {
    let text = standalone(
        "__global__ void count(int* total, int n) {\n  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; \
         i += gridDim.x * blockDim.x) atomicAdd(total, 1);\n}\nint main() { count<<<4, 64>>>(0, 5000); }\n",
        None,
    );
    let module = CudaModule::parse("k.cu", &text).unwrap();
    for (grid, block) in [(1, 1), (1, 256), (3, 32), (19, 64), (40, 128), (200, 32)] {
        let request = LaunchRequest::new([grid, 1, 1], [block, 1, 1]).length("total", 1);
        let kernel = module.kernel("count", &request).unwrap().kernel;
        let mut total = [0u64];
        interp::run(&kernel, &mut [Arg::Write(&mut total), Arg::Value(&[Value::int(Scalar::I32, 5000)])]).unwrap();
        assert_eq!(load_scalar(&total, 0, Scalar::I32).as_i64(), 5000, "grid {grid}, block {block}");
    }
}

#[test]
fn what_cannot_be_emitted_is_an_error() {
    let of = |text: &str, kernel| CudaModule::standalone("k.cu", text, None, &PreprocessorOptions::default(), kernel);
    let kernel = "__global__ void k(int* x) { x[0] = 1; }\n";
    for (text, name, expected) in [
        (kernel, Some("other"), "there is no kernel 'other'; the file has k"),
        ("int main() {}", None, "'k.cu' has no kernel"),
        ("__global__ void k(int* x) { x[0] = 1; }\n}\n", None, "unmatched '}'"),
    ] {
        let errors = of(text, name).unwrap_err().to_string();
        assert!(errors.contains(expected), "{errors}");
    }
    // Kernels that the front end does not support are copied too.
    let text = of("struct T { virtual int f(); };\n__global__ void k(T* t) { t->f(); }\n", None).unwrap();
    assert!(text.contains("virtual") && text.contains("t->f()"), "{text}");
}
