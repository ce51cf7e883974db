//! What a kernel is: parameters, variables, an arena of typed expressions, and structured statements over them.
//!
//! An expression is evaluated once, where a [`Stmt::Let`] names it; later uses see that value. Constants and the
//! instance index need no `Let`. So the order of memory accesses is the order of statements, and any reader can
//! walk a kernel front to back.

use crate::{Op, Scalar, Value};

/// A handle on an expression of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ExprId(pub u32);

/// A handle on a parameter of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ParamId(pub u32);

/// A handle on a variable of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LocalId(pub u32);

/// Up to three operands; how many is the op's arity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Args {
    ids: [ExprId; 3],
    len: u8,
}

impl Args {
    /// Operands from a slice; `None` if there are more than three.
    pub fn new(args: &[ExprId]) -> Option<Args> {
        let mut ids = [ExprId(0); 3];
        ids.get_mut(..args.len())?.copy_from_slice(args);
        Some(Args { ids, len: args.len() as u8 })
    }
}

impl std::ops::Deref for Args {
    type Target = [ExprId];
    fn deref(&self) -> &[ExprId] {
        &self.ids[..self.len as usize]
    }
}

/// Whether a kernel reads or writes a view. A view is never both: outputs never alias inputs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Read only.
    Read,
    /// Written only.
    Write,
}

/// A parameter: a view of `len` contiguous elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Param {
    /// Name, kept in generated text.
    pub name: String,
    /// Element type.
    pub scalar: Scalar,
    /// Number of elements.
    pub len: u64,
    /// Direction.
    pub access: Access,
}

/// A mutable variable of one instance, set to `init` when the instance starts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Local {
    /// Name, kept in generated text.
    pub name: String,
    /// Initial value; its type is the variable's.
    pub init: Value,
}

/// How instances of a kernel are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Launch {
    /// One instance for each index in `0..count`, in any order.
    ParallelFor {
        /// Number of instances.
        count: u64,
    },
}

impl Launch {
    /// Number of instances.
    pub fn count(self) -> u64 {
        let Launch::ParallelFor { count } = self;
        count
    }
}

/// An expression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expr {
    /// A constant.
    Const(Value),
    /// The index of this instance, of the kernel's index type.
    Index,
    /// The value of a variable at this point.
    Read(LocalId),
    /// A row of the op table.
    Op(Op, Args),
    /// A conversion by value.
    Cast(Scalar, ExprId),
    /// The same bits as another type of the same width.
    Bitcast(Scalar, ExprId),
    /// An element of a view.
    Load {
        /// The view.
        view: ParamId,
        /// Which element, of the kernel's index type.
        index: ExprId,
    },
}

/// A statement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stmt {
    /// Evaluates an expression here.
    Let(ExprId),
    /// Sets a variable.
    Assign(LocalId, ExprId),
    /// Writes an element of a view.
    Store {
        /// The view.
        view: ParamId,
        /// Which element, of the kernel's index type.
        index: ExprId,
        /// The value.
        value: ExprId,
    },
    /// Runs `body` with `counter` at `0, 1, …` below `end`, which is evaluated once.
    For {
        /// A variable of the kernel's index type that only the loop sets.
        counter: LocalId,
        /// The bound.
        end: ExprId,
        /// The body.
        body: Vec<Stmt>,
    },
    /// Runs one of two blocks.
    If {
        /// A bool.
        condition: ExprId,
        /// Where it is true.
        then: Vec<Stmt>,
        /// Where it is false.
        otherwise: Vec<Stmt>,
    },
}

/// A kernel. Equal kernels are interchangeable: caches use the whole value as their key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Kernel {
    /// Name, kept in generated text.
    pub name: String,
    /// Layout of instances.
    pub launch: Launch,
    /// Type of indices: `I32`, or `I64` where an extent needs it.
    pub index: Scalar,
    /// Parameters, in call order.
    pub params: Vec<Param>,
    /// Variables.
    pub locals: Vec<Local>,
    /// All expressions.
    pub exprs: Vec<Expr>,
    /// The type of each expression.
    pub types: Vec<Scalar>,
    /// The statements of one instance.
    pub body: Vec<Stmt>,
}

impl Kernel {
    /// An expression.
    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.exprs[id.0 as usize]
    }

    /// An expression's type.
    pub fn scalar(&self, id: ExprId) -> Scalar {
        self.types[id.0 as usize]
    }

    /// A parameter.
    pub fn param(&self, id: ParamId) -> &Param {
        &self.params[id.0 as usize]
    }

    /// A variable.
    pub fn local(&self, id: LocalId) -> &Local {
        &self.locals[id.0 as usize]
    }
}
