//! Sums, products, extremes and means over axes.

use bornite::{DType, Tensor};

use super::array::{Array, Bound, DTYPES, Num, indices, limits, wide_epsilon, wrapped};
use super::layouts::CASES;
use super::{Fill, Sweep, reference};

/// Axes to reduce: all, the last, the first, the outer two, none.
fn axes(rank: usize, n: usize) -> Vec<isize> {
    let last = rank as isize - 1;
    match n % 5 {
        1 if rank > 0 => vec![-1],
        2 if rank > 0 => vec![0],
        3 if rank > 1 => vec![0, last],
        4 => vec![],
        _ => (0..rank as isize).collect(),
    }
}

/// The elements that are reduced to each element of the result.
pub fn lines(x: &Array, axes: &[isize]) -> (Vec<usize>, Vec<Vec<Num>>) {
    let rank = x.shape.len() as isize;
    let reduced: Vec<usize> = axes.iter().map(|&a| if a < 0 { a + rank } else { a } as usize).collect();
    let kept: Vec<usize> = (0..rank as usize).filter(|a| !reduced.contains(a)).collect();
    let shape: Vec<usize> = kept.iter().map(|&a| x.shape[a]).collect();
    let mut lines = vec![vec![]; shape.iter().product()];
    for index in indices(&x.shape) {
        let at = kept.iter().fold(0, |n, &a| n * x.shape[a] + index[a]);
        lines[at].push(x.at(&index));
    }
    (shape, lines)
}

/// A sum, and the error bound of a sum in the wide dtype, rounded once.
pub fn sum(dtype: DType, terms: &[Num]) -> (Num, f64) {
    if !dtype.is_float() {
        return (wrapped(dtype, terms.iter().map(|x| x.int() as i128).sum()), 0.0);
    }
    let total: f64 = terms.iter().map(|x| x.real()).sum();
    let sizes: f64 = terms.iter().map(|x| x.real().abs()).sum();
    (Num::Real(total), terms.len() as f64 * wide_epsilon(dtype) * sizes + limits(dtype).0 * total.abs())
}

/// As [`sum`], of a product.
fn product(dtype: DType, terms: &[Num]) -> (Num, f64) {
    if !dtype.is_float() {
        let cut = |n: i128, x: &Num| wrapped(dtype, n * x.int() as i128).int() as i128;
        return (wrapped(dtype, terms.iter().fold(1, cut)), 0.0);
    }
    let total: f64 = terms.iter().map(|x| x.real()).product();
    let (epsilon, smallest, _) = limits(dtype);
    let wide = terms.len() as f64 * (wide_epsilon(dtype) * total.abs() + f64::from(f32::MIN_POSITIVE));
    (Num::Real(total), wide + epsilon * total.abs() + smallest)
}

fn extreme(dtype: DType, terms: &[Num], real: fn(f64, f64) -> f64, int: fn(i64, i64) -> i64) -> (Num, f64) {
    let all = terms.iter().copied().reduce(|a, b| match dtype.is_float() {
        true => Num::Real(real(a.real(), b.real())),
        false => Num::Int(int(a.int(), b.int())),
    });
    (all.unwrap_or(Num::Int(0)), 0.0)
}

fn mean(dtype: DType, terms: &[Num]) -> (Num, f64) {
    let count = terms.len() as f64;
    let (total, bound) = sum(dtype, terms);
    let mean = total.real() / count;
    (Num::Real(mean), bound / count + 2.0 * limits(dtype).0 * mean.abs())
}

struct Reduction {
    name: &'static str,
    fill: Fill,
    tensor: fn(&Tensor, &[isize]) -> Tensor,
    reference: fn(DType, &[Num]) -> (Num, f64),
}

const REDUCTIONS: [Reduction; 5] = [
    Reduction { name: "sum", fill: Fill::Small, tensor: |x, axes| x.sum(axes), reference: sum },
    Reduction { name: "prod", fill: Fill::Unit, tensor: |x, axes| x.prod(axes), reference: product },
    Reduction {
        name: "max",
        fill: Fill::Special,
        tensor: |x, axes| x.max(axes),
        reference: |dtype, terms| extreme(dtype, terms, reference::max, i64::max),
    },
    Reduction {
        name: "min",
        fill: Fill::Special,
        tensor: |x, axes| x.min(axes),
        reference: |dtype, terms| extreme(dtype, terms, reference::min, i64::min),
    },
    Reduction { name: "mean", fill: Fill::Small, tensor: |x, axes| x.mean(axes), reference: mean },
];

pub fn run(s: &mut Sweep) {
    for (o, reduction) in REDUCTIONS.iter().enumerate() {
        for (d, dtype) in DTYPES.into_iter().enumerate().skip(1) {
            if reduction.name == "mean" && !dtype.is_float() {
                continue;
            }
            for (n, (shape, layout)) in CASES.into_iter().enumerate() {
                if !s.takes(n + o + d, 1) {
                    continue;
                }
                for choice in 0..if s.full { 5 } else { 1 } {
                    let (tensor, array) = s.input(shape, layout, dtype, reduction.fill);
                    let axes = axes(shape.len(), n + o + d + choice);
                    let (out, lines) = lines(&array, &axes);
                    if matches!(reduction.name, "max" | "min") && lines.iter().any(|line| line.is_empty()) {
                        continue; // an error: see errors.rs
                    }
                    let results: Vec<(Num, f64)> =
                        lines.iter().map(|line| (reduction.reference)(dtype, line)).collect();
                    let data = results.iter().map(|(value, _)| *value).collect();
                    let bounds = results.iter().map(|(_, bound)| *bound).collect();
                    let expected = Array { dtype, shape: out, data };
                    let what = format!("{} {dtype} over {axes:?}", reduction.name);
                    s.check(&what, n, &(reduction.tensor)(&tensor, &axes), &expected, &Bound::Each(bounds));
                }
            }
        }
    }
}
