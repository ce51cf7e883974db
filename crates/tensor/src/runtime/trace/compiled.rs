//! A trace: a plan with its memory, replayed at each call.
//!
//! On CUDA a replay is one graph launch with fixed addresses: `arguments.rs` decides which
//! arguments are read directly and which are copied, `graphs.rs` caches a graph per set of
//! addresses. Variables live in persistent buffers, and a result that is still referenced when its
//! memory is needed again is copied first.

use std::any::Any;
use std::collections::HashSet;
use std::sync::{Arc, Weak};

use super::TensorSpec;
use super::arguments::{Arguments, BoundArguments, RunKind};
use super::graphs::{Graphs, Miss};
use super::host_value::{HostValue, ReceiveResult};
use super::write_back::GuardedCopy;
use crate::graph::node::{Node, Op};
use crate::runtime::buffer::Buffer;
use crate::runtime::resize::{self, ResizeCopy};
use crate::runtime::scratch::scratch;
use crate::runtime::var::{changes, check_updates};
use crate::schedule::{ExistingResults, Plan, PlanSummary, plan, value_of};
use crate::{Device, Error, Result, SourceLocation, Tensor, Update, Var};

/// A plan with its memory.
pub(super) struct Compiled {
    plan: Plan,
    /// Origin of each source of the plan.
    sources: Vec<SourceKind>,
    /// Arguments, followed by dynamic lengths.
    arguments: Arguments,
    roots: Vec<Buffer>,
    scratch: Buffer,
    /// Index of the root of each result.
    outputs: Vec<usize>,
    /// For each root, the number of launched steps from which on it is computed.
    completion_steps: Vec<usize>,
    /// For each result, a node with its dtype, shape and device.
    result_nodes: Vec<Node>,
    /// For each result, the axes that are truncated, each with the index of its length.
    truncations: Vec<Vec<(usize, usize)>>,
    /// For each result, the tensor returned last, which refers to its root's memory.
    returned: Vec<Weak<Node>>,
    /// Variables to write, each with the index of the root of its new value.
    updates: Vec<(Var, usize)>,
    /// All variables; true if written.
    variables: Vec<(Var, bool)>,
    /// Memory with fixed addresses, once variables are in their persistent buffers; and the value
    /// of [`changes`] when that was checked.
    fixed: Option<(FixedMemory, u64)>,
    /// CUDA graphs of the steps and the write-back.
    graphs: Graphs<bornite_cuda::Graph>,
    /// If set, the library calls have run, so that their code is loaded before a capture.
    is_warm: bool,
}

/// Memory whose address does not change between calls.
struct FixedMemory {
    /// Memory of each source that is not an argument.
    sources: Vec<Option<Buffer>>,
    /// Persistent buffer of the variable of each update.
    persistent: Vec<Buffer>,
}

/// A truncated result: its shape, and copies with the buffers that they write.
struct TruncatedResult {
    shape: Vec<usize>,
    copies: Vec<(Buffer, ResizeCopy)>,
}

/// Origin of a source of the plan.
enum SourceKind {
    Argument(usize),
    /// A variable, in its persistent buffer.
    Var(Var),
    /// A value that the function captured.
    Constant(Buffer),
}

