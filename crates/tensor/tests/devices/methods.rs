//! Tensor methods against plain Rust: scalar ops, promotion, reductions, shapes, layers and losses.

use bornite::ir::Op;
use bornite::{
    DType, Device, Generator, Tensor,
    ops::{Activation, Conv2dOptions, Conv3dOptions, Element, promote},
    settings::MatmulMode,
};

use crate::Outcome;
use crate::random::Random;

/// Elements within `bound` of the reference, relative to its largest (at least 1).
#[track_caller]
fn near(name: &str, found: &Tensor, expected: &[f64], bound: f64) {
    let found = found.cast(DType::F64).to_vec::<f64>().unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(found.len(), expected.len(), "{name}: number of elements");
    let scale = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
        let passed = (found - expected).abs() <= bound * scale || found == expected;
        assert!(passed, "{name}: element {n} is {found}, expected {expected}");
    }
}

fn floats(data: &[f64], shape: &[usize], device: Device) -> Tensor {
    Tensor::from_slice(data, shape, device)
}

/// Each scalar op has a method (or two) that applies it.
pub fn every_scalar_op_is_a_method(device: Device) -> Outcome {
    type Unary = fn(&Tensor) -> Tensor;
    type Binary = fn(&Tensor, &Tensor) -> Tensor;
    use Op::*;
    let unary: [(Op, Unary); 36] = [
        (Neg, |a| a.neg()),
        (Abs, Tensor::abs),
        (Sign, Tensor::sign),
        (Not, |a| a.not()),
        (Popcount, Tensor::popcount),
        (LeadingZeros, Tensor::leading_zeros),
        (Floor, Tensor::floor),
        (Ceil, Tensor::ceil),
        (Trunc, Tensor::trunc),
        (Rint, Tensor::rint),
        (Round, Tensor::round),
        (Sqrt, Tensor::sqrt),
        (Rsqrt, Tensor::rsqrt),
        (Cbrt, Tensor::cbrt),
        (Exp, Tensor::exp),
        (Exp2, Tensor::exp2),
        (Expm1, Tensor::expm1),
        (Log, Tensor::log),
        (Log2, Tensor::log2),
        (Log10, Tensor::log10),
        (Log1p, Tensor::log1p),
        (Sin, Tensor::sin),
        (Cos, Tensor::cos),
        (Tan, Tensor::tan),
        (Asin, Tensor::asin),
        (Acos, Tensor::acos),
        (Atan, Tensor::atan),
        (Sinh, Tensor::sinh),
        (Cosh, Tensor::cosh),
        (Tanh, Tensor::tanh),
        (Asinh, Tensor::asinh),
        (Acosh, Tensor::acosh),
        (Atanh, Tensor::atanh),
        (Erf, Tensor::erf),
        (Erfc, Tensor::erfc),
        (Neg, |a| -a),
    ];
    let binary: [(Op, Binary); 34] = [
        (Add, |a, b| a.add(b)),
        (Sub, |a, b| a.sub(b)),
        (Mul, |a, b| a.mul(b)),
        (Div, |a, b| a.div(b)),
        (Rem, |a, b| a.rem(b)),
        (Fmod, |a, b| a.fmod(b)),
        (Min, |a, b| a.minimum(b)),
        (Max, |a, b| a.maximum(b)),
        (Fmin, |a, b| a.fmin(b)),
        (Fmax, |a, b| a.fmax(b)),
        (Copysign, |a, b| a.copysign(b)),
        (And, |a, b| a.and(b)),
        (Or, |a, b| a.or(b)),
        (Xor, |a, b| a.xor(b)),
        (Shl, |a, b| a.shl(b)),
        (Shr, |a, b| a.shr(b)),
        (Eq, |a, b| a.equal(b)),
        (Ne, |a, b| a.not_equal(b)),
        (Lt, |a, b| a.lt(b)),
        (Le, |a, b| a.le(b)),
        (Gt, |a, b| a.gt(b)),
        (Ge, |a, b| a.ge(b)),
        (Hypot, |a, b| a.hypot(b)),
        (Pow, |a, b| a.pow(b)),
        (Atan2, |a, b| a.atan2(b)),
        (And, |a, b| a & b),
        (Or, |a, b| a | b),
        (Xor, |a, b| a ^ b),
        (Rem, |a, b| a % b),
        (Fmod, |a, b| a % b),
        (Add, |a, b| a + b),
        (Clamp, |a, b| a.clamp(b, 0.9)),
        (Fma, |a, b| a.fma(b, 0.9)),
        (Select, |a, b| a.lt(b).select(a, b)),
    ];
    let covered = |op: &Op| unary.iter().any(|(o, _)| o == op) || binary.iter().any(|(o, _)| o == op);
    assert_eq!(Op::ALL.iter().find(|op| !covered(op)), None, "a row without a method");
    let a = [0.25f64, 0.5, 0.75, 1.0, 1.5, -0.5];
    let b = [0.5f64, 0.5, 2.0, -1.0, 0.25, 3.0];
    let ints: fn(Op) -> bool = |op| op.row().rule.result(&vec![DType::F64; op.arity()]).is_err();
    let input = |data: &[f64], op: Op| {
        let x = floats(data, &[6], device);
        if ints(op) && op != Select { (x * 4.0).cast(DType::I32) } else { x }
    };
    let bits = |t: Tensor| -> bornite::Result<Vec<u64>> {
        Ok(t.cast(DType::F64).to_vec::<f64>()?.iter().map(|x| if x.is_nan() { 1 } else { x.to_bits() }).collect())
    };
    for (op, method) in unary {
        let x = input(&a, op);
        assert_eq!(bits(method(&x))?, bits(Tensor::apply(op, &[&x]))?, "{op:?}");
    }
    for (op, method) in binary {
        let (x, y) = (input(&a, op), input(&b, op));
        let third = floats(&[0.9], &[], device);
        let expected = match op {
            Clamp | Fma => Tensor::apply(op, &[&x, &y, &third]),
            Select => Tensor::apply(op, &[&x.lt(&y), &x, &y]),
            _ => Tensor::apply(op, &[&x, &y]),
        };
        assert_eq!(bits(method(&x, &y))?, bits(expected)?, "{op:?}");
    }
    Ok(())
}

