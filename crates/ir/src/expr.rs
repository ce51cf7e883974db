//! Code: an arena of typed expressions, and structured statements over them.
//!
//! An expression is evaluated once, where a [`Stmt::Let`] names it; later uses see that value. Constants, arguments and
//! places in the grid need no `Let`. So the order of memory accesses is the order of statements, and any reader can walk
//! code front to back.

use crate::{AlgebraOp, Op, Scalar, Type, Value, View};

/// A handle on an expression of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ExprId(pub u32);

/// A handle on a variable of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LocalId(pub u32);

/// A handle on a function of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FunctionId(pub u32);

/// Up to five operands or indices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Args {
    ids: [ExprId; Args::MAX_LEN],
    len: u8,
}

impl Args {
    /// Indices of four dimensions, and of a component.
    pub(crate) const MAX_LEN: usize = 5;

    /// Operands from a slice; `None` if there are more than five.
    pub fn new(args: &[ExprId]) -> Option<Args> {
        let mut ids = [ExprId(0); Args::MAX_LEN];
        ids.get_mut(..args.len())?.copy_from_slice(args);
        Some(Args { ids, len: args.len() as u8 })
    }
}

impl From<ExprId> for Args {
    fn from(id: ExprId) -> Args {
        Args::from([id])
    }
}

impl<const N: usize> From<[ExprId; N]> for Args {
    /// More than five are cut off; the verifier counts them.
    fn from(args: [ExprId; N]) -> Args {
        Args::new(&args[..N.min(Args::MAX_LEN)]).unwrap_or(Args { ids: [ExprId(0); Args::MAX_LEN], len: 0 })
    }
}

impl std::ops::Deref for Args {
    type Target = [ExprId];
    fn deref(&self) -> &[ExprId] {
        &self.ids[..self.len as usize]
    }
}

/// A direction of a grid or block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Axis {
    /// The fastest.
    X,
    /// The second.
    Y,
    /// The third.
    Z,
}

/// What an instance of a block kernel knows of its place, of the kernel's index type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Builtin {
    /// The thread within its block.
    Thread(Axis),
    /// The block within the grid.
    Block(Axis),
    /// Threads of a block.
    BlockSize(Axis),
    /// Blocks of the grid.
    GridSize(Axis),
}

/// An atomic update; the expression's value is what was there before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Atomic {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// The new value.
    Exchange,
}

impl Atomic {
    /// Every update, for sweeps.
    pub const ALL: [Atomic; 8] = {
        use Atomic::*;
        [Add, Sub, Min, Max, And, Or, Xor, Exchange]
    };

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Atomic::Add => "add",
            Atomic::Sub => "sub",
            Atomic::Min => "min",
            Atomic::Max => "max",
            Atomic::And => "and",
            Atomic::Or => "or",
            Atomic::Xor => "xor",
            Atomic::Exchange => "exchange",
        }
    }

    /// The row that combines old and new value; `None`: the new value replaces the old.
    pub fn op(self) -> Option<Op> {
        match self {
            Atomic::Add => Some(Op::Add),
            Atomic::Sub => Some(Op::Sub),
            Atomic::Min => Some(Op::Min),
            Atomic::Max => Some(Op::Max),
            Atomic::And => Some(Op::And),
            Atomic::Or => Some(Op::Or),
            Atomic::Xor => Some(Op::Xor),
            Atomic::Exchange => None,
        }
    }

    /// True if elements of that type can be updated this way: 32- and 64-bit numbers, integers for bits.
    pub fn supports(self, scalar: Scalar) -> bool {
        let bits = matches!(self, Atomic::And | Atomic::Or | Atomic::Xor);
        scalar.bytes() >= 4 && (scalar.is_int() || !bits)
    }
}

/// Whose value a thread of a warp receives. Of the lane, distance or mask the lowest five bits count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shuffle {
    /// The lane of that number.
    Index,
    /// The lane that many below; its own where there is none.
    Up,
    /// The lane that many above; its own where there is none.
    Down,
    /// The lane whose number differs in those bits.
    Xor,
}

impl Shuffle {
    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Shuffle::Index => "index",
            Shuffle::Up => "up",
            Shuffle::Down => "down",
            Shuffle::Xor => "xor",
        }
    }
}

/// What the threads of a warp learn of each other's bools.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Vote {
    /// Whether any is true.
    Any,
    /// Whether all are.
    All,
    /// A bit for each lane, as u32.
    Ballot,
}

impl Vote {
    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Vote::Any => "any",
            Vote::All => "all",
            Vote::Ballot => "ballot",
        }
    }
}

/// Threads of a warp.
pub const WARP_SIZE: usize = 32;

/// Who sees memory accesses in order after a fence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// The threads of the block.
    Block,
    /// All threads of the device.
    Device,
    /// Other devices and the host too.
    System,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Scope; 3] = [Scope::Block, Scope::Device, Scope::System];

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Block => "block",
            Scope::Device => "device",
            Scope::System => "system",
        }
    }
}

