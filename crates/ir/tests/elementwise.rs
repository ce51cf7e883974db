//! Elementwise kernels from expressions: results, and messages for invalid expressions.

use bornite_ir::{Arg, FORMULAS, Op, Scalar, elementwise, interp};

/// Value of an expression for x = 0.5, y = -2 and z = 3, in f64.
fn value(text: &str) -> f64 {
    let kernel = elementwise("e", text, Scalar::F64, 1).unwrap_or_else(|e| panic!("{e}"));
    let input = |name: &str| match name {
        "x" => 0.5f64,
        "y" => -2.0,
        "z" => 3.0,
        other => panic!("unknown input {other}"),
    };
    let inputs: Vec<[u64; 1]> =
        kernel.params.iter().filter(|p| p.name != "out").map(|p| [input(&p.name).to_bits()]).collect();
    let mut out = [0u64];
    let mut args: Vec<Arg> = inputs.iter().map(|words| Arg::Read(words)).collect();
    args.push(Arg::Write(&mut out));
    interp::run(&kernel, &mut args).unwrap();
    f64::from_bits(out[0])
}

#[test]
fn expressions_have_the_expected_values() {
    let (x, y, z) = (0.5f64, -2.0f64, 3.0f64);
    for (text, expected) in [
        ("x + y * z", x + y * z),
        ("(x + y) * z", (x + y) * z),
        ("-x - -y", -x + y),
        ("1.5e2 / z % 7", 150.0 / z % 7.0),
        ("x < y ? x : z", z),
        ("x >= y ? exp(x) : log(z)", x.exp()),
        ("max(x, min(y, z))", x.max(y.min(z))),
        ("pow(z, 2) + sqrt(4)", 11.0),
        ("relu(y) + relu(z)", z),
        ("2 * pi", 2.0 * std::f64::consts::PI),
        ("select(x == 0.5, 1, 0)", 1.0),
        (
            "gelu(x) * y",
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()) * y,
        ),
        ("gelu_erf(x)", 0.345731230637),
        ("sigmoid(x) * (1 + exp(-x))", 1.0),
        ("silu(z)", z / (1.0 + (-z).exp())),
        ("softplus(y)", (1.0 + y.exp()).ln()),
        ("mish(z)", z * (1.0 + z.exp()).ln().tanh()),
        ("square(z) - reciprocal(x)", 7.0),
    ] {
        let found = value(text);
        assert!((found - expected).abs() < 1e-11, "{text} = {found}, expected {expected}");
    }
}

#[test]
fn every_function_can_be_called() {
    for &op in Op::ALL {
        let names = ["x", "y", "z"];
        let condition = if op == Op::Select { "x < y, y, z".into() } else { names[..op.arity()].join(", ") };
        let text = format!("{}({condition})", op.row().name);
        let scalar =
            if op.row().rule.result(&vec![Scalar::I32; op.arity()]).is_ok() { Scalar::I32 } else { Scalar::F32 };
        elementwise("e", &text, scalar, 10).unwrap_or_else(|e| panic!("{e}"));
    }
    for formula in FORMULAS {
        elementwise("e", &format!("{}(x)", formula.name), Scalar::F16, 10).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn errors_have_a_position_and_message() {
    for (text, at, what) in [
        ("", 0, "expected a number, a name, a function or '('"),
        ("x +", 3, "expected a number"),
        ("x y", 2, "expected an operator or the end of the expression"),
        ("(x", 2, "expected ')'"),
        ("glue(x)", 0, "unknown function 'glue'; did you mean 'gelu'?"),
        ("exp(x, y)", 0, "'exp' takes 1 argument, found 2"),
        ("gelu()", 0, "'gelu' takes 1 argument, found 0"),
        ("x ? y : z", 9, "select expects a bool condition"),
        ("(x < y) + 1", 11, "add expects"),
        ("out + 1", 0, "'out' cannot be an input"),
        ("popcount(x)", 11, "popcount expects integers"),
        ("gelu(x < y)", 11, "'gelu' expects floats"),
        ("1.2.3", 0, "expected a number"),
        ("x < y ? 1", 9, "expected ':'"),
    ] {
        let error = elementwise("e", text, Scalar::F32, 10).expect_err(text);
        assert!(error.message.contains(what), "{text}: {error}, expected {what}");
        assert_eq!(error.offset, at, "{error}");
        assert!(error.to_string().ends_with('^'));
    }
    for deep in ["(".repeat(100_000), "-".repeat(100_000), "exp(".repeat(100_000), "x?".repeat(100_000)] {
        let error = elementwise("e", &deep, Scalar::F32, 10).expect_err("deep");
        assert!(error.message.contains("nested more than 64 deep"), "{}", error.message);
    }
    let many: Vec<String> = (0..40).map(|n| format!("x{n}")).collect();
    let error = elementwise("e", &many.join(" + "), Scalar::F32, 10).expect_err("many");
    assert!(error.message.contains("at most 32 inputs"), "{}", error.message);
}
