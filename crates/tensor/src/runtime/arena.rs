//! Arenas: many tensors in one flat variable (parameters, gradients, moments, master copies), so
//! that an operation on all elements, such as an optimizer step or a norm, is one operation on one
//! tensor.
//!
//! An [`Arena`] is a one-dimensional variable with a table of segments. Each segment is aligned to
//! 256 bytes, in any dtype of 16 bits or more. A segment may have room for more rows than its
//! tensor, for matrix products that are faster with even sizes. Padding between segments and in
//! such rows is zero and stays zero as long as updates map zero to zero.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::graph::node::{AxisSlice, Node, NodeId, Op};
use crate::graph::tensor::elements_of;
use crate::runtime::buffer::Buffer;
use crate::runtime::resize::{self, ResizeCopy};
use crate::schedule::{realize, value_of};
use crate::{DType, Device, Error, Result, SourceLocation, Tensor, Update, Var, commit};

/// Alignment of segments in elements, for any dtype, so that arenas with the same table have the
/// same offsets. 256 bytes of 16-bit floats, the best alignment for cuBLASLt.
const ALIGNMENT: usize = 128;
/// Large arenas are padded to a multiple of this many elements, so that a reduction splits evenly
/// over multiprocessors.
const SIZE_MULTIPLE: usize = 8192;
/// Maximum inputs per concatenation: a kernel with many inputs would compare each index with all of
/// them.
const MAX_CONCAT_INPUTS: usize = 8;

/// A tensor in the arena.
#[derive(Clone, Debug)]
struct Segment {
    name: String,
    shape: Vec<usize>,
    /// The shape with additional rows.
    padded_shape: Vec<usize>,
    start: usize,
    /// Number of elements of `shape`.
    elements: usize,
}

impl Segment {
    fn padded_elements(&self) -> usize {
        self.padded_shape.iter().product()
    }

    /// View of the segment in a flat tensor, with additional rows.
    fn padded_view(&self, flat: &Tensor, location: SourceLocation) -> Tensor {
        let cut = AxisSlice { start: self.start, step: 1, len: self.padded_elements() };
        Tensor::build(Op::Slice(vec![cut]), vec![flat.clone()], location).reshape_at(&self.padded_shape, location)
    }

    /// The rows of the segment's tensor in [`Segment::padded_view`].
    fn without_padding(&self, padded: Tensor, location: SourceLocation) -> Tensor {
        if self.shape == self.padded_shape {
            return padded;
        }
        let cuts = self.shape.iter().map(|&len| AxisSlice { start: 0, step: 1, len }).collect();
        Tensor::build(Op::Slice(cuts), vec![padded], location)
    }
}

/// One value per segment of an arena, for each of its elements. See [`Arena::segment_values`].
#[derive(Clone, Debug)]
pub struct SegmentValues {
    /// Values with the index of their first element; the first is at 0.
    runs: Vec<(usize, f64)>,
    elements: usize,
    device: Device,
}

impl SegmentValues {
    pub(crate) fn runs(&self) -> impl Iterator<Item = (usize, f64)> {
        self.runs.iter().copied()
    }

    /// Number of elements of the arena.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// The values of a range of elements.
    pub fn slice(&self, range: Range<usize>) -> SegmentValues {
        let first = self.runs.partition_point(|(start, _)| *start <= range.start).saturating_sub(1);
        let end = range.end.max(range.start + 1);
        let runs = self.runs[first..].iter().take_while(|(start, _)| *start < end);
        let runs = runs.map(|(start, value)| (start.saturating_sub(range.start), *value)).collect();
        SegmentValues { runs, elements: range.len(), device: self.device }
    }