pub fn promotion(device: Device) -> Outcome {
    use DType::*;
    // The complete table of `promote`.
    let order = [Bool, U8, I32, I64, F16, BF16, F32, F64];
    let table = [
        [Bool, U8, I32, I64, F16, BF16, F32, F64],
        [U8, U8, I32, I64, F16, BF16, F32, F64],
        [I32, I32, I32, I64, F16, BF16, F32, F64],
        [I64, I64, I64, I64, F16, BF16, F32, F64],
        [F16, F16, F16, F16, F16, F32, F32, F64],
        [BF16, BF16, BF16, BF16, F32, BF16, F32, F64],
        [F32, F32, F32, F32, F32, F32, F32, F64],
        [F64; 8],
    ];
    for (n, a) in order.into_iter().enumerate() {
        for (m, b) in order.into_iter().enumerate() {
            assert_eq!(promote(a, b), Some(table[n][m]), "{a} and {b}");
            let (x, y) = (Tensor::ones(&[2], a, device), Tensor::ones(&[3, 1], b, device));
            if promote(a, b) != Some(Bool) {
                let sum = &x + &y;
                assert_eq!((sum.dtype()?, sum.shape()?), (table[n][m], &[3, 2][..]));
                near("sum", &sum, &[2.0; 6], 0.0);
            }
            assert!(x.equal(&y).all(..).item()? == 1.0);
        }
    }
    for a in DType::ALL {
        for b in DType::ALL {
            let none = [a, b].contains(&U64) && (a.is_signed() || b.is_signed());
            assert_eq!(promote(a, b), promote(b, a));
            assert_eq!(promote(a, b).is_none(), none, "{a} and {b}");
        }
    }
    assert_eq!([promote(U8, I8), promote(U32, I32), promote(U16, U32)], [Some(I16), Some(I64), Some(U32)]);
    // Numbers are weakly typed.
    let half = Tensor::ones(&[2], BF16, device);
    let int = Tensor::from_slice(&[7i32, -7], &[2], device);
    assert_eq!((&half * 0.5).dtype()?, BF16);
    assert_eq!((&half + 1).dtype()?, BF16);
    assert_eq!((&int * 3 - 1).to_vec::<i32>()?, [20, -22]);
    assert_eq!((&int / 2).to_vec::<i32>()?, [3, -3]);
    assert_eq!((&int % 4).to_vec::<i32>()?, [3, -3]);
    assert_eq!((1 - &int).to_vec::<i32>()?, [-6, 8]);
    assert_eq!((&int / 2.0).to_vec::<f32>()?, [3.5, -3.5]);
    assert_eq!((int.gt(0) + 1).to_vec::<i64>()?, [2, 1]);
    assert_eq!((int.gt(0).select(1.5, 0.0)).to_vec::<f32>()?, [1.5, 0.0]);
    let large = Tensor::from_slice(&[1i64 << 60], &[1], device);
    assert_eq!((large + 1).to_vec::<i64>()?, [(1 << 60) + 1], "through no float");
    // Gradients have the dtype of each input.
    let (x, y) = (Tensor::from_slice(&[2f32, 3.], &[2], device), Tensor::from_slice(&[4f64, 5.], &[2], device));
    let grads = (&x * &y).sum(..).grad(&[&x, &y]);
    assert_eq!((grads[0].to_vec::<f32>()?, grads[1].to_vec::<f64>()?), (vec![4., 5.], vec![2., 3.]));
    Ok(())
}

