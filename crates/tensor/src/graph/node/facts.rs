//! Properties of ops that the scheduler uses, in one exhaustive match: a new op adds its row here.

use bornite_ir::OpKind;

use super::Op;

/// The way in which an op is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Already in memory, or an error.
    Source,
    /// One value for all elements: an immediate in the kernels that read it.
    Constant,
    /// A view of its first input: folded into the loads of its readers.
    View,
    /// Each element from the elements of the inputs at the same index.
    Pointwise,
    /// Each element from elements at any index; computed where it is read.
    Indexed,
    /// Values added at positions given by an index tensor.
    Scatter,
    /// A reduction over axes.
    Reduction,
    /// Computed by its own kernel or library call, never fused.
    Single,
    /// An op with several outputs; has no value itself.
    MultiOutput,
    /// An output of a multi-output op.
    Output,
}

/// Cost of an op in floating-point operations: one per element of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flops {
    None,
    /// Per element of the output.
    Result,
    /// Per element of an input.
    Input(usize),
    /// A multiplication and an addition per element of the output and of the last axis of the first
    /// input.
    Product,
}

/// Properties of an op that the scheduler uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub role: Role,
    pub flops: Flops,
    /// The op can find an index out of range and report it.
    pub reports: bool,
    /// The op may be recomputed in another kernel instead of stored.
    pub recomputable: bool,
    /// The op takes more than one instruction.
    pub heavy: bool,
    /// Computing the op where it is read is cheaper than a separate kernel.
    pub inlined: bool,
}

impl Op {
    pub fn facts(&self) -> Facts {
        let facts = |role: Role, flops: Flops| {
            let inlined = matches!(role, Role::Pointwise | Role::Indexed);
            let recomputable = role == Role::Pointwise;
            Facts { role, flops, reports: false, recomputable, heavy: false, inlined }
        };
        match self {
            Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output => facts(Role::Source, Flops::None),
            Op::Full(_) => facts(Role::Constant, Flops::None),
            Op::Map(row) => {
                Facts { heavy: row.row().kind != OpKind::Primitive, ..facts(Role::Pointwise, Flops::Result) }
            }
            Op::Cast(_) => facts(Role::Pointwise, Flops::Result),
            Op::Reduce(..) => facts(Role::Reduction, Flops::Input(0)),
            Op::Matmul => facts(Role::Single, Flops::Product),
            Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) | Op::Slice(_) => facts(Role::View, Flops::None),
            Op::Checkpoint(_) | Op::Detach | Op::After => facts(Role::View, Flops::None),
            Op::Pad(..) => facts(Role::Indexed, Flops::None),
            Op::Concat(_) => Facts { inlined: false, ..facts(Role::Indexed, Flops::None) },
            Op::Gather(_) => Facts { reports: true, ..facts(Role::Indexed, Flops::None) },
            Op::ScatterAdd(_) => Facts { reports: true, ..facts(Role::Scatter, Flops::Input(2)) },
            Op::Cumsum(_) | Op::ArgReduce(..) => facts(Role::Single, Flops::Input(0)),
            Op::ArgSort { .. } => facts(Role::Single, Flops::None),
            Op::Iota { .. } | Op::Random(_) => Facts { recomputable: true, ..facts(Role::Indexed, Flops::None) },
            Op::MultiOutput(_) => facts(Role::MultiOutput, Flops::None),
            Op::GetOutput(_) => facts(Role::Output, Flops::None),
        }
    }

    /// True if the op is a view of its first input.
    pub fn is_view(&self) -> bool {
        self.facts().role == Role::View
    }

    /// True if all elements have one constant value.
    pub fn is_constant(&self) -> bool {
        self.facts().role == Role::Constant
    }

    /// True if the op computes each element from those of its inputs at the same index.
    pub fn is_pointwise(&self) -> bool {
        self.facts().role == Role::Pointwise
    }

    /// True if the op is a reduction.
    pub fn is_reduction(&self) -> bool {
        self.facts().role == Role::Reduction
    }
}
