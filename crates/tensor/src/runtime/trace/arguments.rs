//! Arguments of a replay: read directly, or copied into buffers of the trace.
//!
//! An argument is copied if its shape differs from the traced one (a bounded length), or if the
//! replay writes its memory. On a GPU it is also copied if it is small, not aligned, or at a new
//! address too often: a CUDA graph is bound to addresses, so a new one costs separate launches.

use std::collections::HashSet;

use super::TensorSpec;
use crate::runtime::buffer::Buffer;
use crate::runtime::resize::{self, ResizeCopy};
use crate::schedule::{ALIGNMENT, value_of};
use crate::{Device, Result, SourceLocation, Tensor};

/// Arguments of at most this size are copied on a GPU. A copy takes about 2 µs plus less than 1 µs
/// for this size. A batch of tokens, which is at a new address at each call, then needs no new
/// graph.
const COPIED_BYTES: usize = 256 << 10;
/// As `COPIED_BYTES`, per step of the plan. A step takes at least 1.5 µs in a graph, a copy of this
/// size 0.016 µs: 1%.
const COPIED_BYTES_PER_STEP: usize = 32 << 10;
/// Bytes that a GPU copies in the time that the launch of one step costs the host: 3 µs at 2 TB/s.
const BYTES_PER_LAUNCH: usize = 6 << 20;
/// Initial credit of an argument, in launches of all steps. When it is used up without savings, the
/// argument is always copied. Enough to run and capture four rotating sets of arguments, which pays
/// off later.
const CREDIT_LAUNCHES: usize = 16;

/// Arguments of a trace, with buffers for copies of them.
pub(super) struct Arguments {
    device: Device,
    slots: Vec<ArgumentSlot>,
    /// Arguments of at most this many bytes are copied.
    copied_bytes: usize,
    /// Cost of launching all steps separately, as bytes that could be copied in that time.
    launch_bytes: i64,
}

/// An argument, or a dynamic length.
struct ArgumentSlot {
    spec: TensorSpec,
    /// If unset, the plan does not read it.
    is_read: bool,
    /// Buffer for a copy; allocated on first use.
    copy: Option<Buffer>,
    /// The length that `copy` holds.
    length: Option<usize>,
    /// Bytes saved by direct reads, minus the cost of launches without a graph; capped. Below zero,
    /// the argument is always copied.
    credit: i64,
}

/// Buffers of the arguments of one call. It keeps them alive, so it must not outlive the call.
#[derive(Default)]
pub(super) struct BoundArguments(Vec<Option<Binding>>);

struct Binding {
    buffer: Buffer,
    /// If set, it is the argument's own memory, not a copy.
    is_direct: bool,
}

/// Kind of a run on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RunKind {
    /// By an existing graph.
    Graph,
    /// Step by step.
    Steps,
    /// By a newly captured graph.
    Captured,
}

impl BoundArguments {
    /// Buffer of an argument; `None` if the plan does not read it.
    pub fn get(&self, argument: usize) -> Option<&Buffer> {
        self.0.get(argument)?.as_ref().map(|binding| &binding.buffer)
    }

    /// GPU addresses, in order.
    pub fn addresses(&self) -> Vec<u64> {
        self.graph_arguments().iter().map(bornite_cuda::GraphArgument::address).collect()
    }

    /// Arguments of a CUDA graph, in order.
    pub fn graph_arguments(&self) -> Vec<bornite_cuda::GraphArgument<'_>> {
        self.0.iter().flatten().filter_map(|binding| binding.buffer.argument()).collect()
    }

    /// True if all arguments are copies, whose addresses are the same in every call.
    pub fn is_fixed(&self) -> bool {
        !self.0.iter().flatten().any(|binding| binding.is_direct)
    }
}

impl Arguments {
    /// Arguments of a plan with `steps` steps that reads those in `read`.
    pub fn new(device: Device, specs: Vec<TensorSpec>, read: &HashSet<usize>, steps: usize) -> Arguments {
        let is_gpu = device.is_cuda();
        let copied_bytes = if is_gpu { COPIED_BYTES.max(COPIED_BYTES_PER_STEP * steps) } else { 0 };
        let launch_bytes = (BYTES_PER_LAUNCH * steps) as i64;
        let slot = |(n, spec): (usize, TensorSpec)| {
            let credit = CREDIT_LAUNCHES as i64 * launch_bytes;
            ArgumentSlot { spec, is_read: read.contains(&n), copy: None, length: None, credit }
        };
        let slots = specs.into_iter().enumerate().map(slot).collect();
        Arguments { device, slots, copied_bytes, launch_bytes }
    }

    /// Specifications of the arguments.
    pub fn specs(&self) -> impl Iterator<Item = &TensorSpec> {
        self.slots.iter().map(|slot| &slot.spec)
    }

    /// Buffers of the copies, if all arguments are copied at every call.
    pub fn bind_copies(&mut self) -> Result<Option<BoundArguments>> {
        let copied = |slot: &ArgumentSlot| !slot.is_read || slot.bytes() <= self.copied_bytes;
        if !self.device.is_cuda() || !self.slots.iter().all(copied) {
            return Ok(None);
        }
        let bind = |slot: &mut ArgumentSlot| slot.is_read.then(|| slot.copy_buffer(self.device)).transpose();
        self.slots.iter_mut().map(bind).collect::<Result<_>>().map(|bound| Some(BoundArguments(bound)))
    }