/// An expression. Those with an effect (loads, atomics, shuffles, votes) have it where a `Let` evaluates them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expr {
    /// A constant.
    Const(Value),
    /// The index of this instance of a `ParallelFor`, of the kernel's index type.
    Index,
    /// The place of this instance of a block kernel.
    Builtin(Builtin),
    /// A value parameter of the kernel, or a parameter of the function.
    Argument(u32),
    /// The value of a variable at this point.
    Read(LocalId),
    /// A row of the op table; of vectors and matrices, component by component.
    Op(Op, Args),
    /// A row of the table of vectors and matrices. `at` is the component or field where the row asks for one.
    Algebra {
        /// The operation.
        op: AlgebraOp,
        /// Index of the component or field, for `Extract` and `Insert`; 0 otherwise.
        component: u32,
        /// The operands.
        args: Box<[ExprId]>,
    },
    /// A conversion by value, of each component.
    Cast(Scalar, ExprId),
    /// The same bits as another type of the same width, of each component.
    Bitcast(Scalar, ExprId),
    /// A call of a function.
    Call(FunctionId, Box<[ExprId]>),
    /// An element of a view, a component of one, or several neighbours at once.
    Load {
        /// The view.
        view: View,
        /// Which element: an index of the kernel's index type for each dimension. One index more is the number of a component,
        /// as [`Type::components`] counts them: then it alone is read, written or updated, here and wherever an element is
        /// named. Of structs, whose components differ, it is a constant.
        indices: Args,
        /// 1, or how many neighbours along the last dimension: then they come as a vector. Elements must be scalars,
        /// neighbours adjacent in memory, and the place of the first a multiple of the width.
        width: u8,
    },
    /// Updates an element and gives its value from before; of vectors and matrices, component by component.
    Atomic {
        /// The update.
        atomic: Atomic,
        /// The view.
        view: View,
        /// Which element.
        indices: Args,
        /// The operand.
        value: ExprId,
    },
    /// Stores `value` if the element equals `expected`, and gives its value from before. Compares bits.
    CompareExchange {
        /// The view.
        view: View,
        /// Which element.
        indices: Args,
        /// The value to find.
        expected: ExprId,
        /// The value to leave.
        value: ExprId,
    },
    /// A value of another thread of the warp. All threads of the warp must take part.
    Shuffle {
        /// Whose.
        shuffle: Shuffle,
        /// What each thread offers.
        value: ExprId,
        /// The lane, distance or mask, of the kernel's index type.
        lane: ExprId,
    },
    /// A vote of the warp. All threads of the warp must take part.
    Vote {
        /// On what.
        vote: Vote,
        /// Each thread's bool.
        value: ExprId,
    },
}

impl Expr {
    /// True if the expression has a value everywhere, without a `Let`.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_))
    }
}

/// A statement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stmt {
    /// Evaluates an expression here.
    Let(ExprId),
    /// Sets a variable.
    Assign(LocalId, ExprId),
    /// Writes an element of a view, or a component of one; or, given a vector for a view of scalars, as many neighbours (see
    /// [`Expr::Load`]).
    Store {
        /// The view.
        view: View,
        /// Which element, or which component of one.
        indices: Args,
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
    /// Runs `body` again and again, until a `Break` or `Return`.
    Loop {
        /// The body.
        body: Vec<Stmt>,
    },
    /// Leaves the innermost loop.
    Break,
    /// Goes on with the next turn of the innermost loop.
    Continue,
    /// Ends this instance, or the function with its value.
    Return(Option<ExprId>),
    /// Waits for all threads of the block; orders their memory accesses.
    Barrier,
    /// Waits for all threads of the warp; orders their memory accesses.
    WarpBarrier,
    /// Orders this thread's memory accesses for others.
    Fence(Scope),
    /// Writes a line for people who debug; each `{}` stands for the next scalar.
    Print {
        /// The line.
        format: String,
        /// The scalars.
        args: Vec<ExprId>,
    },
    /// Ends the run with a finding if something does not hold.
    Check(Check),
}

/// What must hold where a [`Stmt::Check`] stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Check {
    /// What a program claims.
    Assert {
        /// A bool.
        condition: ExprId,
        /// The claim in words, or as it is written.
        message: String,
    },
    /// An index of an array that is no memory, such as a table of constants: from 0 and below a length. Printed text leaves
    /// it out, as C++ does.
    InBounds {
        /// An index of the kernel's index type.
        index: ExprId,
        /// How many elements there are.
        len: u64,
        /// What the array is called.
        array: String,
    },
}

impl Stmt {
    /// The blocks within the statement.
    pub fn blocks(&self) -> [&[Stmt]; 2] {
        match self {
            Stmt::For { body, .. } | Stmt::Loop { body } => [body, &[]],
            Stmt::If { then, otherwise, .. } => [then, otherwise],
            _ => [&[], &[]],
        }
    }

    /// True if the statement or one within it is such.
    pub fn any(&self, predicate: &dyn Fn(&Stmt) -> bool) -> bool {
        predicate(self) || self.blocks().into_iter().flatten().any(|inner| inner.any(predicate))
    }
}

/// A mutable variable of one instance, set when the instance (or the function) starts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Local {
    /// Name, kept in generated text.
    pub name: String,
    /// Type.
    pub ty: Type,
    /// Initial value of each component.
    pub init: Vec<Value>,
}

/// Variables, expressions and statements of a kernel or function.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Code {
    /// Variables.
    pub locals: Vec<Local>,
    /// All expressions.
    pub exprs: Vec<Expr>,
    /// The type of each expression.
    pub types: Vec<Type>,
    /// The statements of one instance.
    pub body: Vec<Stmt>,
}

impl Code {
    /// An expression.
    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.exprs[id.0 as usize]
    }

    /// An expression's type.
    pub fn ty(&self, id: ExprId) -> Type {
        self.types[id.0 as usize]
    }

    /// A variable.
    pub fn local(&self, id: LocalId) -> &Local {
        &self.locals[id.0 as usize]
    }

    /// True if some statement is such.
    pub fn any(&self, predicate: &dyn Fn(&Stmt) -> bool) -> bool {
        self.body.iter().any(|stmt| stmt.any(predicate))
    }
}
