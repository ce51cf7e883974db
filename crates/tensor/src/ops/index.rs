//! Choosing elements: slices, padding, joining, indices, order. Each is a view, one node, or a function over such.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bornite_ir::{Op as Row, Value};

use crate::graph::axes::resolve_axis;
use crate::graph::node::{Cut, Node, Op, Reduce};
use crate::ops::pointwise::map;
use crate::{DType, Device, Place, Tensor};

impl Tensor {
    /// Elements `range` of an axis; negative bounds count from the end, bounds beyond it are cut off.
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
        self.slice_at(axis, (range.start_bound().cloned(), range.end_bound().cloned()), 1, Place::here())
    }

    /// Every `step`-th element of `range` of an axis; a negative step starts from the range's end.
    #[track_caller]
    pub fn slice_step(&self, axis: isize, range: impl RangeBounds<isize>, step: isize) -> Tensor {
        self.slice_at(axis, (range.start_bound().cloned(), range.end_bound().cloned()), step, Place::here())
    }

    fn slice_at(&self, axis: isize, range: (Bound<isize>, Bound<isize>), step: isize, place: Place) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let axis = match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => axis,
            Err(what) => return Tensor::failed("slice", what, place),
        };
        if step == 0 {
            return Tensor::failed("slice", "a step of 0 goes nowhere".into(), place);
        }
        let len = node.shape[axis] as isize;
        // Cut off after the one is added, so that what lies before the first element stays there.
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
        let mut cuts: Vec<Cut> = node.shape.iter().map(|&len| Cut::whole(len)).collect();
        cuts[axis] = Cut { start: if taken == 0 { 0 } else { first as usize }, step, len: taken };
        Tensor::build(Op::Slice(cuts), vec![self.clone()], place)
    }

    /// An axis in reverse.
    #[track_caller]
    pub fn flip(&self, axis: isize) -> Tensor {
        let place = Place::here();
        let Ok(node) = self.node() else { return self.clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => self.flip_at(axis, place),
            Err(what) => Tensor::failed("flip", what, place),
        }
    }

    /// So many elements of `value` before and after each axis.
    #[track_caller]
    pub fn pad(&self, widths: &[(usize, usize)], value: f64) -> Tensor {
        let place = Place::here();
        let Ok(node) = self.node() else { return self.clone() };
        if widths.len() != node.shape.len() {
            let what = format!("{} pairs of widths for {} axes", widths.len(), node.shape.len());
            return Tensor::failed("pad", what, place);
        }
        let cuts = widths.iter().zip(&node.shape).map(|(&(start, _), &len)| Cut { start, step: 1, len }).collect();
        let sizes = widths
            .iter()
            .zip(&node.shape)
            .map(|(&(before, after), &len)| before.checked_add(after).and_then(|n| n.checked_add(len)));
        match sizes.collect() {
            Some(shape) => {
                let fill = Value::from_f64(node.dtype, value);
                if !node.dtype.is_float() && fill.as_f64() != value {
                    let what = format!("{value} is not a value of {}; cast the tensor first", node.dtype);
                    return Tensor::failed("pad", what, place);
                }
                Tensor::build(Op::Pad(cuts, shape, fill), vec![self.clone()], place)
            }
            None => Tensor::failed("pad", "more elements than memory can hold".into(), place),
        }
    }

    /// Tensors one after the other along an axis.
    #[track_caller]
    pub fn concat(tensors: &[&Tensor], axis: isize) -> Tensor {
        let place = Place::here();
        let Some(first) = tensors.first() else {
            return Tensor::failed("concat", "there is nothing to join".into(), place);
        };
        let Ok(node) = first.node() else { return (*first).clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => Tensor::build(Op::Concat(axis), tensors.iter().map(|&t| t.clone()).collect(), place),
            Err(what) => Tensor::failed("concat", what, place),
        }
    }

    /// Tensors of one shape side by side along a new axis.
    #[track_caller]
    pub fn stack(tensors: &[&Tensor], axis: isize) -> Tensor {
        let mut unsqueezed = vec![];
        // Not a closure, in which the caller's line would be lost.
        for tensor in tensors {
            unsqueezed.push(tensor.unsqueeze(axis));
        }
        Tensor::concat(&unsqueezed.iter().collect::<Vec<_>>(), axis)
    }

    /// Pieces of `size` along an axis; the last may be shorter.
    #[track_caller]
    pub fn split(&self, size: usize, axis: isize) -> Vec<Tensor> {
        let place = Place::here();
        let Ok(node) = self.node() else { return vec![self.clone()] };
        let axis = match resolve_axis(axis, node.shape.len()) {
            Ok(axis) if size > 0 => axis,
            Ok(_) => return vec![Tensor::failed("split", "pieces of 0 elements".into(), place)],
            Err(what) => return vec![Tensor::failed("split", what, place)],
        };
        // A larger piece than there is has the whole.
        let size = size.min(node.shape[axis].max(1));
        let pieces = node.shape[axis].div_ceil(size).max(1);
        let piece = |n: usize| {
            let (start, end) = ((n * size) as isize, ((n + 1) * size) as isize);
            self.slice_at(axis as isize, (Bound::Included(start), Bound::Excluded(end)), 1, place)
        };
        (0..pieces).map(piece).collect()
    }

    /// Pieces of these sizes along an axis, which together have its length.
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
        let place = Place::here();
        let failed = |what: String| vec![Tensor::failed("split_sizes", what, place); sizes.len().max(1)];
        let Ok(node) = self.node() else { return vec![self.clone(); sizes.len().max(1)] };
        let axis = match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => axis,
            Err(what) => return failed(what),
        };
        let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        if sizes.is_empty() || total != Some(node.shape[axis]) {
            let what = format!("sizes {sizes:?} do not make up axis {axis} of {:?}", node.shape);
            return failed(what);
        }
        let mut start = 0;
        let piece = |&size: &usize| {
            let range = (Bound::Included(start as isize), Bound::Excluded((start + size) as isize));
            start += size;
            self.slice_at(axis as isize, range, 1, place)
        };
        sizes.iter().map(piece).collect()
    }

    /// `out[.., i, ..] = self[.., index[.., i, ..], ..]`: elements along an axis by an index tensor that has this one's
    /// shape but for that axis. A bad index is an error of the read.
    #[track_caller]
    pub fn gather(&self, axis: isize, index: &Tensor) -> Tensor {
        self.gather_at(axis, index, Place::here())
    }

    fn gather_at(&self, axis: isize, index: &Tensor, place: Place) -> Tensor {
        let (Ok(node), Ok(_)) = (self.node(), index.node()) else {
            return if self.node().is_err() { self.clone() } else { index.clone() };
        };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => Tensor::build(Op::Gather(axis), vec![self.clone(), index.clone()], place),
            Err(what) => Tensor::failed("gather", what, place),
        }
    }

    /// Whole slices along an axis, by a list of indices (a tensor of one axis).
    #[track_caller]
    pub fn index_select(&self, axis: isize, index: &Tensor) -> Tensor {
        let place = Place::here();
        let (Ok(node), Ok(list)) = (self.node(), index.node()) else {
            return if self.node().is_err() { self.clone() } else { index.clone() };
        };
        match (resolve_axis(axis, node.shape.len()), &list.shape[..]) {
            (Ok(axis), [count]) => {
                let mut shape = vec![1; node.shape.len()];
                shape[axis] = *count;
                let mut whole = node.shape.clone();
                whole[axis] = *count;
                let index = index.reshape_at(&shape, place).broadcast_to(&whole, place);
                self.gather_at(axis as isize, &index, place)
            }
            (Err(what), _) => Tensor::failed("index_select", what, place),
            (_, shape) => Tensor::failed("index_select", format!("indices have one axis, not shape {shape:?}"), place),
        }
    }

    /// Rows of this table by index: `out[.., :] = self[index[..], :]`.
    #[track_caller]
    pub fn embedding(&self, index: &Tensor) -> Tensor {
        let place = Place::here();
        let (Ok(table), Ok(list)) = (self.node(), index.node()) else {
            return if self.node().is_err() { self.clone() } else { index.clone() };
        };
        let [_, width] = table.shape[..] else {
            let what = format!("a table has two axes, not shape {:?}", table.shape);
            return Tensor::failed("embedding", what, place);
        };
        let count: usize = list.shape.iter().product();
        let flat = index.reshape_at(&[count, 1], place).broadcast_to(&[count, width], place);
        let shape = [&list.shape[..], &[width]].concat();
        self.gather_at(0, &flat, place).reshape_at(&shape, place)
    }

    /// This tensor with each of `values` added where `index` names along an axis. What is added to one element is summed in
    /// order, in parts of 64, and the parts in order: the bits are the same on every device.
    #[track_caller]
    pub fn scatter_add(&self, axis: isize, index: &Tensor, values: &Tensor) -> Tensor {
        let place = Place::here();
        let Ok(node) = self.node() else { return self.clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => {
                let inputs = vec![self.clone(), index.clone(), values.clone()];
                Tensor::build(Op::ScatterAdd(axis), inputs, place)
            }
            Err(what) => Tensor::failed("scatter_add", what, place),
        }
    }

    /// `value` where `mask` (of bools, broadcast) is true.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: f64) -> Tensor {
        let place = Place::here();
        map(Row::Select, &[mask, &self.scalar_like(value, place), self], place)
    }

    /// Where along an axis the largest element is: the first of equal ones, or the first NaN. The axis vanishes.
    #[track_caller]
    pub fn argmax(&self, axis: isize) -> Tensor {
        self.arg_reduce(Reduce::Max, axis, Place::here())
    }

    /// Where along an axis the smallest element is: the first of equal ones, or the first NaN. The axis vanishes.
    #[track_caller]
    pub fn argmin(&self, axis: isize) -> Tensor {
        self.arg_reduce(Reduce::Min, axis, Place::here())
    }

    fn arg_reduce(&self, reduce: Reduce, axis: isize, place: Place) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => Tensor::build(Op::ArgReduce(reduce, axis), vec![self.clone()], place),
            Err(what) => Tensor::failed(Op::ArgReduce(reduce, 0).name(), what, place),
        }
    }

    /// Running sums along an axis.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Tensor {
        let place = Place::here();
        let Ok(node) = self.node() else { return self.clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => Tensor::build(Op::Cumsum(axis), vec![self.clone()], place),
            Err(what) => Tensor::failed("cumsum", what, place),
        }
    }

    /// The order that sorts an axis: places in it, as i64. Equal elements keep their order; NaN counts as largest.
    #[track_caller]
    pub fn argsort(&self, axis: isize, descending: bool) -> Tensor {
        self.argsort_at(axis, descending, Place::here())
    }

    fn argsort_at(&self, axis: isize, descending: bool, place: Place) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => Tensor::build(Op::ArgSort { axis, descending }, vec![self.clone()], place),
            Err(what) => Tensor::failed("argsort", what, place),
        }
    }

    /// The sorted axis, and where its elements were.
    #[track_caller]
    pub fn sort(&self, axis: isize, descending: bool) -> (Tensor, Tensor) {
        let place = Place::here();
        let order = self.argsort_at(axis, descending, place);
        (self.gather_at(axis, &order, place), order)
    }

    /// The `k` largest elements of an axis in falling order, and where they were.
    #[track_caller]
    pub fn topk(&self, k: usize, axis: isize) -> (Tensor, Tensor) {
        let place = Place::here();
        let Ok(node) = self.node() else { return (self.clone(), self.clone()) };
        let length = resolve_axis(axis, node.shape.len()).map(|axis| node.shape[axis]);
        if length.as_ref().is_ok_and(|&len| len < k) {
            let failed = Tensor::failed("topk", format!("{k} of {} elements", length.unwrap_or(0)), place);
            return (failed.clone(), failed);
        }
        let order = self.argsort_at(axis, true, place);
        let order = order.slice_at(axis, (Bound::Included(0), Bound::Excluded(k as isize)), 1, place);
        (self.gather_at(axis, &order, place), order)
    }

    /// 0, 1, 2, … below `n`, of a dtype.
    #[track_caller]
    pub fn arange(n: usize, dtype: DType, device: Device) -> Tensor {
        Tensor::iota(&[n], 0, dtype, device, Place::here())
    }

    /// The place along an axis of a shape.
    pub(crate) fn iota(shape: &[usize], axis: usize, dtype: DType, device: Device, place: Place) -> Tensor {
        match crate::graph::tensor::elements_of(shape, dtype) {
            Ok(_) => {
                let op = Op::Iota { axis };
                Tensor(Arc::new(Node::new(op, dtype, shape.to_vec(), device, vec![], place)))
            }
            Err(what) => Tensor::failed("arange", what, place),
        }
    }

    /// `n` numbers from `start` to `end`, both included.
    #[track_caller]
    pub fn linspace(start: f64, end: f64, n: usize, dtype: DType, device: Device) -> Tensor {
        let place = Place::here();
        if !dtype.is_float() {
            return Tensor::failed("linspace", format!("expects a float dtype, found {dtype}"), place);
        }
        let steps = Tensor::iota(&[n], 0, DType::F64, device, place);
        let step = if n > 1 { (end - start) / (n - 1) as f64 } else { 0.0 };
        // The first half from the start, the second from the end: both ends are exact.
        let number = |value: f64| steps.scalar_like(value, place);
        let rest = map(Row::Sub, &[&number(n.saturating_sub(1) as f64), &steps], place);
        let from_start = map(Row::Fma, &[&steps, &number(step), &number(start)], place);
        let from_end = map(Row::Fma, &[&rest, &number(-step), &number(end)], place);
        let early = map(Row::Le, &[&steps, &rest], place);
        let all = map(Row::Select, &[&early, &from_start, &from_end], place);
        Tensor::build(Op::Cast(dtype), vec![all], place)
    }

    /// The unit matrix of `n` rows.
    #[track_caller]
    pub fn eye(n: usize, dtype: DType, device: Device) -> Tensor {
        let place = Place::here();
        let [rows, columns] = [0, 1].map(|axis| Tensor::iota(&[n, n], axis, DType::I64, device, place));
        Tensor::build(Op::Cast(dtype), vec![map(Row::Eq, &[&rows, &columns], place)], place)
    }

    /// A new last axis of length `classes` that is 1 at each index and 0 elsewhere.
    #[track_caller]
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Tensor {
        let place = Place::here();
        let Ok(node) = self.node() else { return self.clone() };
        if !node.dtype.is_int() {
            return Tensor::failed("one_hot", format!("indices are integers, found {}", node.dtype), place);
        }
        let shape = [&node.shape[..], &[classes]].concat();
        // As i64: there may be more classes than the indices' dtype has numbers.
        let places = Tensor::iota(&shape, node.shape.len(), DType::I64, node.device, place);
        let own = Tensor::build(Op::Cast(DType::I64), vec![self.clone()], place);
        let own = own.reshape_at(&[&node.shape[..], &[1]].concat(), place).broadcast_to(&shape, place);
        Tensor::build(Op::Cast(dtype), vec![map(Row::Eq, &[&places, &own], place)], place)
    }

    /// The last two axes with 0 above the `k`-th diagonal.
    #[track_caller]
    pub fn tril(&self, k: isize) -> Tensor {
        self.triangle("tril", Row::Le, k, Place::here())
    }

    /// The last two axes with 0 below the `k`-th diagonal.
    #[track_caller]
    pub fn triu(&self, k: isize) -> Tensor {
        self.triangle("triu", Row::Ge, k, Place::here())
    }

    fn triangle(&self, name: &'static str, keep: Row, k: isize, place: Place) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let [.., rows, columns] = node.shape[..] else {
            return Tensor::failed(name, format!("expects at least two axes, found shape {:?}", node.shape), place);
        };
        let [i, j] = [0, 1].map(|axis| Tensor::iota(&[rows, columns], axis, DType::I64, node.device, place));
        // Beyond the corners nothing changes, and sums do not wrap.
        let k = (k as i128).clamp(-(rows as i128), columns as i128);
        let diagonal = map(Row::Add, &[&i, &i.scalar_like(k as f64, place)], place);
        let kept = map(keep, &[&j, &diagonal], place);
        map(Row::Select, &[&kept, self, &self.scalar_like(0.0, place)], place)
    }
}
