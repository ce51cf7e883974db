//! Plans of small graphs that were computed before: code that computes op by op asks for the same few again and again, and
//! for those planning would take longer than running.
//!
//! A plan fits another graph if that has the same ops, dtypes, shapes and lines of the program in the same places, reads
//! tensors of the same kind, and holds the same constants. What runs is then the same, on other memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ExistingRoots, Plan, is_source, plan, value_of};
use crate::graph::node::{AxisSlice, Node, Op, with_snapshot};
use crate::runtime::buffer::Buffer;
use crate::{Device, Result, Tensor};

/// Most nodes of a graph, tensors in memory included.
const MAX_NODES: usize = 16;

/// Plans that are kept; if there are more, all are forgotten.
const KEPT: usize = 1024;

/// A plan without its tensors.
struct CachedPlan {
    plan: Plan,
    /// For each source, which of the graph's it is.
    sources: Vec<usize>,
}

static RECENT: Mutex<Option<HashMap<Vec<u64>, Arc<CachedPlan>>>> = Mutex::new(None);

/// Computes a tensor by the plan of a graph like its own, which is made if there is none; `false` if the graph is of another kind.
pub(super) fn compute(root: &Tensor) -> Result<bool> {
    let mut made: Option<(Vec<u64>, Arc<CachedPlan>)> = None;
    loop {
        // Under the lock what is in memory does not change, so a plan that fits now fits when it runs.
        let running = root.0.device.lock();
        if root.0.has_value_now() {
            return Ok(true); // by another thread
        }
        let Some(Graph { key, sources }) = Graph::of(root)? else { return Ok(false) };
        let found = match &made {
            Some((made_for, recent)) if *made_for == key => Some(recent.clone()),
            _ => kept().get_or_insert_default().get(&key).cloned(),
        };
        if let Some(recent) = found {
            recent.run(root, &sources)?;
            return Ok(true);
        }
        drop(running);
        made = with_snapshot(|| CachedPlan::make(root))?;
        if made.is_none() {
            return Ok(false);
        }
    }
}

fn kept() -> MutexGuard<'static, Option<HashMap<Vec<u64>, Arc<CachedPlan>>>> {
    RECENT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CachedPlan {
    /// Plans the graph of a tensor and caches the plan, by all that it depends on; `None` if it is not only steps over memory. All of it
    /// sees one snapshot of what is in memory.
    fn make(root: &Tensor) -> Result<Option<(Vec<u64>, Arc<CachedPlan>)>> {
        let Some(Graph { key, sources }) = Graph::of(root)? else { return Ok(None) };
        let Some(recent) = CachedPlan::new(root, &sources)? else { return Ok(None) };
        let recent = Arc::new(recent);
        let mut kept = kept();
        let plans = kept.get_or_insert_default();
        if plans.len() >= KEPT {
            plans.clear();
        }
        plans.insert(key.clone(), recent.clone());
        Ok(Some((key, recent)))
    }

    /// Computes the root of a graph that it fits from the tensors that the graph reads. The device's lock is held.
    fn run(&self, root: &Tensor, sources: &[&Tensor]) -> Result<()> {
        let buffers = self.sources.iter().map(|&n| value_of(sources[n])).collect::<Result<Vec<_>>>()?;
        let (result, scratch) = (Buffer::new(root.0.device, root.0.bytes())?, self.plan.allocate_scratch()?);
        self.plan.run(std::slice::from_ref(&result), scratch.as_ref(), &buffers)?;
        root.0.set_value_once(result);
        Ok(())
    }

    /// The plan for a graph; `None` if it is not only steps over memory.
    fn new(root: &Tensor, sources: &[&Tensor]) -> Result<Option<CachedPlan>> {
        let mut plan = plan(std::slice::from_ref(root), ExistingRoots::Skip, &[])?;
        let number = |source: &Tensor| sources.iter().position(|other| other.0.id == source.0.id);
        let numbers: Option<Vec<usize>> = plan.sources.iter().map(number).collect();
        let Some(sources) = numbers.filter(|_| !plan.reports() && plan.in_place.is_empty() && plan.roots.len() == 1)
        else {
            return Ok(None);
        };
        plan.drop_graph();
        Ok(Some(CachedPlan { plan, sources }))
    }
}

/// Lists that a node's op holds.
enum Lists<'a> {
    None,
    Axes(&'a [usize]),
    Cuts(&'a [AxisSlice]),
}

/// A small graph: what its plan depends on, and the tensors in memory that it reads.
struct Graph<'t> {
    key: Vec<u64>,
    sources: Vec<&'t Tensor>,
}

impl<'t> Graph<'t> {
    /// `None` if the graph is large, or of ops whose steps differ from call to call.
    fn of(root: &'t Tensor) -> Result<Option<Graph<'t>>> {
        let device = root.0.device;
        let (kind, ordinal) = match device {
            Device::Cpu(n) => (0, n),
            Device::Cuda(n) => (1, n),
            Device::Interpreter => (2, 0),
        };
        let pretended = [crate::lower::targets_gpu(device), crate::lower::plans_as_for_gpu(device)];
        let modes = [&[crate::fused::enabled()?, !crate::runtime::math::is_exact_math()?][..], &pretended].concat();
        let modes = modes.iter().fold(kind, |all, &on| 2 * all + u64::from(on));
        let mut graph = Graph { key: Vec::with_capacity(64), sources: vec![] };
        graph.key.extend([modes, ordinal as u64]);
        // Each node once, numbered as it is first seen.
        let mut nodes: Vec<&'t Tensor> = vec![root];
        let mut next = 0;
        while let Some(&tensor) = nodes.get(next) {
            next += 1;
            let node = &*tensor.0;
            graph.kind(node);
            if is_source(tensor) {
                if matches!(node.op, Op::Input) {
                    return Ok(None);
                }
                graph.key.push(u64::MAX);
                graph.sources.push(tensor);
                continue;
            }
            if !graph.op(node) {
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

    /// Notes what elements a node has.
    fn kind(&mut self, node: &Node) {
        self.key.extend([node.dtype as u64, node.shape.len() as u64]);
        self.key.extend(node.shape.iter().map(|&length| length as u64));
    }

    /// Notes how a node is computed; `false` if that is not noted here.
    fn op(&mut self, node: &Node) -> bool {
        let (tag, detail, lists) = match &node.op {
            Op::Map(row) => (0, *row as u64, Lists::None),
            // The shape or dtype that these lead to is noted already.
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
            Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Checkpoint(_) => return false,
            Op::Matmul | Op::Pad(..) | Op::Gather(_) | Op::ScatterAdd(_) | Op::Cumsum(_) => return false,
            Op::ArgReduce(..) | Op::ArgSort { .. } | Op::Random(_) | Op::MultiOutput(_) | Op::GetOutput(_) => {
                return false;
            }
        };
        // The address of a line is its own: profiles and errors name it.
        self.key.extend([tag, detail, std::ptr::from_ref(node.location.0) as u64]);
        match lists {
            Lists::None => {}
            Lists::Axes(axes) => self.numbers(axes),
            Lists::Cuts(cuts) => {
                cuts.iter().for_each(|cut| self.key.extend([cut.start as u64, cut.step as u64, cut.len as u64]));
            }
        }
        true
    }

    fn numbers(&mut self, numbers: &[usize]) {
        self.key.push(numbers.len() as u64);
        self.key.extend(numbers.iter().map(|&n| n as u64));
    }
}
