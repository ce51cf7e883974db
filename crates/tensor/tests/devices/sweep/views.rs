//! Ops that only move elements: views, padding, concatenation, triangles, selection.

use bornite::{DType, Tensor};

use super::array::{Array, Bound, DTYPES, Num};
use super::elementwise::partner;
use super::layouts::{CASES, Layout};
use super::{Fill, Sweep};

/// An op: returns pairs of a result and the expected array, from an input (or two) and the number
/// of the case.
type View = fn(&mut Sweep, &Tensor, &Array, usize) -> Vec<(Tensor, Array)>;

const VIEWS: [(&str, View); 19] = [
    ("reshape", reshape),
    ("permute", permute),
    ("transpose", transpose),
    ("unsqueeze", unsqueeze),
    ("expand", expand),
    ("slice", slice),
    ("slice backwards", slice_backwards),
    ("flip", flip),
    ("pad", pad),
    ("concat", concat),
    ("stack", stack),
    ("split", split),
    ("split_sizes", split_sizes),
    ("diagonal", diagonal),
    ("tril", |_, x, a, n| triangle(x, a, n, true)),
    ("triu", |_, x, a, n| triangle(x, a, n, false)),
    ("masked_fill", masked_fill),
    ("select", select),
    ("detach", |_, x, a, _| vec![(x.detach(), a.clone())]),
];

pub fn run(s: &mut Sweep) {
    for (o, (name, view)) in VIEWS.into_iter().enumerate() {
        for (d, dtype) in DTYPES.into_iter().enumerate() {
            for (n, (shape, layout)) in CASES.into_iter().enumerate() {
                if !s.takes(n + o + d, 1) {
                    continue;
                }
                let (tensor, array) = s.input(shape, layout, dtype, Fill::Special);
                // One combination, of any number of tensors.
                let results = view(s, &tensor, &array, n + o + d);
                for (found, expected) in results {
                    s.check(&format!("{name} {dtype}"), n, &found, &expected, &Bound::Exact);
                }
            }
        }
    }
}

/// An axis of a shape, if it has any.
pub fn an_axis(shape: &[usize], n: usize) -> Option<usize> {
    n.checked_rem(shape.len())
}

/// The same axis, half of the time counted from the end.
pub fn signed(axis: usize, rank: usize, n: usize) -> isize {
    if n.is_multiple_of(2) { axis as isize } else { axis as isize - rank as isize }
}

/// An array of another length along one axis, with elements taken from other indices of the axis.
pub fn along(a: &Array, axis: usize, len: usize, from: impl Fn(usize) -> usize) -> Array {
    let mut shape = a.shape.clone();
    shape[axis] = len;
    Array::build(a.dtype, &shape, |index| {
        let mut inner = index.to_vec();
        inner[axis] = from(inner[axis]);
        a.at(&inner)
    })
}

fn reshape(_: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let total: usize = a.shape.iter().product();
    let shape = match n % 3 {
        0 => vec![total],
        1 => vec![1, total, 1],
        _ => {
            let d = (2..=total).find(|d| total.is_multiple_of(*d)).unwrap_or(1);
            vec![total / d, d]
        }
    };
    vec![(x.reshape(&shape), Array { shape, ..a.clone() })]
}

fn permuted(a: &Array, axes: &[usize]) -> Array {
    let shape: Vec<usize> = axes.iter().map(|&axis| a.shape[axis]).collect();
    Array::build(a.dtype, &shape, |index| {
        let mut inner = vec![0; index.len()];
        for (n, &axis) in axes.iter().enumerate() {
            inner[axis] = index[n];
        }
        a.at(&inner)
    })
}

fn permute(_: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let rank = a.shape.len();
    let axes: Vec<usize> =
        (0..rank).map(|axis| if n.is_multiple_of(2) { (axis + 1) % rank } else { rank - 1 - axis }).collect();
    vec![(x.permute(&axes), permuted(a, &axes))]
}

fn transpose(_: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let rank = a.shape.len();
    let (Some(one), Some(two)) = (an_axis(&a.shape, n), an_axis(&a.shape, n + 1)) else { return vec![] };
    let mut axes: Vec<usize> = (0..rank).collect();
    axes.swap(one, two);
    vec![(x.transpose(one as isize, signed(two, rank, 1)), permuted(a, &axes))]
}

