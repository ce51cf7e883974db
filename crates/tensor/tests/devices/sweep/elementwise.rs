//! Every scalar op and every cast, on broadcast inputs and special values.

use bornite::ir::Op;
use bornite::{DType, Device, Tensor};

use super::array::{Array, Bound, DTYPES, Num, rounded};
use super::layouts::{CASES, Layout};
use super::{Fill, Sweep, reference};

/// A shape that broadcasts with `shape`: the same, its last axis, every other axis, one element,
/// one axis more.
pub fn partner(shape: &[usize], n: usize) -> Vec<usize> {
    match n % 5 {
        0 => shape.to_vec(),
        1 => shape.last().copied().into_iter().collect(),
        2 => shape.iter().enumerate().map(|(axis, &len)| if axis % 2 == 0 { 1 } else { len }).collect(),
        3 => vec![],
        _ if shape.iter().product::<usize>() > 100 => shape.to_vec(),
        _ => [&[2], shape].concat(),
    }
}

/// The shape that both broadcast to.
pub fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |n| shape[n]);
    (0..rank).map(|axis| if at(a, axis) == 1 { at(b, axis) } else { at(a, axis) }).collect()
}

const PARTNERS: [Layout; 4] = [Layout::Plain, Layout::Transposed, Layout::Reversed, Layout::Stepped];

/// Error bound of a float op, on a GPU of CUDA's function for it. 16-bit results are f32 results,
/// rounded once more.
fn bound(op: Op, dtype: DType, device: Device) -> Bound {
    let mut ulp = op.row().ulp;
    if ulp.f32 == 0.0 {
        return Bound::Exact;
    }
    if let (Device::Cuda(_), Some(native)) = (device, op.row().native) {
        (ulp.f32, ulp.f64) = (ulp.f32.max(native.ulp.f32), ulp.f64.max(native.ulp.f64));
    }
    // The f64 reference has its own error for f64 results.
    match dtype {
        DType::F64 if matches!(op, Op::Erf | Op::Erfc) => Bound::Relative(24.0),
        DType::F64 => Bound::Relative(ulp.f64 + 4.0),
        DType::F32 => Bound::Relative(ulp.f32),
        _ => Bound::Relative(1.0),
    }
}

pub fn run(s: &mut Sweep) {
    for (o, &op) in Op::ALL.iter().enumerate() {
        for (d, dtype) in DTYPES.into_iter().enumerate() {
            let mut types = vec![dtype; op.arity()];
            if op == Op::Select {
                types[0] = DType::Bool;
            }
            let Ok(result) = op.row().rule.result(&types) else { continue };
            for (n, (shape, layout)) in CASES.into_iter().enumerate() {
                // By default each op and dtype runs every fourth case; together they run all.
                if !s.takes(n + o + d, 4) {
                    continue;
                }
                let mut out = shape.to_vec();
                let inputs: Vec<(Tensor, Array)> = (types.iter().enumerate())
                    .map(|(arg, &dtype)| {
                        let (shape, layout) = match arg {
                            0 => (shape.to_vec(), layout),
                            _ => (partner(shape, n + o + arg), PARTNERS[(n + d + arg) % 4]),
                        };
                        out = broadcast(&out, &shape);
                        s.input(&shape, layout, dtype, Fill::Special)
                    })
                    .collect();
                let expected = Array::build(result, &out, |i| {
                    let args: Vec<Num> = inputs.iter().map(|(_, array)| array.at(i)).collect();
                    reference::row(op, dtype, &args)
                });
                let tensors: Vec<&Tensor> = inputs.iter().map(|(tensor, _)| tensor).collect();
                let what = format!("{} {dtype}", op.row().name);
                s.check(&what, n, &Tensor::apply(op, &tensors), &expected, &bound(op, dtype, s.device));
            }
        }
    }
}

/// Casts a number: floats to integers saturate and NaN is 0, integers are truncated, bool is ≠ 0.
pub fn cast(x: Num, to: DType) -> Num {
    match (x, to) {
        (x, DType::Bool) => Num::Int((x.real() != 0.0) as i64),
        (Num::Real(x), DType::U8) => Num::Int(x as u8 as i64),
        (Num::Real(x), DType::I32) => Num::Int(x as i32 as i64),
        (Num::Real(x), DType::I64) => Num::Int(x as i64),
        (Num::Int(x), to) if !to.is_float() => super::array::wrapped(to, x as i128),
        // Integers are converted to f32 before 16-bit floats.
        (Num::Int(x), DType::F16 | DType::BF16 | DType::F32) => Num::Real(rounded(to, x as f32 as f64)),
        // So are f64 values: two roundings, in this order.
        (Num::Real(x), DType::F16 | DType::BF16) => Num::Real(rounded(to, x as f32 as f64)),
        (x, to) => Num::Real(rounded(to, x.real())),
    }
}

pub fn casts(s: &mut Sweep) {
    for (f, from) in DTYPES.into_iter().enumerate() {
        for (t, to) in DTYPES.into_iter().enumerate() {
            for (n, (shape, layout)) in CASES.into_iter().enumerate() {
                if !s.takes(n + f + 3 * t, 4) {
                    continue;
                }
                let (tensor, array) = s.input(shape, layout, from, Fill::Special);
                let expected = Array::build(to, shape, |i| cast(array.at(i), to));
                s.check(&format!("cast {from} to {to}"), n, &tensor.cast(to), &expected, &Bound::Exact);
            }
        }
    }
}
