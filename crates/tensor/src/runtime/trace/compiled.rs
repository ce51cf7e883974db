//! A plan with its memory, replayed at each call.
//!
//! On CUDA the replay is one graph launch. Its addresses are fixed, so arguments are copied in, variables settle at
//! their home, and a result that is still held when its memory is needed again gets a copy.

use std::any::Any;
use std::collections::HashSet;
use std::sync::{Arc, Weak};

use super::Spec;
use super::homecoming::Homecoming;
use crate::graph::node::{Node, Op};
use crate::runtime::arena::scratch;
use crate::runtime::buffer::Buffer;
use crate::runtime::moves::{self, Move};
use crate::runtime::var::{changes, check_updates};
use crate::schedule::{Explained, Plan, Present, plan, value_of};
use crate::{Device, Error, Place, Result, Tensor, Update, Var};

/// A plan with its memory.
pub(super) struct Compiled {
    plan: Plan,
    /// For each source of the plan, where it comes from at each call.
    sources: Vec<Source>,
    /// Memory at which arguments are expected, and lengths after them; what is expected there.
    inputs: Vec<Buffer>,
    slots: Vec<Spec>,
    /// The lengths that are there.
    lengths: Vec<Option<usize>>,
    roots: Vec<Buffer>,
    temps: Buffer,
    /// For each result, its root.
    outputs: Vec<usize>,
    /// For each result, a node of its kind.
    results: Vec<Node>,
    /// For each result, the axes that are cut and the numbers of their lengths.
    cuts: Vec<Vec<(usize, usize)>>,
    /// For each result, the tensor last handed out on its memory.
    handed_out: Vec<Weak<Node>>,
    /// Variables to write, each with the root of its new value.
    updates: Vec<(Var, usize)>,
    /// All variables, and whether they are written.
    variables: Vec<(Var, bool)>,
    /// Addresses, once variables have a home; and how often any had changed or was read when these were last there.
    settled: Option<(Addresses, u64)>,
    /// What computes new values and brings them home, on CUDA.
    graph: Option<bornite_cuda::Graph>,
}

/// Where things are that a plan reads and writes; it stays so.
struct Addresses {
    sources: Vec<Buffer>,
    /// For each update, the variable's home.
    homes: Vec<Buffer>,
}

/// A result that is cut: its shape, and copies with the memory that they write.
struct Cut {
    shape: Vec<usize>,
    moves: Vec<(Buffer, Move)>,
}

enum Source {
    /// An argument.
    Input(usize),
    /// A variable, at its home.
    Var(Var),
    /// A value that the function captured.
    Constant(Buffer),
}