fn unsqueeze(_: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let at = n % (a.shape.len() + 1);
    let mut shape = a.shape.clone();
    shape.insert(at, 1);
    let axis = if n.is_multiple_of(2) { at as isize } else { at as isize - shape.len() as isize };
    vec![(x.unsqueeze(axis), Array { shape, ..a.clone() })]
}

fn expand(_: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let mut shape: Vec<usize> = a.shape.iter().map(|&len| if len == 1 { n % 4 } else { len }).collect();
    if shape.iter().product::<usize>() < 100 {
        shape.insert(0, n % 3 + 1);
    }
    let expected = Array::build(a.dtype, &shape, |index| a.at(index));
    vec![(x.expand(&shape), expected)]
}

fn slice(_: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let Some(axis) = an_axis(&a.shape, n) else { return vec![] };
    let (len, signed) = (a.shape[axis], signed(axis, a.shape.len(), n));
    let (start, step) = (n % 3, n % 4 + 1);
    let count = len.saturating_sub(start).div_ceil(step);
    let expected = along(a, axis, count, |i| start + step * i);
    vec![(x.slice_step(signed, start as isize.., step as isize), expected)]
}

fn slice_backwards(_: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let Some(axis) = an_axis(&a.shape, n) else { return vec![] };
    let (len, signed) = (a.shape[axis], signed(axis, a.shape.len(), n));
    let (cut, step) = (n % 3, n % 4 + 1);
    let end = len.saturating_sub(cut);
    let range = if cut == 0 { isize::MAX } else { -(cut as isize) };
    let expected = along(a, axis, end.div_ceil(step), |i| end - 1 - step * i);
    vec![(x.slice_step(signed, ..range, -(step as isize)), expected)]
}

fn flip(_: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let Some(axis) = an_axis(&a.shape, n) else { return vec![] };
    let len = a.shape[axis];
    vec![(x.flip(signed(axis, a.shape.len(), n)), along(a, axis, len, |i| len - 1 - i))]
}

fn pad(_: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let widths: Vec<(usize, usize)> = (0..a.shape.len()).map(|axis| ((n + axis) % 3, (n + 2 * axis) % 2)).collect();
    let shape: Vec<usize> = widths.iter().zip(&a.shape).map(|(&(before, after), &len)| before + len + after).collect();
    let value = if a.dtype == DType::Bool { 1.0 } else { 7.0 };
    let expected = Array::build(a.dtype, &shape, |index| {
        let inner = index.iter().zip(&widths).zip(&a.shape);
        let inner: Option<Vec<usize>> =
            inner.map(|((&i, &(before, _)), &len)| i.checked_sub(before).filter(|&i| i < len)).collect();
        inner.map_or(Num::of(a.dtype, value), |inner| a.at(&inner))
    });
    vec![(x.pad(&widths, value), expected)]
}

fn concat(s: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let Some(axis) = an_axis(&a.shape, n) else { return vec![] };
    let mut other = a.shape.clone();
    other[axis] = n % 4;
    let (y, b) = s.input(&other, Layout::Reversed, a.dtype, Fill::Special);
    let parts: [(&Tensor, &Array); 3] = [(x, a), (&y, &b), (x, a)];
    let mut shape = a.shape.clone();
    shape[axis] = parts.iter().map(|(_, part)| part.shape[axis]).sum();
    let expected = Array::build(a.dtype, &shape, |index| {
        let mut inner = index.to_vec();
        for (_, part) in parts {
            if inner[axis] < part.shape[axis] {
                // Not `at`, which broadcasts axes of length 1.
                let flat = inner.iter().zip(&part.shape).fold(0, |n, (&i, &len)| n * len + i);
                return part.data[flat];
            }
            inner[axis] -= part.shape[axis];
        }
        unreachable!("beyond all parts")
    });
    vec![(Tensor::concat(&parts.map(|(tensor, _)| tensor), signed(axis, a.shape.len(), n)), expected)]
}

