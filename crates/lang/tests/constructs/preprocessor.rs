//! Macros and conditions.

use super::{check, check_errors};
use bornite_lang::cuda::{CudaModule, PreprocessorOptions};

#[test]
fn macros() {
    check(&[
        (
            "#define CAT(a, b) a##b\n#define X(n) CAT(value_, n)\n__global__ void k(int* x) { int value_1 = 5, value_2f = 6; x[0] = X(1) + CAT(value_, 2f); x[1] = CAT(1, 2) + CAT(0x1, F); }",
            &[11.0, 43.0],
        ),
        (
            "#define MAKE(name, op) __device__ int name##_of(int a, int b) { return a op b; }\nMAKE(sum, +) MAKE(product, *)\n__global__ void k(int* x) { x[0] = sum_of(2, 3) * 10 + product_of(2, 3); }",
            &[56.0],
        ),
        (
            "#define SUM(first, ...) add(first, __VA_ARGS__)\n#define ALL(...) add(__VA_ARGS__)\n__device__ int add(int a, int b) { return 10 * a + b; }\n__global__ void k(int* x) { x[0] = SUM(1, 2); x[1] = ALL(3, 4); }",
            &[12.0, 34.0],
        ),
        (
            "#define F(a, rest...) f(a, ##rest)\n__device__ int f(int a) { return a; } __device__ int f(int a, int b) { return a - b; }\n__global__ void k(int* x) { x[0] = F(7); x[1] = F(7, 2); }",
            &[7.0, 5.0],
        ),
        // Arguments are expanded, operands of ## are not.
        (
            "#define N 3\n#define GLUE(a) v##a\n#define PLAIN(a) (v3 + a)\n__global__ void k(int* x) { int vN = 1, v3 = 2; x[0] = GLUE(N); x[1] = PLAIN(N); }",
            &[1.0, 5.0],
        ),
        // Braces do not protect commas, parentheses do.
        (
            "#define FIRST(a, ...) a\n#define PAIR(a, b) (a * 10 + b)\n__global__ void k(int* x) { x[0] = FIRST((1, 2), 3); x[1] = PAIR((1, 4), 5); }",
            &[2.0, 45.0],
        ),
        (
            "#define COUNT __COUNTER__\n__global__ void k(int* x) { x[0] = COUNT; x[1] = COUNT; x[2] = __LINE__; }",
            &[0.0, 1.0, 2.0],
        ),
        ("#define SELF SELF + 1\n#define A B\n#define B A\n__global__ void k(int* x) { int A = 4; x[0] = A; }", &[4.0]),
    ]);
    check_errors(&[
        (
            "#define ONE(a) a\n__global__ void k(int* x) { x[0] = ONE(1, 2); }",
            "macro 'ONE' takes 1 argument, 2 are given",
        ),
        ("#define HEX(a) 0x##a\n__global__ void k(int* x) { x[0] = HEX(1F); }", "'0x' is not an integer"),
        ("#define BAD(a) a##+\n__global__ void k(int* x) { x[0] = BAD(1); }", "'##' makes '1+'"),
    ]);
}

#[test]
fn stringized_text_reaches_printf() {
    let text = "#define SHOW(v) printf(#v \" is %d\\n\", v)\n#define FORMAT \"%d and\\n%d\\n\"\n\
        __global__ void k(int* x) { SHOW(x[1] + 2); printf(FORMAT, 1, 2); }";
    let module = CudaModule::parse("k.cu", text).unwrap();
    let request = bornite_lang::LaunchRequest::new([1; 3], [1; 3]).length("x", 4);
    let printed = module.kernel("k", &request).unwrap().kernel.to_string();
    for line in ["x[1] + 2 is", " and\""] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    assert_eq!(printed.matches("print ").count(), 3, "{printed}");
}

#[test]
fn conditions() {
    let cases = [
        ("1", true),
        ("0", false),
        ("defined(YES) && !defined NO", true),
        ("YES == 4 && (YES << 2) == 16", true),
        ("(YES & 6) == 4 && (YES | 1) == 5 && (YES ^ 1) == 5 && ~0 == -1", true),
        ("UNKNOWN", false),
        ("YES > 3 ? 0 : 1", false),
        ("TWICE(YES) == 8", true),
        ("__CUDA_ARCH__ >= 700 && defined(__CUDACC__)", true),
        ("__cplusplus < 201103L", false),
        ("__has_include(<cmath>) && !__has_include(\"no_such_file.h\")", true),
        ("-1 < 0 && 7 / 2 == 3 && 7 % 4 == 3", true),
    ];
    for (condition, holds) in cases {
        let text = format!(
            "#define YES 4\n#define TWICE(a) (2 * (a))\n#if {condition}\n#define R 1\n#elif 1\n#define R 0\n#else\n#error never\n#endif\n\
             __global__ void k(int* x) {{ x[0] = R; }}"
        );
        check(&[(&text, &[holds as i32 as f64])]);
    }
    // Text in an inactive group need not be made of tokens.
    check(&[(
        "#if 0\nit's not \" a token \u{2026}\n#error no\n#bogus\n#endif\n__global__ void k(int* x) { x[0] = 1; }",
        &[1.0],
    )]);
    check_errors(&[
        ("#error stop here\n__global__ void k(int* x) {}", "'#error stop here' reached"),
        ("#if 1\n__global__ void k(int* x) {}", "unterminated '#if'"),
        ("#if 1 +\n#endif\n__global__ void k(int* x) {}", "condition is not supported"),
        ("#bogus\n__global__ void k(int* x) {}", "the directive '#bogus' is not supported"),
    ]);
}