impl Compiled {
    /// Plans the results and updates that a function returned for placeholders. `variables` are
    /// those it read, each with its placeholder.
    pub fn new(
        inputs: &[Tensor],
        slots: Vec<TensorSpec>,
        variables: Vec<(Var, Tensor)>,
        outputs: &[Tensor],
        updates: Vec<Update>,
    ) -> Result<Compiled> {
        check_updates(&updates)?;
        let requested: Vec<Tensor> = outputs.iter().chain(updates.iter().map(|u| &u.value)).cloned().collect();
        let device = match requested.iter().chain(inputs).next() {
            Some(tensor) => tensor.node()?.device,
            None => Device::cpu(),
        };
        // A new value that is not also a result, or another variable's, can overwrite the old one.
        let same = |a: &Tensor, b: &Tensor| a.0.id == b.0.id;
        let is_exclusive = |update: &&Update| {
            let is_shared = updates.iter().filter(|other| same(&other.value, &update.value)).count() > 1;
            !is_shared && outputs.iter().all(|output| !same(output, &update.value))
        };
        let with_old = |update: &Update| {
            let (_, old) = variables.iter().find(|(var, _)| var.id() == update.var.id())?;
            Some((update.value.clone(), old.clone()))
        };
        let overwrites: Vec<(Tensor, Tensor)> = updates.iter().filter(is_exclusive).filter_map(with_old).collect();
        let mut plan = plan(&requested, ExistingResults::Copy, &overwrites)?;
        if device.is_cuda() && plan.can_report_bad_index() {
            GuardedCopy::compiled(device)?; // compiled before the device is locked
        }
        let _running = device.lock();
        let mut sources = vec![];
        for source in &plan.sources {
            sources.push(if let Some(n) = inputs.iter().position(|i| i.0.id == source.0.id) {
                SourceKind::Argument(n)
            } else if let Some((var, _)) = variables.iter().find(|(_, t)| t.0.id == source.0.id) {
                SourceKind::Var(var.clone())
            } else {
                let value = value_of(source)?;
                let may_move = source.0.op.storage_may_move();
                SourceKind::Constant(if may_move { value.duplicate(device)? } else { value })
            });
        }
        let root_of = |t: &Tensor| plan.results.iter().position(|r| r.0.id == t.0.id).unwrap_or_default();
        let outputs: Vec<usize> = outputs.iter().map(root_of).collect();
        let updates: Vec<(Var, usize)> = updates.iter().map(|u| (u.var.clone(), root_of(&u.value))).collect();
        let mut all_variables: Vec<(Var, bool)> = updates.iter().map(|(var, _)| (var.clone(), true)).collect();
        let mut seen: HashSet<u64> = all_variables.iter().map(|(var, _)| var.id()).collect();
        for source in &sources {
            if let SourceKind::Var(var) = source
                && seen.insert(var.id())
            {
                all_variables.push((var.clone(), false));
            }
        }
        let (roots, scratch) = (plan.allocate_results()?, scratch(plan.device, plan.scratch_bytes)?);
        let result_nodes = outputs.iter().map(|&root| plan.results[root].node().map(Node::without_history));
        let result_nodes: Vec<Node> = result_nodes.collect::<Result<_>>()?;
        let completion_steps = plan.completion_steps();
        plan.drop_graph();
        let read = |source: &SourceKind| if let SourceKind::Argument(n) = source { Some(*n) } else { None };
        let read: HashSet<usize> = sources.iter().filter_map(read).collect();
        Ok(Compiled {
            sources,
            arguments: Arguments::new(plan.device, slots, &read, plan.steps.len()),
            returned: outputs.iter().map(|_| Weak::new()).collect(),
            roots,
            scratch,
            truncations: vec![vec![]; outputs.len()],
            outputs,
            completion_steps,
            result_nodes,
            updates,
            variables: all_variables,
            fixed: None,
            graphs: Graphs::default(),
            is_warm: false,
            plan,
        })
    }

    /// Sets the truncations: for each result, (axis, index of the length) pairs.
    pub fn with_truncations(self, truncations: Vec<Vec<(usize, usize)>>) -> Compiled {
        Compiled { truncations, ..self }
    }

    /// Compiles the copies of arguments and results of bounded length. The device must not be
    /// locked.
    pub fn compile_copies(&self) -> Result<()> {
        self.arguments.compile_copies()?;
        self.result_nodes.iter().try_for_each(|like| resize::compiled(like.dtype, like.device).map(drop))
    }

    /// Prepares everything that does not depend on the addresses of arguments, including the graph
    /// if all arguments are copied.
    pub fn prepare(&mut self) -> Result<()> {
        let _running = self.plan.device.lock();
        self.update_scratch()?;
        self.update_fixed_memory()?;
        if let Some(device) = self.graph_device()?
            && let Some(bound) = self.arguments.bind_copies()?
            && self.graphs.find(&bound.addresses()).is_none()
        {
            self.capture(&device, &bound, None)?;
        }
        Ok(())
    }

