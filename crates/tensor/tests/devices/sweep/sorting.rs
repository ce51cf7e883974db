//! Sorting, argmax and argmin, cumulative sums.

use std::cmp::Ordering;

use bornite::{DType, Tensor};

use super::array::{Array, Bound, DTYPES, Num, indices};
use super::layouts::CASES;
use super::reductions::sum;
use super::views::{along, an_axis, signed};
use super::{Fill, Sweep};

/// NaN above everything, equal to itself; zeros of both signs equal.
fn order(a: Num, b: Num) -> Ordering {
    match (a, b) {
        (Num::Int(a), Num::Int(b)) => a.cmp(&b),
        (a, b) => {
            let (a, b) = (a.real(), b.real());
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
    }
}

/// Applies `f` to every line along an axis; the output lines have length `len`.
fn by_line(a: &Array, axis: usize, dtype: DType, len: usize, f: &dyn Fn(&[Num]) -> Vec<Num>) -> Array {
    let mut out = along(a, axis, len, |_| 0);
    out.dtype = dtype;
    let mut others = a.shape.clone();
    others[axis] = 1;
    for start in indices(&others) {
        let at = |i: usize, shape: &[usize]| {
            let index = start.iter().enumerate().map(|(n, &s)| if n == axis { i } else { s });
            index.zip(shape).fold(0, |n, (i, &len)| n * len + i)
        };
        let line: Vec<Num> = (0..a.shape[axis]).map(|i| a.data[at(i, &a.shape)]).collect();
        for (i, value) in f(&line).into_iter().enumerate() {
            let position = at(i, &out.shape);
            out.data[position] = value;
        }
    }
    out
}

fn sorted(line: &[Num], descending: bool) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..line.len()).collect();
    positions.sort_by(|&a, &b| if descending { order(line[b], line[a]) } else { order(line[a], line[b]) });
    positions
}

/// The index of the first extreme element.
fn extreme(line: &[Num], wanted: Ordering) -> usize {
    // NaN is both maximum and minimum.
    let beats = |a: Num, b: Num| match (a.real().is_nan(), b.real().is_nan()) {
        (a_nan, b_nan) if a_nan || b_nan => a_nan && !b_nan,
        _ => order(a, b) == wanted,
    };
    (1..line.len()).fold(0, |best, n| if beats(line[n], line[best]) { n } else { best })
}

fn numbers(positions: &[usize]) -> Vec<Num> {
    positions.iter().map(|&n| Num::Int(n as i64)).collect()
}

pub fn run(s: &mut Sweep) {
    for (d, dtype) in DTYPES.into_iter().enumerate() {
        for (n, (shape, layout)) in CASES.into_iter().enumerate() {
            // `along` needs an element to copy from, and a sort needs time on the interpreter.
            let Some(axis) = an_axis(shape, n + d) else { continue };
            if !s.takes(n + d, if shape[axis] > 100 { 3 } else { 1 }) {
                continue;
            }
            let (x, a) = s.input(shape, layout, dtype, if n % 2 == 0 { Fill::Special } else { Fill::Small });
            let (len, signed) = (shape[axis], signed(axis, shape.len(), n));
            let empty = a.data.is_empty();
            let mut check = |name: &str, found: &Tensor, expected: &Array| {
                s.check(&format!("{name} {dtype} along {axis}"), n, found, expected, &Bound::Exact);
            };
            let descending = (n + d) % 2 == 0;
            let picked = |k: usize, descending: bool| {
                let values = |line: &[Num]| sorted(line, descending)[..k].iter().map(|&n| line[n]).collect();
                let positions = |line: &[Num]| numbers(&sorted(line, descending)[..k]);
                let k = if empty { 0 } else { k };
                (by_line(&a, axis, dtype, k, &values), by_line(&a, axis, DType::I64, k, &positions))
            };
            if !empty {
                let (values, positions) = picked(len, descending);
                let (found, order) = x.sort(signed, descending);
                check("sort", &found, &values);
                check("sort's order", &order, &positions);
                check("argsort", &x.argsort(signed, !descending), &picked(len, !descending).1);
                let k = (n + d) % (len + 1);
                let (values, positions) = picked(k, true);
                let (found, order) = x.topk(k, signed);
                check("topk", &found, &values);
                check("topk's order", &order, &positions);
                for (name, wanted, found) in
                    [("argmax", Ordering::Greater, x.argmax(signed)), ("argmin", Ordering::Less, x.argmin(signed))]
                {
                    let mut expected = by_line(&a, axis, DType::I64, 1, &|line| numbers(&[extreme(line, wanted)]));
                    expected.shape.remove(axis);
                    check(name, &found, &expected);
                }
            } else {
                let same = Array { dtype: DType::I64, ..a.clone() };
                check("sort", &x.sort(signed, descending).0, &a);
                check("argsort", &x.argsort(signed, descending), &same);
            }
            cumsum(s, n, (shape, axis), dtype, layout);
        }
    }
}

fn cumsum(s: &mut Sweep, n: usize, (shape, axis): (&[usize], usize), dtype: DType, layout: super::Layout) {
    if dtype == DType::Bool {
        return;
    }
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let len = shape[axis];
    let (mut expected, mut bounds) = (a.clone(), vec![]);
    if !a.data.is_empty() {
        let sums = |line: &[Num]| (1..=len).map(|n| sum(dtype, &line[..n])).collect::<Vec<_>>();
        expected = by_line(&a, axis, dtype, len, &|line| sums(line).into_iter().map(|(sum, _)| sum).collect());
        let far = |line: &[Num]| sums(line).into_iter().map(|(_, bound)| Num::Real(bound)).collect();
        bounds = by_line(&a, axis, DType::F64, len, &far).data.iter().map(|b| b.real()).collect();
    }
    let found = x.cumsum(signed(axis, shape.len(), n));
    s.check(&format!("cumsum {dtype} along {axis}"), n, &found, &expected, &Bound::Each(bounds));
}