#[test]
fn options_define_macros() {
    let options = PreprocessorOptions { defines: vec!["N=7".into(), "FLAG".into()], ..Default::default() };
    let text = "#ifdef FLAG\n__global__ void k(int* x) { x[0] = N + FLAG; }\n#endif";
    let module = CudaModule::read("k.cu", text, None, &options);
    assert_eq!(super::run_kernel(&module, "k", 1).unwrap()[0], 8.0);
    assert_eq!(module.kernels()[0].line, 2);
}

/// Invalid text costs only the items that contain it.
#[test]
fn invalid_text_is_local() {
    let text = "void host() { auto s = `x`; int n = 99999999999999999999; }\n\
        struct Odd { int a @ b; };\n\
        __device__ int bad() { return 1 $ 2; }\n\
        __global__ void k(int* x) { x[0] = 3; }\n\
        __global__ void uses(int* x) { x[0] = bad(); }\n\
        __global__ void odd(Odd* o, int* x) { x[0] = 1; }";
    let module = CudaModule::parse("k.cu", text).unwrap();
    let names: Vec<String> = module.kernels().into_iter().map(|kernel| kernel.name).collect();
    assert_eq!(names, ["k", "uses", "odd"]);
    assert_eq!(super::run_kernel(&module, "k", 1).unwrap()[0], 3.0);
    for (name, expected) in [("uses", "unknown character '$'"), ("odd", "unknown character '@'")] {
        let error = super::run_kernel(&module, name, 1).unwrap_err();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

/// A backslash at the end of a line joins it with the next before comments, names and directives
/// are read.
#[test]
fn lines_are_joined_first() {
    check(&[
        ("__global__ void k(int* x) { x[0] = 1; // comment \\\n x[0] = 2;\n x[1] = 3; }", &[1.0, 3.0]),
        ("__global__ void k(int* x) { x[0] = 1; // comment \\\r\n x[0] = 2;\r\n x[1] = 3; }", &[1.0, 3.0]),
        ("__global__ void k(int* x) { int val\\\nue = 4\\\n2; x[0] = va\\\nlue; x[1] \\\n+\\\n= 5; }", &[42.0, 6.0]),
        ("#def\\\nine N 3\n#define F\\\n(a) (a + 1)\n__global__ void k(int* x) { x[0] = F(N); }", &[4.0]),
        ("#if 0 /* a\n b */ || 1\n#define R 5\n#else\n#define R 6\n#endif\n__global__ void k(int* x) { x[0] = R; }", &[5.0]),
        (
            "#define INC v += 1; /* note \\\n more */ v += 10;\n__global__ void k(int* x) { int v = 0; INC INC x[0] = v; }",
            &[22.0],
        ),
        ("/* a\n b */ #define N 7\n__global__ void k(int* x) { x[0] = N; x[1] = __LINE__; }", &[7.0, 3.0]),
        ("#define N(a) a /*\n*/ + 1 // one \\\n + 2\n__global__ void k(int* x) { x[0] = N(4); }", &[5.0]),
    ]);
    // Raw strings are taken as written.
    let text = "__global__ void k(int* x) { printf(R\"(a\\\nb)\" \"c\\\nd\\n\"); x[0] = 2; int y\\\nz = 3; x[1] = yz; }";
    let error = CudaModule::parse("k.cu", text).map(|module| super::run_kernel(&module, "k", 1));
    let printed = format!("{error:?}");
    assert!(!printed.contains("not declared"), "{printed}");
    // Locations are those of the source.
    let text = "#define A \\\n 1\n__global__ void k(int* x) { x[0] = \\\n mis\\\nsing; }";
    let module = CudaModule::parse("k.cu", text).unwrap();
    let error = super::run_kernel(&module, "k", 1).unwrap_err();
    assert!(error.contains("k.cu:4:2"), "{error}");
}

#[test]
fn pragma_pack_takes_macros() {
    check_errors(&[
        (
            "#define WORD 1\n#pragma pack(push, \\\n WORD)\nstruct S { char a; int b; };\n#pragma pack(pop)\n\
             __global__ void k(int* x) { S s{1, 2}; x[0] = s.b + sizeof(S); }",
            "pack",
        ),
        ("#pragma pack(3 + 1)\n__global__ void k(int* x) { x[0] = 1; }", "this '#pragma pack' is not supported"),
    ]);
}