    /// Binds the arguments and lengths of a call. `is_written` returns true for memory that the
    /// replay writes; results and values of variables that are still referenced must have been
    /// moved away from it. The device must be locked.
    pub fn bind(
        &mut self,
        inputs: &[Tensor],
        lengths: &[usize],
        is_written: impl Fn(&Buffer) -> bool,
        location: SourceLocation,
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
            // The memory of other nodes is never written again.
            let may_be_written = node.op.storage_may_move();
            debug_assert!(may_be_written || !is_written(&value), "{} in memory that a trace writes", node.op.name());
            let fits = node.shape == slot.spec.shape && slot.can_read_directly(&value, copied_bytes);
            bound.push(Some(if fits && !(may_be_written && is_written(&value)) {
                Binding { buffer: value, is_direct: true }
            } else {
                slot.copy_of(value, &node.shape, device, location)?
            }));
        }
        for (slot, &length) in scalars.iter_mut().zip(lengths) {
            bound.push(slot.is_read.then(|| slot.copy_of_length(length, device)).transpose()?);
        }
        Ok(BoundArguments(bound))
    }

    /// Updates the credits after a call on a GPU. `novel` is true for each argument of the graph
    /// whose address was new. Returns true if an argument is copied from now on.
    pub fn account(&mut self, bound: &BoundArguments, ran: RunKind, novel: &[bool], location: SourceLocation) -> bool {
        let launches = match ran {
            RunKind::Graph => 0,
            RunKind::Steps => 1,
            // Each step is launched into the capture, then instantiated.
            RunKind::Captured => 2,
        };
        let (cost, max_credit) = (launches * self.launch_bytes, CREDIT_LAUNCHES as i64 * self.launch_bytes);
        let mut novel = novel.iter().copied();
        let is_new: Vec<bool> =
            bound.0.iter().map(|binding| binding.is_some() && novel.next().unwrap_or(false)).collect();
        // A new combination of known addresses is charged to all arguments.
        let charge_all = !is_new.contains(&true);
        let mut changed = false;
        for (n, ((slot, binding), novel)) in self.slots.iter_mut().zip(&bound.0).zip(is_new).enumerate() {
            if !binding.as_ref().is_some_and(|binding| binding.is_direct) {
                continue;
            }
            let cost = if charge_all || novel { cost } else { 0 };
            slot.credit = slot.credit.saturating_add(slot.bytes() as i64 - cost).min(max_credit);
            if slot.credit < 0 {
                changed = true;
                bornite_support::log!(
                    Info,
                    "argument {n} of the function traced at {location}, {}, is copied from now on: its address changed too often, and \
                     a copy costs less than launches without a CUDA graph. Pass the same tensors to avoid the copy",
                    slot.spec
                );
            }
        }
        changed
    }

    /// Compiles the copies that bounded lengths need.
    pub fn compile_copies(&self) -> Result<()> {
        self.specs().try_for_each(|spec| resize::compiled(spec.dtype, spec.device).map(drop))
    }
}

impl ArgumentSlot {
    fn bytes(&self) -> usize {
        self.spec.shape.iter().product::<usize>() * self.spec.dtype.bytes()
    }

    /// True if the plan may read this memory directly.
    fn can_read_directly(&self, value: &Buffer, copied_bytes: usize) -> bool {
        // Host memory always has the required alignment.
        let Some(argument) = value.argument() else { return true };
        self.credit >= 0 && self.bytes() > copied_bytes && argument.address().is_multiple_of(ALIGNMENT as u64)
    }

    /// The buffer for copies.
    fn copy_buffer(&mut self, device: Device) -> Result<Binding> {
        let buffer = match &self.copy {
            Some(copy) => copy.clone(),
            None => self.copy.insert(Buffer::new(device, self.bytes())?).clone(),
        };
        Ok(Binding { buffer, is_direct: false })
    }

    /// Copies a value, padded with zeros to the traced shape.
    fn copy_of(
        &mut self,
        mut value: Buffer,
        shape: &[usize],
        device: Device,
        location: SourceLocation,
    ) -> Result<Binding> {
        let binding = self.copy_buffer(device)?;
        let (copy, spec) = (&binding.buffer, &self.spec);
        let mut copies = ResizeCopy::between(shape, &spec.shape).into_iter().peekable();
        while let Some(longer) = copies.next() {
            let bytes = longer.sizes().1 * spec.dtype.bytes();
            let to = if copies.peek().is_none() { copy.clone() } else { Buffer::new(device, bytes)? };
            longer.run(&to, &value, spec.dtype, device, location)?;
            value = to;
        }
        copy.copy_from(&value)?;
        Ok(binding)
    }

    fn copy_of_length(&mut self, length: usize, device: Device) -> Result<Binding> {
        let binding = self.copy_buffer(device)?;
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
