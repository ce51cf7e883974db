//! Launch shape of row kernels on a GPU: threads per row, and the tensors that stay on chip between
//! passes (`row_kernel.rs`).
//!
//! Short rows stay in registers between passes, longer ones in shared memory, in their dtype in
//! memory; still longer ones are loaded again. This does not change results: the summation order
//! depends only on the row's length.

use super::blocks::WARP;
use super::group::{Group, IterationSpace};
use super::stages::stages;
use super::{is_identity, look_through, strided_view};
use crate::graph::node::{NodeId, Role};
use crate::{DType, Tensor};

/// Launch shape of a row kernel: a warp or a block per row.
pub(super) struct RowLaunch<'a> {
    pub rows: usize,
    pub columns: usize,
    /// Threads per row.
    pub threads: usize,
    /// Rows per block.
    pub rows_per_block: usize,
    /// Adjacent columns per thread.
    pub lanes: usize,
    /// Tensors whose rows are cached in shared memory.
    pub cached: Vec<&'a Tensor>,
}

/// Maximum number of elements of a row that a thread keeps in registers.
const MAX_REGISTER_ELEMENTS: usize = 24;

/// Rows with at most this many columns are still in the L1 cache when they are read again.
const MAX_L1_COLUMNS: usize = 4096;

/// Shared memory reserved for the totals of a block's warps.
const SUMS_BYTES: usize = 4 << 10;

impl<'a> RowLaunch<'a> {
    /// Launch shape for a group; `shared_bytes` is the shared memory per block.
    pub fn new(group: &'a Group, shared_bytes: impl FnOnce() -> usize) -> Option<RowLaunch<'a>> {
        let IterationSpace::Rows { rows, columns } = group.space else { return None };
        let lanes = if columns.is_multiple_of(4) && columns >= 4 * WARP { 4 } else { 1 };
        let steps = columns / lanes;
        // As few threads as keep the row in registers, if they divide it evenly; else enough that
        // the rows processed concurrently fit into a cache.
        let even = |threads: &usize| steps.is_multiple_of(*threads) && columns / threads <= MAX_REGISTER_ELEMENTS;
        let threads = [WARP, 64, 128, 256, 512, 1024].into_iter().find(even).unwrap_or(match columns {
            0..=1024 => WARP,
            1025..=4096 => 128,
            4097..=16384 => 256,
            _ => 512,
        });
        let rows_per_block = match group.launch_shape {
            _ if threads != WARP => 1,
            Some(launch_shape) => launch_shape.threads as usize / WARP,
            None => 4,
        };
        let mut plan = RowLaunch { rows, columns, threads, rows_per_block, lanes, cached: vec![] };
        if !plan.in_registers() && columns > MAX_L1_COLUMNS {
            plan.choose_cached(group, shared_bytes);
        }
        Some(plan)
    }

    /// True if a row is processed by one warp, in registers, with several columns per lane.
    pub fn is_one_warp(&self) -> bool {
        self.threads == WARP && self.lanes > 1 && self.in_registers()
    }

    /// True if a row stays in registers between passes.
    pub fn in_registers(&self) -> bool {
        self.columns.is_multiple_of(self.threads * self.lanes) && self.columns / self.threads <= MAX_REGISTER_ELEMENTS
    }

    /// Chooses the tensors to cache in shared memory: those that several passes read.
    fn choose_cached(&mut self, group: &'a Group, shared_bytes: impl FnOnce() -> usize) {
        let mut passes: Vec<Vec<&'a Tensor>> = (stages(group).reductions.iter())
            .map(|stage| self.loaded(group, stage.iter().flat_map(|reduction| reduction.tensor.0.reads())))
            .collect();
        let wide = group.outputs.iter().filter(|output| output.0.elements() != self.rows);
        passes.push(self.loaded(group, wide));
        let mut times: Vec<(&'a Tensor, usize)> = vec![];
        for tensor in passes.into_iter().flatten() {
            match times.iter_mut().find(|(other, _)| other.0.id == tensor.0.id) {
                Some((_, times)) => *times += 1,
                None => times.push((tensor, 1)),
            }
        }
        let reread: Vec<&'a Tensor> = times.into_iter().filter(|(_, times)| *times > 1).map(|(t, _)| t).collect();
        if reread.is_empty() {
            return;
        }
        let mut left = shared_bytes().saturating_sub(SUMS_BYTES);
        for tensor in reread {
            let bytes = (self.columns * tensor.0.dtype.bytes()).next_multiple_of(16);
            if bytes <= left && tensor.0.dtype != DType::Bool {
                left -= bytes;
                self.cached.push(tensor);
            }
        }
    }

    /// Tensors with at most 16 bits per element of which the reductions of a group load rows.
    pub fn narrow_inputs(&self, group: &'a Group) -> Vec<&'a Tensor> {
        let reductions = stages(group).reductions.into_iter().flatten();
        let mut loaded = self.loaded(group, reductions.flat_map(|reduction| reduction.tensor.0.reads()));
        loaded.retain(|tensor| tensor.0.dtype.bytes() <= 2);
        loaded
    }

    /// Tensors in memory that these tensors read at the same index.
    fn loaded(&self, group: &'a Group, of: impl Iterator<Item = &'a Tensor>) -> Vec<&'a Tensor> {
        let mut stack: Vec<&'a Tensor> = of.collect();
        let (mut loaded, mut seen_nodes): (Vec<&'a Tensor>, Vec<NodeId>) = (vec![], vec![]);
        while let Some(tensor) = stack.pop() {
            let (base, views) = look_through(tensor);
            let at_same_index = strided_view(base, &views).is_some_and(|layout| is_identity(&layout));
            if !at_same_index || base.0.elements() != self.rows * self.columns || seen_nodes.contains(&base.0.id) {
                continue;
            }
            seen_nodes.push(base.0.id);
            let computed = group.order.iter().any(|other| other.0.id == base.0.id);
            match base.0.op.facts().role {
                Role::Constant => {}
                _ if !computed => loaded.push(base),
                Role::Pointwise => stack.extend(base.0.reads()),
                Role::Scatter => stack.extend(base.0.reads().first()),
                Role::Source | Role::View | Role::Indexed | Role::Reduction | Role::Single => {}
                Role::MultiOutput | Role::Output => {}
            }
        }
        loaded
    }
}
