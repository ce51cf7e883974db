//! Pass 1, collect: the nodes to compute.
//!
//! Reads the requested tensors; adds `roots` and `nodes`. Afterwards `nodes` holds, in order of id,
//! every root and every node below one that is neither in memory, a view nor a constant, plus the
//! views and constants that multi-output ops read from memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::handwritten::{locate_input, must_materialize};
use super::{ExistingResults, Schedule, is_pending_output, is_source};
use crate::graph::multi_output::{self, ImplementationKind, MultiOutput};
use crate::graph::node::NodeId;
use crate::lower::{Overwrite, is_identity, look_through, strided_view};
use crate::{Device, Error, Result, Tensor};

/// Finds the roots and the nodes to compute.
pub(super) fn collect(schedule: &mut Schedule) -> Result<()> {
    let roots = roots(&schedule.requested);
    // A variable's new value is computed by its root.
    for new in &mut schedule.variable_updates {
        if let Some(n) = schedule.requested.iter().position(|tensor| tensor.0.id == new.value) {
            new.value = roots[n].0.id;
        }
    }
    schedule.root_ids = roots.iter().map(|root| root.0.id).collect();
    let requested = schedule.requested.iter().filter(|tensor| !is_source(tensor)).cloned();
    (schedule.nodes, schedule.unevaluated) = walk(&roots, requested.collect())?;
    schedule.roots = roots;
    schedule.add_multi_output_inputs();
    debug_assert!(schedule.roots.iter().all(|root| schedule.nodes.contains_key(&root.0.id)));
    Ok(())
}

impl Schedule {
    /// A schedule for `tensors`, which must share a device, before any pass. `variable_updates` are
    /// (new value, old value) pairs.
    pub(super) fn new(
        tensors: &[Tensor],
        existing: ExistingResults,
        variable_updates: &[(Tensor, Tensor)],
    ) -> Result<Schedule> {
        let mut requested: Vec<Tensor> = vec![];
        for tensor in tensors {
            let node = tensor.node()?;
            let is_requested = existing == ExistingResults::Copy || !is_source(tensor);
            if is_requested && !requested.iter().any(|t| t.0.id == node.id) {
                requested.push(tensor.clone());
            }
        }
        let device = requested.first().map_or(Device::cpu(), |tensor| tensor.0.device);
        if let Some(other) = requested.iter().find(|t| t.0.device != device) {
            let what =
                format!("tensors computed together are on {device} and {}; move them to one device", other.0.device);
            return Err(Error::Op { op: other.0.op.name(), message: what, location: other.0.location });
        }
        let is_root = |(new, _): &&(Tensor, Tensor)| requested.iter().any(|tensor| tensor.0.id == new.0.id);
        let overwrite = |(new, old): &(Tensor, Tensor)| Overwrite { value: new.0.id, old: old.clone() };
        let variable_updates = variable_updates.iter().filter(is_root).map(overwrite).collect();
        let fusion_enabled = crate::fused::enabled()?;
        Ok(Schedule {
            device,
            fusion_enabled,
            requested,
            variable_updates,
            roots: vec![],
            root_ids: HashSet::new(),
            nodes: BTreeMap::new(),
            unevaluated: vec![],
            calls: HashMap::new(),
            direct_writes: Default::default(),
            rejected_updates: HashSet::new(),
            units: vec![],
            steps: vec![],
            groups: vec![],
            partial_updates: vec![],
            overwrites: vec![],
            reused_inputs: HashMap::new(),
            memory: Default::default(),
        })
    }

    /// Adds the views and constants that multi-output ops read from memory.
    fn add_multi_output_inputs(&mut self) {
        let outputs: Vec<Tensor> = self.nodes.values().filter(|tensor| is_pending_output(tensor)).cloned().collect();
        for output in &outputs {
            let handwritten = match multi_output::as_multi_output(&output.0.inputs[0].0) {
                Some((MultiOutput { implementation: ImplementationKind::Source(source), .. }, _)) => Some(source),
                _ => None,
            };
            let is_readable = |input: &Tensor| handwritten.is_some_and(|source| locate_input(source, input).is_some());
            for input in output.0.reads().iter().filter(|input| must_materialize(input) && !is_readable(input)) {
                self.nodes.insert(input.0.id, input.clone());
            }
        }
    }
}

/// For each tensor, the node that is computed into its memory: the tensor, or the node it is a
/// reshape of, which saves a copy.
fn roots(tensors: &[Tensor]) -> Vec<Tensor> {
    let mut taken: HashSet<NodeId> = tensors.iter().map(|tensor| tensor.0.id).collect();
    let mut reshaped = |tensor: &Tensor| {
        let (base, views) = look_through(tensor);
        let same = base.0.elements() == tensor.0.elements()
            && strided_view(base, &views).is_some_and(|layout| is_identity(&layout));
        let computed = !is_source(base) && !base.0.op.is_constant();
        (same && computed && taken.insert(base.0.id)).then(|| base.clone())
    };
    tensors.iter().map(|tensor| reshaped(tensor).unwrap_or_else(|| tensor.clone())).collect()
}

/// Nodes to compute, in order of id: the roots, and every node below them that is neither source,
/// view nor constant.
pub(crate) fn nodes_to_compute(roots: &[Tensor]) -> Result<BTreeMap<NodeId, Tensor>> {
    Ok(walk(roots, vec![])?.0)
}

/// Nodes to compute, and `unevaluated` extended by all nodes without a value that are not
/// constants.
fn walk(roots: &[Tensor], mut unevaluated: Vec<Tensor>) -> Result<(BTreeMap<NodeId, Tensor>, Vec<Tensor>)> {
    let mut kernels: BTreeMap<NodeId, Tensor> = roots.iter().map(|t| (t.0.id, t.clone())).collect();
    let mut seen = HashSet::new();
    let mut stack = roots.to_vec();
    while let Some(tensor) = stack.pop() {
        let node = tensor.node()?;
        if !seen.insert(node.id) || is_source(&tensor) {
            continue;
        }
        stack.extend(node.reads().iter().cloned());
        if !node.op.is_constant() {
            unevaluated.push(tensor.clone());
        }
        if !node.op.is_view() && !node.op.is_constant() {
            kernels.insert(node.id, tensor);
        }
    }
    Ok((kernels, unevaluated))
}
