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
        ("#define CAT(a, b) a##b\n__global__ void k(int* x) { x[0] = CAT(0, x); }", "'0x' is not an integer"),
        (
            "#define F(a) a\n__global__ void k(int* x) { x[0] = F(1 +\n#ifdef A\n2\n#else\n3\n#endif\n); }",
            "the call of macro 'F' does not end before the next directive",
        ),
        ("#define defined 1\n__global__ void k(int* x) {}", "'defined' cannot be the name of a macro"),
        ("#define S(...) #__VA_OPT__(a)\n__global__ void k(int* x) { printf(S(1)); }", "'__VA_OPT__' beside '#'"),
        ("__global__ void k(int* x) { _Pragma(\"pack(1)\") x[0] = 1; }", "'_Pragma(\"pack(1)\")' is not supported"),
        ("__global__ void k(int* x) { _Pragma(unroll) x[0] = 1; }", "'_Pragma' takes one string"),
        ("#pragma push_macro(\"A\")\n__global__ void k(int* x) {}", "'#pragma push_macro' is not supported"),
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
        ("-1 > 0u", true),
        ("0xFFFFFFFFFFFFFFFF > 0", true),
        ("0xFFFFFFFF + 1 > 0 && -1 < 0xFFFFFFFF", true),
        ("(0u-1)/2 > 5", true),
        ("18446744073709551615u>>63 == 1", true),
        ("-8 >> 1 == -4 && 16 << -1 == 8 && 1 << 64 == 0 && -1 >> 100 == -1", true),
        ("'\\377' < 0 && 'a' == 97", true),
        ("(1 ? -1 : 0u) > 0", true),
        ("(-1 < 0u) == 0 && ((1u == 1) - 2) < 0", true),
        ("0 && 1 / 0 || 1 || 1 % 0", true),
        ("1 ? 2 : 1 / 0", true),
        ("defined(float) || float || int", false),
        ("1'000 == 1000", true),
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
        ("#if 1 / 0\n#endif\n__global__ void k(int* x) {}", "division by zero"),
        ("#if 1 + 5 % (2 - 2)\n#endif\n__global__ void k(int* x) {}", "division by zero"),
        ("#if defined(\n#endif\n__global__ void k(int* x) {}", "'defined' without a name"),
        ("#ifdef\n#endif\n__global__ void k(int* x) {}", "'#ifdef' without a name"),
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
        (
            "#if 0 /* a\n b */ || 1\n#define R 5\n#else\n#define R 6\n#endif\n__global__ void k(int* x) { x[0] = R; }",
            &[5.0],
        ),
        (
            "#define INC v += 1; /* note \\\n more */ v += 10;\n__global__ void k(int* x) { int v = 0; INC INC x[0] = v; }",
            &[22.0],
        ),
        ("/* a\n b */ #define N 7\n__global__ void k(int* x) { x[0] = N; x[1] = __LINE__; }", &[7.0, 3.0]),
        ("#define N(a) a /*\n*/ + 1 // one \\\n + 2\n__global__ void k(int* x) { x[0] = N(4); }", &[5.0]),
    ]);
    // Raw strings are taken as written.
    let text =
        "__global__ void k(int* x) { printf(R\"(a\\\nb)\" \"c\\\nd\\n\"); x[0] = 2; int y\\\nz = 3; x[1] = yz; }";
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

/// For the preprocessor, keywords are names.
#[test]
fn keywords_can_be_macros() {
    check(&[
        ("#define float double\n__global__ void k(int* x) { x[0] = sizeof(float); }", &[8.0]),
        ("#define true 7\n__global__ void k(int* x) { x[0] = true; }", &[7.0]),
        ("#define if while\n__global__ void k(int* x) { int n = 0; if (n < 5) n++; x[0] = n; }", &[5.0]),
        ("#define if while\n#undef if\n__global__ void k(int* x) { int n = 0; if (n < 5) n++; x[0] = n; }", &[1.0]),
        ("#define F(class, int) (class * 10 + int)\n__global__ void k(int* x) { x[0] = F(3, 4); }", &[34.0]),
        (
            "#define inline\n#ifdef inline\ninline __device__ int f() { return 3; }\n#endif\n__global__ void k(int* x) { x[0] = f(); }",
            &[3.0],
        ),
        (
            "#define CAT(a, b) a##b\n__global__ void k(int* x) { CAT(un, signed) a = 0; CAT(do, uble) b = 0.5; x[0] = a - 1 > 0; x[1] = b * 4; }",
            &[1.0, 2.0],
        ),
        ("#define long\n__global__ void k(int* x) { x[0] = sizeof(long int); }", &[4.0]),
    ]);
    let options = PreprocessorOptions { defines: vec!["float=double".into()], ..Default::default() };
    let module = CudaModule::read("k.cu", "__global__ void k(int* x) { x[0] = sizeof(float); }", None, &options);
    assert_eq!(super::run_kernel(&module, "k", 1).unwrap()[0], 8.0);
}

