//! The op table's bodies against correctly rounded values: f32 against f64, f64 against an arbitrary-precision library.

use bornite_ir::{Op, Scalar, Value, interp::evaluate};

/// Distance in units of the last place of `exact`, for finite results.
fn ulps32(found: f32, exact: f64) -> f64 {
    if found as f64 == exact || (found.is_infinite() && exact as f32 == found) {
        return 0.0;
    }
    let rounded = (exact as f32).abs().max(f32::MIN_POSITIVE);
    let ulp = f32::from_bits(rounded.to_bits() + 1) as f64 - rounded as f64;
    ((found as f64 - exact) / ulp).abs()
}

fn f32_of(op: Op, x: f32) -> f32 {
    f32::from_bits(evaluate(op, &[Value::from_bits(Scalar::F32, x.to_bits() as u64)]).unwrap().bits() as u32)
}

fn f64_of(op: Op, x: f64) -> f64 {
    f64::from_bits(evaluate(op, &[Value::from_bits(Scalar::F64, x.to_bits())]).unwrap().bits())
}

const BODIES: [(Op, fn(f64) -> f64, f64); 3] =
    [(Op::Exp, f64::exp, 1.0), (Op::Log, f64::ln, 1.0), (Op::Tanh, f64::tanh, 2.0)];

#[test]
fn every_body_is_listed() {
    let bodies = Op::ALL.iter().filter(|op| op.row().kind == bornite_ir::Kind::Body);
    assert_eq!(bodies.count(), BODIES.len());
}

#[test]
fn f32_within_bounds() {
    for (op, exact, bound) in BODIES {
        let mut worst = (0.0, 0.0);
        // A prime stride over all bit patterns: every exponent, both signs, denormals.
        let stride = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 1009 } else { 60_013 };
        for bits in (0..u32::MAX).step_by(stride) {
            let x = f32::from_bits(bits);
            let (found, exact) = (f32_of(op, x), exact(x as f64));
            if exact.is_nan() {
                assert!(found.is_nan(), "{op:?}({x:e}) = {found:e}, not NaN");
                continue;
            }
            let error = ulps32(found, exact);
            if error > worst.0 {
                worst = (error, x);
            }
        }
        assert!(worst.0 <= bound, "{op:?}({:e}) is {} ulp off, bound {bound}", worst.1, worst.0);
    }
}

#[test]
fn f64_within_bounds() {
    for (op, _, bound) in BODIES {
        let path = format!("{}/tests/goldens/{}.txt", env!("CARGO_MANIFEST_DIR"), op.row().name);
        let goldens = std::fs::read_to_string(&path).unwrap();
        let (mut worst, mut count) = ((0, 0.0), 0);
        for line in goldens.lines() {
            let (x, exact) = line.split_once(' ').unwrap();
            let [x, exact] = [x, exact].map(|hex| f64::from_bits(u64::from_str_radix(hex, 16).unwrap()));
            let distance = f64_of(op, x).to_bits().abs_diff(exact.to_bits());
            if distance > worst.0 {
                worst = (distance, x);
            }
            count += 1;
        }
        assert!(count > 1000, "{path} is short");
        // The golden is rounded, so a bound of n ulp allows n representable values between.
        assert!(worst.0 as f64 <= bound, "{op:?}({:e}) is {} values off, bound {bound}", worst.1, worst.0);
    }
}

#[test]
fn special_values() {
    let inf = f64::INFINITY;
    let cases = [
        (Op::Exp, inf, inf),
        (Op::Exp, -inf, 0.0),
        (Op::Exp, 0.0, 1.0),
        (Op::Exp, -0.0, 1.0),
        (Op::Exp, 1e300, inf),
        (Op::Log, 0.0, -inf),
        (Op::Log, -0.0, -inf),
        (Op::Log, inf, inf),
        (Op::Log, 1.0, 0.0),
        (Op::Log, -1.0, f64::NAN),
        (Op::Log, -inf, f64::NAN),
        (Op::Tanh, inf, 1.0),
        (Op::Tanh, -inf, -1.0),
        (Op::Tanh, -0.0, -0.0),
        (Op::Exp, f64::NAN, f64::NAN),
        (Op::Log, f64::NAN, f64::NAN),
        (Op::Tanh, f64::NAN, f64::NAN),
    ];
    for (op, x, expected) in cases {
        for found in [f64_of(op, x), f32_of(op, x as f32) as f64] {
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{op:?}({x}) = {found}, expected {expected}");
        }
    }
}