impl Compiled {
    /// Plans what a function returned for placeholders, and the variables that it read with those that stand for them.
    pub fn new(
        inputs: &[Tensor],
        slots: Vec<Spec>,
        variables: Vec<(Var, Tensor)>,
        outputs: &[Tensor],
        updates: Vec<Update>,
    ) -> Result<Compiled> {
        check_updates(&updates)?;
        let wanted: Vec<Tensor> = outputs.iter().chain(updates.iter().map(|u| &u.value)).cloned().collect();
        let device = match wanted.iter().chain(inputs).next() {
            Some(tensor) => tensor.node()?.device,
            None => Device::cpu(),
        };
        // New values that are not results as well can be written where the old ones are.
        let same = |a: &Tensor, b: &Tensor| a.0.id == b.0.id;
        let held = |update: &&Update| {
            let twice = updates.iter().filter(|other| same(&other.value, &update.value)).count() > 1;
            !twice && outputs.iter().all(|output| !same(output, &update.value))
        };
        let home = |update: &Update| {
            let (_, old) = variables.iter().find(|(var, _)| var.id() == update.var.id())?;
            Some((update.value.clone(), old.clone()))
        };
        let homes: Vec<(Tensor, Tensor)> = updates.iter().filter(held).filter_map(home).collect();
        let mut plan = plan(&wanted, Present::Copy, &homes)?;
        if let (Device::Cuda(_), true) = (device, plan.reports()) {
            Homecoming::ready(device)?; // compiled before the device is locked, which the first call does
        }
        let _running = device.lock();
        let mut sources = vec![];
        for source in &plan.sources {
            sources.push(if let Some(n) = inputs.iter().position(|i| i.0.id == source.0.id) {
                Source::Input(n)
            } else if let Some((var, _)) = variables.iter().find(|(_, t)| t.0.id == source.0.id) {
                Source::Var(var.clone())
            } else {
                let value = value_of(source)?;
                let moves = source.0.op.storage_may_move();
                Source::Constant(if moves { value.duplicate(device)? } else { value })
            });
        }
        let root_of = |t: &Tensor| plan.roots.iter().position(|r| r.0.id == t.0.id).unwrap_or_default();
        let outputs: Vec<usize> = outputs.iter().map(root_of).collect();
        let updates: Vec<(Var, usize)> = updates.iter().map(|u| (u.var.clone(), root_of(&u.value))).collect();
        let mut used: Vec<(Var, bool)> = updates.iter().map(|(var, _)| (var.clone(), true)).collect();
        let mut seen: HashSet<u64> = used.iter().map(|(var, _)| var.id()).collect();
        for source in &sources {
            if let Source::Var(var) = source
                && seen.insert(var.id())
            {
                used.push((var.clone(), false));
            }
        }
        let (roots, temps) = (plan.allocate_roots()?, scratch(plan.device, plan.scratch_bytes)?);
        let results = outputs.iter().map(|&root| plan.roots[root].node().map(Node::without_history));
        let results: Vec<Node> = results.collect::<Result<_>>()?;
        plan.drop_graph();
        Ok(Compiled {
            sources,
            inputs: inputs.iter().map(|t| Buffer::new(device, t.0.bytes())).collect::<Result<_>>()?,
            lengths: vec![None; slots.len()],
            slots,
            handed_out: outputs.iter().map(|_| Weak::new()).collect(),
            roots,
            temps,
            cuts: vec![vec![]; outputs.len()],
            outputs,
            results,
            updates,
            variables: used,
            settled: None,
            graph: None,
            plan,
        })
    }

    /// Has results cut: for each, axes and the numbers of their lengths.
    pub fn with_cuts(self, cuts: Vec<Vec<(usize, usize)>>) -> Compiled {
        Compiled { cuts, ..self }
    }

    /// Compiles the copies of arguments and results of bounded length. The device is not locked.
    pub fn compile_moves(&self) -> Result<()> {
        let arguments = self.slots.iter().map(|slot| (slot.dtype, slot.device));
        let results = self.results.iter().map(|like| (like.dtype, like.device));
        arguments.chain(results).try_for_each(|(dtype, device)| moves::ready(dtype, device).map(drop))
    }

    /// Makes what does not depend on the elements of arguments.
    pub fn prepare(&mut self) -> Result<()> {
        let _running = self.plan.device.lock();
        self.use_scratch()?;
        self.settle()?;
        self.record()
    }

    /// Computes the results for these arguments and changes the variables.
    pub fn replay(&mut self, inputs: &[Tensor], lengths: &[usize], place: Place) -> Result<Vec<Tensor>> {
        let _running = self.plan.device.lock();
        self.use_scratch()?;
        self.take(inputs, lengths, place)?;
        self.leave_to_readers()?;
        let cut = self.cut_to(lengths)?;
        self.settle()?;
        self.run()?;
        // Variables have changed: from here on it succeeds or fails for another reason than an interrupt.
        crate::interruptible(None, || self.hand_out(cut, place))
    }

    /// What a replay runs.
    pub fn explained(&self) -> Explained {
        self.plan.explained()
    }

    /// Where another trace has made the shared scratch memory grow, this one moves there, and records anew.
    fn use_scratch(&mut self) -> Result<()> {
        let temps = scratch(self.plan.device, self.plan.scratch_bytes)?;
        if !temps.is(&self.temps) {
            (self.temps, self.graph) = (temps, None);
        }
        Ok(())
    }

