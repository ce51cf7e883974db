//! Accuracy of op-table bodies: f32 against f64, f64 against results of an arbitrary-precision
//! library.

use bornite_ir::{Access, Arg, Builder, Emit, Op, Scalar, interp};

/// Error in ULPs of `exact`, for finite results.
fn ulps32(found: f32, exact: f64) -> f64 {
    if found as f64 == exact || (found.is_infinite() && exact as f32 == found) {
        return 0.0;
    }
    let rounded = (exact as f32).abs().max(f32::MIN_POSITIVE);
    let ulp = f32::from_bits(rounded.to_bits() + 1) as f64 - rounded as f64;
    ((found as f64 - exact) / ulp).abs()
}

/// Applies `op` to columns of bit patterns, many at a time.
fn apply(op: Op, scalar: Scalar, columns: &[Vec<u64>]) -> Vec<u64> {
    let len = columns[0].len() as u64;
    let mut b = Builder::new("apply", len, Scalar::I32);
    let i = b.index();
    let args: Vec<_> = (0..columns.len())
        .map(|n| {
            let view = b.param(format!("in{n}"), scalar, len, Access::Read);
            b.load(view, i)
        })
        .collect();
    let out = b.param("out", scalar, len, Access::Write);
    let value = b.op(op, &args.iter().collect::<Vec<_>>());
    b.store(out, i, value);
    let kernel = b.finish().unwrap();
    let words = |bits: &[u64]| -> Vec<u64> {
        if scalar == Scalar::F64 {
            return bits.to_vec();
        }
        bits.chunks(2).map(|pair| pair[0] | pair.get(1).copied().unwrap_or(0) << 32).collect()
    };
    let packed: Vec<Vec<u64>> = columns.iter().map(|c| words(c)).collect();
    let mut result = vec![0; packed[0].len()];
    let mut args: Vec<Arg> = packed.iter().map(|c| Arg::Read(c)).collect();
    args.push(Arg::Write(&mut result));
    interp::run(&kernel, &mut args).unwrap();
    if scalar == Scalar::F64 {
        return result;
    }
    result.iter().flat_map(|w| [w & 0xffff_ffff, w >> 32]).take(len as usize).collect()
}

fn f32_of(op: Op, columns: &[Vec<f32>]) -> Vec<f32> {
    let bits: Vec<Vec<u64>> = columns.iter().map(|c| c.iter().map(|x| x.to_bits() as u64).collect()).collect();
    apply(op, Scalar::F32, &bits).into_iter().map(|b| f32::from_bits(b as u32)).collect()
}

fn f64_of(op: Op, columns: &[Vec<f64>]) -> Vec<f64> {
    let bits: Vec<Vec<u64>> = columns.iter().map(|c| c.iter().map(|x| x.to_bits()).collect()).collect();
    apply(op, Scalar::F64, &bits).into_iter().map(f64::from_bits).collect()
}

/// Ops whose result is not exact, which the goldens must cover.
fn inexact() -> Vec<Op> {
    Op::ALL.iter().copied().filter(|op| op.row().ulp.f64 > 0.0).collect()
}

/// Argument columns and the correctly rounded results of a golden file.
fn goldens(op: Op) -> (Vec<Vec<f64>>, Vec<f64>) {
    let path = format!("{}/tests/goldens/{}.txt", env!("CARGO_MANIFEST_DIR"), op.row().name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}; add it to scripts/goldens.py"));
    let mut columns = vec![vec![]; op.arity() + 1];
    for line in text.lines() {
        for (column, hex) in columns.iter_mut().zip(line.split(' ')) {
            column.push(f64::from_bits(u64::from_str_radix(hex, 16).unwrap()));
        }
    }
    let exact = columns.pop().unwrap();
    assert!(exact.len() >= 1000, "too few goldens of {op:?}");
    (columns, exact)
}

/// Largest error of an op, and its arguments.
struct Worst {
    op: Op,
    ulps: f64,
    at: String,
}

/// Prints the largest error of each op and fails for those above their bound.
fn check_bounds(found: Vec<Worst>, bound: impl Fn(Op) -> f64) {
    let mut beyond = String::new();
    for Worst { op, ulps, at } in found {
        println!("{op:?}: {ulps:.3} ulp at {at}, bound {}", bound(op));
        if ulps > bound(op) {
            beyond += &format!("{op:?} is {ulps} ulp off at {at}, bound {}\n", bound(op));
        }
    }
    assert!(beyond.is_empty(), "{beyond}");
}

