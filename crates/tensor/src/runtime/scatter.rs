//! Scatter-add on the host.
//!
//! In the generated kernel (`lower/indexing.rs`) each output element scans all indices along the
//! axis. Here each index is visited once per chunk of the output and its value added there, in the
//! same order, so that the bits are the same.

use std::sync::{Arc, Mutex, PoisonError};

use bornite_codegen::cpu::pool;
use bornite_ir::Value;

use crate::fused::simd::parallel_for_each;
use crate::fused::{Memory, MemoryMut, unpack_inputs, unpack_outputs};
use crate::graph::node::{Node, Op};
use crate::lower::{SUM_BLOCK, is_identity, look_through, strided_view};
use crate::matmul::strided::Strided;
use crate::runtime::execute::RoutineCall;
use crate::{DType, Device, Element, Error, Result, SourceLocation, Tensor};

/// Minimum number of output elements per chunk.
const CHUNK: usize = 1 << 15;

/// Maximum number of chunks along the axis, each of which visits all indices.
const MAX_CHUNKS: usize = 32;

/// Offsets of the elements of a tensor, as one-dimensional slices along an axis.
struct AxisOffsets {
    /// Offsets of the indices of the axes before it.
    outer: Vec<isize>,
    /// Offsets of the indices of the axes after it.
    inner: Vec<isize>,
    /// Stride along the axis.
    step: isize,
}

impl AxisOffsets {
    fn of(layout: &Strided, axis: usize) -> AxisOffsets {
        let offsets = |from: isize, axes: std::ops::Range<usize>| {
            let mut found = vec![from];
            for axis in axes {
                let along = |at: isize| (0..layout.shape[axis]).map(move |n| at + n as isize * layout.strides[axis]);
                found = found.into_iter().flat_map(along).collect();
            }
            found
        };
        let inner = offsets(0, axis + 1..layout.shape.len());
        AxisOffsets { outer: offsets(layout.offset, 0..axis), inner, step: layout.strides[axis] }
    }

    fn at(&self, outer: usize, along: usize, inner: usize) -> usize {
        (self.outer[outer] + along as isize * self.step + self.inner[inner]) as usize
    }

    /// True if the axes after it are broadcast.
    fn is_broadcast(&self) -> bool {
        self.inner.iter().all(|&at| at == 0)
    }

    /// True if the axes after it are contiguous.
    fn is_contiguous(&self) -> bool {
        self.inner.iter().enumerate().all(|(n, &at)| at == n as isize)
    }
}

struct HostScatter {
    /// Length of the axis in the output.
    length: usize,
    /// Length of the axis in the index.
    count: usize,
    /// Elements of the axes after it.
    inner: usize,
    /// Initial value of the output, if it is a constant rather than the first input.
    start: Option<Value>,
    index: AxisOffsets,
    values: AxisOffsets,
    axis: usize,
    at: SourceLocation,
}

/// The host routine for a scatter-add, and the tensors that hold the memory of its inputs; `None`
/// if a generated kernel computes it.
pub(crate) fn scatter(node: &Node, device: Device) -> Option<(RoutineCall, Vec<Tensor>)> {
    let (Op::ScatterAdd(axis), [start, index, values]) = (&node.op, &node.inputs[..]) else { return None };
    let types = matches!(node.dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64)
        && matches!(index.0.dtype, DType::I32 | DType::I64);
    if !types || !matches!(device, Device::Cpu(_)) || node.elements() == 0 || index.0.elements() == 0 {
        return None;
    }
    let located = |tensor: &Tensor| {
        let (base, views) = look_through(tensor);
        let constant = base.0.op.is_constant() && !base.0.has_value();
        if constant { None } else { Some((base.clone(), strided_view(base, &views)?)) }
    };
    let (mut inputs, [lines, terms]) = {
        let ((indices, lines), (terms, layout)) = (located(index)?, located(values)?);
        (vec![indices, terms], [lines, layout].map(|layout| AxisOffsets::of(&layout, *axis)))
    };
    let first = match &look_through(start).0.0.op {
        Op::Full(value) => Some(*value),
        _ => {
            let (base, layout) = located(start)?;
            inputs.push(base);
            is_identity(&layout).then_some(())?;
            None
        }
    };
    let shape = &node.shape;
    let scatter = HostScatter {
        length: shape[*axis],
        count: index.0.shape[*axis],
        inner: shape[axis + 1..].iter().product(),
        start: first,
        index: lines,
        values: terms,
        axis: *axis,
        at: node.location,
    };
    let (dtype, wide) = (node.dtype, index.0.dtype == DType::I64);
    let run = move |inputs: &[Memory<'_>], outputs: &mut [MemoryMut<'_>]| match (dtype, wide) {
        (DType::F32, true) => scatter.run::<f32, i64>(inputs, outputs),
        (DType::F32, false) => scatter.run::<f32, i32>(inputs, outputs),
        (DType::F64, true) => scatter.run::<f64, i64>(inputs, outputs),
        (DType::F64, false) => scatter.run::<f64, i32>(inputs, outputs),
        (DType::I32, true) => scatter.run::<i32, i64>(inputs, outputs),
        (DType::I32, false) => scatter.run::<i32, i32>(inputs, outputs),
        (_, true) => scatter.run::<i64, i64>(inputs, outputs),
        (_, false) => scatter.run::<i64, i32>(inputs, outputs),
    };
    let size = |t: &Tensor| (t.0.dtype, t.0.elements());
    let (outputs, sizes) = (vec![(node.dtype, node.elements())], inputs.iter().map(size).collect());
    Some((RoutineCall { name: "scatter_add", run: Arc::new(run), device, outputs, inputs: sizes }, inputs))
}