    /// Computes the results for these arguments and changes the variables. Passes copies of the
    /// results to `receive`, if any.
    pub fn replay(
        &mut self,
        inputs: &[Tensor],
        lengths: &[usize],
        receive: Option<&mut ReceiveResult<'_>>,
        location: SourceLocation,
    ) -> Result<Vec<Tensor>> {
        let _running = self.plan.device.lock();
        self.update_scratch()?;
        self.copy_returned_results()?;
        let truncated = self.truncate_to(lengths)?;
        self.update_fixed_memory()?;
        // An argument may be a result or a variable that was just moved, so arguments are bound
        // last.
        let bound = self.bind(inputs, lengths, location)?;
        self.run(&bound, receive, location)?;
        // Variables have changed, so the rest must not be interrupted.
        crate::interruptible(None, || self.return_results(truncated, location))
    }

    /// Summary of the plan.
    pub fn summary(&self) -> PlanSummary {
        self.plan.summary()
    }

    /// If another trace has enlarged the shared scratch memory, switches to it and drops the
    /// graphs.
    fn update_scratch(&mut self) -> Result<()> {
        let scratch = scratch(self.plan.device, self.plan.scratch_bytes)?;
        if !scratch.is_same(&self.scratch) {
            self.scratch = scratch;
            self.graphs.clear();
        }
        Ok(())
    }

    /// Binds the arguments and lengths of this call.
    fn bind(&mut self, inputs: &[Tensor], lengths: &[usize], location: SourceLocation) -> Result<BoundArguments> {
        let Compiled { arguments, roots, scratch, fixed, .. } = self;
        let persistent = || fixed.iter().flat_map(|(fixed, _)| &fixed.persistent);
        let is_written = |buffer: &Buffer| {
            let mut written = roots.iter().chain([&*scratch]).chain(persistent());
            written.any(|written| written.overlaps(buffer))
        };
        arguments.bind(inputs, lengths, is_written, location)
    }

    /// Copies returned results that are still referenced, since the replay overwrites their memory.
    fn copy_returned_results(&mut self) -> Result<()> {
        for (returned, &root) in self.returned.iter_mut().zip(&self.outputs) {
            if let Some(node) = returned.upgrade() {
                node.set_value(self.roots[root].duplicate(self.plan.device)?);
                *returned = Weak::new();
            }
        }
        Ok(())
    }

    /// Moves variables to their persistent buffers. Nothing to do if none was committed or read
    /// since the last time.
    fn update_fixed_memory(&mut self) -> Result<()> {
        let now = changes();
        if let Some((_, checked)) = &self.fixed
            && *checked == now
        {
            return Ok(());
        }
        for (var, is_written) in &self.variables {
            var.move_to_persistent_buffer(*is_written)?;
        }
        let fixed = match self.fixed.take() {
            Some((fixed, _)) => fixed,
            None => {
                let source = |source: &SourceKind| match source {
                    SourceKind::Argument(_) => Ok(None),
                    SourceKind::Var(var) => var.persistent_buffer().map(Some),
                    SourceKind::Constant(buffer) => Ok(Some(buffer.clone())),
                };
                let sources = self.sources.iter().map(source).collect::<Result<_>>()?;
                let persistent = self.updates.iter().map(|(var, _)| var.persistent_buffer()).collect::<Result<_>>()?;
                FixedMemory { sources, persistent }
            }
        };
        self.fixed = Some((fixed, now));
        Ok(())
    }

    /// Truncations of the results, with their buffers, which are allocated before anything changes.
    fn truncate_to(&self, lengths: &[usize]) -> Result<Vec<Option<TruncatedResult>>> {
        let truncate = |(like, truncations): (&Node, &Vec<(usize, usize)>)| {
            let mut shape = like.shape.clone();
            for &(axis, length) in truncations {
                shape[axis] = lengths[length];
            }
            let copies = ResizeCopy::between(&like.shape, &shape);
            if copies.is_empty() {
                return Ok(None);
            }
            resize::compiled(like.dtype, like.device)?;
            let with_buffer =
                |copy: ResizeCopy| Ok((Buffer::new(like.device, copy.sizes().1 * like.dtype.bytes())?, copy));
            Ok(Some(TruncatedResult { shape, copies: copies.into_iter().map(with_buffer).collect::<Result<_>>()? }))
        };
        self.result_nodes.iter().zip(&self.truncations).map(truncate).collect()
    }