/// Every operator between tensors, references and numbers of every type, and compound assignments.
pub fn operators(device: Device) -> Outcome {
    let (a, b) = (floats(&[7.5, -3.0], &[2], device), floats(&[2.0, 0.5], &[2], device));
    macro_rules! every_way {
        ($($op:tt $assign:tt),+) => { $({
            let plain: fn(f64, f64) -> f64 = |x, y| x $op y;
            let both = [plain(7.5, 2.0), plain(-3.0, 0.5)];
            for found in [&a $op &b, a.clone() $op &b, &a $op b.clone(), a.clone() $op b.clone()] {
                near(stringify!($op), &found, &both, 0.0);
            }
            let (right, left) = ([plain(7.5, 2.0), plain(-3.0, 2.0)], [plain(2.0, 7.5), plain(2.0, -3.0)]);
            for found in [
                &a $op 2.0, &a $op 2, &a $op 2f32, &a $op 2i64, &a $op 2i8, &a $op 2i16, &a $op 2u8, &a $op 2u16,
                &a $op 2u32, &a $op 2u64, &a $op 2usize, &a $op 2isize, a.clone() $op 2.0, a.clone() $op 2usize,
            ] {
                near(stringify!($op), &found, &right, 0.0);
            }
            for found in [2.0 $op &a, 2 $op &a, 2.0 $op a.clone(), 2i64 $op a.clone()] {
                near(stringify!($op), &found, &left, 0.0);
            }
            let (mut by_tensor, mut by_number) = (a.clone(), a.clone());
            by_tensor $assign &b;
            by_number $assign 2;
            near(stringify!($assign), &by_tensor, &both, 0.0);
            near(stringify!($assign), &by_number, &right, 0.0);
        })+ };
    }
    every_way!(+ +=, - -=, * *=, / /=, % %=);
    near("the handle that was there", &a, &[7.5, -3.0], 0.0);
    near("-", &-&a, &[-7.5, 3.0], 0.0);
    near("-", &-a.clone(), &[-7.5, 3.0], 0.0);
    let ints = Tensor::from_slice(&[12i32, -5], &[2], device);
    assert_eq!((&ints & 6).to_vec::<i32>()?, [4, 2]);
    assert_eq!((1 | &ints).to_vec::<i32>()?, [13, -5]);
    assert_eq!((!(&ints ^ 3)).to_vec::<i32>()?, [-16, 7]);
    let mut mask = ints.gt(0);
    mask |= &ints.lt(0);
    mask &= !ints.equal(12u8);
    assert_eq!((!&mask).to_vec::<bool>()?, [true, false]);
    // Exact integers, limited to the range of the tensor's dtype.
    let large = Tensor::from_slice(&[1u64, u64::MAX - 1], &[2], device);
    assert_eq!((large.minimum(u64::MAX) + 1u64).to_vec::<u64>()?, [2, u64::MAX]);
    assert!((&ints + u32::MAX).to_vec::<i32>().is_err());
    // Accumulation in a loop, with the gradient of all terms.
    let mut total = Tensor::zeros(&[], DType::F64, device);
    for n in 0..4 {
        total += (&a * n).sum(..);
    }
    assert_eq!(total.grad(&[&a])[0].to_vec::<f64>()?, [6.0, 6.0]);
    Ok(())
}

