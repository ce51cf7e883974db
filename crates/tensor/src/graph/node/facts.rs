//! Facts about ops that the scheduler goes by. A new op answers here, in one exhaustive match, and the passes follow.

use bornite_ir::Kind;

use super::Op;

/// The way in which an op gets its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// It is in memory, or an error.
    Source,
    /// One value everywhere: a number in the kernels that read it.
    Constant,
    /// The elements of its first input under other positions: folded into the loads of its readers.
    View,
    /// Each element from the elements of the inputs at the same position.
    Pointwise,
    /// Each element from elements anywhere, computed where it is read.
    Indexed,
    /// Values added at positions that an index tensor names.
    Scatter,
    /// Elements along axes become one.
    Reduction,
    /// By a kernel or a library call that no other op shares.
    Single,
    /// Several results at once, which are outputs; no value.
    MultiOutput,
    /// A result of a multi-output op.
    Output,
}

/// Operations on elements that an op takes: one for each element of something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flops {
    None,
    /// Of the result.
    Result,
    /// Of an input.
    Input(usize),
    /// A product and a sum for each element of the result and of the last axis of the first input.
    Product,
}

/// Properties of an op that the scheduler goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub role: Role,
    pub flops: Flops,
    /// Whether it can meet a bad index.
    pub reports: bool,
    /// Whether it may be computed again in another kernel rather than stored; and whether that takes more than an instruction.
    pub recomputable: bool,
    pub heavy: bool,
    /// Whether a kernel for it alone is worth less than computing it where it is read.
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
            Op::Map(row) => Facts { heavy: row.row().kind != Kind::Primitive, ..facts(Role::Pointwise, Flops::Result) },
            Op::Cast(_) => facts(Role::Pointwise, Flops::Result),
            Op::Reduce(..) => facts(Role::Reduction, Flops::Input(0)),
            Op::Matmul => facts(Role::Single, Flops::Product),
            Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) | Op::Slice(_) | Op::Checkpoint(_) | Op::Detach => {
                facts(Role::View, Flops::None)
            }
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

    /// True if the op only renames elements of its first input.
    pub fn is_view(&self) -> bool {
        self.facts().role == Role::View
    }

    /// True if the op has one value everywhere.
    pub fn is_constant(&self) -> bool {
        self.facts().role == Role::Constant
    }

    /// True if the op computes each element from those of its inputs at the same position.
    pub fn is_pointwise(&self) -> bool {
        self.facts().role == Role::Pointwise
    }

    /// True if the op is a reduction.
    pub fn is_reduction(&self) -> bool {
        self.facts().role == Role::Reduction
    }
}
