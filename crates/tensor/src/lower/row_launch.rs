//! Launch shape of kernels over rows on a GPU: threads per row, and the tensors that stay on chip between passes (`row.rs`).
//!
//! Short rows stay in registers between passes, longer ones in the memory of the block, in the dtype that they are stored
//! in; only what is longer than that is loaded again. Where a row is kept changes no bit: the order of its sums follows
//! from its length.

use super::blocks::WARP;
use super::group::{Group, IterationSpace};
use super::stages::stages;
use super::{is_identity, look_through, strided_view};
use crate::graph::node::{NodeId, Role};
use crate::{DType, Tensor};

/// A warp or a block a row.
pub(super) struct RowLaunch<'a> {
    pub rows: usize,
    pub columns: usize,
    /// Threads a row.
    pub threads: usize,
    /// Rows a block.
    pub rows_per_block: usize,
    /// Neighbours that a thread takes at once.
    pub lanes: usize,
    /// Tensors whose rows are kept in the memory of the block.
    pub cached: Vec<&'a Tensor>,
}

/// Elements of a row that a thread keeps in registers rather than read again.
const IN_REGISTERS: usize = 24;

/// Rows of at most so many columns are in the cache when they are read again.
const IN_CACHE: usize = 4096;

/// Shared memory that is left for the sums of a block's warps.
const SUMS_BYTES: usize = 4 << 10;

impl<'a> RowLaunch<'a> {
    /// Rows for a group; a block has this much shared memory.
    pub fn new(group: &'a Group, shared_bytes: impl FnOnce() -> usize) -> Option<RowLaunch<'a>> {
        let IterationSpace::Rows { rows, columns } = group.space else { return None };
        let lanes = if columns.is_multiple_of(4) && columns >= 4 * WARP { 4 } else { 1 };
        let steps = columns / lanes;
        // Few threads with all of a row in registers, if they share it evenly; else so many that the rows which are at work
        // at once fit into a cache.
        let even = |threads: &usize| steps.is_multiple_of(*threads) && columns / threads <= IN_REGISTERS;
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
        if !plan.in_registers() && columns > IN_CACHE {
            plan.choose_cached(group, shared_bytes);
        }
        Some(plan)
    }

    /// True if a row is one warp's, in registers, several neighbours a thread.
    pub fn is_one_warp(&self) -> bool {
        self.threads == WARP && self.lanes > 1 && self.in_registers()
    }

    pub fn in_registers(&self) -> bool {
        self.columns.is_multiple_of(self.threads * self.lanes) && self.columns / self.threads <= IN_REGISTERS
    }

    /// Chooses what is kept in shared memory: what several passes read.
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
        let again: Vec<&'a Tensor> = times.into_iter().filter(|(_, times)| *times > 1).map(|(t, _)| t).collect();
        if again.is_empty() {
            return;
        }
        let mut left = shared_bytes().saturating_sub(SUMS_BYTES);
        for tensor in again {
            let bytes = (self.columns * tensor.0.dtype.bytes()).next_multiple_of(16);
            if bytes <= left && tensor.0.dtype != DType::Bool {
                left -= bytes;
                self.cached.push(tensor);
            }
        }
    }

    /// The tensors in memory of which each element is read for the same element of what these tensors show.
    fn loaded(&self, group: &'a Group, of: impl Iterator<Item = &'a Tensor>) -> Vec<&'a Tensor> {
        let mut stack: Vec<&'a Tensor> = of.collect();
        let (mut loaded, mut seen_nodes): (Vec<&'a Tensor>, Vec<NodeId>) = (vec![], vec![]);
        while let Some(tensor) = stack.pop() {
            let (base, views) = look_through(tensor);
            let in_step = strided_view(base, &views).is_some_and(|layout| is_identity(&layout));
            if !in_step || base.0.elements() != self.rows * self.columns || seen_nodes.contains(&base.0.id) {
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