fn stack(s: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let (y, b) = s.input(&a.shape, Layout::Transposed, a.dtype, Fill::Special);
    let axis = n % (a.shape.len() + 1);
    let mut shape = a.shape.clone();
    shape.insert(axis, 2);
    let expected = Array::build(a.dtype, &shape, |index| {
        let mut inner = index.to_vec();
        if inner.remove(axis) == 0 { a.at(&inner) } else { b.at(&inner) }
    });
    vec![(Tensor::stack(&[x, &y], signed(axis, shape.len(), n)), expected)]
}

fn split(_: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let Some(axis) = an_axis(&a.shape, n) else { return vec![] };
    let (len, size) = (a.shape[axis], [1, 2, 3, 500, usize::MAX][if a.shape[axis] > 9 { 3 } else { n % 5 }]);
    let pieces = x.split(size, signed(axis, a.shape.len(), n));
    let starts: Vec<usize> = (0..len.div_ceil(size).max(1)).map(|n| n * size).collect();
    assert_eq!(pieces.len(), starts.len(), "pieces of {size} of {len}");
    let expected = starts.iter().map(|&start| along(a, axis, size.min(len - start), |i| start + i));
    pieces.into_iter().zip(expected).collect()
}

fn split_sizes(_: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let Some(axis) = an_axis(&a.shape, n) else { return vec![] };
    let len = a.shape[axis];
    let cut = len.min(n % 4);
    let sizes = [cut, 0, len - cut];
    let pieces = x.split_sizes(&sizes, signed(axis, a.shape.len(), n));
    assert_eq!(pieces.len(), 3);
    let expected = [0, cut, cut].into_iter().zip(sizes).map(|(start, size)| along(a, axis, size, move |i| start + i));
    pieces.into_iter().zip(expected).collect()
}

/// The diagonals of the last two axes, as einsum takes them.
fn diagonal(_: &mut Sweep, x: &Tensor, a: &Array, _: usize) -> Vec<(Tensor, Array)> {
    let [lead @ .., rows, columns] = &a.shape[..] else { return vec![] };
    let len = *rows.min(columns);
    let square = x.slice(-1, ..len as isize).slice(-2, ..len as isize);
    let expected = Array::build(a.dtype, &[lead, &[len]].concat(), |index| {
        let n = index[index.len() - 1];
        a.at(&[&index[..index.len() - 1], &[n, n]].concat())
    });
    vec![(Tensor::einsum("...ii->...i", &[&square]), expected)]
}

fn triangle(x: &Tensor, a: &Array, n: usize, lower: bool) -> Vec<(Tensor, Array)> {
    if a.shape.len() < 2 {
        return vec![];
    }
    let k = [0, 1, -1, 2, isize::MAX, isize::MIN][n % 6];
    let expected = Array::build(a.dtype, &a.shape, |index| {
        let [.., i, j] = index[..] else { unreachable!("two axes at least") };
        let off = j as i128 - i as i128;
        let kept = if lower { off <= k as i128 } else { off >= k as i128 };
        if kept { a.at(index) } else { Num::of(a.dtype, 0.0) }
    });
    vec![(if lower { x.tril(k) } else { x.triu(k) }, expected)]
}

fn masked_fill(s: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let (mask, m) = s.input(&partner(&a.shape, n % 4), Layout::Reversed, DType::Bool, Fill::Small);
    let value = if a.dtype == DType::Bool { 1.0 } else { 7.0 };
    let fill = Num::of(a.dtype, value);
    let expected = Array::build(a.dtype, &a.shape, |i| if m.at(i).int() != 0 { fill } else { a.at(i) });
    vec![(x.masked_fill(&mask, value), expected)]
}

fn select(s: &mut Sweep, x: &Tensor, a: &Array, n: usize) -> Vec<(Tensor, Array)> {
    let (mask, m) = s.input(&partner(&a.shape, n % 4), Layout::Stepped, DType::Bool, Fill::Small);
    let (y, b) = s.input(&partner(&a.shape, n / 4 % 4), Layout::Transposed, a.dtype, Fill::Special);
    let expected = Array::build(a.dtype, &a.shape, |i| if m.at(i).int() != 0 { a.at(i) } else { b.at(i) });
    vec![(mask.select(x, &y), expected)]
}
