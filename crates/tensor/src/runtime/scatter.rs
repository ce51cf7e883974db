//! Scatter-add in memory of the host.
//!
//! The plain kernel (`lower/places.rs`) has each element look through all indices of its line. Here each index is looked at
//! once a part of the result, and what it names is added there, in the same order: the bits are the same.

use std::sync::{Arc, Mutex, PoisonError};

use bornite_codegen::cpu::pool;
use bornite_ir::Value;

use crate::fused::simd::parallel_for_each;
use crate::fused::{Memory, MemoryMut, unpack_inputs, unpack_outputs};
use crate::graph::node::{Node, Op};
use crate::lower::{SUMMED_TOGETHER, is_identity, look_through, strided_view};
use crate::matmul::strided::Strided;
use crate::runtime::execute::RoutineCall;
use crate::{DType, Device, Element, Error, Result, SourceLocation, Tensor};

/// Elements that are worth another thread's while.
const PART: usize = 1 << 15;

/// Most parts of a line's rows, each of which looks at all indices.
const MOST_PARTS: usize = 32;

/// Where the elements of a tensor lie, as lines along an axis.
struct Lines {
    /// Where a line begins, for the axes before and for those after.
    outer: Vec<isize>,
    inner: Vec<isize>,
    step: isize,
}

impl Lines {
    fn of(place: &Strided, axis: usize) -> Lines {
        let offsets = |from: isize, axes: std::ops::Range<usize>| {
            let mut found = vec![from];
            for axis in axes {
                let along = |at: isize| (0..place.shape[axis]).map(move |n| at + n as isize * place.strides[axis]);
                found = found.into_iter().flat_map(along).collect();
            }
            found
        };
        let inner = offsets(0, axis + 1..place.shape.len());
        Lines { outer: offsets(place.offset, 0..axis), inner, step: place.strides[axis] }
    }

    fn at(&self, outer: usize, along: usize, inner: usize) -> usize {
        (self.outer[outer] + along as isize * self.step + self.inner[inner]) as usize
    }

    /// True if the axes after are all in one place, or side by side.
    fn repeats(&self) -> bool {
        self.inner.iter().all(|&at| at == 0)
    }

    fn is_run(&self) -> bool {
        self.inner.iter().enumerate().all(|(n, &at)| at == n as isize)
    }
}

struct Scatter {
    /// Elements of the axis in the result and in the index, and of the axes after.
    length: usize,
    count: usize,
    inner: usize,
    /// What the result starts with, if that is not the first input.
    start: Option<Value>,
    index: Lines,
    values: Lines,
    axis: usize,
    at: SourceLocation,
}

/// What computes a scatter-add on the CPU, and the tensors in whose memory its inputs lie; `None` where a kernel should.
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
        let ((indices, lines), (terms, places)) = (located(index)?, located(values)?);
        (vec![indices, terms], [lines, places].map(|place| Lines::of(&place, *axis)))
    };
    let first = match &look_through(start).0.0.op {
        Op::Full(value) => Some(*value),
        _ => {
            let (base, place) = located(start)?;
            inputs.push(base);
            is_identity(&place).then_some(())?;
            None
        }
    };
    let shape = &node.shape;
    let scatter = Scatter {
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
    let (results, taken) = (vec![(node.dtype, node.elements())], inputs.iter().map(size).collect());
    Some((RoutineCall { name: "scatter_add", run: Arc::new(run), device, outputs: results, inputs: taken }, inputs))
}

/// A part of the result: some lines, or some rows of one.
struct Part<'a, T> {
    outer: usize,
    row: usize,
    rows: usize,
    to: &'a mut [T],
}

impl Scatter {
    fn run<T: Term, I: Element + bytemuck::Pod + Copy + Into<i64> + Sync>(
        &self,
        inputs: &[Memory<'_>],
        outputs: &mut [MemoryMut<'_>],
    ) -> Result<()> {
        // A constant that the result starts with is not an input.
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
        let rows = (PART / self.inner).max(self.length.div_ceil(MOST_PARTS)).clamp(1, self.length);
        let lines = if rows < self.length { 1 } else { (PART / line).max(1) };
        let parts = result.chunks_mut(line * lines).enumerate().flat_map(|(n, to)| {
            let (outer, length) = (n * lines, if lines == 1 { rows } else { self.length * lines });
            let parts = to.chunks_mut(length * self.inner).enumerate();
            parts.map(move |(n, to)| Part { outer, row: if lines == 1 { n * rows } else { 0 }, rows, to })
        });
        let bad: Mutex<Option<(usize, i64)>> = Mutex::new(None);
        parallel_for_each(parts, pool::threads(), |part| {
            let first = (part.outer * self.length + part.row) * self.inner;
            match (start, self.start) {
                (Some(start), _) => part.to.copy_from_slice(&start[first..first + part.to.len()]),
                (None, Some(value)) => part.to.fill(T::of(value)),
                (None, None) => {}
            }
            if let Some(found) = self.add(part, index, values) {
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

    /// Adds what belongs to a part. The first bad index, with its place among all.
    fn add<T: Term, I: Copy + Into<i64>>(&self, part: Part<'_, T>, index: &[I], values: &[T]) -> Option<(usize, i64)> {
        let Part { outer, row, rows, to } = part;
        let (whole, run) = (self.index.repeats(), self.values.is_run());
        let lines = to.len().div_ceil(rows * self.inner);
        for (line, to) in (outer..outer + lines).zip(to.chunks_mut(rows * self.inner)) {
            let has = to.len() / self.inner;
            // As in the plain kernel: some values are summed, then join the total. One count for what has one index.
            let each = if whole { self.inner } else { 1 };
            let (mut sums, mut since) = (vec![T::default(); to.len()], vec![0; to.len() / each]);
            for term in 0..self.count {
                for n in 0..self.inner / each {
                    let found: i64 = index[self.index.at(line, term, n)].into();
                    let Some(place) = usize::try_from(found).ok().filter(|&place| place < self.length) else {
                        return Some(((line * self.count + term) * self.inner + n, found));
                    };
                    let Some(place) = place.checked_sub(row).filter(|&place| place < has) else { continue };
                    let from = place * self.inner + n;
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
                    if *since == SUMMED_TOGETHER {
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

/// What is added.
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
