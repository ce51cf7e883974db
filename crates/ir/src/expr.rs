//! Code: an arena of typed expressions, and structured statements over them.
//!
//! An expression is evaluated once, by the [`Stmt::Let`] that names it; later uses refer to that
//! value. Constants, arguments, and thread and block indices need no `Let`. Memory accesses
//! therefore happen in statement order, and a backend can walk code from front to back.

use crate::{AlgebraOp, LocalArrayId, Op, Scalar, Type, Value, View};

/// Index of an expression in [`Code::exprs`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ExprId(pub u32);

/// Index of a variable in [`Code::locals`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LocalId(pub u32);

/// Index of a function in [`Kernel::functions`](crate::Kernel::functions).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FunctionId(pub u32);

/// Up to five operands or indices, stored inline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Args {
    ids: [ExprId; Args::MAX_LEN],
    len: u8,
}

impl Args {
    /// Indices of four dimensions and of a component.
    pub(crate) const MAX_LEN: usize = 5;

    /// Creates the operands from a slice; returns `None` if there are more than five.
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
    /// Drops operands after the fifth; the verifier then reports the count.
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

/// Axis of a grid or block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Axis {
    /// Fastest-varying axis.
    X,
    /// Second axis.
    Y,
    /// Third axis.
    Z,
}

/// Built-in variable of a block kernel, of the kernel's index type; CUDA's `threadIdx`, `blockIdx`,
/// `blockDim` and `gridDim`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Builtin {
    /// Thread index within the block (`threadIdx`).
    Thread(Axis),
    /// Block index within the grid (`blockIdx`).
    Block(Axis),
    /// Number of threads in a block (`blockDim`).
    BlockSize(Axis),
    /// Number of blocks in the grid (`gridDim`).
    GridSize(Axis),
}

/// Atomic read-modify-write operation; the expression's value is the old value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Atomic {
    /// Addition.
    Add,
    /// Subtraction.
    Sub,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Bitwise AND.
    And,
    /// Bitwise OR.
    Or,
    /// Bitwise XOR.
    Xor,
    /// Exchange: stores the new value.
    Exchange,
}

impl Atomic {
    /// All atomic operations.
    pub const ALL: [Atomic; 8] = {
        use Atomic::*;
        [Add, Sub, Min, Max, And, Or, Xor, Exchange]
    };

    /// Returns the name in the text form.
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

    /// Returns the op that combines the old and the new value; `None` for `Exchange`, where the new
    /// value replaces the old.
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

    /// Returns true if elements of type `scalar` support the operation: 32- and 64-bit types,
    /// integers only for bitwise operations.
    pub fn supports(self, scalar: Scalar) -> bool {
        let bits = matches!(self, Atomic::And | Atomic::Or | Atomic::Xor);
        scalar.bytes() >= 4 && (scalar.is_int() || !bits)
    }
}

/// Warp shuffle: the lane whose value a thread receives. Only the lowest five bits of the lane,
/// distance or mask are used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shuffle {
    /// The lane with the given index (`__shfl_sync`).
    Index,
    /// The lane at the given distance below; the thread's own value if there is none
    /// (`__shfl_up_sync`).
    Up,
    /// The lane at the given distance above; the thread's own value if there is none
    /// (`__shfl_down_sync`).
    Down,
    /// The lane whose index is XORed with the given mask (`__shfl_xor_sync`).
    Xor,
}

impl Shuffle {
    /// Returns the name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Shuffle::Index => "index",
            Shuffle::Up => "up",
            Shuffle::Down => "down",
            Shuffle::Xor => "xor",
        }
    }
}

/// Warp vote over a bool of each thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Vote {
    /// True if any thread's value is true.
    Any,
    /// True if all threads' values are true.
    All,
    /// One bit per lane, as u32.
    Ballot,
}

impl Vote {
    /// Returns the name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Vote::Any => "any",
            Vote::All => "all",
            Vote::Ballot => "ballot",
        }
    }
}

/// Number of threads in a warp.
pub const WARP_SIZE: usize = 32;

/// Scope of a memory fence: the threads that observe accesses in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// Threads of the same block.
    Block,
    /// All threads of the device.
    Device,
    /// All threads of the device, other devices and the host.
    System,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Scope; 3] = [Scope::Block, Scope::Device, Scope::System];

    /// Returns the name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Block => "block",
            Scope::Device => "device",
            Scope::System => "system",
        }
    }
}