    /// The value of each element, as an f32 tensor of the arena's flat shape. It is computed on the
    /// fly; adjacent segments with equal values cost nothing.
    #[track_caller]
    pub fn tensor(&self) -> Tensor {
        let SegmentValues { runs, elements, device } = self;
        let full = |value: f64| Tensor::full(value, &[*elements], DType::F32, *device);
        let dtype = if *elements <= i32::MAX as usize { DType::I32 } else { DType::I64 };
        let index = Tensor::iota(&[*elements], 0, dtype, *device, SourceLocation::here());
        let first = full(runs.first().map_or(0.0, |(_, value)| *value));
        runs.iter().skip(1).fold(first, |all, (start, value)| index.ge(*start as i64).select(full(*value), all))
    }
}

/// The segments, in the order in which they were passed.
struct SegmentTable {
    segments: Vec<Segment>,
    /// Indices of segments in memory order.
    order: Vec<usize>,
    elements: usize,
}

/// Tensors stored in one flat variable. Cloning copies the handle.
///
/// ```
/// use bornite::{DType, Device, Tensor, trace, var::Arena};
/// # fn main() -> bornite::Result<()> {
/// let device = Device::cpu();
/// let (w, b) = (Tensor::ones(&[3, 2], DType::F32, device), Tensor::zeros(&[2], DType::F32, device));
/// // Matrices first, then vectors: only matrices decay.
/// let parameters = Arena::grouped(&[("w", &w), ("b", &b)], |_, shape| if shape.len() == 2 { 0 } else { 1 })?;
/// let momentum = parameters.like(DType::F32, 0.0)?;
/// let step = trace(|x| {
///     let p = parameters.tensors();
///     let loss = (x[0].matmul(&p[0]) + &p[1]).square().mean(..);
///     let m = momentum.get() * 0.9 + parameters.flatten(&loss.grad(&[&p[0], &p[1]]));
///     let decay = parameters.expand_segment_values(&[0.01, 0.0]);
///     let new = parameters.get() * (1.0 - decay) - &m * 0.1; // one kernel for all parameters
///     Ok((vec![loss], vec![parameters.set(new), momentum.set(m)]))
/// });
/// let x = Tensor::ones(&[4, 3], DType::F32, device);
/// let first = step.call(&[x.clone()])?[0].item()?;
/// assert!(step.call(&[x])?[0].item()? < first);
/// assert_eq!(parameters.tensor("b")?.shape()?, [2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Arena {
    table: Arc<SegmentTable>,
    flat: Var,
    /// Views of each value of the variable that are still in use, with padding and then without, so
    /// that repeated calls return the same nodes, which [`Tensor::grad`] identifies inputs by.
    views: Arc<Mutex<HashMap<NodeId, Vec<Weak<Node>>>>>,
}

impl Arena {
    /// An arena with these named tensors, in this order. They must have the same dtype and device.
    #[track_caller]
    pub fn new(tensors: &[(&str, &Tensor)]) -> Result<Arena> {
        Arena::grouped(tensors, |_, _| 0)
    }

    /// As [`Arena::new`], with the tensors sorted by group in memory, so that
    /// [`Arena::expand_segment_values`] of one value per group needs only a few comparisons.
    /// `group` returns the group of a tensor from its name and shape.
    #[track_caller]
    pub fn grouped(tensors: &[(&str, &Tensor)], group: impl Fn(&str, &[usize]) -> usize) -> Result<Arena> {
        Arena::padded(tensors, group, |_, _| 1)
    }