/// A chunk of the output: some slices along the axis, or some rows of one.
struct Chunk<'a, T> {
    outer: usize,
    row: usize,
    rows: usize,
    to: &'a mut [T],
}

impl HostScatter {
    fn run<T: Term, I: Element + bytemuck::Pod + Copy + Into<i64> + Sync>(
        &self,
        inputs: &[Memory<'_>],
        outputs: &mut [MemoryMut<'_>],
    ) -> Result<()> {
        // A constant initial value is not an input.
        let (index, values, start) = match self.start {
            Some(_) => {
                let [index, values] = unpack_inputs("scatter_add", inputs)?;
                (index, values, None)
            }
            None => {
                let [index, values, start] = unpack_inputs("scatter_add", inputs)?;
                (index, values, Some(start.slice::<T>()?))
            }
        };
        let [result] = unpack_outputs("scatter_add", outputs)?;
        let (index, values, result) = (index.slice::<I>()?, values.slice::<T>()?, result.slice_mut::<T>()?);
        let line = self.length * self.inner;
        let rows = (CHUNK / self.inner).max(self.length.div_ceil(MAX_CHUNKS)).clamp(1, self.length);
        let lines = if rows < self.length { 1 } else { (CHUNK / line).max(1) };
        let chunks = result.chunks_mut(line * lines).enumerate().flat_map(|(n, to)| {
            let (outer, length) = (n * lines, if lines == 1 { rows } else { self.length * lines });
            let chunks = to.chunks_mut(length * self.inner).enumerate();
            chunks.map(move |(n, to)| Chunk { outer, row: if lines == 1 { n * rows } else { 0 }, rows, to })
        });
        let bad: Mutex<Option<(usize, i64)>> = Mutex::new(None);
        parallel_for_each(chunks, pool::num_threads(), |chunk| {
            let first = (chunk.outer * self.length + chunk.row) * self.inner;
            match (start, self.start) {
                (Some(start), _) => chunk.to.copy_from_slice(&start[first..first + chunk.to.len()]),
                (None, Some(value)) => chunk.to.fill(T::of(value)),
                (None, None) => {}
            }
            if let Some(found) = self.add(chunk, index, values) {
                let mut bad = bad.lock().unwrap_or_else(PoisonError::into_inner);
                *bad = Some(bad.map_or(found, |other| other.min(found)));
            }
        });
        match bad.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((_, index)) => {
                let what = format!("index {index} is outside axis {} of length {}", self.axis, self.length);
                Err(Error::Op { op: "scatter_add", message: what, location: self.at })
            }
        }
    }

    /// Adds the values of a chunk. Returns the first out-of-range index, with its position among
    /// all.
    fn add<T: Term, I: Copy + Into<i64>>(
        &self,
        chunk: Chunk<'_, T>,
        index: &[I],
        values: &[T],
    ) -> Option<(usize, i64)> {
        let Chunk { outer, row, rows, to } = chunk;
        let (whole, run) = (self.index.is_broadcast(), self.values.is_contiguous());
        let lines = to.len().div_ceil(rows * self.inner);
        for (line, to) in (outer..outer + lines).zip(to.chunks_mut(rows * self.inner)) {
            let has = to.len() / self.inner;
            // As in the generated kernel, values are summed in blocks that are added to the total.
            // Elements that share an index share a counter.
            let each = if whole { self.inner } else { 1 };
            let (mut sums, mut since) = (vec![T::default(); to.len()], vec![0; to.len() / each]);
            for term in 0..self.count {
                for n in 0..self.inner / each {
                    let found: i64 = index[self.index.at(line, term, n)].into();
                    let Some(position) = usize::try_from(found).ok().filter(|&position| position < self.length) else {
                        return Some(((line * self.count + term) * self.inner + n, found));
                    };
                    let Some(position) = position.checked_sub(row).filter(|&position| position < has) else { continue };
                    let from = position * self.inner + n;
                    let (sums, since) = (&mut sums[from..][..each], &mut since[from / each]);
                    let start = self.values.at(line, term, n);
                    match (run && whole, *since) {
                        (true, 0) => sums.copy_from_slice(&values[start..][..each]),
                        (true, _) => add_to(sums, &values[start..][..each]),
                        (false, before) => {
                            for (m, sum) in sums.iter_mut().enumerate() {
                                let value = values[self.values.at(line, term, n + m)];
                                *sum = if before == 0 { value } else { sum.plus(value) };
                            }
                        }
                    }
                    *since += 1;
                    if *since == SUM_BLOCK {
                        add_to(&mut to[from..][..each], sums);
                        *since = 0;
                    }
                }
            }
            for ((to, sums), since) in to.chunks_mut(each).zip(sums.chunks(each)).zip(since) {
                if since > 0 {
                    add_to(to, sums);
                }
            }
        }
        None
    }
}

fn add_to<T: Term>(to: &mut [T], terms: &[T]) {
    to.iter_mut().zip(terms).for_each(|(to, &term)| *to = to.plus(term));
}

/// Element type of the values.
trait Term: Element + bytemuck::Pod + Default + Copy + Send + Sync {
    fn of(value: Value) -> Self;
    fn plus(self, other: Self) -> Self;
}

macro_rules! term {
    ($($t:ty: $value:ident, $plus:expr;)+) => { $(
        impl Term for $t {
            fn of(value: Value) -> $t {
                value.$value() as $t
            }
            #[inline]
            fn plus(self, other: $t) -> $t {
                $plus(self, other)
            }
        }
    )+ };
}

term! {
    f32: as_f64, |a, b| a + b;
    f64: as_f64, |a, b| a + b;
    i32: as_i64, i32::wrapping_add;
    i64: as_i64, i64::wrapping_add;
}
