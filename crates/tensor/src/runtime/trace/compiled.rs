//! A plan with its memory, replayed at each call.
//!
//! On CUDA the replay is one graph launch. Its addresses are fixed: `arguments.rs` decides which arguments are read where they are and
//! which are copied, `graphs.rs` keeps a graph for each set of their addresses. Variables settle at their home, and a result that is
//! still held when its memory is needed again gets a copy.

use std::any::Any;
use std::collections::HashSet;
use std::sync::{Arc, Weak};

use super::TensorSpec;
use super::arguments::{Arguments, BoundArguments, RunKind};
use super::graphs::{Graphs, Miss};
use super::write_back::GuardedCopy;
use crate::graph::node::{Node, Op};
use crate::runtime::buffer::Buffer;
use crate::runtime::resize::{self, ResizeCopy};
use crate::runtime::scratch::scratch;
use crate::runtime::var::{changes, check_updates};
use crate::schedule::{ExistingRoots, Plan, PlanSummary, plan, value_of};
use crate::{Device, Error, Result, SourceLocation, Tensor, Update, Var};

/// A plan with its memory.
pub(super) struct Compiled {
    plan: Plan,
    /// For each source of the plan, where it comes from at each call.
    sources: Vec<Source>,
    /// Arguments, and lengths after them.
    arguments: Arguments,
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
    graphs: Graphs<bornite_cuda::Graph>,
    /// Whether the library's calls have run, so that a capture need not load their code.
    is_warm: bool,
}

/// Where things are that a plan reads and writes; it stays so.
struct Addresses {
    /// For each source that is no argument, its memory.
    sources: Vec<Option<Buffer>>,
    /// For each update, the variable's home.
    homes: Vec<Buffer>,
}

/// A result that is cut: its shape, and copies with the memory that they write.
struct Cut {
    shape: Vec<usize>,
    moves: Vec<(Buffer, ResizeCopy)>,
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
        slots: Vec<TensorSpec>,
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
        let mut plan = plan(&wanted, ExistingRoots::Copy, &homes)?;
        if device.is_cuda() && plan.reports_bad_index() {
            GuardedCopy::ready(device)?; // compiled before the device is locked, which the first call does
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
        let read = |source: &Source| if let Source::Input(n) = source { Some(*n) } else { None };
        let read: HashSet<usize> = sources.iter().filter_map(read).collect();
        Ok(Compiled {
            sources,
            arguments: Arguments::new(plan.device, slots, &read, plan.steps.len()),
            handed_out: outputs.iter().map(|_| Weak::new()).collect(),
            roots,
            temps,
            cuts: vec![vec![]; outputs.len()],
            outputs,
            results,
            updates,
            variables: used,
            settled: None,
            graphs: Graphs::default(),
            is_warm: false,
            plan,
        })
    }

    /// Has results cut: for each, axes and the numbers of their lengths.
    pub fn with_cuts(self, cuts: Vec<Vec<(usize, usize)>>) -> Compiled {
        Compiled { cuts, ..self }
    }

    /// Compiles the copies of arguments and results of bounded length. The device is not locked.
    pub fn compile_moves(&self) -> Result<()> {
        self.arguments.compile_moves()?;
        self.results.iter().try_for_each(|like| resize::compiled(like.dtype, like.device).map(drop))
    }

    /// Makes what depends neither on the elements of arguments nor on where they are.
    pub fn prepare(&mut self) -> Result<()> {
        let _running = self.plan.device.lock();
        self.use_scratch()?;
        self.settle()?;
        if let Some(device) = self.graph_device()?
            && let Some(bound) = self.arguments.bind_copies()?
            && self.graphs.find(&bound.addresses()).is_none()
        {
            self.capture(&device, &bound, None)?;
        }
        Ok(())
    }