    /// Computes the results and updates the variables. Variables change only if no index was out of
    /// range. On the host, `receive` is called between the steps; on a GPU, at the end, since
    /// waiting for each result would leave the GPU idle.
    fn run(
        &mut self,
        bound: &BoundArguments,
        mut receive: Option<&mut ReceiveResult<'_>>,
        location: SourceLocation,
    ) -> Result<()> {
        let is_gpu = self.plan.device.is_cuda();
        if let Some(device) = self.graph_device()?
            && self.launch_graph(&device, bound, location)?
        {
            self.plan.check()?;
        } else {
            let mut launched = |count: usize| match &mut receive {
                Some(receive) if !is_gpu => self.deliver(|completion| completion == count, receive),
                _ => Ok(()),
            };
            self.plan.run_observed(&self.roots, Some(&self.scratch), &self.sources(bound)?, &mut launched)?;
            self.is_warm = true;
            self.plan.check()?;
            self.write_back()?;
        }
        match receive {
            Some(receive) if is_gpu => self.deliver(|_| true, receive),
            _ => Ok(()),
        }
    }

    /// Passes copies of the results whose completion is selected to `receive`.
    fn deliver(&self, selects: impl Fn(usize) -> bool, receive: &mut ReceiveResult<'_>) -> Result<()> {
        for (n, (&root, like)) in self.outputs.iter().zip(&self.result_nodes).enumerate() {
            if selects(self.completion_steps[root]) {
                receive(n, HostValue::new(like, self.roots[root].to_words()?));
            }
        }
        Ok(())
    }

    /// Memory of all sources.
    fn sources(&self, bound: &BoundArguments) -> Result<Vec<Buffer>> {
        let Some((fixed, _)) = &self.fixed else { return Ok(vec![]) };
        let source = |(source, memory): (&SourceKind, &Option<Buffer>)| match source {
            SourceKind::Argument(n) => bound.get(*n).cloned(),
            _ => memory.clone(),
        };
        let sources = self.sources.iter().zip(&fixed.sources).map(source);
        sources.map(|buffer| buffer.ok_or(Error::OutOfMemory { bytes: 0 })).collect()
    }

    /// Copies new values that were not computed in place to the variables' persistent buffers.
    fn write_back(&self) -> Result<()> {
        let Some((fixed, _)) = &self.fixed else { return Ok(()) };
        for (persistent, (_, root)) in fixed.persistent.iter().zip(&self.updates) {
            if !self.plan.in_place.contains(root) {
                persistent.copy_from(&self.roots[*root])?;
            }
        }
        Ok(())
    }

    /// As [`write_back`](Compiled::write_back), but the device skips the copies if an index was out
    /// of range.
    fn guarded_write_back(&self, copy: &GuardedCopy, status: &Buffer) -> Result<()> {
        let Some((fixed, _)) = &self.fixed else { return Ok(()) };
        for (persistent, (_, root)) in fixed.persistent.iter().zip(&self.updates) {
            if !self.plan.in_place.contains(root) {
                copy.run(persistent, &self.roots[*root], status)?;
            }
        }
        Ok(())
    }

    /// The GPU, if replays use CUDA graphs. Not under the profiler, which would see only one launch
    /// instead of the kernels.
    fn graph_device(&self) -> Result<Option<Arc<bornite_cuda::Device>>> {
        if bornite_support::profile::is_enabled() { Ok(None) } else { self.plan.device.gpu() }
    }

