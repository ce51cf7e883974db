//! Lowers a group of elementwise ops and reductions to one kernel.
//!
//! An elementwise kernel computes some adjacent elements per thread. A row kernel runs in stages:
//! each pass over the columns computes the reductions whose inputs are available, and a last pass
//! computes the outputs that have all columns. Softmax, norms, losses and their gradients have this
//! form. Values needed by several passes are recomputed from inputs that are still in a cache.
//!
//! The summation order of a row depends only on its length, so a group gives the same bits as its
//! nodes computed separately.

use bornite_codegen::cuda::THREADS_PER_BLOCK;
use bornite_ir::{Access, Builder, Emit, EmitBits, Op as ScalarOp, ParamId, Scalar, Stmt, Value};

use super::blocks::{self, BlockKernel};
use super::elementwise::Elementwise;
use super::gpu_emulation::targets_gpu;
use super::launch_shape::{LaunchShape, default_launch_shape};
use super::lowering::{KernelShape, Lowering, RowSpace, Single};
use super::row_kernel::RowKernel;
use super::{Lowered, can_report_bad_index, is_identity, look_through, strided_view};
use crate::graph::node::{NodeId, Op};
use crate::{DType, Device, Result, Tensor};

/// Iteration space of a group's kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum IterationSpace {
    /// Elements, without a reduction.
    Elements(usize),
    /// Rows, reduced along their columns to one value per row.
    Rows { rows: usize, columns: usize },
    /// `outer · middle · inner` elements, reduced along the middle axis.
    Middle { outer: usize, middle: usize, inner: usize },
}

impl IterationSpace {
    /// Rows and columns, if it is a row kernel.
    pub fn row_space(self) -> Option<RowSpace> {
        match self {
            IterationSpace::Rows { rows, columns } => Some(RowSpace { rows, columns }),
            IterationSpace::Elements(_) | IterationSpace::Middle { .. } => None,
        }
    }
}

/// A fusion group: nodes that one kernel computes.
#[derive(Clone)]
pub(crate) struct Group {
    pub space: IterationSpace,
    /// Nodes whose values are stored.
    pub outputs: Vec<Tensor>,
    /// Nodes that are computed, in topological order.
    pub order: Vec<Tensor>,
    /// Tuned launch shape on a GPU; `None` for the default.
    pub launch_shape: Option<LaunchShape>,
    /// Column reductions computed in the same row kernel (`column_sums.rs`); stored after
    /// `outputs`.
    pub column_sums: Vec<Tensor>,
}

/// A node whose value is written, or may be written, over a tensor in memory.
#[derive(Clone)]
pub(crate) struct Overwrite {
    /// The node that computes the new value.
    pub value: NodeId,
    /// The tensor that is overwritten.
    pub old: Tensor,
}

/// In-place outputs of a group.
#[derive(Default)]
pub(crate) struct InPlaceOutputs {
    /// (output, input) pairs; safe only if the kernel reads the input at the output's own index and
    /// nowhere else (not in [`Lowered::other_index_inputs`]).
    pub overwrites: Vec<Overwrite>,
    /// If set, the kernel writes nothing after an earlier step has reported an out-of-range index.
    pub guarded: bool,
}

/// Lowers a group for a device.
pub(crate) fn lower_group(group: &Group, device: Device, in_place: &InPlaceOutputs) -> Result<Lowered> {
    let on_gpu = targets_gpu(device);
    let (name, index) = (kernel_name(group), index_type(group));
    let blocks = if on_gpu { blocks::block_kernel(group, || shared_bytes(device)) } else { None };
    let serial = |instances: usize| Builder::new(&name, instances as u64, index);
    let g = GroupKernel {
        group,
        in_place,
        index,
        launch_shape: LaunchShape { lanes: 1, threads: THREADS_PER_BLOCK, sum_storage: None },
        length: None,
    };
    let Some(blocks) = blocks else {
        return match group.space {
            IterationSpace::Elements(elements) if on_gpu => {
                let launch_shape = group.launch_shape.unwrap_or_else(|| default_launch_shape(group, elements));
                let length = is_flat(group, elements).then_some(elements);
                let g = GroupKernel { launch_shape, length, ..g };
                g.lower(serial(elements / launch_shape.lanes), Elementwise::default(), |l, outs| {
                    l.elements(group, outs)
                })
            }
            IterationSpace::Elements(elements) => {
                g.lower(serial(elements), Elementwise::default(), |l, outs| l.elements(group, outs))
            }
            IterationSpace::Rows { rows, columns } => {
                g.lower(serial(rows), RowKernel::new(rows, columns), |l, outs| l.rows(group, outs, columns))
            }
            IterationSpace::Middle { outer, middle, inner } => {
                g.lower(serial(outer * inner), Single, |l, outs| l.reduce_middle(group, outs, middle, inner))
            }
        };
    };
    let (grid, block) = blocks.launch();
    let b = Builder::blocks(&name, grid, block, index);
    match blocks {
        BlockKernel::Rows(plan) => {
            g.lower(b, RowKernel::new(plan.rows, plan.columns), |l, outs| l.rows_by_blocks(group, outs, &plan))
        }
        BlockKernel::RowsWithColumnSums(plan) => {
            let shape = RowKernel::new(plan.rows.rows, plan.rows.columns);
            g.lower(b, shape, |l, outs| l.rows_with_column_sums(group, outs, &plan))
        }
        BlockKernel::Columns(plan) => g.lower(b, plan, |l, outs| l.columns_by_blocks(group, outs)),
        BlockKernel::Tiles(plan) => g.lower(b, &plan, |l, outs| l.tiles(group, outs)),
    }
}