/// Operands of `##` are tokens of the preprocessor, such as `0x` and `1F`.
#[test]
fn parts_of_numbers_are_joined() {
    let define =
        "#define HEX(a) 0x##a\n#define CAT(a, b) a##b\n#define CAT3(a, b, c) a##b##c\n#define VIA(a) CAT(0x, a)\n";
    let cases = [
        ("HEX(80)", 128.0),
        ("HEX(1F)", 31.0),
        ("HEX(F)", 15.0),
        ("CAT(1e, 5)", 100_000.0),
        ("CAT(0b, 11)", 3.0),
        ("CAT3(0, x, 1F)", 31.0),
        ("VIA(2f)", 47.0),
        ("CAT(1, 0.f)", 10.0),
        ("CAT(1'0, 00)", 1000.0),
        ("(int)sizeof(CAT(1, ull))", 8.0),
    ];
    for (text, expected) in cases {
        check(&[(&format!("{define}__global__ void k(int* x) {{ x[0] = {text}; }}"), &[expected])]);
    }
    check(&[("#define CAT(a, b) a##b\n__global__ void k(int* x) { int v1_a = 3; x[0] = CAT(v, 1_a); }", &[3.0])]);
}

#[test]
fn expansions_are_scanned_again() {
    check(&[
        // A name that was not expanded in its own expansion never is.
        (
            "#define ID(a) a\n__global__ void k(int* x) { int SELF = 5;\n#define SELF SELF + 1\nx[0] = ID(SELF); x[1] = ID(ID(SELF)); }",
            &[6.0, 6.0],
        ),
        ("#define f(a) a * f\n__global__ void k(int* x) { int f = 3; x[0] = f(2); }", &[6.0]),
        (
            "#define CAT(a, b) a##b\n#define IIF(c) CAT(IIF_, c)\n#define IIF_0(t, f) f\n#define IIF_1(t, f) t\n\
             __global__ void k(int* x) { x[0] = IIF(1)(10, 20); x[1] = IIF(0)(10, 20); }",
            &[10.0, 20.0],
        ),
        (
            "#define EMPTY()\n#define DEFER(a) a EMPTY()\n#define EVAL(...) __VA_ARGS__\n#define A() 12\n\
             __global__ void k(int* x) { x[0] = EVAL(DEFER(A)()); }",
            &[12.0],
        ),
        (
            "#define CALL(f, ...) f(0 __VA_OPT__(,) __VA_ARGS__)\n__device__ int g(int a) { return 1; } __device__ int g(int a, int b) { return 10 + b; }\n\
             #define NONE\n__global__ void k(int* x) { x[0] = CALL(g); x[1] = CALL(g, 3); x[2] = CALL(g, NONE); }",
            &[1.0, 13.0, 1.0],
        ),
        (
            "#define PRAGMA(a) _Pragma(#a)\n#define UNROLL _Pragma(\"unroll\")\n\
             __global__ void k(int* x) { int s = 0; UNROLL for (int i = 0; i < 4; i++) s += i; PRAGMA(unroll 2) for (int i = 0; i < 4; i++) s += i; x[0] = s; }",
            &[12.0],
        ),
        ("__global__ void k(int* x) { x[0] = 1'000 + 0x1'00; x[1] = 1'0.5; }", &[1256.0, 10.0]),
    ]);
}

/// Macros that grow without end are errors, soon.
#[test]
fn endless_macros_end() {
    let mut doubling = "#define A0 1 +\n".to_owned();
    (1..60).for_each(|n| doubling += &format!("#define A{n} A{} A{}\n", n - 1, n - 1));
    let kernel = "__global__ void k(int* x) { x[0] = A59 0; }";
    check_errors(&[(&(doubling + kernel), "too large")]);
    let mut nested = "#define F(a) a a\n__global__ void k(int* x) { x[0] = ".to_owned();
    (0..60).for_each(|_| nested += "F(");
    check_errors(&[(&(nested.clone() + "1" + &")".repeat(60) + "; }"), "too large")]);
    // Calls without an end do not cost quadratic time.
    let open = "#define F(a) a\n".to_owned() + &"F(".repeat(200_000) + "\n__global__ void k(int* x) {}";
    assert!(CudaModule::parse("k.cu", &open).is_err());
}

#[test]
fn suffixes_and_escapes() {
    let expression = |text: &str| format!("__global__ void k(int* x) {{ x[0] = {text}; }}");
    for text in ["5f", "5lul", "5lll", "5uu", "5lL", "0x5uu", "0xe+1", "5_km", "0b2", "09"] {
        let found = CudaModule::parse("k.cu", &expression(text)).map(|module| super::run_kernel(&module, "k", 1));
        assert!(found.is_err(), "{text}: {found:?}");
    }
    check_errors(&[
        (&expression("5lll"), "'5lll' has an unknown suffix"),
        (&expression("'\\e'"), "unknown escape sequence '\\e'"),
        (&expression("'\\x100'"), "the escape sequence '\\x100' is not a character"),
    ]);
    check(&[(&expression("5ull + 5LLU + 5lu + 5L + 0x5u + 'a' + '\\n' + '\\x41' + '\\101'"), &[262.0])]);
}