    /// Launches the graph for these arguments, after capturing it if that pays; false if the steps
    /// should be launched separately.
    fn launch_graph(
        &mut self,
        device: &Arc<bornite_cuda::Device>,
        bound: &BoundArguments,
        location: SourceLocation,
    ) -> Result<bool> {
        let addresses = bound.addresses();
        let (graph, run_kind, novel) = match self.graphs.find(&addresses) {
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
            self.graphs.get(index).launch_with(&bound.graph_arguments())?;
        }
        if self.arguments.account(bound, run_kind, &novel, location) {
            self.graphs.clear();
        }
        Ok(graph.is_some())
    }

    /// Captures a graph for these arguments, or updates the graph of index `update`; returns its
    /// index.
    fn capture(
        &mut self,
        device: &Arc<bornite_cuda::Device>,
        bound: &BoundArguments,
        update: Option<usize>,
    ) -> Result<usize> {
        let sources = self.sources(bound)?;
        if !self.is_warm {
            self.plan.warm_up(&self.roots, Some(&self.scratch), &sources)?;
            self.is_warm = true;
        }
        // Taken out because the capture borrows `self`; put back also after an error.
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
        let mut keep_alive = self.graph_resources();
        let guarded = match self.plan.status() {
            Some(status) => {
                let copy = GuardedCopy::compiled(self.plan.device)?;
                keep_alive.push(copy.keep_alive());
                keep_alive.extend(status.keep_alive());
                Some((copy, status))
            }
            None => None,
        };
        let record = || {
            self.plan.run(&self.roots, Some(&self.scratch), sources)?;
            match &guarded {
                Some((copy, status)) => self.guarded_write_back(copy, status),
                None => self.write_back(),
            }
        };
        let arguments = bound.graph_arguments();
        if let Some(index) = update {
            // SAFETY: as below.
            #[allow(unsafe_code)]
            unsafe {
                graphs.get(index).update_with::<Error>(keep_alive, &arguments, record)?
            };
            graphs.updated(index, bound.addresses());
            return Ok(index);
        }
        // SAFETY: the recorded work uses roots, scratch memory, persistent buffers, constants, the
        // status words and programs, which `keep_alive` holds, and the arguments; the library's
        // workspace is never freed.
        #[allow(unsafe_code)]
        let graph = unsafe { bornite_cuda::Graph::capture_with::<Error>(device, keep_alive, &arguments, record)? };
        Ok(graphs.insert(bound.addresses(), graph))
    }

    /// Handles to all memory and code that the replay uses, except its arguments, which graphs must
    /// not keep alive.
    fn graph_resources(&self) -> Vec<Arc<dyn Any + Send + Sync>> {
        let fixed = self.fixed.iter().map(|(fixed, _)| fixed);
        let fixed = fixed.flat_map(|FixedMemory { sources, persistent }| sources.iter().flatten().chain(persistent));
        let buffers = self.roots.iter().chain([&self.scratch]).chain(fixed);
        buffers.filter_map(Buffer::keep_alive).chain(self.plan.keep_alive()).collect()
    }

    /// Returns the results as tensors. Those that are not truncated refer to memory that the next
    /// call overwrites.
    fn return_results(
        &mut self,
        truncated: Vec<Option<TruncatedResult>>,
        location: SourceLocation,
    ) -> Result<Vec<Tensor>> {
        let mut by_root: Vec<Option<Tensor>> = vec![None; self.roots.len()];
        let mut results = vec![];
        for (n, (truncated, like)) in truncated.into_iter().zip(&self.result_nodes).enumerate() {
            let root = self.outputs[n];
            results.push(match truncated {
                Some(TruncatedResult { shape, copies }) => {
                    let mut value = self.roots[root].clone();
                    for (to, copy) in copies {
                        copy.run(&to, &value, like.dtype, like.device, location)?;
                        value = to;
                    }
                    let node = Node::new(Op::Data, like.dtype, shape, like.device, vec![], location);
                    node.set_value(value);
                    Tensor(Arc::new(node))
                }
                None => {
                    let make = || Tensor(Arc::new(Node::leaf(Op::Output, like, location, self.roots[root].clone())));
                    let tensor = by_root[root].get_or_insert_with(make).clone();
                    self.returned[n] = Arc::downgrade(&tensor.0);
                    tensor
                }
            });
        }
        Ok(results)
    }
}