#[test]
fn f64_within_bounds() {
    // Ordering floats by their bits counts representable values, so differences are in ULPs. The
    // golden is rounded, so a bound of n ULPs allows n representable values in between.
    let ordered = |x: f64| if x < 0.0 { -(x.abs().to_bits() as i64) } else { x.to_bits() as i64 };
    let measure = |op| {
        let (columns, exact) = goldens(op);
        let mut worst = Worst { op, ulps: 0.0, at: String::new() };
        for (n, (found, exact)) in f64_of(op, &columns).into_iter().zip(exact).enumerate() {
            let ulps = ordered(found).abs_diff(ordered(exact)) as f64;
            if ulps > worst.ulps || found.is_nan() {
                let at = columns.iter().map(|c| format!("{:e}", c[n])).collect::<Vec<_>>().join(", ");
                worst = Worst { op, ulps: if found.is_nan() { f64::INFINITY } else { ulps }, at };
            }
        }
        worst
    };
    check_bounds(inexact().into_iter().map(measure).collect(), |op| op.row().ulp.f64);
}

/// f32 against f64, which has about 2²⁸ times smaller errors, on bit patterns over the whole range.
#[test]
fn f32_within_bounds() {
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    let patterns: Vec<f32> = (0..u32::MAX).step_by(if full { 10_007 } else { 150_001 }).map(f32::from_bits).collect();
    let measure = |op: Op| {
        let (mut columns, _) = goldens(op);
        columns[0].extend(patterns.iter().map(|&x| x as f64));
        for (n, column) in columns.iter_mut().enumerate().skip(1) {
            let others = [0.3, -2.5, 3.0, 1e-3, 40.0, -0.7];
            column.extend((0..patterns.len()).map(|i| others[(i + n) % others.len()]));
        }
        let narrow: Vec<Vec<f32>> = columns.iter().map(|c| c.iter().map(|&x| x as f32).collect()).collect();
        let wide: Vec<Vec<f64>> = narrow.iter().map(|c| c.iter().map(|&x| x as f64).collect()).collect();
        let mut worst = Worst { op, ulps: 0.0, at: String::new() };
        for (n, (found, exact)) in f32_of(op, &narrow).into_iter().zip(f64_of(op, &wide)).enumerate() {
            let at = || narrow.iter().map(|c| format!("{:e}", c[n])).collect::<Vec<_>>().join(", ");
            assert_eq!(found.is_nan(), exact.is_nan(), "{op:?} of {} is {found:e}, in f64 {exact:e}", at());
            let ulps = if exact.is_nan() { 0.0 } else { ulps32(found, exact) };
            if ulps > worst.ulps {
                worst = Worst { op, ulps, at: at() };
            }
        }
        worst
    };
    check_bounds(inexact().into_iter().map(measure).collect(), |op| op.row().ulp.f32);
}

