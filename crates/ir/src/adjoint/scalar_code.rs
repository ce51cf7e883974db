//! The code of a kernel for differentiation: calls inlined, composite values split into scalars,
//! and exits from loops, functions and the kernel replaced by flags.
//!
//! Every block runs from its first statement to its last, so that it can be run backwards. Values
//! are scalars, each defined once; variables are scalars too.

use crate::{AlgebraOp, Components, Expr, LocalArrayId, Op, Scalar, Stmt, Type, Value, View};

/// Index of a value in [`ScalarCode::values`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct ValueId(pub u32);

/// Index of a variable in [`ScalarCode::vars`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct VarId(pub u32);

/// Index of a loop in [`ScalarCode::loops`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct LoopId(pub u32);

/// Index of a block in [`ScalarCode::blocks`]; 0 is the body of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct BlockId(pub u32);

/// Index of an operation in [`ScalarCode::groups`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct GroupId(pub u32);

/// Definition of a value.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Def {
    Const(Value),
    /// Component of a value parameter.
    Argument {
        param: u32,
        component: u32,
    },
    /// `Expr::Index` or `Expr::Builtin`.
    Instance(Expr),
    Read(VarId),
    /// The variable of a loop that changes by the same step in every iteration, where it still has
    /// its value from the start of the iteration.
    Induction {
        var: VarId,
        of: LoopId,
        init: ValueId,
        step: ValueId,
        /// `Op::Add` or `Op::Sub`.
        op: Op,
    },
    Op(Op, Vec<ValueId>),
    Cast(ValueId),
    Bitcast(ValueId),
    Load(Element),
    /// Component of the result of an operation on whole vectors and matrices.
    Part(GroupId, u32),
}

/// One scalar in memory.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Element {
    pub view: View,
    /// One index per dimension.
    pub indices: Vec<ValueId>,
    /// Component of the element; `None` if elements are scalars.
    pub component: Option<ValueId>,
}

impl Element {
    /// The values that select the element.
    pub fn selectors(&self) -> impl Iterator<Item = ValueId> {
        self.indices.iter().copied().chain(self.component)
    }
}

/// A value.
pub(super) struct Definition<'k> {
    pub def: Def,
    pub scalar: Scalar,
    /// The block that computes it. Leaves are visible everywhere.
    pub block: BlockId,
    /// The statement of the kernel.
    pub site: Option<&'k Stmt>,
}

impl Definition<'_> {
    /// True for values that need no statement.
    pub fn is_leaf(&self) -> bool {
        matches!(self.def, Def::Const(_) | Def::Argument { .. } | Def::Instance(_))
    }
}

/// Operation on whole vectors and matrices.
pub(super) struct Group {
    pub op: AlgebraOp,
    pub args: Vec<Components<ValueId>>,
    pub out: Components<ValueId>,
}

/// Scalar variable.
pub(super) struct Var {
    pub name: String,
    pub scalar: Scalar,
    pub init: Value,
}

/// Block: its statements, and its position.
pub(super) struct Block<'k> {
    pub stmts: Vec<ScalarStmt<'k>>,
    pub parent: Option<BlockId>,
    /// The innermost loop that contains it.
    pub in_loop: Option<LoopId>,
    /// Condition under which it runs: a value of the parent, and whether that is true or false.
    pub condition: Option<(ValueId, bool)>,
}

/// Loop.
pub(super) struct Loop {
    pub body: BlockId,
    /// Counter and exclusive bound of a counted loop.
    pub counted: Option<(VarId, ValueId)>,
    /// Set by the body to leave the loop at the end of the iteration.
    pub exit: Option<VarId>,
}

/// Statement.
pub(super) enum ScalarStmt<'k> {
    Let(ValueId),
    Algebra(GroupId),
    Assign(VarId, ValueId),
    Store {
        element: Element,
        value: ValueId,
        site: &'k Stmt,
    },
    /// Atomic addition, or subtraction, whose old value is not used.
    AtomicAdd {
        element: Element,
        value: ValueId,
        negated: bool,
        site: &'k Stmt,
    },
    Declare(LocalArrayId),
    If {
        condition: ValueId,
        then: BlockId,
        otherwise: BlockId,
    },
    Loop(LoopId),
}

/// The code of one instance.
pub(super) struct ScalarCode<'k> {
    pub values: Vec<Definition<'k>>,
    pub vars: Vec<Var>,
    pub groups: Vec<Group>,
    pub blocks: Vec<Block<'k>>,
    pub loops: Vec<Loop>,
}

impl ScalarCode<'_> {
    pub fn value(&self, id: ValueId) -> &Definition<'_> {
        &self.values[id.0 as usize]
    }

    pub fn var(&self, id: VarId) -> &Var {
        &self.vars[id.0 as usize]
    }

    pub fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    pub fn each_loop(&self, id: LoopId) -> &Loop {
        &self.loops[id.0 as usize]
    }

    pub fn constant(&self, id: ValueId) -> Option<Value> {
        if let Def::Const(value) = self.value(id).def { Some(value) } else { None }
    }

    /// The operands of a value, except those that a load's element or a part's group names.
    pub fn operands(&self, id: ValueId) -> Vec<ValueId> {
        match &self.value(id).def {
            Def::Const(_) | Def::Argument { .. } | Def::Instance(_) | Def::Read(_) => vec![],
            Def::Induction { init, step, .. } => vec![*init, *step],
            Def::Op(_, args) => args.clone(),
            Def::Cast(from) | Def::Bitcast(from) => vec![*from],
            Def::Load(element) => element.selectors().collect(),
            Def::Part(group, _) => self.group(*group).args.iter().flat_map(|arg| arg.components.clone()).collect(),
        }
    }
}

impl<'k> ScalarCode<'k> {
    pub fn block(&self, id: BlockId) -> &Block<'k> {
        &self.blocks[id.0 as usize]
    }

    /// Calls `f` for every statement, in order.
    pub fn walk(&self, f: &mut dyn FnMut(&ScalarStmt<'k>, BlockId)) {
        self.walk_block(BlockId(0), f);
    }

    fn walk_block(&self, id: BlockId, f: &mut dyn FnMut(&ScalarStmt<'k>, BlockId)) {
        for stmt in &self.block(id).stmts {
            f(stmt, id);
            match stmt {
                ScalarStmt::If { then, otherwise, .. } => {
                    self.walk_block(*then, f);
                    self.walk_block(*otherwise, f);
                }
                ScalarStmt::Loop(inner) => self.walk_block(self.each_loop(*inner).body, f),
                _ => {}
            }
        }
    }
}

/// Type of scalars that hold the derivative of a value of type `scalar`.
pub(super) fn gradient_scalar(scalar: Scalar) -> Scalar {
    scalar.compute_type()
}

/// True if elements of a view are not scalars, so that an access names a component.
pub(super) fn has_components(ty: Type) -> bool {
    ty.as_scalar().is_none()
}
