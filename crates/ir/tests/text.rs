//! Text form: printed kernels parse back, errors have line, column and caret, and nothing panics.

mod samples;

use bornite_ir::{Kernel, Scalar, templates};
use samples::kernels;

#[test]
fn printed_kernels_parse_back() {
    for kernel in kernels() {
        let text = kernel.to_string();
        let parsed: Kernel = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(parsed.to_string(), text);
        assert_eq!(parsed.to_string().parse::<Kernel>().unwrap(), parsed);
        // Whitespace and empty lines do not matter.
        let loose = text.replace('\n', " \n\n").replace("  ", "\t");
        assert_eq!(loose.parse::<Kernel>().unwrap(), parsed);
    }
}

#[test]
fn errors_have_a_position_and_message() {
    let text = templates::axpy(Scalar::F32, 10, 2.0).unwrap().to_string();
    let cases = [
        ("bornite-ir 3", "bornite-ir 4", 1, 13, "this program reads up to 3: update it"),
        ("bornite-ir 3", "hello", 1, 1, "expected 'bornite-ir'"),
        ("parallel_for 10", "parallel_for many", 2, 26, "expected a number"),
        ("index i32", "index int", 2, 35, "expected a type: bool, i8"),
        ("read f32[10]", "eat f32[10]", 3, 15, "expected read, write or update"),
        ("fma(", "fmo(", 9, 13, "there is no operation 'fmo'"),
        ("2.0f32", "2.0", 9, 17, "expected a value with its type"),
        ("2.0f32", "two", 9, 17, "expected a value with its type"),
        ("%1: f32 = x[index]", "%1: f32 = z[index]", 7, 13, "there is no view 'z'"),
        ("%1: f32 = x[index]", "%1: f32 = x[index", 7, 20, "expected ']'"),
        ("%1: f32 = x[index]", "%1: f32 = x[index] now", 7, 22, "expected the end of the line"),
        ("%1: f32 = x[index]", "%1: f64 = x[index]", 1, 1, "%1 is f32 but recorded as f64"),
        ("out[index] = %4", "out[index] = %77", 10, 19, "%77 is never evaluated"),
        ("out[index] = %4", "x[index] = %4", 1, 1, "'x' is read-only"),
        ("}\n", "", 11, 1, "expected '}'"),
        ("}\n", "}\nmore\n", 11, 2, "expected the end of the text after the kernel"),
    ];
    for (from, to, line, column, what) in cases {
        assert!(text.contains(from), "{from} is not in\n{text}");
        let error = text.replacen(from, to, 1).parse::<Kernel>().expect_err(what);
        assert!(error.message.contains(what), "{error}, expected {what}");
        assert_eq!((error.line, error.column), (line, column), "{error}");
    }
    let error = text.replace("fma(", "fmo(").parse::<Kernel>().unwrap_err().to_string();
    let shown =
        "line 9, column 13: there is no operation 'fmo'\n   9 |   %4: f32 = fmo(2.0f32, %1, %2)\n     |             ^";
    assert_eq!(error, shown);
    let deep = "bornite-ir 1\nkernel k parallel_for 1 index i32\n{\n".to_owned() + &"loop {\n".repeat(10_000);
    assert!(deep.parse::<Kernel>().unwrap_err().message.contains("nested more than 64 deep"));
    assert!("".parse::<Kernel>().is_err());
    // Version 1 is still supported.
    assert!(text.replacen("bornite-ir 3", "bornite-ir 1", 1).parse::<Kernel>().is_ok());
}

#[test]
fn errors_in_composite_types_are_reported() {
    let text = samples::composites().to_string();
    for (from, to, what) in [
        ("matrix: f64x2x2", "matrix: f64x9x9", "'matrix' has 81 components; expected 1 to 64"),
        ("inner: Inner", "inner: Missing", "expected a type: bool"),
        ("bornite-ir 3", "bornite-ir 2\nstruct f32x3 { a: i8 }", "'f32x3' is the name of a built-in type"),
        ("parallel_for @n", "parallel_for @m", "there is no value parameter 'm' to count instances"),
        ("x: read f32[@n, 8]", "x: read f32[@m, 8]", "there is no value parameter 'm' above"),
        ("x: read f32[@n, 8]", "x: read f32[@scale, 8]", "value parameter 'scale' must have the index type i32"),
        ("x: read f32[@n, 8]", "x: read f32[@n]", "'x' has 1 dimension, found 2 indices"),
        ("2 by -1, 3 by 0", "2 by -1, 3", "a stride for every dimension or for none"),
        ("wide 4 x[", "wide 3 x[", "3 × f32 is not supported: expected 2, 4, 8 or 16 numbers of at most 16 bytes"),
        ("wide 4 x[", "wide 8 x[", "8 × f32 is not supported: expected 2, 4, 8 or 16 numbers of at most 16 bytes"),
        ("call square(", "call cube(", "there is no function 'cube' above"),
        ("extract.0(", "extract.7(", "expects an existing component or field"),
        ("  return %", "  $0 = %", "a return"),
        ("kernel composites", "kernel square", "a function needs a unique identifier as its name"),
        ("fence system", "fence\n  barrier", "need blocks"),
        ("of {%-5d}: {%.3f}", "of : {}", "a print has 4 values for 3 placeholders"),
        ("determinant(%", "determinant(@scale, %", "expects matrix → scalar"),
    ] {
        assert!(text.contains(from), "{from} is not in\n{text}");
        let error = text.replacen(from, to, 1).parse::<Kernel>().expect_err(what).to_string();
        assert!(error.contains(what), "{error}, expected {what}");
    }
}