    /// Copies arguments and lengths to where they are expected.
    fn take(&mut self, inputs: &[Tensor], lengths: &[usize], place: Place) -> Result<()> {
        for ((slot, spec), input) in self.inputs.iter().zip(&self.slots).zip(inputs) {
            let (mut value, shape) = (value_of(input)?, &input.node()?.shape);
            let mut moves = Move::between(shape, &spec.shape).into_iter().peekable();
            while let Some(longer) = moves.next() {
                let bytes = longer.sizes().1 * spec.dtype.bytes();
                let to = if moves.peek().is_none() { slot.clone() } else { Buffer::new(spec.device, bytes)? };
                longer.run(&to, &value, spec.dtype, spec.device, place)?;
                value = to;
            }
            slot.copy_from(&value)?;
        }
        let slots = self.inputs.iter().zip(&self.slots).skip(inputs.len());
        for (((slot, spec), held), &length) in slots.zip(&mut self.lengths).zip(lengths) {
            if *held != Some(length) {
                *held = None;
                slot.copy_from(&Buffer::from_words(spec.device, vec![length as u64])?)?;
                *held = Some(length);
            }
        }
        Ok(())
    }

    /// Results that are still held get a copy of their own.
    fn leave_to_readers(&mut self) -> Result<()> {
        for (held, &root) in self.handed_out.iter_mut().zip(&self.outputs) {
            if let Some(reader) = held.upgrade() {
                reader.set_value(self.roots[root].duplicate(self.plan.device)?);
                *held = Weak::new();
            }
        }
        Ok(())
    }

    /// Brings variables to their homes. While none was committed or read since the last time, they are there.
    fn settle(&mut self) -> Result<()> {
        let now = changes();
        if let Some((_, then)) = &self.settled
            && *then == now
        {
            return Ok(());
        }
        for (var, changes) in &self.variables {
            var.settle(*changes)?;
        }
        let addresses = match self.settled.take() {
            Some((addresses, _)) => addresses,
            None => {
                let source = |source: &Source| match source {
                    Source::Input(n) => Ok(self.inputs[*n].clone()),
                    Source::Var(var) => var.home(),
                    Source::Constant(buffer) => Ok(buffer.clone()),
                };
                let sources = self.sources.iter().map(source).collect::<Result<_>>()?;
                let homes = self.updates.iter().map(|(var, _)| var.home()).collect::<Result<_>>()?;
                Addresses { sources, homes }
            }
        };
        self.settled = Some((addresses, now));
        Ok(())
    }

    /// How results are cut and the memory for it, taken before anything changes.
    fn cut_to(&self, lengths: &[usize]) -> Result<Vec<Option<Cut>>> {
        let cut = |(like, cuts): (&Node, &Vec<(usize, usize)>)| {
            let mut shape = like.shape.clone();
            for &(axis, length) in cuts {
                shape[axis] = lengths[length];
            }
            let moves = Move::between(&like.shape, &shape);
            if moves.is_empty() {
                return Ok(None);
            }
            moves::ready(like.dtype, like.device)?;
            let room = |shorter: Move| Ok((Buffer::new(like.device, shorter.sizes().1 * like.dtype.bytes())?, shorter));
            Ok(Some(Cut { shape, moves: moves.into_iter().map(room).collect::<Result<_>>()? }))
        };
        self.results.iter().zip(&self.cuts).map(cut).collect()
    }

    /// Computes the results and changes the variables. Those change only when it is known that no index was bad.
    fn run(&mut self) -> Result<()> {
        self.record()?;
        match &mut self.graph {
            // A graph is one launch to the clock: whoever profiles wants to see its kernels.
            Some(graph) if !bornite_support::profile::is_on() => {
                graph.launch()?;
                self.plan.check()?;
            }
            _ => {
                self.compute()?;
                self.plan.check()?;
                self.bring_home()?;
            }
        }
        Ok(())
    }