/// Expression. Those with side effects (loads, atomics, shuffles, votes) take effect at the `Let`
/// that evaluates them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expr {
    /// Constant.
    Const(Value),
    /// Index of this instance of a `ParallelFor`, of the kernel's index type.
    Index,
    /// Thread or block index, or block or grid size.
    Builtin(Builtin),
    /// Value parameter of the kernel, or parameter of the function.
    Argument(u32),
    /// Value of a variable at this point.
    Read(LocalId),
    /// Row of the op table; applied component by component to vectors and matrices.
    Op(Op, Args),
    /// Operation on whole vectors, matrices or structs.
    Algebra {
        /// The operation.
        op: AlgebraOp,
        /// Index of the component or field, for `Extract` and `Insert`; 0 otherwise.
        component: u32,
        /// The operands.
        args: Box<[ExprId]>,
    },
    /// Numeric conversion of each component.
    Cast(Scalar, ExprId),
    /// Reinterprets the bits of each component as another type of the same width.
    Bitcast(Scalar, ExprId),
    /// Function call.
    Call(FunctionId, Box<[ExprId]>),
    /// Loads an element of a view, one component of it, or several adjacent elements at once.
    Load {
        /// The view.
        view: View,
        /// One index of the kernel's index type per dimension. An additional index selects a
        /// component, numbered as by [`Type::components`]: then only that component is read,
        /// written or updated. This holds wherever an element is accessed. For structs, whose
        /// components differ in type, the component index must be a constant.
        indices: Args,
        /// Number of adjacent elements along the last dimension, loaded as a vector; 1 for a single
        /// element. For wider loads, elements must be scalars, the last stride 1, and the offset of
        /// the first element a multiple of the width.
        width: u8,
    },
    /// Atomically updates an element and returns its old value; component by component for vectors
    /// and matrices.
    Atomic {
        /// The operation.
        atomic: Atomic,
        /// The view.
        view: View,
        /// Indices of the element.
        indices: Args,
        /// The operand.
        value: ExprId,
    },
    /// Stores `value` if the element equals `expected`, and returns the old value. Compares bits.
    CompareExchange {
        /// The view.
        view: View,
        /// Indices of the element.
        indices: Args,
        /// The expected old value.
        expected: ExprId,
        /// The value to store.
        value: ExprId,
    },
    /// Value of another thread of the warp. All threads of the warp that the mask names must
    /// participate.
    Shuffle {
        /// Shuffle mode.
        shuffle: Shuffle,
        /// The value that each thread provides.
        value: ExprId,
        /// Lane, distance or mask, of the kernel's index type.
        lane: ExprId,
        /// Lanes that participate, as bits of a u32; all if `None`.
        mask: Option<ExprId>,
    },
    /// Warp vote. All threads of the warp that the mask names must participate.
    Vote {
        /// Vote mode.
        vote: Vote,
        /// The bool of each thread.
        value: ExprId,
        /// Lanes that participate, as bits of a u32; all if `None`.
        mask: Option<ExprId>,
    },
}

impl Expr {
    /// Returns true if the expression needs no `Let`: constants, indices and arguments.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_))
    }
}

/// Statement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stmt {
    /// Evaluates an expression.
    Let(ExprId),
    /// Assigns to a variable.
    Assign(LocalId, ExprId),
    /// Stores an element of a view, or one component of it; a vector stored to a view of scalars
    /// writes as many adjacent elements (see [`Expr::Load`]).
    Store {
        /// The view.
        view: View,
        /// Indices of the element or component.
        indices: Args,
        /// The value.
        value: ExprId,
    },
    /// Begins the lifetime of a local array: its elements are uninitialized until they are stored.
    /// Other backends than the interpreter ignore it.
    Declare(LocalArrayId),
    /// Counted loop: runs `body` with `counter` from 0 to `end` - 1. `end` is evaluated once.
    For {
        /// Variable of the kernel's index type, assigned only by the loop.
        counter: LocalId,
        /// Exclusive upper bound.
        end: ExprId,
        /// The body.
        body: Vec<Stmt>,
    },
    /// Conditional.
    If {
        /// A bool.
        condition: ExprId,
        /// Executed if the condition is true.
        then: Vec<Stmt>,
        /// Executed if the condition is false.
        otherwise: Vec<Stmt>,
    },
    /// Infinite loop; left by `Break` or `Return`.
    Loop {
        /// The body.
        body: Vec<Stmt>,
    },
    /// Leaves the innermost loop.
    Break,
    /// Continues with the next iteration of the innermost loop.
    Continue,
    /// Returns from the function with a value, or ends this instance of the kernel.
    Return(Option<ExprId>),
    /// Block barrier (`__syncthreads`); orders the memory accesses of the block's threads.
    Barrier,
    /// Warp barrier (`__syncwarp`); orders the memory accesses of the warp's threads.
    WarpBarrier,
    /// Memory fence.
    Fence(Scope),
    /// Prints a line for debugging; each `{}` is replaced by the next scalar.
    Print {
        /// Format string.
        format: String,
        /// The scalars.
        args: Vec<ExprId>,
    },
    /// Ends the run with a fault if a condition does not hold.
    Check(Check),
}

/// Condition of a [`Stmt::Check`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Check {
    /// Assertion in the program.
    Assert {
        /// A bool.
        condition: ExprId,
        /// Message, or the condition's source text.
        message: String,
    },
    /// Bounds check of an index into an array that is not in memory, such as a table of constants:
    /// `0 <= index < len`. Generated CUDA and C++ omit it.
    InBounds {
        /// Index, of the kernel's index type.
        index: ExprId,
        /// Number of elements.
        len: u64,
        /// Name of the array.
        array: String,
    },
}

impl Stmt {
    /// Returns the nested blocks.
    pub fn blocks(&self) -> [&[Stmt]; 2] {
        match self {
            Stmt::For { body, .. } | Stmt::Loop { body } => [body, &[]],
            Stmt::If { then, otherwise, .. } => [then, otherwise],
            _ => [&[], &[]],
        }
    }

    /// Returns true if the predicate holds for this statement or one nested in it.
    pub fn any(&self, predicate: &dyn Fn(&Stmt) -> bool) -> bool {
        predicate(self) || self.blocks().into_iter().flatten().any(|inner| inner.any(predicate))
    }
}

/// Mutable local variable, initialized when the instance or function starts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Local {
    /// Name, kept in generated source.
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
    /// Statements of one instance, or of the function.
    pub body: Vec<Stmt>,
}

impl Code {
    /// Returns an expression.
    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.exprs[id.0 as usize]
    }

    /// Returns an expression's type.
    pub fn ty(&self, id: ExprId) -> Type {
        self.types[id.0 as usize]
    }

    /// Returns a variable.
    pub fn local(&self, id: LocalId) -> &Local {
        &self.locals[id.0 as usize]
    }

    /// Returns true if the predicate holds for any statement.
    pub fn any(&self, predicate: &dyn Fn(&Stmt) -> bool) -> bool {
        self.body.iter().any(|stmt| stmt.any(predicate))
    }
}