    /// As [`Arena::grouped`], with the first axis of each tensor padded by rows of zeros to the
    /// multiple that `row_multiple` returns for its name and shape. [`Arena::padded_tensors`]
    /// returns the tensors with these rows; everything else is as without them.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, var::Arena};
    /// # fn main() -> bornite::Result<()> {
    /// let table = Tensor::ones(&[257, 4], DType::F32, Device::cpu());
    /// let arena = Arena::padded(&[("table", &table)], |_, _| 0, |_, _| 64)?;
    /// assert_eq!(arena.tensors()[0].shape()?, [257, 4]);
    /// assert_eq!(arena.padded_tensors()[0].shape()?, [320, 4]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn padded(
        tensors: &[(&str, &Tensor)],
        group: impl Fn(&str, &[usize]) -> usize,
        row_multiple: impl Fn(&str, &[usize]) -> usize,
    ) -> Result<Arena> {
        let location = SourceLocation::here();
        let Some((_, first)) = tensors.first() else {
            return Err(arena_error("no tensors; pass at least one".into(), location));
        };
        let (dtype, device) = (first.dtype()?, first.device()?);
        if dtype.bytes() < 2 {
            return Err(arena_error(format!("dtype {dtype} is not supported; use one of 16 bits or more"), location));
        }
        let mut segments: Vec<Segment> = vec![];
        let mut seen = HashMap::new();
        for (n, (name, tensor)) in tensors.iter().enumerate() {
            let node = tensor.node()?;
            if (node.dtype, node.device) != (dtype, device) {
                let first = &tensors[0].0;
                let what = format!(
                    "'{name}' is {} on {}, but '{first}' is {dtype} on {device}; all tensors must have the same dtype and device",
                    node.dtype, node.device
                );
                return Err(arena_error(what, location));
            }
            if let Some(before) = seen.insert(*name, n) {
                return Err(arena_error(format!("tensors {before} and {n} have the same name, '{name}'"), location));
            }
            let (shape, elements) = (node.shape.clone(), node.elements());
            let mut padded_shape = shape.clone();
            if let Some(rows) = padded_shape.first_mut() {
                *rows = rows.checked_next_multiple_of(row_multiple(name, &shape).max(1)).unwrap_or(*rows);
            }
            elements_of(&padded_shape, dtype).map_err(|what| arena_error(what, location))?;
            segments.push(Segment { name: (*name).into(), shape, padded_shape, start: 0, elements });
        }
        let groups: Vec<usize> = segments.iter().map(|s| group(&s.name, &s.shape)).collect();
        let mut order: Vec<usize> = (0..segments.len()).collect();
        order.sort_by_key(|&n| groups[n]);
        let mut elements = 0usize;
        for &n in &order {
            segments[n].start = elements;
            elements = segments[n]
                .padded_elements()
                .checked_next_multiple_of(ALIGNMENT)
                .map_or(usize::MAX, |more| elements.saturating_add(more));
        }
        if elements >= 4 * SIZE_MULTIPLE {
            elements = elements.checked_next_multiple_of(SIZE_MULTIPLE).unwrap_or(usize::MAX);
        }
        elements_of(&[elements], dtype).map_err(|what| arena_error(what, location))?;
        let table = Arc::new(SegmentTable { segments, order, elements });
        let named: Vec<(usize, &Tensor)> = tensors.iter().enumerate().map(|(n, (_, tensor))| (n, *tensor)).collect();
        let zeros = Tensor::zeros(&[elements], dtype, device);
        let flat = Var::new(&table.with_segments(&zeros, &named, location)?)?;
        Ok(Arena { table, flat, views: Arc::default() })
    }

    /// An arena with the same segments, filled with a value (padding stays zero), for moments and
    /// gradients. For master copies of 16-bit weights, then commit
    /// `masters.set(weights.get().cast(DType::F32))`.
    #[track_caller]
    pub fn like(&self, dtype: DType, value: f64) -> Result<Arena> {
        let location = SourceLocation::here();
        if dtype.bytes() < 2 {
            return Err(arena_error(format!("dtype {dtype} is not supported; use one of 16 bits or more"), location));
        }
        let device = self.flat.device();
        let zeros = Tensor::zeros(&[self.table.elements], dtype, device);
        let flat = if value == 0.0 {
            Var::new(&zeros)?
        } else {
            let full: Vec<Tensor> =
                self.table.segments.iter().map(|s| Tensor::full(value, &s.shape, dtype, device)).collect();
            Var::new(&self.table.with_segments(&zeros, &full.iter().enumerate().collect::<Vec<_>>(), location)?)?
        };
        Ok(Arena { table: self.table.clone(), flat, views: Arc::default() })
    }

    /// An arena with the same segments over another variable, which must have the shape of
    /// [`Arena::get`].
    #[track_caller]
    pub fn over(&self, flat: &Var) -> Result<Arena> {
        let (found, expected) = (flat.get(), self.flat.get());
        let (found, expected) = (found.shape()?, expected.shape()?);
        if found != expected {
            let what = format!("the variable has shape {found:?}; expected {expected:?}");
            return Err(arena_error(what, SourceLocation::here()));
        }
        Ok(Arena { table: self.table.clone(), flat: flat.clone(), views: Arc::default() })
    }

    /// The variable's value, as a one-dimensional tensor: see [`Var::get`].
    pub fn get(&self) -> Tensor {
        self.flat.get()
    }

    /// An update of all elements; `flat` has the shape of [`Arena::get`].
    #[track_caller]
    pub fn set(&self, flat: Tensor) -> Update {
        self.flat.set(flat)
    }

    /// The tensors, in the order in which they were passed, as views of the variable's value. While
    /// one of them is alive, the same nodes are returned for the same value, so that they can be
    /// inputs of [`Tensor::grad`].
    #[track_caller]
    pub fn tensors(&self) -> Vec<Tensor> {
        let location = SourceLocation::here();
        (0..self.table.segments.len()).map(|n| self.view(n, location)).collect()
    }

    /// As [`Arena::tensors`], with the additional rows of [`Arena::padded`]. The views of
    /// [`Arena::tensors`] are slices of these.
    #[track_caller]
    pub fn padded_tensors(&self) -> Vec<Tensor> {
        let location = SourceLocation::here();
        let flat = self.flat.get();
        (0..self.table.segments.len()).map(|n| self.padded_view(&flat, n, location)).collect()
    }

    /// The tensor with this name.
    #[track_caller]
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let location = SourceLocation::here();
        Ok(self.view(self.table.index_of(name, location)?, location))
    }

    /// Names and shapes, in the order in which the tensors were passed.
    pub fn segments(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.table.segments.iter().map(|segment| (&segment.name[..], &segment.shape[..]))
    }

    fn view(&self, n: usize, location: SourceLocation) -> Tensor {
        let (flat, segment) = (self.flat.get(), &self.table.segments[n]);
        let padded = self.padded_view(&flat, n, location);
        if segment.shape == segment.padded_shape {
            return padded;
        }
        let index = self.table.segments.len() + n;
        self.cached_view(&flat, index, || segment.without_padding(padded, location))
    }

    fn padded_view(&self, flat: &Tensor, n: usize, location: SourceLocation) -> Tensor {
        self.cached_view(flat, n, || self.table.segments[n].padded_view(flat, location))
    }

    /// The view of a value of the variable that is at `index` of its list in `views`.
    fn cached_view(&self, flat: &Tensor, index: usize, build: impl FnOnce() -> Tensor) -> Tensor {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.retain(|id, views| *id == flat.0.id || views.iter().any(|view| view.strong_count() > 0));
        let count = 2 * self.table.segments.len();
        let known = &mut views.entry(flat.0.id).or_insert_with(|| (0..count).map(|_| Weak::new()).collect())[index];
        if let Some(node) = known.upgrade() {
            return Tensor(node);
        }
        let tensor = build();
        *known = Arc::downgrade(&tensor.0);
        tensor
    }

    /// Concatenates tensors of the shapes of [`Arena::tensors`] or [`Arena::padded_tensors`], with
    /// zero padding, into one flat tensor: for example gradients for an update of all parameters.
    #[track_caller]
    pub fn flatten(&self, tensors: &[Tensor]) -> Tensor {
        let location = SourceLocation::here();
        self.flatten_range(tensors, &(0..self.table.elements), location)
    }

    /// Ranges of the flat tensor, in order, that consist of complete segments: each ends with the
    /// first segment by which it has at least `elements` elements.
    pub fn buckets(&self, elements: usize) -> Vec<Range<usize>> {
        let SegmentTable { segments, order, elements: all } = &*self.table;
        let (mut buckets, mut start) = (vec![], 0);
        for end in order.iter().skip(1).map(|&n| segments[n].start).chain([*all]) {
            if end == *all || end - start >= elements {
                buckets.push(start..end);
                start = end;
            }
        }
        buckets
    }

    /// As [`Arena::flatten`], one tensor for each of [`Arena::buckets`], which does not depend on
    /// the tensors of others.
    #[track_caller]
    pub fn flatten_buckets(&self, tensors: &[Tensor], buckets: &[Range<usize>]) -> Vec<Tensor> {
        let location = SourceLocation::here();
        buckets.iter().map(|bucket| self.flatten_range(tensors, bucket, location)).collect()
    }

    /// The part of the flat tensor with the segments that begin in a range.
    fn flatten_range(&self, tensors: &[Tensor], range: &Range<usize>, location: SourceLocation) -> Tensor {
        let SegmentTable { segments, order, elements } = &*self.table;
        if tensors.len() != segments.len() {
            let what = format!("number of tensors is {}; expected {}, one per segment", tensors.len(), segments.len());
            return Tensor::failed_at("flatten", what, location);
        }
        for (tensor, segment) in tensors.iter().zip(segments) {
            match tensor.node() {
                Err(_) => return tensor.clone(),
                Ok(node) if node.shape != segment.shape && node.shape != segment.padded_shape => {
                    let what =
                        format!("segment '{}' has shape {:?}, found {:?}", segment.name, segment.shape, node.shape);
                    return Tensor::failed_at("flatten", what, location);
                }
                Ok(_) => {}
            }
        }
        let mut parts = vec![];
        let ends = order.iter().skip(1).map(|&n| segments[n].start).chain([*elements]);
        for (&n, end) in order.iter().zip(ends).filter(|(n, _)| range.contains(&segments[**n].start)) {
            let (start, elements) = (segments[n].start, tensors[n].0.elements());
            parts.push(tensors[n].reshape_at(&[elements], location));
            if start + elements < end {
                let node = &tensors[n].0;
                parts.push(Tensor::full(0.0, &[end - start - elements], node.dtype, node.device));
            }
        }
        let join = |parts: &[Tensor]| match parts {
            [one] => one.clone(),
            _ => Tensor::build(Op::Concat(0), parts.to_vec(), location),
        };
        if parts.is_empty() {
            return Tensor::failed_at("flatten", format!("no segment begins in elements {range:?}"), location);
        }
        while parts.len() > MAX_CONCAT_INPUTS {
            parts = parts.chunks(MAX_CONCAT_INPUTS).map(join).collect();
        }
        join(&parts)
    }

    /// Views of the segments of a flat tensor, in the order of [`Arena::tensors`]: the inverse of
    /// [`Arena::flatten`].
    #[track_caller]
    pub fn unflatten(&self, flat: &Tensor) -> Vec<Tensor> {
        let location = SourceLocation::here();
        match flat.node() {
            Ok(node) if node.shape != [self.table.elements] => {
                let what =
                    format!("shape is {:?}; expected [{}], the size of the arena", node.shape, self.table.elements);
                vec![Tensor::failed_at("unflatten", what, location); self.table.segments.len()]
            }
            Ok(_) => {
                let view = |s: &Segment| s.without_padding(s.padded_view(flat, location), location);
                self.table.segments.iter().map(view).collect()
            }
            Err(_) => vec![flat.clone(); self.table.segments.len()],
        }
    }

    /// The gradient of a loss with respect to all tensors, as a flat tensor.
    #[track_caller]
    pub fn gradient(&self, loss: &Tensor) -> Tensor {
        let tensors = self.padded_tensors();
        self.flatten(&loss.grad(&tensors.iter().collect::<Vec<_>>()))
    }

    /// Expands one value per segment, in the order of [`Arena::tensors`], to all elements: see
    /// [`SegmentValues::tensor`].
    #[track_caller]
    pub fn expand_segment_values(&self, values: &[f64]) -> Tensor {
        match self.segment_values(values) {
            Ok(values) => values.tensor(),
            Err(error) => Tensor::from_error(error, SourceLocation::here()),
        }
    }

    /// One value per segment, in the order of [`Arena::tensors`].
    #[track_caller]
    pub fn segment_values(&self, values: &[f64]) -> Result<SegmentValues> {
        let SegmentTable { segments, order, elements } = &*self.table;
        if values.len() != segments.len() {
            let what = format!("number of values is {}; expected {}, one per segment", values.len(), segments.len());
            return Err(Error::op("segment_values", what));
        }
        let mut runs: Vec<(usize, f64)> = order.iter().map(|&n| (segments[n].start, values[n])).collect();
        runs.dedup_by(|(_, value), (_, before)| value == before);
        Ok(SegmentValues { runs, elements: *elements, device: self.flat.device() })
    }

    /// Replaces tensors by name, for example from a checkpoint. After an error, none is replaced.
    #[track_caller]
    pub fn load(&self, tensors: &[(&str, &Tensor)]) -> Result<()> {
        let location = SourceLocation::here();
        let flat = self.flat.get();
        let mut named = vec![];
        for (name, tensor) in tensors {
            let n = self.table.index_of(name, location)?;
            let (node, segment) = (tensor.node()?, &self.table.segments[n]);
            if (node.dtype, node.device, &node.shape) != (flat.0.dtype, flat.0.device, &segment.shape) {
                let what = format!(
                    "'{name}' is {}{:?} on {}, but the new tensor is {}{:?} on {}",
                    flat.0.dtype, segment.shape, flat.0.device, node.dtype, node.shape, node.device
                );
                return Err(arena_error(what, location));
            }
            named.push((n, *tensor));
        }
        let new = self.table.with_segments(&flat, &named, location)?;
        drop(flat);
        commit(&[], vec![self.flat.set(new)])
    }
}

