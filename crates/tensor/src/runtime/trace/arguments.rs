//! Arguments of a replay: read where they are, or copied into memory of the trace.
//!
//! An argument is copied if its shape is not the traced one (a bounded length), if its memory is written by the replay, and on a GPU
//! also if it is small, not aligned, or at a new address too often: a CUDA graph holds addresses, so that a new one costs launches.

use std::collections::HashSet;

use super::TensorSpec;
use crate::runtime::buffer::Buffer;
use crate::runtime::resize::{self, ResizeCopy};
use crate::schedule::{ALIGNMENT, value_of};
use crate::{Device, Result, SourceLocation, Tensor};

/// Arguments of at most this size are copied on a GPU. A copy takes about 2 µs and this much less than 1 µs more; a batch of tokens, at
/// a new address at each call, then leaves a step with one graph.
const COPIED_BYTES: usize = 256 << 10;
/// The same per step of the plan. A step takes at least 1.5 µs in a graph, a copy of this size 0.016 µs: 1%.
const COPIED_BYTES_PER_STEP: usize = 32 << 10;
/// Bytes that a GPU copies in the time that the launch of one step costs the host: 3 µs at 2 TB/s.
const BYTES_PER_LAUNCH: usize = 6 << 20;
/// Launches of all steps, with nothing saved between them, after which an argument is copied for good: enough to run and capture four
/// sets of arguments that are passed in turn, which pays later.
const LAUNCHES: usize = 16;

/// Arguments of a trace, with memory for copies of them.
pub(super) struct Arguments {
    device: Device,
    slots: Vec<Slot>,
    /// Arguments of at most this many bytes are copied.
    copied_bytes: usize,
    /// Cost of launching all steps one by one, as bytes that could be copied meanwhile.
    launch_bytes: i64,
}

/// An argument, or after those a length.
struct Slot {
    spec: TensorSpec,
    /// Whether the plan reads it.
    is_read: bool,
    /// Memory for a copy, allocated for the first.
    copy: Option<Buffer>,
    /// The length that `copy` holds.
    length: Option<usize>,
    /// Bytes that were not copied thanks to direct reads, less what launches without a graph cost; within bounds. Below zero, the
    /// argument is copied from then on.
    credit: i64,
}

/// Memory of the arguments of one call. It keeps that memory alive, so it must not outlive the call.
#[derive(Default)]
pub(super) struct BoundArguments(Vec<Option<Binding>>);

struct Binding {
    buffer: Buffer,
    /// Whether it is the argument's own memory.
    is_direct: bool,
}

/// Way in which a call with arguments that are read directly ran on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RunKind {
    /// By a graph that was there.
    Graph,
    /// Step by step.
    Steps,
    /// By a graph captured for it.
    Captured,
}

impl BoundArguments {
    /// The memory of an argument that the plan reads.
    pub fn get(&self, argument: usize) -> Option<&Buffer> {
        self.0.get(argument)?.as_ref().map(|binding| &binding.buffer)
    }

    /// Their addresses on a GPU, in order.
    pub fn addresses(&self) -> Vec<u64> {
        self.of_graph().iter().map(bornite_cuda::Argument::address).collect()
    }

    /// Arguments of a CUDA graph, in order.
    pub fn of_graph(&self) -> Vec<bornite_cuda::Argument<'_>> {
        self.0.iter().flatten().filter_map(|binding| binding.buffer.argument()).collect()
    }

    /// True if every call has the same memory: that of the trace.
    pub fn is_fixed(&self) -> bool {
        !self.0.iter().flatten().any(|binding| binding.is_direct)
    }
}

impl Arguments {
    /// Arguments like these, of a plan with this number of steps that reads some of them.
    pub fn new(device: Device, specs: Vec<TensorSpec>, read: &HashSet<usize>, steps: usize) -> Arguments {
        let is_gpu = device.is_cuda();
        let copied_bytes = if is_gpu { COPIED_BYTES.max(COPIED_BYTES_PER_STEP * steps) } else { 0 };
        let launch_bytes = (BYTES_PER_LAUNCH * steps) as i64;
        let slot = |(n, spec): (usize, TensorSpec)| {
            let credit = LAUNCHES as i64 * launch_bytes;
            Slot { spec, is_read: read.contains(&n), copy: None, length: None, credit }
        };
        let slots = specs.into_iter().enumerate().map(slot).collect();
        Arguments { device, slots, copied_bytes, launch_bytes }
    }

    /// Dtypes, shapes and devices of the arguments.
    pub fn specs(&self) -> impl Iterator<Item = &TensorSpec> {
        self.slots.iter().map(|slot| &slot.spec)
    }

    /// Memory for the arguments of a call that need no values: copies, if all of them are copied at every call.
    pub fn bind_copies(&mut self) -> Result<Option<BoundArguments>> {
        let copied = |slot: &Slot| !slot.is_read || slot.bytes() <= self.copied_bytes;
        if !self.device.is_cuda() || !self.slots.iter().all(copied) {
            return Ok(None);
        }
        let bind = |slot: &mut Slot| slot.is_read.then(|| slot.copied(self.device)).transpose();
        self.slots.iter_mut().map(bind).collect::<Result<_>>().map(|bound| Some(BoundArguments(bound)))
    }