/// Parts common to all kernel shapes of a group.
struct GroupKernel<'a> {
    group: &'a Group,
    in_place: &'a InPlaceOutputs,
    /// Index type.
    index: Scalar,
    launch_shape: LaunchShape,
    /// Number of elements, if it is an argument of the kernel.
    length: Option<usize>,
}

impl GroupKernel<'_> {
    /// Builds the kernel: parameters for the outputs, and `body`, which computes them.
    fn lower<S: KernelShape>(
        &self,
        b: Builder,
        shape: S,
        body: impl FnOnce(&mut Lowering<S>, &[ParamId]),
    ) -> Result<Lowered> {
        let GroupKernel { group, in_place, .. } = self;
        let mut l = Lowering::new(b, self.index, shape);
        l.lanes = self.launch_shape.lanes;
        l.computed = group.order.iter().map(|t| t.0.id).collect();
        if let Some(elements) = self.length {
            l.take_length_argument(elements);
        }
        let mut outs = vec![];
        for (n, output) in group.outputs.iter().enumerate() {
            let name = if group.outputs.len() == 1 { "out".into() } else { format!("out{n}") };
            let replaced = in_place.overwrites.iter().find(|o| o.value == output.0.id).map(|o| &o.old);
            let access = if replaced.is_some() { Access::ReadWrite } else { Access::Write };
            let out = l.param(name, output, access);
            l.loads.extend(replaced.map(|tensor| (tensor.0.id.into(), out)));
            outs.push(out);
        }
        for (n, sum) in group.column_sums.iter().enumerate() {
            outs.push(l.param(format!("sums{n}"), sum, Access::Write));
        }
        if group.order.iter().any(|t| can_report_bad_index(&t.0)) {
            l.status = Some(l.b.param("status", DType::I64, crate::runtime::status::WORDS, Access::ReadWrite));
        }
        if in_place.guarded {
            let status = l.b.param("status", DType::I64, crate::runtime::status::WORDS, Access::Read);
            let (first, fine) = (l.b.index_constant(0), l.b.constant(Value::int(DType::I64, 0)));
            let code = l.b.load(status, first);
            let bad = l.b.op(ScalarOp::Ne, &[&code, &fine]);
            l.b.if_else(bad, |b| b.push_stmt(Stmt::Return(None)), |_| {});
        }
        body(&mut l, &outs);
        Ok(Lowered { threads: self.launch_shape.threads, guarded: in_place.guarded, ..l.finish()? })
    }
}

/// Maximum shared memory per block on a device.
pub(super) fn shared_bytes(device: Device) -> usize {
    // Every GPU has `MIN_BYTES`. Without a GPU, assume the maximum of current ones.
    const MIN_BYTES: usize = 48 << 10;
    const MAX_BYTES: usize = 227 << 10;
    match device.gpu() {
        Ok(Some(gpu)) => gpu.info().max_shared_bytes_per_block as usize,
        Ok(None) => MAX_BYTES,
        Err(_) => MIN_BYTES,
    }
}

fn index_type(group: &Group) -> Scalar {
    let mut largest = match group.space {
        IterationSpace::Elements(n) => n,
        // The index may exceed the last column by the elements that a block processes at once.
        IterationSpace::Rows { rows, columns } => rows * columns + blocks::MAX_OVERRUN,
        IterationSpace::Middle { outer, middle, inner } => outer * middle * inner,
    };
    for tensor in group.order.iter().chain(&group.column_sums) {
        for input in tensor.0.reads() {
            let (base, views) = look_through(input);
            largest = views.iter().chain([&base]).fold(largest, |n, t| n.max(t.0.elements()));
        }
        largest = largest.max(tensor.0.elements());
    }
    for output in &group.outputs {
        let (base, views) = look_through(output);
        largest = views.iter().chain([&base]).fold(largest, |n, t| n.max(t.0.elements()));
    }
    if largest <= i32::MAX as usize { Scalar::I32 } else { Scalar::I64 }
}

/// True if an elementwise kernel does not depend on the number of elements: it reads only elements
/// of the same index, and scalars.
fn is_flat(group: &Group, elements: usize) -> bool {
    let plain = group.order.iter().all(|tensor| tensor.0.op.is_pointwise());
    let inputs = group.order.iter().flat_map(|tensor| tensor.0.reads());
    let flat = |tensor: &Tensor| {
        let (base, views) = look_through(tensor);
        let single = base.0.elements() == 1;
        let same =
            base.0.elements() == elements && strided_view(base, &views).is_some_and(|layout| is_identity(&layout));
        single || same || base.0.op.is_constant()
    };
    elements > 1 && plain && inputs.chain(&group.outputs).all(flat)
}

/// Name of the kernel: its ops in order, truncated.
pub(crate) fn kernel_name(group: &Group) -> String {
    const MAX_LENGTH: usize = 40;
    let mut names: Vec<&str> = vec![];
    for tensor in &group.order {
        let name = tensor.0.op.name();
        let cast = matches!(tensor.0.op, Op::Cast(_)) && group.order.len() > 1;
        if !cast && names.last() != Some(&name) {
            names.push(name);
        }
    }
    let dtype = group.outputs.first().map_or(DType::F32, |t| t.0.dtype);
    let mut text = match names[..] {
        [] => "copy".to_owned(),
        _ => names.join("_"),
    };
    if text.len() > MAX_LENGTH {
        let end = text[..MAX_LENGTH].rfind('_').unwrap_or(MAX_LENGTH);
        text.truncate(end);
    }
    let sums = if group.column_sums.is_empty() { "" } else { "_with_sums" };
    format!("{text}{sums}_{dtype}")
}
