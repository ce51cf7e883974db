//! Functions of neural networks over the ops.

use bornite::DType;

use super::array::{Array, Bound, DTYPES, Num, limits};
use super::layouts::{CASES, Layout};
use super::reductions::lines;
use super::views::{an_axis, signed};
use super::{Fill, Sweep, reference};

pub fn run(s: &mut Sweep) {
    for (d, dtype) in DTYPES.into_iter().enumerate() {
        for (n, (shape, layout)) in CASES.into_iter().enumerate() {
            if !s.takes(n + d, 1) {
                continue;
            }
            if dtype != DType::Bool {
                relu(s, n, dtype, shape, layout);
            }
            if !dtype.is_float() || shape.contains(&0) {
                continue;
            }
            if let Some(axis) = an_axis(shape, n + d) {
                softmax(s, n, dtype, (shape, layout), axis, false);
                softmax(s, n, dtype, (shape, layout), axis, true);
                cross_entropy(s, n, dtype, shape, layout);
            }
        }
    }
}

fn relu(s: &mut Sweep, n: usize, dtype: DType, shape: &[usize], layout: Layout) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Special);
    let expected = Array::build(dtype, shape, |i| match a.at(i) {
        Num::Int(x) => Num::Int(x.max(0)),
        Num::Real(x) => Num::Real(reference::max(x, 0.0)),
    });
    s.check(&format!("relu {dtype}"), n, &x.relu(), &expected, &Bound::Exact);
}

/// log Σ exp of a line, without overflow.
pub fn log_total(line: &[Num]) -> f64 {
    let largest = line.iter().map(|x| x.real()).fold(f64::NEG_INFINITY, f64::max);
    largest + line.iter().map(|x| (x.real() - largest).exp()).sum::<f64>().ln()
}

fn softmax(s: &mut Sweep, n: usize, dtype: DType, (shape, layout): (&[usize], Layout), axis: usize, log: bool) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let (kept, lines) = lines(&a, &[axis as isize]);
    let totals =
        Array { dtype: DType::F64, shape: kept, data: lines.iter().map(|line| Num::Real(log_total(line))).collect() };
    let (epsilon, smallest, _) = limits(dtype);
    let mut bounds = vec![];
    let expected = Array::build(dtype, shape, |index| {
        let mut outer = index.to_vec();
        outer.remove(axis);
        let value = a.at(index).real() - totals.at(&outer).real();
        // Each step rounds to the dtype: x - max (up to 8), its exponential, the quotient; and the
        // sum once per term, with either sign.
        let total = (shape[axis] as f64).sqrt();
        bounds.push(epsilon * if log { 16.0 + total + value.abs() } else { (14.0 + total) * value.exp() } + smallest);
        Num::Real(if log { value } else { value.exp() })
    });
    let signed = signed(axis, shape.len(), n);
    let (name, found) = if log { ("log_softmax", x.log_softmax(signed)) } else { ("softmax", x.softmax(signed)) };
    s.check(&format!("{name} {dtype} along {axis}"), n, &found, &expected, &Bound::Each(bounds));
}

fn cross_entropy(s: &mut Sweep, n: usize, dtype: DType, shape: &[usize], layout: Layout) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let (t, targets) = s.input(shape, Layout::Reversed, dtype, Fill::Unit);
    let last = shape.len() as isize - 1;
    let (_, rows) = lines(&a, &[last]);
    let (_, weights) = lines(&targets, &[last]);
    let (mut total, mut sizes) = (0.0, 0.0);
    for (row, weights) in rows.iter().zip(&weights) {
        let log = log_total(row);
        for (x, w) in row.iter().zip(weights) {
            total += w.real() * (log - x.real());
            sizes += (w.real() * (log - x.real())).abs() + 16.0 * w.real().abs();
        }
    }
    let count = rows.len() as f64;
    let bound = limits(dtype).0 * (4.0 * sizes + total.abs()) / count;
    // A loss of 16-bit floats is f32.
    let wide = if dtype.bytes() == 2 { DType::F32 } else { dtype };
    let expected = Array { dtype: wide, shape: vec![], data: vec![Num::Real(total / count)] };
    s.check(&format!("cross_entropy {dtype}"), n, &x.cross_entropy(&t), &expected, &Bound::Each(vec![bound]));
}
