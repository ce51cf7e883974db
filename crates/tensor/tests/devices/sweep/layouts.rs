//! Shapes and memory layouts of inputs.

use bornite::{DType, Device, Tensor};

use super::array::{Array, Num};

/// Memory layout of an input. All but `Plain` and `Joined` are views.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    /// In order.
    Plain,
    /// Axes in reverse order.
    Transposed,
    /// The first axis last.
    Rotated,
    /// Every other element of every axis.
    Stepped,
    /// Every axis backwards.
    Reversed,
    /// Every other element of every axis, backwards.
    BackwardSteps,
    /// The middle of a larger tensor.
    Narrow,
    /// Every other axis is expanded from one element, starting with the first axis.
    RepeatedRows,
    /// As above, starting with the second axis.
    RepeatedColumns,
    /// A shape that strides cannot describe: a transposed tensor, reshaped.
    Reshaped,
    /// A concatenation of two pieces: not a view, but a computed value.
    Joined,
}

use Layout::*;

/// The shapes and layouts under test.
pub const CASES: [(&[usize], Layout); 31] = [
    (&[], Plain),
    (&[], Narrow),
    (&[0], Plain),
    (&[0, 3], Plain),
    (&[3, 0], Transposed),
    (&[2, 0, 5], Stepped),
    (&[1], Plain),
    (&[1, 1, 1], RepeatedRows),
    (&[2], Plain),
    (&[7], Plain),
    (&[7], Stepped),
    (&[7], Reversed),
    (&[9], BackwardSteps),
    (&[33], Narrow),
    (&[5], RepeatedRows),
    (&[3, 5], Plain),
    (&[5, 3], Transposed),
    (&[4, 7], Stepped),
    (&[4, 7], Reversed),
    (&[3, 5], RepeatedRows),
    (&[5, 3], RepeatedColumns),
    (&[1, 9], Narrow),
    (&[6, 4], Reshaped),
    (&[5, 4], Joined),
    (&[2, 3, 4], Plain),
    (&[2, 3, 4], Rotated),
    (&[3, 1, 5], Transposed),
    (&[2, 3, 5], BackwardSteps),
    (&[2, 3, 2, 2], Rotated),
    (&[2, 768], Plain),
    (&[768, 2], Transposed),
];

/// A tensor of a layout, and its elements: those of `fill`, in order.
pub fn input(
    shape: &[usize],
    layout: Layout,
    dtype: DType,
    device: Device,
    fill: &mut dyn FnMut() -> Num,
) -> (Tensor, Array) {
    let (first, step) = match layout {
        RepeatedRows => (0, 2),
        RepeatedColumns => (1, 2),
        _ => (shape.len(), 1),
    };
    let mut own = shape.to_vec();
    for axis in (first..shape.len()).step_by(step) {
        own[axis] = own[axis].min(1);
    }
    let base = Array::build(dtype, &own, |_| fill());
    let array = Array::build(dtype, shape, |index| base.at(index));
    let tensor = lay(&array, &base, layout, device, fill);
    (tensor, array)
}

/// A tensor of a layout with the elements of an array. (Layouts that repeat elements are contiguous
/// here.)
pub fn lay_out(array: &Array, layout: Layout, device: Device) -> Tensor {
    lay(array, array, layout, device, &mut || Num::of(array.dtype, 1.0))
}

fn lay(array: &Array, base: &Array, layout: Layout, device: Device, fill: &mut dyn FnMut() -> Num) -> Tensor {
    let (shape, rank) = (&array.shape, array.shape.len());
    // A larger base tensor: elements of the array where `position` returns an index for every axis,
    // other values elsewhere.
    let mut spread = |lengths: &dyn Fn(usize) -> usize, position: &dyn Fn(usize, usize) -> Option<usize>| {
        let outer: Vec<usize> = shape.iter().map(|&len| lengths(len)).collect();
        let build = |index: &[usize]| {
            let inner: Option<Vec<usize>> = index.iter().zip(shape).map(|(&i, &len)| position(i, len)).collect();
            inner.map_or_else(&mut *fill, |inner| array.at(&inner))
        };
        Array::build(array.dtype, &outer, build).tensor(device)
    };
    let each = |start: Tensor, f: &dyn Fn(Tensor, isize) -> Tensor| (0..rank as isize).fold(start, f);
    match layout {
        Plain => array.tensor(device),
        Transposed => permuted(array, &(0..rank).rev().collect::<Vec<_>>(), device),
        Rotated => permuted(array, &(0..rank).map(|n| (n + 1) % rank.max(1)).collect::<Vec<_>>(), device),
        Stepped => {
            let base = spread(&|len| 2 * len + 1, &|i, _| (i % 2 == 1).then_some(i / 2));
            each(base, &|t, axis| t.slice_step(axis, 1.., 2))
        }
        Reversed => {
            let base = spread(&|len| len, &|i, len| Some(len - 1 - i));
            each(base, &|t, axis| if axis % 2 == 0 { t.flip(axis) } else { t.slice_step(axis, .., -1) })
        }
        BackwardSteps => {
            let base = spread(&|len| 2 * len, &|i, len| (i % 2 == 1).then(|| len - 1 - i / 2));
            each(base, &|t, axis| t.slice_step(axis, .., -2))
        }
        Narrow if rank == 0 => {
            let mut data = vec![array.data[0]; 3];
            (data[0], data[2]) = (fill(), fill());
            Array { dtype: array.dtype, shape: vec![3], data }.tensor(device).slice(0, 1..2).reshape(&[])
        }
        Narrow => {
            let base = spread(&|len| len + 3, &|i, len| i.checked_sub(1).filter(|&i| i < len));
            each(base, &|t, axis| t.slice(axis, 1..).slice(axis, ..-2))
        }
        RepeatedRows | RepeatedColumns => base.tensor(device).expand(shape),
        Reshaped => {
            let total: usize = shape.iter().product();
            let rows = (2..=total).find(|d| total.is_multiple_of(*d)).unwrap_or(1);
            let columns = total.checked_div(rows).unwrap_or(0);
            let base = Array::build(array.dtype, &[columns, rows], |i| array.data[i[1] * columns + i[0]]);
            base.tensor(device).transpose(0, 1).reshape(shape)
        }
        Joined if rank == 0 => array.tensor(device),
        Joined => {
            let whole = array.tensor(device);
            let half = (shape[0] / 2) as isize;
            Tensor::concat(&[&whole.slice(0, ..half), &whole.slice(0, half..)], 0)
        }
    }
}

/// Memory in the order of `axes` reversed, so that `permute(axes)` gives the array.
fn permuted(array: &Array, axes: &[usize], device: Device) -> Tensor {
    let mut inner = vec![0; axes.len()];
    for (n, &axis) in axes.iter().enumerate() {
        inner[axis] = array.shape[n];
    }
    let base = Array::build(array.dtype, &inner, |index| array.at(&axes.iter().map(|&a| index[a]).collect::<Vec<_>>()));
    base.tensor(device).permute(axes)
}