pub fn reductions(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let data = random.vec(24, -2.0, 2.0);
    let x = floats(&data, &[2, 3, 4], device);
    let line = |a: usize, b: usize| (0..3).map(|m| data[(a * 3 + m) * 4 + b]).collect::<Vec<f64>>();
    type Case = (&'static str, fn(&Tensor) -> Tensor, fn(&[f64]) -> f64);
    fn mean(x: &[f64]) -> f64 {
        x.iter().sum::<f64>() / x.len() as f64
    }
    fn squares(x: &[f64]) -> f64 {
        x.iter().map(|v| (v - mean(x)).powi(2)).sum()
    }
    let cases: &[Case] = &[
        ("sum", |x| x.sum_keepdim(1), |x| x.iter().sum()),
        ("prod", |x| x.prod_keepdim(1), |x| x.iter().product()),
        ("min", |x| x.min_keepdim(1), |x| x.iter().copied().fold(f64::MAX, f64::min)),
        ("max", |x| x.max_keepdim(1), |x| x.iter().copied().fold(f64::MIN, f64::max)),
        ("mean", |x| x.mean_keepdim(-2), mean),
        ("var", |x| x.var_keepdim(1, 1), |x| squares(x) / 2.0),
        ("var of all", |x| x.var_keepdim(1, 0), |x| squares(x) / 3.0),
        ("std", |x| x.std_keepdim(1, 1), |x| (squares(x) / 2.0).sqrt()),
        ("norm 1", |x| x.norm_keepdim(1.0, 1), |x| x.iter().map(|v| v.abs()).sum()),
        ("norm 2", |x| x.norm_keepdim(2.0, 1), |x| x.iter().map(|v| v * v).sum::<f64>().sqrt()),
        ("norm 3", |x| x.norm_keepdim(3.0, 1), |x| x.iter().map(|v| v.abs().powi(3)).sum::<f64>().cbrt()),
        ("norm ∞", |x| x.norm_keepdim(f64::INFINITY, 1), |x| x.iter().fold(0.0, |m, v| v.abs().max(m))),
        ("norm -∞", |x| x.norm_keepdim(f64::NEG_INFINITY, 1), |x| x.iter().fold(9.0, |m, v| v.abs().min(m))),
        ("norm 0", |x| x.norm_keepdim(0.0, 1), |x| x.len() as f64),
        ("logsumexp", |x| x.logsumexp_keepdim(1), |x| x.iter().map(|v| v.exp()).sum::<f64>().ln()),
        ("all", |x| x.gt(0.0).all_keepdim(1), |x| x.iter().all(|v| *v > 0.0) as u8 as f64),
        ("any", |x| x.gt(0.0).any_keepdim(1), |x| x.iter().any(|v| *v > 0.0) as u8 as f64),
    ];
    for (name, tensor, plain) in cases {
        let expected: Vec<f64> =
            (0..2).flat_map(|a| (0..4).map(move |b| (a, b))).map(|(a, b)| plain(&line(a, b))).collect();
        assert_eq!(tensor(&x).shape()?, [2, 1, 4], "{name}");
        near(name, &tensor(&x), &expected, 1e-14);
    }
    assert_eq!(x.var(.., 0).shape()?, [0usize; 0]);
    near("var of all axes", &x.var([0, 1, 2], 0), &[squares(&data) / 24.0], 1e-14);
    let ints = Tensor::from_slice(&[1i64, 2, 4], &[3], device);
    assert_eq!(ints.mean(..).to_vec::<f32>()?, [7.0 / 3.0]);
    assert_eq!(ints.gt(1).mean(..).to_vec::<f32>()?, [2.0 / 3.0]);
    let empty = Tensor::zeros(&[2, 0], DType::F32, device);
    assert_eq!(empty.all(1).to_vec::<bool>()?, [true, true]);
    assert_eq!(empty.any(1).to_vec::<bool>()?, [false, false]);
    assert!(empty.mean(1).to_vec::<f32>()?.iter().all(|x| x.is_nan()));
    assert!(floats(&[3.0], &[1], device).var(0, 1).item()?.is_nan());
    // Sums, squares and powers beyond the range of f16 are computed in f32.
    let large =
        Tensor::full(300.0, &[4, 256], DType::F16, device) * Tensor::linspace(-1.0, 1.0, 256, DType::F16, device);
    let half = |x: Tensor| x.cast(DType::F64).to_vec::<f64>();
    let wide = large.cast(DType::F64);
    let reductions: [fn(&Tensor) -> Tensor; 6] = [
        |x| x.abs().mean(1),
        |x| x.var(1, 1),
        |x| x.norm(1.0, 1),
        |x| x.norm(2.0, 1),
        |x| x.norm(6.0, ..),
        |x| (x + 300.0).mean(..),
    ];
    for (n, reduction) in reductions.into_iter().enumerate() {
        near(&format!("f16, {n}"), &reduction(&large).cast(DType::F64), &half(reduction(&wide))?, 1e-3);
    }
    let extreme = floats(&[f64::NEG_INFINITY, f64::NEG_INFINITY, 1e300, 1e300, f64::INFINITY, 0.0], &[3, 2], device);
    assert_eq!(extreme.logsumexp(1).to_vec::<f64>()?, [f64::NEG_INFINITY, 1e300, f64::INFINITY]);
    Ok(())
}

pub fn shapes(device: Device) -> Outcome {
    let x = Tensor::arange(6, DType::F32, device).reshape(&[1, 2, 1, 3]);
    assert_eq!(x.squeeze(..).shape()?, [2, 3]);
    assert_eq!(x.squeeze(-2).shape()?, [1, 2, 3]);
    assert_eq!(x.squeeze([0, 2]).shape()?, [2, 3]);
    assert_eq!(x.flatten(0, -1).to_vec::<f32>()?, [0., 1., 2., 3., 4., 5.]);
    assert_eq!(x.sum(..).flatten(0, -1).shape()?, [1]);
    assert_eq!(x.movedim(3, 0).shape()?, [3, 1, 2, 1]);
    assert_eq!(x.movedim(0, -1).shape()?, [2, 1, 3, 1]);
    let m = x.squeeze(..);
    assert_eq!(m.t().to_vec::<f32>()?, [0., 3., 1., 4., 2., 5.]);
    assert_eq!(m.movedim(0, 1).to_vec::<f32>()?, m.t().to_vec::<f32>()?);
    let twice = [0., 1., 2., 0., 1., 2., 3., 4., 5., 3., 4., 5.];
    assert_eq!(m.repeat(&[1, 2]).to_vec::<f32>()?, twice);
    assert_eq!(m.repeat(&[2, 1, 1]).shape()?, [2, 2, 3]);
    assert_eq!(m.repeat(&[0, 1]).shape()?, [0, 3]);
    assert_eq!(Tensor::where_(&m.lt(3), &m, -1).to_vec::<f32>()?, [0., 1., 2., -1., -1., -1.]);
    Ok(())
}

pub fn activations(device: Device) -> Outcome {
    type Case = (&'static str, fn(&Tensor) -> Tensor, fn(f64) -> f64);
    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }
    fn softplus(x: f64) -> f64 {
        x.max(0.0) + (-x.abs()).exp().ln_1p()
    }
    fn gelu(x: f64) -> f64 {
        0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
    }
    fn elu(x: f64) -> f64 {
        if x > 0.0 { x } else { x.exp_m1() }
    }
    let cases: &[Case] = &[
        ("relu", |x| x.activation(Activation::Relu), |x| x.max(0.0)),
        ("relu6", Tensor::relu6, |x| x.clamp(0.0, 6.0)),
        ("sigmoid", |x| x.activation(Activation::Sigmoid), sigmoid),
        ("log_sigmoid", Tensor::log_sigmoid, |x| -softplus(-x)),
        ("tanh", |x| x.activation(Activation::Tanh), f64::tanh),
        ("leaky_relu", |x| x.activation(Activation::LeakyRelu), |x| if x > 0.0 { x } else { 0.01 * x }),
        ("elu", |x| x.activation(Activation::Elu), elu),
        ("selu", Tensor::selu, |x| 1.0507009873554805 * if x > 0.0 { x } else { 1.6732632423543772 * x.exp_m1() }),
        ("swish", |x| x.activation(Activation::Swish), |x| x * sigmoid(x)),
        ("silu", |x| x.swish(), |x| x * sigmoid(x)),
        ("gelu", |x| x.activation(Activation::Gelu), gelu),
        ("softplus", Tensor::softplus, softplus),
        ("mish", Tensor::mish, |x| x * softplus(x).tanh()),
        ("softsign", Tensor::softsign, |x| x / (1.0 + x.abs())),
        ("hardtanh", Tensor::hardtanh, |x| x.clamp(-1.0, 1.0)),
        ("hardsigmoid", Tensor::hardsigmoid, |x| ((x + 3.0) / 6.0).clamp(0.0, 1.0)),
        ("hardswish", Tensor::hardswish, |x| x * ((x + 3.0) / 6.0).clamp(0.0, 1.0)),
        ("square", Tensor::square, |x| x * x),
        ("powf", |x| x.powf(3.0), |x| x.powi(3)),
    ];
    let mut data = Random::fresh().vec(64, -8.0, 8.0);
    data.extend([0.0, -200.0, 200.0, -30.0, 30.0]);
    for (name, tensor, plain) in cases {
        let expected: Vec<f64> = data.iter().map(|&x| plain(x)).collect();
        let x = floats(&data, &[data.len()], device);
        near(name, &tensor(&x), &expected, 1e-14);
        near(name, &tensor(&x.cast(DType::F32)), &expected, 1e-5);
        // The gradient is correct for large inputs and at 0, too.
        let far = floats(&[-200.0, -90.0, 90.0, 200.0], &[4], device);
        let gradient = tensor(&far).sum(..).grad(&[&far])[0].to_vec::<f64>()?;
        for (x, gradient) in [-200.0, -90.0, 90.0, 200.0].into_iter().zip(gradient) {
            let expected = (plain(x + 1e-3) - plain(x - 1e-3)) / 2e-3;
            assert!((gradient - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{name}: gradient {gradient} at {x}");
        }
        if !["relu", "relu6", "leaky_relu", "selu"].contains(name) {
            let zero = floats(&[0.0], &[1], device);
            let gradient = tensor(&zero).sum(..).grad(&[&zero])[0].item()?;
            let expected = (plain(1e-6) - plain(-1e-6)) / 2e-6;
            assert!((gradient - expected).abs() < 1e-5, "{name}: gradient {gradient} at 0, expected {expected}");
        }
    }
    // Known answers: GELU on (100, 512) within 1e-5 of its formula; exact GELU at a few points.
    let data: Vec<f64> = Random::fresh().vec(100 * 512, -5.0, 5.0).iter().map(|&x| x as f32 as f64).collect();
    let expected: Vec<f64> = data.iter().map(|&x| gelu(x)).collect();
    let x = floats(&data, &[100, 512], device).cast(DType::F32);
    near("gelu", &x.gelu(), &expected, 2e-6);
    let x = floats(&[1.0, -1.0, 0.5], &[3], device);
    near(
        "gelu_erf",
        &x.gelu_erf(),
        &[0.841_344_746_068_542_9, -0.158_655_253_931_457_05, 0.345_731_230_637_007_1],
        1e-14,
    );
    near("reciprocal", &x.reciprocal(), &[1.0, -1.0, 2.0], 0.0);
    Ok(())
}

pub fn layers(device: Device) -> Outcome {
    let mut random = Random::fresh();
    // Known answer: layer norm at 768 columns.
    let (rows, columns) = (3, 768);
    let data = random.vec(rows * columns, -3.0, 5.0);
    let (w, b) = (random.vec(columns, 0.5, 1.5), random.vec(columns, -1.0, 1.0));
    let mut normed = vec![];
    let mut scaled = vec![];
    for row in data.chunks(columns) {
        let mean = row.iter().sum::<f64>() / columns as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / columns as f64;
        let square = row.iter().map(|x| x * x).sum::<f64>() / columns as f64;
        normed.extend(row.iter().enumerate().map(|(n, x)| (x - mean) / (variance + 1e-5).sqrt() * w[n] + b[n]));
        scaled.extend(row.iter().enumerate().map(|(n, x)| x / (square + 1e-6).sqrt() * w[n]));
    }
    let [x, tw, tb] = [(&data, &[3, 768][..]), (&w, &[768]), (&b, &[768])].map(|(d, s)| floats(d, s, device));
    near("layer_norm", &x.layer_norm(&tw, &tb, 1e-5), &normed, 1e-13);
    near("rms_norm", &x.rms_norm(&tw, 1e-6), &scaled, 1e-13);
    let [nx, nw, nb] = [&x, &tw, &tb].map(|t| t.cast(DType::F32));
    near("layer_norm in f32", &nx.layer_norm(&nw, &nb, 1e-5), &normed, 1e-6);
    let half = nx.cast(DType::BF16).layer_norm(&nw.cast(DType::BF16), &nb.cast(DType::BF16), 1e-5);
    assert_eq!(half.dtype()?, DType::BF16);
    near("layer_norm in bf16", &half, &normed, 2e-2);
    let block = x.reshape(&[3, 32, 24]);
    let both = block.layer_norm(&tw.reshape(&[32, 24]), &tb.reshape(&[32, 24]), 1e-5);
    near("layer_norm over two axes", &both, &normed, 1e-13);
    let image = floats(&data[..24], &[2, 3, 4], device);
    let four = [[1.0, 2.0, 3.0], [0.1, 0.2, 0.3], [0.5, -0.5, 0.0], [1.0, 4.0, 0.25]];
    let [gamma, beta, mean, variance] = four.map(|d| floats(&d, &[3], device));
    let expected: Vec<f64> = (0..24)
        .map(|n| (n, n / 4 % 3))
        .map(|(n, c)| (data[n] - four[2][c]) / (four[3][c] + 1e-5).sqrt() * four[0][c] + four[1][c])
        .collect();
    near("batch_norm", &image.batch_norm(&gamma, &beta, &mean, &variance, 1e-5), &expected, 1e-13);

    // Known answer: a fused linear layer and GELU, 128 × 512 → 768, equals the separate ops.
    // (Smaller on the interpreter.)
    let (rows, from, out) = if device == Device::Interpreter { (8, 32, 48) } else { (128, 512, 768) };
    let [x, w, b] = [(rows, from), (out, from), (1, out)]
        .map(|(m, n)| floats(&random.vec(m * n, -0.1, 0.1), &[m, n], device).cast(DType::F32));
    let b = b.squeeze(0);
    let fused = x.fused_linear_gelu(&w, &b).to_vec::<f32>()?;
    assert_eq!(fused, (x.matmul(&w.t()) + &b).gelu().to_vec::<f32>()?);
    assert_eq!(fused, x.linear(&w, Some(&b)).gelu().to_vec::<f32>()?);
    let deep = x.reshape(&[2, rows / 2, from]).linear(&w, None);
    assert_eq!(deep.shape()?, [2, rows / 2, out]);
    assert_eq!(x.slice(0, 0..1).squeeze(0).linear(&w, Some(&b)).shape()?, [out]);

    let x = Tensor::ones(&[10_000], DType::F32, device);
    let dropped = x.dropout(0.3, &Generator::new(1), true).to_vec::<f32>()?;
    let kept = dropped.iter().filter(|x| **x != 0.0).count() as f64;
    assert!((kept / 10_000.0 - 0.7).abs() < 0.03, "{kept}");
    assert!(dropped.iter().all(|x| *x == 0.0 || (x - 1.0 / 0.7).abs() < 1e-6));
    assert_eq!(x.dropout(0.3, &Generator::new(1), false).to_vec::<f32>()?, vec![1.0; 10_000]);
    assert_eq!(x.dropout(1.0, &Generator::new(1), true).sum(..).item()?, 0.0);
    assert_eq!(x.dropout(0.0, &Generator::new(1), true).sum(..).item()?, 10_000.0);
    let state = Tensor::from_slice(&[1u64, 0], &[2], device);
    assert_eq!(x.dropout_from(0.3, &state).to_vec::<f32>()?, dropped);
    Ok(())
}

pub fn images(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let cases = [
        ((2, 4, 6, 5), (6, 3, 3), Conv2dOptions { groups: 2, padding: (1, 2), ..Conv2dOptions::default() }),
        ((1, 3, 7, 7), (2, 3, 2), Conv2dOptions { stride: (2, 3), ..Conv2dOptions::default() }),
        ((1, 2, 8, 6), (4, 3, 2), Conv2dOptions { dilation: (2, 3), stride: (1, 2), padding: (2, 0), groups: 1 }),
        ((2, 3, 2, 2), (3, 1, 1), Conv2dOptions { groups: 3, ..Conv2dOptions::default() }),
    ];
    for ((n, channels, height, width), (out, high, wide), by) in cases {
        let own = channels / by.groups;
        let (x, w) =
            (random.vec(n * channels * height * width, -1.0, 1.0), random.vec(out * own * high * wide, -1.0, 1.0));
        let b = random.vec(out, -1.0, 1.0);
        let rows = (height + 2 * by.padding.0 - (high - 1) * by.dilation.0 - 1) / by.stride.0 + 1;
        let columns = (width + 2 * by.padding.1 - (wide - 1) * by.dilation.1 - 1) / by.stride.1 + 1;
        let mut expected = vec![0.0; n * out * rows * columns];
        for (at, value) in expected.iter_mut().enumerate() {
            let (column, row, o, image) =
                (at % columns, at / columns % rows, at / columns / rows % out, at / columns / rows / out);
            *value = b[o];
            for c in 0..own {
                for (i, j) in (0..high).flat_map(|i| (0..wide).map(move |j| (i, j))) {
                    let (y, x_) = (row * by.stride.0 + i * by.dilation.0, column * by.stride.1 + j * by.dilation.1);
                    let (Some(y), Some(x_)) = (y.checked_sub(by.padding.0), x_.checked_sub(by.padding.1)) else {
                        continue;
                    };
                    if y < height && x_ < width {
                        let channel = o / (out / by.groups) * own + c;
                        let pixel = x[((image * channels + channel) * height + y) * width + x_];
                        *value += pixel * w[((o * own + c) * high + i) * wide + j];
                    }
                }
            }
        }
        let image = floats(&x, &[n, channels, height, width], device);
        let found = image.conv2d(&floats(&w, &[out, own, high, wide], device), Some(&floats(&b, &[out], device)), by);
        assert_eq!(found.shape()?, [n, out, rows, columns]);
        near("conv2d", &found, &expected, 1e-13);
    }
    // A kernel of depth 2 adds the convolutions of neighbouring slices.
    let (volume, kernel) = (random.vec(2 * 3 * 4 * 5, -1.0, 1.0), random.vec(3 * 2 * 2 * 2, -1.0, 1.0));
    let (volume, kernel) = (floats(&volume, &[2, 1, 3, 4, 5], device), floats(&kernel, &[3, 1, 2, 2, 2], device));
    let slice = |z: isize, k: isize| {
        let (image, weight) = (volume.slice(2, z..z + 1).squeeze(2), kernel.slice(2, k..k + 1).squeeze(2));
        image.conv2d(&weight, None, Conv2dOptions::default())
    };
    let expected = Tensor::stack(&[&(slice(0, 0) + slice(1, 1)), &(slice(1, 0) + slice(2, 1))], 2);
    let found = volume.conv3d(&kernel, None, Conv3dOptions::default());
    assert_eq!(found.shape()?, [2, 3, 2, 3, 4]);
    near("conv3d", &found, &expected.to_vec::<f64>()?, 1e-13);
    let x = Tensor::arange(16, DType::F32, device).reshape(&[1, 1, 4, 4]);
    assert_eq!(x.max_pool2d([2, 2], (2, 2)).to_vec::<f32>()?, [5., 7., 13., 15.]);
    assert_eq!(x.avg_pool2d([2, 2], (2, 2)).to_vec::<f32>()?, [2.5, 4.5, 10.5, 12.5]);
    assert_eq!(x.max_pool2d([3, 2], (1, 2)).to_vec::<f32>()?, [9., 11., 13., 15.]);
    for bad in [
        x.max_pool2d([5, 1], (1, 1)),
        x.avg_pool2d([2, 2], (0, 1)),
        x.conv2d(&x, None, Conv2dOptions { groups: 2, ..Conv2dOptions::default() }),
    ] {
        assert!(bad.shape().is_err());
    }
    Ok(())
}

pub fn attention(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let (queries, keys, width) = (5, 7, 4);
    let data = [queries, keys, keys].map(|n| random.vec(2 * n * width, -2.0, 2.0));
    let [q, k, v] = [0, 1, 2].map(|n| floats(&data[n], &[2, if n == 0 { queries } else { keys }, width], device));
    let bools: Vec<bool> = (0..queries * keys).map(|n| n % 3 != 1).collect();
    let mask = Tensor::from_slice(&bools, &[queries, keys], device);
    let reference = |scale: f64, seen: &dyn Fn(usize, usize) -> bool| {
        let mut out = vec![];
        for batch in 0..2 {
            for i in 0..queries {
                let at = |n: usize, row: usize, d: usize, len: usize| data[n][(batch * len + row) * width + d];
                let score =
                    |j: usize| (0..width).map(|d| at(0, i, d, queries) * at(1, j, d, keys)).sum::<f64>() * scale;
                let exps: Vec<f64> = (0..keys).map(|j| if seen(i, j) { score(j).exp() } else { 0.0 }).collect();
                let total: f64 = exps.iter().sum();
                out.extend((0..width).map(|d| (0..keys).map(|j| exps[j] * at(2, j, d, keys)).sum::<f64>() / total));
            }
        }
        out
    };
    near("plain", &Tensor::attention(&q, &k, &v, None, false, None), &reference(0.5, &|_, _| true), 1e-13);
    near("causal", &Tensor::attention(&q, &k, &v, Some(0.3), true, None), &reference(0.3, &|i, j| j <= i + 2), 1e-13);
    let masked = reference(0.5, &|i, j| bools[i * keys + j]);
    near("mask", &Tensor::attention(&q, &k, &v, None, false, Some(&mask)), &masked, 1e-13);
    let added = mask.select(0.0, f64::NEG_INFINITY);
    near("added mask", &Tensor::attention(&q, &k, &v, None, false, Some(&added)), &masked, 1e-13);
    // Known answer: with V = 1 the result is exactly 1, at (4, 8, 512, 64) where that is quick
    // enough.
    let shape = match device {
        Device::Cuda(_) => [4, 8, 512, 64],
        Device::Cpu(_) => [1, 2, 128, 64],
        Device::Interpreter => [1, 2, 16, 8],
    };
    let generator = Generator::new(3);
    let [q, k] = [(), ()].map(|()| Tensor::randn(&shape, DType::F32, &generator, device));
    let ones = Tensor::ones(&shape, DType::F32, device);
    for causal in [false, true] {
        let run = || Tensor::attention(&q, &k, &ones, None, causal, None).to_vec::<f32>();
        let exact = MatmulMode::Exact.within(run)?;
        assert!(exact.iter().all(|x| *x == 1.0), "causal {causal}");
        // A library may sum the two products in different orders.
        let furthest = run()?.iter().map(|x| (x - 1.0).abs()).fold(0.0, f32::max);
        assert!(furthest < 2e-6, "causal {causal}: {furthest}");
    }
    Ok(())
}

pub fn losses(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let (x, y) = (random.vec(12, -3.0, 3.0), random.vec(12, 0.05, 0.95));
    let classes = [2i64, 0, 1];
    let [tx, ty] = [&x, &y].map(|d| floats(d, &[3, 4], device));
    let mean = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(&y).map(|(&x, &y)| f(x, y)).sum::<f64>() / 12.0;
    near("mse", &tx.mse(&ty), &[mean(&|x, y| (x - y).powi(2))], 1e-14);
    near("l1", &tx.l1(&ty), &[mean(&|x, y| (x - y).abs())], 1e-14);
    let huber = |d: f64| if d <= 0.7 { 0.5 * d * d } else { 0.7 * (d - 0.35) };
    near("huber", &tx.huber(&ty, 0.7), &[mean(&|x, y| huber((x - y).abs()))], 1e-14);
    let entropy = |p: f64, y: f64| -(y * p.ln() + (1.0 - y) * (1.0 - p).ln());
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let expected = [mean(&|x, y| entropy(sigmoid(x), y))];
    near("bce", &tx.sigmoid().bce(&ty), &expected, 1e-13);
    near("bce_with_logits", &tx.bce_with_logits(&ty), &expected, 1e-14);
    let log: Vec<f64> = (x.chunks(4))
        .flat_map(|row| {
            let total = row.iter().map(|x| x.exp()).sum::<f64>().ln();
            row.iter().map(move |x| x - total)
        })
        .collect();
    let picked = -classes.iter().enumerate().map(|(n, &c)| log[n * 4 + c as usize]).sum::<f64>() / 3.0;
    for index in
        [Tensor::from_slice(&classes, &[3], device), Tensor::from_slice(&classes.map(|c| c as u8), &[3], device)]
    {
        near("cross_entropy", &tx.cross_entropy(&index), &[picked], 1e-14);
        near("nll", &tx.log_softmax(-1).nll(&index), &[picked], 1e-14);
        near("one_hot", &tx.cross_entropy(&index.one_hot(4, DType::F64)), &[picked], 1e-14);
    }
    let probable = -log.iter().zip(&y).map(|(l, y)| l * y).sum::<f64>() / 3.0;
    near("probabilities", &tx.cross_entropy(&ty), &[probable], 1e-14);
    let divergence = log.iter().zip(&y).map(|(l, y)| y * (y.ln() - l)).sum::<f64>() / 3.0;
    near("kl_div", &tx.log_softmax(-1).kl_div(&ty), &[divergence], 1e-14);
    // Edge cases: no NaN from 0 log 0, no overflow, a class out of range.
    let sure = floats(&[0.0, 1.0], &[2], device);
    assert_eq!(sure.bce(&sure).item()?, 0.0);
    assert_eq!(sure.bce(&(1.0 - &sure)).item()?, 100.0);
    assert_eq!(floats(&[1e4, -1e4], &[2], device).bce_with_logits(&sure).item()?, 1e4);
    assert!(floats(&[-1.0, 0.0], &[1, 2], device).kl_div(&sure.unsqueeze(0)).item()?.is_finite());
    let bad = Tensor::from_slice(&[0i64, 4, 1], &[3], device);
    let error = tx.cross_entropy(&bad).item().expect_err("class 4 of 4").to_string();
    assert!(error.contains("index 4 is outside axis 1 of length 4") && error.contains("methods.rs:"), "{error}");
    // Enough rows for the CPU implementation.
    let many = Tensor::zeros(&[40, 4], DType::F32, device) + 1.0;
    let classes: Vec<i64> = (0..40).map(|n| if n == 33 { -1 } else { n % 4 }).collect();
    let bad = Tensor::from_slice(&classes, &[40], device);
    let loss = many.cross_entropy(&bad);
    for read in [loss.item(), loss.grad(&[&many])[0].sum(..).item()] {
        let error = read.expect_err("class -1").to_string();
        assert!(error.contains("index -1") && error.contains("outside") && error.contains("methods.rs:"), "{error}");
    }
    Ok(())
}

/// The gradient of a zero distance is 0. (All other gradients: see `gradcheck`.)
pub fn gradient_of_zero_distance(device: Device) -> Outcome {
    let zero = floats(&[0.0, 0.0], &[2], device);
    assert_eq!(zero.norm(2.0, ..).grad(&[&zero])[0].to_vec::<f64>()?, [0.0, 0.0]);
    Ok(())
}

pub fn copies_and_display(device: Device) -> Outcome {
    fn round<T: Element + PartialEq + std::fmt::Debug>(data: &[T], device: Device) -> Outcome {
        let x = Tensor::from_slice(data, &[data.len()], device);
        let far = x.to(Device::Cpu(7));
        assert_eq!(far.device()?, Device::Cpu(7));
        assert_eq!(far.to_vec::<T>()?, data);
        assert_eq!(far.to(device).to_vec::<T>()?, data);
        Ok(())
    }
    round(&[true, false, true], device)?;
    round(&[1u8, 2, 255], device)?;
    round(&[1.5f32, -0.0, 3.0], device)?;
    round(&[i64::MIN, 5], device)?;
    // Gradients are copied back to the original device.
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], device);
    let loss = ((&x * 2.0).to(Device::Cpu(7)).square().sum(..)).to(device) * 0.5;
    let gradient = loss.grad(&[&x]).remove(0);
    assert_eq!((gradient.device()?, gradient.to_vec::<f32>()?), (device, vec![4.0, 8.0, 12.0]));

    let text = |data: &[f32], shape: &[usize]| Tensor::from_slice(data, shape, device).to_string();
    assert_eq!(text(&[1.0, 2.0, 3.0], &[3]), "[1. 2. 3.]");
    assert_eq!(text(&[0.1, -20.25, f32::NAN], &[3]), "[  0.1  -20.25    nan]");
    assert_eq!(text(&[1e-10, 2.5], &[2]), "[1.0e-10 2.5e+00]");
    assert_eq!(text(&[2.5], &[]), "2.5");
    assert_eq!(text(&[], &[0]), "[]");
    assert_eq!(text(&[1.0, 2.0, 3.0, 4.0], &[2, 1, 2]), "[[[1. 2.]]\n\n [[3. 4.]]]");
    let ints = Tensor::from_slice(&[1i64, -20, 300, 4], &[2, 2], device);
    assert_eq!(ints.to_string(), "[[  1 -20]\n [300   4]]");
    assert_eq!(ints.gt(0).to_string(), "[[ True False]\n [ True  True]]");
    let about = format!("{ints:?}");
    assert_eq!(about, format!("Tensor([[  1, -20],\n        [300,   4]], i64[2, 2] on {device})"));
    assert_eq!(x.cast(DType::F16).mul(0.1).to_string(), "[0.1    0.2    0.2998]");
    let many = Tensor::arange(2000, DType::I32, device);
    assert_eq!(many.to_string(), "[   0    1    2 ... 1997 1998 1999]");
    let square = Tensor::arange(10_000, DType::I32, device).reshape(&[100, 100]).to_string();
    assert_eq!(square.lines().count(), 7);
    assert!(square.starts_with("[[   0    1    2 ...   97   98   99]\n [ 100"), "{square}");
    assert!(square.contains("\n ...\n"), "{square}");
    assert!(Tensor::arange(100, DType::I32, device).to_string().lines().all(|line| line.len() <= 75));
    let failed = x.reshape(&[7]);
    assert!(failed.to_string().starts_with("reshape: cannot reshape [3] of 3 elements to [7]"), "{failed}");
    assert!(format!("{failed:?}").starts_with("Tensor(failed: reshape"), "{failed:?}");
    Ok(())
}
