//! Indexing: slices, padding, concatenation, gather and scatter, sorting, and index tensors.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bornite_ir::{Op as ScalarOp, Value};

use crate::graph::axes::resolve_axis;
use crate::graph::node::{AxisSlice, Node, Op, Reduce};
use crate::ops::pointwise::map;
use crate::{DType, Device, SourceLocation, Tensor};

impl Tensor {
    /// Elements `range` of an axis; negative bounds count from the end; bounds are clamped to the
    /// axis.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1i32, 2, 3, 4, 5], &[5], Device::cpu());
    /// assert_eq!(x.slice(0, 1..-1).to_vec::<i32>()?, [2, 3, 4]);
    /// assert_eq!(x.slice_step(0, .., -2).to_vec::<i32>()?, [5, 3, 1]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn slice(&self, axis: isize, range: impl RangeBounds<isize>) -> Tensor {
        self.slice_at(axis, (range.start_bound().cloned(), range.end_bound().cloned()), 1, SourceLocation::here())
    }

    /// Every `step`-th element of `range` of an axis; a negative step starts from the range's end.
    #[track_caller]
    pub fn slice_step(&self, axis: isize, range: impl RangeBounds<isize>, step: isize) -> Tensor {
        self.slice_at(axis, (range.start_bound().cloned(), range.end_bound().cloned()), step, SourceLocation::here())
    }

    fn slice_at(
        &self,
        axis: isize,
        range: (Bound<isize>, Bound<isize>),
        step: isize,
        location: SourceLocation,
    ) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let axis = match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => axis,
            Err(message) => return Tensor::failed_at("slice", message, location),
        };
        if step == 0 {
            return Tensor::failed_at("slice", "the step must not be 0".into(), location);
        }
        let len = node.shape[axis] as isize;
        // Clamped after adding 1, so that a bound before the first element stays before it.
        let from_start = |n: isize, beyond: isize| {
            let n = if n < 0 { n.saturating_add(len) } else { n };
            n.saturating_add(beyond).clamp(0, len)
        };
        let start = match range.0 {
            Bound::Included(n) => from_start(n, 0),
            Bound::Excluded(n) => from_start(n, 1),
            Bound::Unbounded => 0,
        };
        let end = match range.1 {
            Bound::Included(n) => from_start(n, 1),
            Bound::Excluded(n) => from_start(n, 0),
            Bound::Unbounded => len,
        };
        let count = (end - start).max(0) as usize;
        let taken = count.div_ceil(step.unsigned_abs());
        let first = if step > 0 { start } else { end - 1 };
        let mut slices: Vec<AxisSlice> = node.shape.iter().map(|&len| AxisSlice::full(len)).collect();
        slices[axis] = AxisSlice { start: if taken == 0 { 0 } else { first as usize }, step, len: taken };
        Tensor::build(Op::Slice(slices), vec![self.clone()], location)
    }

    /// Reverses an axis.
    #[track_caller]
    pub fn flip(&self, axis: isize) -> Tensor {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return self.clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => self.flip_at(axis, location),
            Err(message) => Tensor::failed_at("flip", message, location),
        }
    }

    /// Pads each axis with `value`: (before, after) counts per axis.
    #[track_caller]
    pub fn pad(&self, widths: &[(usize, usize)], value: f64) -> Tensor {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return self.clone() };
        if widths.len() != node.shape.len() {
            let message =
                format!("the number of width pairs is {}, expected {} (one per axis)", widths.len(), node.shape.len());
            return Tensor::failed_at("pad", message, location);
        }
        let slices =
            widths.iter().zip(&node.shape).map(|(&(start, _), &len)| AxisSlice { start, step: 1, len }).collect();
        let sizes = widths
            .iter()
            .zip(&node.shape)
            .map(|(&(before, after), &len)| before.checked_add(after).and_then(|n| n.checked_add(len)));
        match sizes.collect() {
            Some(shape) => {
                let fill = Value::from_f64(node.dtype, value);
                if !node.dtype.is_float() && fill.as_f64() != value {
                    let message = format!("{value} is not representable in {}; cast the tensor first", node.dtype);
                    return Tensor::failed_at("pad", message, location);
                }
                Tensor::build(Op::Pad(slices, shape, fill), vec![self.clone()], location)
            }
            None => Tensor::failed_at("pad", "more elements than memory can hold".into(), location),
        }
    }

    /// Concatenates tensors along an axis.
    #[track_caller]
    pub fn concat(tensors: &[&Tensor], axis: isize) -> Tensor {
        let location = SourceLocation::here();
        let Some(first) = tensors.first() else {
            return Tensor::failed_at("concat", "expected at least one tensor".into(), location);
        };
        let Ok(node) = first.node() else { return (*first).clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => Tensor::build(Op::Concat(axis), tensors.iter().map(|&t| t.clone()).collect(), location),
            Err(message) => Tensor::failed_at("concat", message, location),
        }
    }

    /// Stacks tensors of one shape along a new axis.
    #[track_caller]
    pub fn stack(tensors: &[&Tensor], axis: isize) -> Tensor {
        let mut unsqueezed = vec![];
        // Not a closure: `track_caller` does not work through one.
        for tensor in tensors {
            unsqueezed.push(tensor.unsqueeze(axis));
        }
        Tensor::concat(&unsqueezed.iter().collect::<Vec<_>>(), axis)
    }

    /// Splits an axis into pieces of `size`; the last may be shorter.
    #[track_caller]
    pub fn split(&self, size: usize, axis: isize) -> Vec<Tensor> {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return vec![self.clone()] };
        let axis = match resolve_axis(axis, node.shape.len()) {
            Ok(axis) if size > 0 => axis,
            Ok(_) => return vec![Tensor::failed_at("split", "the size of a piece must not be 0".into(), location)],
            Err(message) => return vec![Tensor::failed_at("split", message, location)],
        };
        // Clamped to the length of the axis.
        let size = size.min(node.shape[axis].max(1));
        let pieces = node.shape[axis].div_ceil(size).max(1);
        let piece = |n: usize| {
            let (start, end) = ((n * size) as isize, ((n + 1) * size) as isize);
            self.slice_at(axis as isize, (Bound::Included(start), Bound::Excluded(end)), 1, location)
        };
        (0..pieces).map(piece).collect()
    }

    /// Splits an axis into pieces of these sizes, which must add up to its length.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1i32, 2, 3, 4, 5, 6], &[6], Device::cpu());
    /// let pieces = x.split_sizes(&[1, 3, 2], 0);
    /// assert_eq!(pieces[1].to_vec::<i32>()?, [2, 3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn split_sizes(&self, sizes: &[usize], axis: isize) -> Vec<Tensor> {
        let location = SourceLocation::here();
        let failed = |message: String| vec![Tensor::failed_at("split_sizes", message, location); sizes.len().max(1)];
        let Ok(node) = self.node() else { return vec![self.clone(); sizes.len().max(1)] };
        let axis = match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => axis,
            Err(message) => return failed(message),
        };
        let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        if sizes.is_empty() || total != Some(node.shape[axis]) {
            let message = format!("sizes {sizes:?} do not add up to axis {axis} of {:?}", node.shape);
            return failed(message);
        }
        let mut start = 0;
        let piece = |&size: &usize| {
            let range = (Bound::Included(start as isize), Bound::Excluded((start + size) as isize));
            start += size;
            self.slice_at(axis as isize, range, 1, location)
        };
        sizes.iter().map(piece).collect()
    }

    /// `out[.., i, ..] = self[.., index[.., i, ..], ..]`: selects elements along an axis by an
    /// index tensor, whose shape may differ along that axis only. An index out of range is an error
    /// of the read.
    #[track_caller]
    pub fn gather(&self, axis: isize, index: &Tensor) -> Tensor {
        self.gather_at(axis, index, SourceLocation::here())
    }

    fn gather_at(&self, axis: isize, index: &Tensor, location: SourceLocation) -> Tensor {
        let (Ok(node), Ok(_)) = (self.node(), index.node()) else {
            return if self.node().is_err() { self.clone() } else { index.clone() };
        };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => Tensor::build(Op::Gather(axis), vec![self.clone(), index.clone()], location),
            Err(message) => Tensor::failed_at("gather", message, location),
        }
    }

    /// Selects slices along an axis by a one-dimensional index tensor.
    #[track_caller]
    pub fn index_select(&self, axis: isize, index: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        let (Ok(node), Ok(list)) = (self.node(), index.node()) else {
            return if self.node().is_err() { self.clone() } else { index.clone() };
        };
        match (resolve_axis(axis, node.shape.len()), &list.shape[..]) {
            (Ok(axis), [count]) => {
                let mut shape = vec![1; node.shape.len()];
                shape[axis] = *count;
                let mut output = node.shape.clone();
                output[axis] = *count;
                let index = index.reshape_at(&shape, location).broadcast_to(&output, location);
                self.gather_at(axis as isize, &index, location)
            }
            (Err(message), _) => Tensor::failed_at("index_select", message, location),
            (_, shape) => Tensor::failed_at(
                "index_select",
                format!("expected indices with one axis, found shape {shape:?}"),
                location,
            ),
        }
    }

    /// Looks up rows of this table by index: `out[.., :] = self[index[..], :]`.
    #[track_caller]
    pub fn embedding(&self, index: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        let (Ok(table), Ok(list)) = (self.node(), index.node()) else {
            return if self.node().is_err() { self.clone() } else { index.clone() };
        };
        let [_, width] = table.shape[..] else {
            let message = format!("expected a table with two axes, found shape {:?}", table.shape);
            return Tensor::failed_at("embedding", message, location);
        };
        let count: usize = list.shape.iter().product();
        let flat = index.reshape_at(&[count, 1], location).broadcast_to(&[count, width], location);
        let shape = [&list.shape[..], &[width]].concat();
        self.gather_at(0, &flat, location).reshape_at(&shape, location)
    }

    /// This tensor with each of `values` added at its index along an axis. Values added to one
    /// element are summed in order, in blocks of 64: the result is bitwise identical on every
    /// device.
    #[track_caller]
    pub fn scatter_add(&self, axis: isize, index: &Tensor, values: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return self.clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => {
                let inputs = vec![self.clone(), index.clone(), values.clone()];
                Tensor::build(Op::ScatterAdd(axis), inputs, location)
            }
            Err(message) => Tensor::failed_at("scatter_add", message, location),
        }
    }

    /// Replaces elements by `value` where `mask` (bool, broadcast) is true.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: f64) -> Tensor {
        let location = SourceLocation::here();
        map(ScalarOp::Select, &[mask, &self.scalar_like(value, location), self], location)
    }

    /// Index of the largest element along an axis, which is removed: the first of equal ones, or
    /// the first NaN.
    #[track_caller]
    pub fn argmax(&self, axis: isize) -> Tensor {
        self.arg_reduce(Reduce::Max, axis, SourceLocation::here())
    }

    /// Index of the smallest element along an axis, which is removed: the first of equal ones, or
    /// the first NaN.
    #[track_caller]
    pub fn argmin(&self, axis: isize) -> Tensor {
        self.arg_reduce(Reduce::Min, axis, SourceLocation::here())
    }

    fn arg_reduce(&self, reduce: Reduce, axis: isize, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => Tensor::build(Op::ArgReduce(reduce, axis), vec![self.clone()], location),
            Err(message) => Tensor::failed_at(Op::ArgReduce(reduce, 0).name(), message, location),
        }
    }

    /// Cumulative sum along an axis.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Tensor {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return self.clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => Tensor::build(Op::Cumsum(axis), vec![self.clone()], location),
            Err(message) => Tensor::failed_at("cumsum", message, location),
        }
    }

    /// Indices (i64) that sort an axis. The sort is stable; NaN counts as largest.
    #[track_caller]
    pub fn argsort(&self, axis: isize, descending: bool) -> Tensor {
        self.argsort_at(axis, descending, SourceLocation::here())
    }

    fn argsort_at(&self, axis: isize, descending: bool, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => Tensor::build(Op::ArgSort { axis, descending }, vec![self.clone()], location),
            Err(message) => Tensor::failed_at("argsort", message, location),
        }
    }

    /// Sorts an axis; returns the elements and their indices.
    #[track_caller]
    pub fn sort(&self, axis: isize, descending: bool) -> (Tensor, Tensor) {
        let location = SourceLocation::here();
        let order = self.argsort_at(axis, descending, location);
        (self.gather_at(axis, &order, location), order)
    }

    /// The `k` largest elements of an axis in descending order, and their indices.
    #[track_caller]
    pub fn topk(&self, k: usize, axis: isize) -> (Tensor, Tensor) {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return (self.clone(), self.clone()) };
        let length = resolve_axis(axis, node.shape.len()).map(|axis| node.shape[axis]);
        if length.as_ref().is_ok_and(|&len| len < k) {
            let failed = Tensor::failed_at(
                "topk",
                format!("k is {k} but the axis has length {}", length.unwrap_or(0)),
                location,
            );
            return (failed.clone(), failed);
        }
        let order = self.argsort_at(axis, true, location);
        let order = order.slice_at(axis, (Bound::Included(0), Bound::Excluded(k as isize)), 1, location);
        (self.gather_at(axis, &order, location), order)
    }

    /// The numbers 0, 1, …, `n` - 1.
    #[track_caller]
    pub fn arange(n: usize, dtype: DType, device: Device) -> Tensor {
        Tensor::iota(&[n], 0, dtype, device, SourceLocation::here())
    }

    /// A tensor that holds the index along an axis.
    pub(crate) fn iota(shape: &[usize], axis: usize, dtype: DType, device: Device, location: SourceLocation) -> Tensor {
        match crate::graph::tensor::elements_of(shape, dtype) {
            Ok(_) => {
                let op = Op::Iota { axis };
                Tensor(Arc::new(Node::new(op, dtype, shape.to_vec(), device, vec![], location)))
            }
            Err(message) => Tensor::failed_at("arange", message, location),
        }
    }

    /// `n` evenly spaced numbers from `start` to `end`, both included.
    #[track_caller]
    pub fn linspace(start: f64, end: f64, n: usize, dtype: DType, device: Device) -> Tensor {
        let location = SourceLocation::here();
        if !dtype.is_float() {
            return Tensor::failed_at("linspace", format!("expects a float dtype, found {dtype}"), location);
        }
        let steps = Tensor::iota(&[n], 0, DType::F64, device, location);
        let step = if n > 1 { (end - start) / (n - 1) as f64 } else { 0.0 };
        // The first half from the start, the second from the end: both ends are exact.
        let number = |value: f64| steps.scalar_like(value, location);
        let rest = map(ScalarOp::Sub, &[&number(n.saturating_sub(1) as f64), &steps], location);
        let from_start = map(ScalarOp::Fma, &[&steps, &number(step), &number(start)], location);
        let from_end = map(ScalarOp::Fma, &[&rest, &number(-step), &number(end)], location);
        let early = map(ScalarOp::Le, &[&steps, &rest], location);
        let all = map(ScalarOp::Select, &[&early, &from_start, &from_end], location);
        Tensor::build(Op::Cast(dtype), vec![all], location)
    }

    /// The identity matrix of size `n`.
    #[track_caller]
    pub fn eye(n: usize, dtype: DType, device: Device) -> Tensor {
        let location = SourceLocation::here();
        let [rows, columns] = [0, 1].map(|axis| Tensor::iota(&[n, n], axis, DType::I64, device, location));
        Tensor::build(Op::Cast(dtype), vec![map(ScalarOp::Eq, &[&rows, &columns], location)], location)
    }

    /// One-hot encoding of indices along a new last axis of length `classes`.
    #[track_caller]
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Tensor {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return self.clone() };
        if !node.dtype.is_int() {
            return Tensor::failed_at("one_hot", format!("indices must be integers, found {}", node.dtype), location);
        }
        let shape = [&node.shape[..], &[classes]].concat();
        // As i64: there may be more classes than the dtype of the indices can represent.
        let indices = Tensor::iota(&shape, node.shape.len(), DType::I64, node.device, location);
        let values = Tensor::build(Op::Cast(DType::I64), vec![self.clone()], location);
        let values = values.reshape_at(&[&node.shape[..], &[1]].concat(), location).broadcast_to(&shape, location);
        Tensor::build(Op::Cast(dtype), vec![map(ScalarOp::Eq, &[&indices, &values], location)], location)
    }

    /// Lower triangle of the last two axes: 0 above the `k`-th diagonal.
    #[track_caller]
    pub fn tril(&self, k: isize) -> Tensor {
        self.triangle("tril", ScalarOp::Le, k, SourceLocation::here())
    }

    /// Upper triangle of the last two axes: 0 below the `k`-th diagonal.
    #[track_caller]
    pub fn triu(&self, k: isize) -> Tensor {
        self.triangle("triu", ScalarOp::Ge, k, SourceLocation::here())
    }

    fn triangle(&self, name: &'static str, keep: ScalarOp, k: isize, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let [.., rows, columns] = node.shape[..] else {
            return Tensor::failed_at(
                name,
                format!("expects at least two axes, found shape {:?}", node.shape),
                location,
            );
        };
        let [i, j] = [0, 1].map(|axis| Tensor::iota(&[rows, columns], axis, DType::I64, node.device, location));
        // Clamped to the corners, so that the sum does not overflow.
        let k = (k as i128).clamp(-(rows as i128), columns as i128);
        let diagonal = map(ScalarOp::Add, &[&i, &i.scalar_like(k as f64, location)], location);
        let mask = map(keep, &[&j, &diagonal], location);
        map(ScalarOp::Select, &[&mask, self, &self.scalar_like(0.0, location)], location)
    }
}