impl SegmentTable {
    /// Index of the segment with this name.
    fn index_of(&self, name: &str, location: SourceLocation) -> Result<usize> {
        let found = self.segments.iter().position(|segment| segment.name == name);
        found.ok_or_else(|| {
            let near: Vec<&str> =
                self.segments.iter().map(|s| &s.name[..]).filter(|n| n.contains(name)).take(5).collect();
            let names = if near.is_empty() { String::new() } else { format!("; similar names: {}", near.join(", ")) };
            arena_error(format!("no tensor named '{name}' among {}{names}", self.segments.len()), location)
        })
    }

    /// A copy of a flat tensor with some segments replaced. Copied directly, since a graph would
    /// fuse hundreds of tensors into one kernel.
    fn with_segments(&self, flat: &Tensor, tensors: &[(usize, &Tensor)], location: SourceLocation) -> Result<Tensor> {
        let all: Vec<Tensor> = tensors.iter().map(|(_, tensor)| (*tensor).clone()).chain([flat.clone()]).collect();
        realize(&all)?;
        let node = flat.node()?;
        resize::compiled(node.dtype, node.device)?; // compiled before the device is locked
        let _running = node.device.lock();
        let to: Buffer = value_of(flat)?.duplicate(node.device)?;
        for (n, tensor) in tensors {
            let Segment { start, elements, .. } = self.segments[*n];
            let copy = ResizeCopy { blocks: 1, from: elements, to: elements, offset: start };
            copy.run(&to, &value_of(tensor)?, node.dtype, node.device, location)?;
        }
        Ok(Tensor(Arc::new(Node::leaf(Op::Data, node, location, to))))
    }
}

fn arena_error(what: String, location: SourceLocation) -> Error {
    Error::Op { op: "arena", message: what, location }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} tensors, {} elements)", self.table.segments.len(), self.table.elements)
    }
}