    /// Memory for the arguments and lengths of a call. `is_written` tells whether the replay writes memory; results that are held
    /// and values of variables that are held must have moved away from it before. The device is locked.
    pub fn bind(
        &mut self,
        inputs: &[Tensor],
        lengths: &[usize],
        is_written: impl Fn(&Buffer) -> bool,
        place: SourceLocation,
    ) -> Result<BoundArguments> {
        let (device, copied_bytes) = (self.device, self.copied_bytes);
        let (arguments, scalars) = self.slots.split_at_mut(inputs.len());
        let mut bound = vec![];
        for (slot, input) in arguments.iter_mut().zip(inputs) {
            let (value, node) = (value_of(input)?, input.node()?);
            if !slot.is_read {
                bound.push(None);
                continue;
            }
            // The memory of any other node was allocated for it and is never written again.
            let may_be_written = node.op.storage_may_move();
            debug_assert!(may_be_written || !is_written(&value), "{} in memory that a trace writes", node.op.name());
            let fits = node.shape == slot.spec.shape && slot.may_read(&value, copied_bytes);
            bound.push(Some(if fits && !(may_be_written && is_written(&value)) {
                Binding { buffer: value, is_direct: true }
            } else {
                slot.copy_of(value, &node.shape, device, place)?
            }));
        }
        for (slot, &length) in scalars.iter_mut().zip(lengths) {
            bound.push(slot.is_read.then(|| slot.copy_of_length(length, device)).transpose()?);
        }
        Ok(BoundArguments(bound))
    }

    /// Accounts for a call on a GPU; `novel` tells for each argument of the graph whether its address was new. True if an argument is
    /// copied from now on.
    pub fn account(&mut self, bound: &BoundArguments, ran: RunKind, novel: &[bool], place: SourceLocation) -> bool {
        let launches = match ran {
            RunKind::Graph => 0,
            RunKind::Steps => 1,
            // Each step is launched into the capture, then instantiated.
            RunKind::Captured => 2,
        };
        let (cost, most) = (launches * self.launch_bytes, LAUNCHES as i64 * self.launch_bytes);
        let mut novel = novel.iter().copied();
        let to_blame: Vec<bool> =
            bound.0.iter().map(|binding| binding.is_some() && novel.next().unwrap_or(false)).collect();
        // A new combination of known addresses is nobody's, so everybody's.
        let anyone = !to_blame.contains(&true);
        let mut changed = false;
        for (n, ((slot, binding), novel)) in self.slots.iter_mut().zip(&bound.0).zip(to_blame).enumerate() {
            if !binding.as_ref().is_some_and(|binding| binding.is_direct) {
                continue;
            }
            let cost = if anyone || novel { cost } else { 0 };
            slot.credit = slot.credit.saturating_add(slot.bytes() as i64 - cost).min(most);
            if slot.credit < 0 {
                changed = true;
                bornite_support::log!(
                    Info,
                    "argument {n} of the trace of {place}, {}, is copied from now on: it was at a new address too often, and \
                     a copy costs less than launches without a CUDA graph. Pass the same tensors again to have them read \
                     without a copy",
                    slot.spec
                );
            }
        }
        changed
    }

    /// Compiles the copies that bounded lengths need.
    pub fn compile_moves(&self) -> Result<()> {
        self.specs().try_for_each(|spec| resize::compiled(spec.dtype, spec.device).map(drop))
    }
}

impl Slot {
    fn bytes(&self) -> usize {
        self.spec.shape.iter().product::<usize>() * self.spec.dtype.bytes()
    }

    /// Whether the plan may read memory of the traced shape where it is.
    fn may_read(&self, value: &Buffer, copied_bytes: usize) -> bool {
        // On the host, memory has the alignment that kernels need.
        let Some(argument) = value.argument() else { return true };
        self.credit >= 0 && self.bytes() > copied_bytes && argument.address().is_multiple_of(ALIGNMENT as u64)
    }

    /// The memory for a copy.
    fn copied(&mut self, device: Device) -> Result<Binding> {
        let buffer = match &self.copy {
            Some(copy) => copy.clone(),
            None => self.copy.insert(Buffer::new(device, self.bytes())?).clone(),
        };
        Ok(Binding { buffer, is_direct: false })
    }

    /// A copy of a value, padded with zeros to the traced shape.
    fn copy_of(
        &mut self,
        mut value: Buffer,
        shape: &[usize],
        device: Device,
        place: SourceLocation,
    ) -> Result<Binding> {
        let binding = self.copied(device)?;
        let (copy, spec) = (&binding.buffer, &self.spec);
        let mut moves = ResizeCopy::between(shape, &spec.shape).into_iter().peekable();
        while let Some(longer) = moves.next() {
            let bytes = longer.sizes().1 * spec.dtype.bytes();
            let to = if moves.peek().is_none() { copy.clone() } else { Buffer::new(device, bytes)? };
            longer.run(&to, &value, spec.dtype, device, place)?;
            value = to;
        }
        copy.copy_from(&value)?;
        Ok(binding)
    }

    fn copy_of_length(&mut self, length: usize, device: Device) -> Result<Binding> {
        let binding = self.copied(device)?;
        if self.length != Some(length) {
            self.length = None;
            binding.buffer.copy_from(&Buffer::from_words(device, vec![length as u64])?)?;
            self.length = Some(length);
        }
        Ok(binding)
    }
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