#[test]
fn special_values() {
    let inf = f64::INFINITY;
    let nan = f64::NAN;
    let pi = std::f64::consts::PI;
    let unary = [
        (Op::Exp, inf, inf),
        (Op::Exp, -inf, 0.0),
        (Op::Exp, -0.0, 1.0),
        (Op::Exp, 1e300, inf),
        (Op::Exp2, 10.0, 1024.0),
        (Op::Exp2, -inf, 0.0),
        (Op::Expm1, -0.0, -0.0),
        (Op::Expm1, -inf, -1.0),
        (Op::Expm1, inf, inf),
        (Op::Log, 0.0, -inf),
        (Op::Log, -0.0, -inf),
        (Op::Log, inf, inf),
        (Op::Log, 1.0, 0.0),
        (Op::Log, -1.0, nan),
        (Op::Log, -inf, nan),
        (Op::Log2, 1024.0, 10.0),
        (Op::Log2, 0.125, -3.0),
        (Op::Log10, 1.0, 0.0),
        (Op::Log1p, -1.0, -inf),
        (Op::Log1p, -0.0, -0.0),
        (Op::Log1p, inf, inf),
        (Op::Log1p, -2.0, nan),
        (Op::Sin, -0.0, -0.0),
        (Op::Sin, inf, nan),
        (Op::Cos, 0.0, 1.0),
        (Op::Cos, -inf, nan),
        (Op::Tan, -0.0, -0.0),
        (Op::Asin, -0.0, -0.0),
        (Op::Asin, 1.5, nan),
        (Op::Acos, 1.0, 0.0),
        (Op::Acos, -1.5, nan),
        (Op::Atan, -0.0, -0.0),
        (Op::Sinh, -inf, -inf),
        (Op::Sinh, -0.0, -0.0),
        (Op::Cosh, -inf, inf),
        (Op::Cosh, 0.0, 1.0),
        (Op::Tanh, inf, 1.0),
        (Op::Tanh, -inf, -1.0),
        (Op::Tanh, -0.0, -0.0),
        (Op::Asinh, -inf, -inf),
        (Op::Asinh, -0.0, -0.0),
        (Op::Acosh, 1.0, 0.0),
        (Op::Acosh, 0.5, nan),
        (Op::Acosh, -2_147_483_648.0, nan),
        (Op::Acosh, -inf, nan),
        (Op::Acosh, inf, inf),
        (Op::Atanh, 1.0, inf),
        (Op::Atanh, -1.0, -inf),
        (Op::Atanh, 1.5, nan),
        (Op::Atanh, -0.0, -0.0),
        (Op::Erf, inf, 1.0),
        (Op::Erf, -inf, -1.0),
        (Op::Erf, -0.0, -0.0),
        (Op::Erfc, inf, 0.0),
        (Op::Erfc, -inf, 2.0),
        (Op::Erfc, 0.0, 1.0),
        (Op::Cbrt, -27.0, -3.0),
        (Op::Cbrt, -0.0, -0.0),
        (Op::Cbrt, -inf, -inf),
        (Op::Rsqrt, 0.0, inf),
        (Op::Rsqrt, inf, 0.0),
        (Op::Rsqrt, 4.0, 0.5),
        (Op::Sqrt, -1.0, nan),
        (Op::Round, 2.5, 3.0),
        (Op::Round, -2.5, -3.0),
        (Op::Round, -0.3, -0.0),
        (Op::Round, 0.499_999_97, 0.0),
        (Op::Round, inf, inf),
        (Op::Rint, 2.5, 2.0),
        (Op::Floor, -0.5, -1.0),
        (Op::Ceil, -0.5, -0.0),
        (Op::Trunc, -1.9, -1.0),
        (Op::Sign, -3.0, -1.0),
        (Op::Sign, -0.0, -0.0),
    ];
    let binary = [
        (Op::Atan2, 0.0, 1.0, 0.0),
        (Op::Atan2, -0.0, 1.0, -0.0),
        (Op::Atan2, 0.0, -0.0, pi),
        (Op::Atan2, -0.0, -1.0, -pi),
        (Op::Atan2, 1.0, 0.0, pi / 2.0),
        (Op::Atan2, inf, inf, pi / 4.0),
        (Op::Atan2, inf, -inf, 3.0 * pi / 4.0),
        (Op::Atan2, 1.0, nan, nan),
        (Op::Pow, 2.0, 10.0, 1024.0),
        (Op::Pow, -2.0, 3.0, -8.0),
        (Op::Pow, -2.0, 2.0, 4.0),
        (Op::Pow, -2.0, 0.5, nan),
        (Op::Pow, 0.0, 0.0, 1.0),
        (Op::Pow, nan, 0.0, 1.0),
        (Op::Pow, 1.0, nan, 1.0),
        (Op::Pow, 2.0, nan, nan),
        (Op::Pow, -0.0, -1.0, -inf),
        (Op::Pow, -0.0, -2.0, inf),
        (Op::Pow, -0.0, 3.0, -0.0),
        (Op::Pow, -inf, 3.0, -inf),
        (Op::Pow, -inf, -3.0, -0.0),
        (Op::Pow, -inf, 0.5, inf),
        (Op::Pow, 0.5, inf, 0.0),
        (Op::Pow, 2.0, -inf, 0.0),
        (Op::Pow, -1.0, inf, 1.0),
        (Op::Pow, 10.0, 400.0, inf),
        (Op::Hypot, 3.0, 4.0, 5.0),
        (Op::Hypot, 0.0, -0.0, 0.0),
        (Op::Hypot, nan, -inf, inf),
        (Op::Hypot, nan, 1.0, nan),
        (Op::Fmod, 5.5, 2.0, 1.5),
        (Op::Fmod, -5.5, 2.0, -1.5),
        (Op::Fmod, 1.0, 0.0, nan),
        (Op::Fmod, inf, 1.0, nan),
        (Op::Fmin, nan, 2.0, 2.0),
        (Op::Fmax, 2.0, nan, 2.0),
        (Op::Min, nan, 2.0, nan),
        (Op::Max, 0.0, -0.0, 0.0),
        (Op::Min, 0.0, -0.0, -0.0),
        (Op::Copysign, 3.0, -0.0, -3.0),
        (Op::Copysign, -3.0, -nan, 3.0),
    ];
    let nans = inexact().into_iter().filter(|op| op.arity() == 1).map(|op| (op, vec![nan], nan));
    let unary = unary.into_iter().map(|(op, x, expected)| (op, vec![x], expected));
    let binary = binary.into_iter().map(|(op, x, y, expected)| (op, vec![x, y], expected));
    for (op, args, expected) in unary.chain(binary).chain(nans) {
        let wide: Vec<Vec<f64>> = args.iter().map(|&x| vec![x]).collect();
        let narrow: Vec<Vec<f32>> = args.iter().map(|&x| vec![x as f32]).collect();
        let cases = [(f64_of(op, &wide)[0], expected), (f32_of(op, &narrow)[0] as f64, expected as f32 as f64)];
        for (found, expected) in cases {
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{op:?}{args:?} = {found}, expected {expected}");
        }
    }
}