    /// Computes the results for these arguments and changes the variables.
    pub fn replay(&mut self, inputs: &[Tensor], lengths: &[usize], place: SourceLocation) -> Result<Vec<Tensor>> {
        let _running = self.plan.device.lock();
        self.use_scratch()?;
        self.leave_to_readers()?;
        let cut = self.cut_to(lengths)?;
        self.settle()?;
        // An argument may be a result or a variable that was just moved, so where it is is known only now.
        let bound = self.bind(inputs, lengths, place)?;
        self.run(&bound, place)?;
        // Variables have changed: from here on it succeeds or fails for another reason than an interrupt.
        crate::interruptible(None, || self.hand_out(cut, place))
    }

    /// What a replay runs.
    pub fn summary(&self) -> PlanSummary {
        self.plan.summary()
    }

    /// Where another trace has made the shared scratch memory grow, this one moves there, and records anew.
    fn use_scratch(&mut self) -> Result<()> {
        let temps = scratch(self.plan.device, self.plan.scratch_bytes)?;
        if !temps.is_same(&self.temps) {
            self.temps = temps;
            self.graphs.clear();
        }
        Ok(())
    }

    /// The memory in which the plan reads arguments and lengths at this call.
    fn bind(&mut self, inputs: &[Tensor], lengths: &[usize], place: SourceLocation) -> Result<BoundArguments> {
        let Compiled { arguments, roots, temps, settled, .. } = self;
        let homes = || settled.iter().flat_map(|(addresses, _)| &addresses.homes);
        let is_written = |buffer: &Buffer| {
            let mut written = roots.iter().chain([&*temps]).chain(homes());
            written.any(|written| written.overlaps(buffer))
        };
        arguments.bind(inputs, lengths, is_written, place)
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
                    Source::Input(_) => Ok(None),
                    Source::Var(var) => var.home().map(Some),
                    Source::Constant(buffer) => Ok(Some(buffer.clone())),
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
            let moves = ResizeCopy::between(&like.shape, &shape);
            if moves.is_empty() {
                return Ok(None);
            }
            resize::compiled(like.dtype, like.device)?;
            let room =
                |shorter: ResizeCopy| Ok((Buffer::new(like.device, shorter.sizes().1 * like.dtype.bytes())?, shorter));
            Ok(Some(Cut { shape, moves: moves.into_iter().map(room).collect::<Result<_>>()? }))
        };
        self.results.iter().zip(&self.cuts).map(cut).collect()
    }

    /// Computes the results and changes the variables. Those change only when it is known that no index was bad.
    fn run(&mut self, bound: &BoundArguments, place: SourceLocation) -> Result<()> {
        if let Some(device) = self.graph_device()?
            && self.launch_graph(&device, bound, place)?
        {
            return self.plan.check();
        }
        self.plan.run(&self.roots, Some(&self.temps), &self.sources(bound)?)?;
        self.is_warm = true;
        self.plan.check()?;
        self.bring_home()
    }

    /// The memory of all sources.
    fn sources(&self, bound: &BoundArguments) -> Result<Vec<Buffer>> {
        let Some((addresses, _)) = &self.settled else { return Ok(vec![]) };
        let source = |(source, fixed): (&Source, &Option<Buffer>)| match source {
            Source::Input(n) => bound.get(*n).cloned(),
            _ => fixed.clone(),
        };
        let sources = self.sources.iter().zip(&addresses.sources).map(source);
        sources.map(|buffer| buffer.ok_or(Error::OutOfMemory { bytes: 0 })).collect()
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
    fn bring_home_if_good(&self, homecoming: &GuardedCopy, status: &Buffer) -> Result<()> {
        let Some((addresses, _)) = &self.settled else { return Ok(()) };
        for (home, (_, root)) in addresses.homes.iter().zip(&self.updates) {
            if !self.plan.in_place.contains(root) {
                homecoming.run(home, &self.roots[*root], status)?;
            }
        }
        Ok(())
    }

    /// The device that replays by graphs. Not under the profiler, to which a graph is one launch: its kernels are to be seen.
    fn graph_device(&self) -> Result<Option<Arc<bornite_cuda::Device>>> {
        if bornite_support::profile::is_on() { Ok(None) } else { self.plan.device.gpu() }
    }

    /// Launches the graph for these arguments, captured if need be; false if the steps are better launched one by one.
    fn launch_graph(
        &mut self,
        device: &Arc<bornite_cuda::Device>,
        bound: &BoundArguments,
        place: SourceLocation,
    ) -> Result<bool> {
        let addresses = bound.addresses();
        let (graph, ran, novel) = match self.graphs.find(&addresses) {
            Some(index) => (Some(index), RunKind::Graph, vec![]),
            None => {
                let novel = self.graphs.novel(&addresses);
                match self.graphs.miss(&addresses, bound.is_fixed()) {
                    Miss::Steps => (None, RunKind::Steps, novel),
                    Miss::Capture => (Some(self.capture(device, bound, None)?), RunKind::Captured, novel),
                    Miss::Update(index) => (Some(self.capture(device, bound, Some(index))?), RunKind::Captured, novel),
                }
            }
        };
        if let Some(index) = graph {
            self.graphs.get(index).launch_with(&bound.of_graph())?;
        }
        if self.arguments.account(bound, ran, &novel, place) {
            self.graphs.clear();
        }
        Ok(graph.is_some())
    }

    /// Captures a graph for these arguments, or updates the one of an index to them; returns its index.
    fn capture(
        &mut self,
        device: &Arc<bornite_cuda::Device>,
        bound: &BoundArguments,
        update: Option<usize>,
    ) -> Result<usize> {
        let sources = self.sources(bound)?;
        if !self.is_warm {
            self.plan.warm_up(&self.roots, Some(&self.temps), &sources)?;
            self.is_warm = true;
        }
        // Borrowed apart from the rest, which is captured, and put back also after an error.
        let mut graphs = std::mem::take(&mut self.graphs);
        let index = self.capture_into(&mut graphs, device, bound, &sources, update);
        self.graphs = graphs;
        index
    }

    fn capture_into(
        &self,
        graphs: &mut Graphs<bornite_cuda::Graph>,
        device: &Arc<bornite_cuda::Device>,
        bound: &BoundArguments,
        sources: &[Buffer],
        update: Option<usize>,
    ) -> Result<usize> {
        let mut kept = self.kept_by_graphs();
        let guarded = match self.plan.status() {
            Some(status) => {
                let homecoming = GuardedCopy::ready(self.plan.device)?;
                kept.push(homecoming.kept());
                kept.extend(status.keep_alive());
                Some((homecoming, status))
            }
            None => None,
        };
        let whole = || {
            self.plan.run(&self.roots, Some(&self.temps), sources)?;
            match &guarded {
                Some((homecoming, status)) => self.bring_home_if_good(homecoming, status),
                None => self.bring_home(),
            }
        };
        let arguments = bound.of_graph();
        if let Some(index) = update {
            // SAFETY: as below.
            #[allow(unsafe_code)]
            unsafe {
                graphs.get(index).update_with::<Error>(kept, &arguments, whole)?
            };
            graphs.updated(index, bound.addresses());
            return Ok(index);
        }
        // SAFETY: the work uses roots, scratch memory, homes, constants, the status words and programs, which are kept, and the
        // arguments; the library's workspace is never freed.
        #[allow(unsafe_code)]
        let graph = unsafe { bornite_cuda::Graph::capture_with::<Error>(device, kept, &arguments, whole)? };
        Ok(graphs.insert(bound.addresses(), graph))
    }

    /// Handles on all memory and code that the replay uses, but for its arguments: the graphs must not keep those alive.
    fn kept_by_graphs(&self) -> Vec<Arc<dyn Any + Send + Sync>> {
        let addresses = self.settled.iter().map(|(addresses, _)| addresses);
        let fixed = addresses.flat_map(|Addresses { sources, homes }| sources.iter().flatten().chain(homes));
        let buffers = self.roots.iter().chain([&self.temps]).chain(fixed);
        buffers.filter_map(Buffer::keep_alive).chain(self.plan.keep_alive()).collect()
    }

    /// The results as tensors; those that are not cut are on the memory that the next call writes.
    fn hand_out(&mut self, cut: Vec<Option<Cut>>, place: SourceLocation) -> Result<Vec<Tensor>> {
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
