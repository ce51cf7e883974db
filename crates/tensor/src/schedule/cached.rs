//! Cache of plans of small graphs. Eager code computes the same few graphs repeatedly, and planning
//! them would take longer than running.
//!
//! A plan can be reused for another graph with the same structure: the same ops, dtypes, shapes,
//! constants and source locations, and inputs of the same dtypes and shapes. Only the memory
//! differs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ExistingResults, Plan, is_source, plan, value_of};
use crate::graph::node::{AxisSlice, Node, Op, with_snapshot};
use crate::runtime::buffer::Buffer;
use crate::{Result, Tensor};

/// Maximum number of nodes of a graph, including tensors in memory.
const MAX_NODES: usize = 16;

/// Maximum number of cached plans; the cache is cleared when it is full.
const MAX_PLANS: usize = 1024;

/// A plan detached from the graph it was made for.
struct CachedPlan {
    plan: Plan,
    /// For each source of the plan, its index among the graph's sources.
    sources: Vec<usize>,
}

static CACHE: Mutex<Option<HashMap<Vec<u64>, Arc<CachedPlan>>>> = Mutex::new(None);

/// Computes a tensor by a cached plan, which is made if there is none; false if the graph cannot be
/// cached.
pub(super) fn compute(root: &Tensor) -> Result<bool> {
    let mut new: Option<(Vec<u64>, Arc<CachedPlan>)> = None;
    loop {
        // Under the lock the values in memory do not change, so a plan that matches now still
        // matches when it runs.
        let running = root.0.device.lock();
        if root.0.has_value_now() {
            return Ok(true); // by another thread
        }
        let Some(GraphKey { key, sources }) = GraphKey::of(root)? else { return Ok(false) };
        let found = match &new {
            Some((new_key, plan)) if *new_key == key => Some(plan.clone()),
            _ => cache().get_or_insert_default().get(&key).cloned(),
        };
        if let Some(plan) = found {
            plan.run(root, &sources)?;
            return Ok(true);
        }
        drop(running);
        new = with_snapshot(|| CachedPlan::insert(root))?;
        if new.is_none() {
            return Ok(false);
        }
    }
}

fn cache() -> MutexGuard<'static, Option<HashMap<Vec<u64>, Arc<CachedPlan>>>> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CachedPlan {
    /// Plans the graph of a tensor and caches the plan; `None` if it cannot be cached. Key and plan
    /// see one snapshot of the values in memory.
    fn insert(root: &Tensor) -> Result<Option<(Vec<u64>, Arc<CachedPlan>)>> {
        let Some(GraphKey { key, sources }) = GraphKey::of(root)? else { return Ok(None) };
        let Some(plan) = CachedPlan::new(root, &sources)? else { return Ok(None) };
        let plan = Arc::new(plan);
        let mut cache = cache();
        let plans = cache.get_or_insert_default();
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert(key.clone(), plan.clone());
        Ok(Some((key, plan)))
    }

    /// Computes the root of a graph that it matches from the graph's sources. The device must be
    /// locked.
    fn run(&self, root: &Tensor, sources: &[&Tensor]) -> Result<()> {
        let buffers = self.sources.iter().map(|&n| value_of(sources[n])).collect::<Result<Vec<_>>>()?;
        let (result, scratch) = (Buffer::new(root.0.device, root.0.bytes())?, self.plan.allocate_scratch()?);
        self.plan.run(std::slice::from_ref(&result), scratch.as_ref(), &buffers)?;
        root.0.set_value_once(result);
        Ok(())
    }

    /// Plans a graph; `None` if the plan can report errors, writes in place or reads other tensors
    /// than the graph's sources.
    fn new(root: &Tensor, sources: &[&Tensor]) -> Result<Option<CachedPlan>> {
        let mut plan = plan(std::slice::from_ref(root), ExistingResults::Skip, &[])?;
        let number = |source: &Tensor| sources.iter().position(|other| other.0.id == source.0.id);
        let numbers: Option<Vec<usize>> = plan.sources.iter().map(number).collect();
        let Some(sources) =
            numbers.filter(|_| !plan.can_report_bad_index() && plan.in_place.is_empty() && plan.results.len() == 1)
        else {
            return Ok(None);
        };
        plan.drop_graph();
        Ok(Some(CachedPlan { plan, sources }))
    }
}