    fn compute(&self) -> Result<()> {
        let Some((addresses, _)) = &self.settled else { return Ok(()) };
        self.plan.run(&self.roots, Some(&self.temps), &addresses.sources)
    }

    /// Copies new values home that were not computed there.
    fn bring_home(&self) -> Result<()> {
        let Some((addresses, _)) = &self.settled else { return Ok(()) };
        for (home, (_, root)) in addresses.homes.iter().zip(&self.updates) {
            if !self.plan.in_place.contains(root) {
                home.copy_from(&self.roots[*root])?;
            }
        }
        Ok(())
    }

    /// As [`bring_home`](Compiled::bring_home) before it is known whether an index was bad: the device looks.
    fn bring_home_if_good(&self, homecoming: &Homecoming, status: &Buffer) -> Result<()> {
        let Some((addresses, _)) = &self.settled else { return Ok(()) };
        for (home, (_, root)) in addresses.homes.iter().zip(&self.updates) {
            if !self.plan.in_place.contains(root) {
                homecoming.run(home, &self.roots[*root], status)?;
            }
        }
        Ok(())
    }

    /// Captures the graph on CUDA, if it is not there and nobody profiles.
    fn record(&mut self) -> Result<()> {
        let (Device::Cuda(ordinal), Some((addresses, _))) = (self.plan.device, &self.settled) else { return Ok(()) };
        if self.graph.is_some() || bornite_support::profile::is_on() {
            return Ok(());
        }
        let device = bornite_cuda::Device::open(ordinal)?;
        let buffers =
            [&self.roots[..], std::slice::from_ref(&self.temps), &addresses.sources, &addresses.homes].concat();
        let mut kept: Vec<Arc<dyn Any + Send + Sync>> = buffers.iter().filter_map(Buffer::kept).collect();
        kept.extend(self.plan.programs());
        let guarded = match self.plan.status() {
            Some(status) => {
                let homecoming = Homecoming::ready(self.plan.device)?;
                kept.push(homecoming.kept());
                kept.extend(status.kept());
                Some((homecoming, status))
            }
            None => None,
        };
        self.plan.warm(&self.roots, Some(&self.temps), &addresses.sources)?;
        let whole = || {
            self.compute()?;
            match &guarded {
                Some((homecoming, status)) => self.bring_home_if_good(homecoming, status),
                None => self.bring_home(),
            }
        };
        // SAFETY: these are all the buffers and programs that the work uses; the library's workspace is never freed.
        #[allow(unsafe_code)]
        let graph = unsafe { bornite_cuda::Graph::capture::<Error>(&device, kept, whole)? };
        self.graph = Some(graph);
        Ok(())
    }

    /// The results as tensors; those that are not cut are on the memory that the next call writes.
    fn hand_out(&mut self, cut: Vec<Option<Cut>>, place: Place) -> Result<Vec<Tensor>> {
        let mut whole: Vec<Option<Tensor>> = vec![None; self.roots.len()];
        let mut results = vec![];
        for (n, (cut, like)) in cut.into_iter().zip(&self.results).enumerate() {
            let root = self.outputs[n];
            results.push(match cut {
                Some(Cut { shape, moves }) => {
                    let mut value = self.roots[root].clone();
                    for (to, shorter) in moves {
                        shorter.run(&to, &value, like.dtype, like.device, place)?;
                        value = to;
                    }
                    let node = Node::new(Op::Data, like.dtype, shape, like.device, vec![], place);
                    node.set_value(value);
                    Tensor(Arc::new(node))
                }
                None => {
                    let make = || Tensor(Arc::new(Node::leaf(Op::Output, like, place, self.roots[root].clone())));
                    let tensor = whole[root].get_or_insert_with(make).clone();
                    self.handed_out[n] = Arc::downgrade(&tensor.0);
                    tensor
                }
            });
        }
        Ok(results)
    }
}