/// List attribute of an op.
enum Lists<'a> {
    None,
    Axes(&'a [usize]),
    Cuts(&'a [AxisSlice]),
}

/// Structure of a small graph: everything that its plan depends on, and the tensors in memory that
/// it reads.
struct GraphKey<'t> {
    key: Vec<u64>,
    sources: Vec<&'t Tensor>,
}

impl<'t> GraphKey<'t> {
    /// `None` if the graph is large or has ops that are not cached.
    fn of(root: &'t Tensor) -> Result<Option<GraphKey<'t>>> {
        let device = root.0.device;
        let [kind, ordinal] = device.key();
        let emulation = [crate::lower::targets_gpu(device), crate::lower::plans_as_for_gpu(device)];
        let modes = [&[crate::fused::enabled()?, !crate::runtime::math::is_exact_math()?][..], &emulation].concat();
        let modes = modes.iter().fold(kind, |all, &on| 2 * all + u64::from(on));
        let mut graph = GraphKey { key: Vec::with_capacity(64), sources: vec![] };
        graph.key.extend([modes, ordinal]);
        // Each node once, numbered in order of first visit.
        let mut nodes: Vec<&'t Tensor> = vec![root];
        let mut next = 0;
        while let Some(&tensor) = nodes.get(next) {
            next += 1;
            let node = &*tensor.0;
            graph.push_type(node);
            if is_source(tensor) {
                if matches!(node.op, Op::Input) {
                    return Ok(None);
                }
                graph.key.push(u64::MAX);
                graph.sources.push(tensor);
                continue;
            }
            if !graph.push_op(node) {
                return Ok(None);
            }
            for input in &node.inputs {
                let number = nodes.iter().position(|other| other.0.id == input.0.id).unwrap_or_else(|| {
                    nodes.push(input);
                    nodes.len() - 1
                });
                graph.key.push(number as u64);
            }
            if nodes.len() > MAX_NODES {
                return Ok(None);
            }
        }
        Ok(Some(graph))
    }

    /// Appends dtype and shape.
    fn push_type(&mut self, node: &Node) {
        self.key.extend([node.dtype as u64, node.shape.len() as u64]);
        self.key.extend(node.shape.iter().map(|&length| length as u64));
    }

    /// Appends the op and its attributes; false if such ops are not cached.
    fn push_op(&mut self, node: &Node) -> bool {
        let (tag, detail, lists) = match &node.op {
            Op::Map(row) => (0, *row as u64, Lists::None),
            // Attributes of these follow from the node's dtype and shape.
            Op::Cast(_) => (1, 0, Lists::None),
            Op::Reshape(_) => (2, 0, Lists::None),
            Op::Expand(_) => (3, 0, Lists::None),
            Op::Detach => (4, 0, Lists::None),
            Op::Reduce(reduce, axes) => (5, *reduce as u64, Lists::Axes(axes)),
            Op::Permute(axes) => (6, 0, Lists::Axes(axes)),
            Op::Slice(cuts) => (7, 0, Lists::Cuts(cuts)),
            Op::Full(value) => (8, value.bits(), Lists::None),
            Op::Concat(axis) => (9, (axis + (node.inputs.len() << 8)) as u64, Lists::None),
            Op::Iota { axis } => (10, *axis as u64, Lists::None),
            Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output => return false,
            Op::Checkpoint(_) | Op::After => return false,
            Op::Matmul | Op::Pad(..) | Op::Gather(_) | Op::ScatterAdd(_) | Op::Cumsum(_) => return false,
            Op::ArgReduce(..) | Op::ArgSort { .. } | Op::Random(_) | Op::MultiOutput(_) | Op::GetOutput(_) => {
                return false;
            }
        };
        // The source location is part of the key, since profiles and errors name it; its address
        // identifies it.
        self.key.extend([tag, detail, std::ptr::from_ref(node.location.0) as u64]);
        match lists {
            Lists::None => {}
            Lists::Axes(axes) => self.push_list(axes),
            Lists::Cuts(cuts) => {
                cuts.iter().for_each(|cut| self.key.extend([cut.start as u64, cut.step as u64, cut.len as u64]));
            }
        }
        true
    }

    fn push_list(&mut self, list: &[usize]) {
        self.key.push(list.len() as u64);
        self.key.extend(list.iter().map(|&n| n as u64));
    }
}
