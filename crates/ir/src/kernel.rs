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

/// A handle on a shared array of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SharedId(pub u32);

/// What a kernel may do with a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Read only.
    Read,
    /// Written only; what is not written is not defined.
    Write,
    /// Read, written, and updated atomically.
    ReadWrite,
}

impl Access {
    /// True if elements may be read.
    pub fn reads(self) -> bool {
        self != Access::Write
    }

    /// True if elements may be written.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
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

/// An array in the memory that the threads of a block share; not initialised.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shared {
    /// Name, kept in generated text.
    pub name: String,
    /// Element type.
    pub scalar: Scalar,
    /// Number of elements.
    pub len: u64,
}

/// Memory that elements are loaded from and stored to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum View {
    /// A parameter.
    Param(ParamId),
    /// An array shared by a block.
    Shared(SharedId),
}

impl From<ParamId> for View {
    fn from(id: ParamId) -> View {
        View::Param(id)
    }
}

impl From<SharedId> for View {
    fn from(id: SharedId) -> View {
        View::Shared(id)
    }
}

/// A mutable variable of one instance, set to `init` when the instance starts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Local {
    /// Name, kept in generated text.
    pub name: String,
    /// Initial value; its type is the variable's.
    pub init: Value,
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

/// How instances of a kernel are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Launch {
    /// One instance for each index in `0..count`, in any order.
    ParallelFor {
        /// Number of instances.
        count: u64,
    },
    /// Blocks of threads that share memory and meet at barriers.
    Blocks {
        /// Blocks along x, y and z.
        grid: [u32; 3],
        /// Threads of a block along x, y and z.
        block: [u32; 3],
    },
}

impl Launch {
    /// Number of instances.
    pub fn count(self) -> u64 {
        match self {
            Launch::ParallelFor { count } => count,
            Launch::Blocks { grid, block } => grid.iter().chain(&block).map(|&n| n as u64).product(),
        }
    }
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
    pub fn takes(self, scalar: Scalar) -> bool {
        let bits = matches!(self, Atomic::And | Atomic::Or | Atomic::Xor);
        scalar.bytes() >= 4 && (scalar.is_int() || !bits)
    }
}

/// Whose value a thread of a warp receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shuffle {
    /// The lane of that number (modulo 32).
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
pub const WARP: usize = 32;

/// An expression. Those with an effect (loads, atomics, shuffles, votes) have it where a `Let` evaluates them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expr {
    /// A constant.
    Const(Value),
    /// The index of this instance of a `ParallelFor`, of the kernel's index type.
    Index,
    /// The place of this instance of a block kernel.
    Builtin(Builtin),
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
        view: View,
        /// Which element, of the kernel's index type.
        index: ExprId,
    },
    /// Updates an element and gives its value from before.
    Atomic {
        /// The update.
        atomic: Atomic,
        /// The view.
        view: View,
        /// Which element, of the kernel's index type.
        index: ExprId,
        /// The operand.
        value: ExprId,
    },
    /// Stores `value` if the element equals `expected`, and gives its value from before. Compares bits.
    CompareExchange {
        /// The view.
        view: View,
        /// Which element, of the kernel's index type.
        index: ExprId,
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
    pub fn is_free(&self) -> bool {
        matches!(self, Expr::Const(_) | Expr::Index | Expr::Builtin(_))
    }
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
        view: View,
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
    /// Runs `body` again and again, until a `Break` or `Return`.
    Loop {
        /// The body.
        body: Vec<Stmt>,
    },
    /// Leaves the innermost loop.
    Break,
    /// Goes on with the next turn of the innermost loop.
    Continue,
    /// Ends this instance.
    Return,
    /// Waits for all threads of the block; orders their memory accesses.
    Barrier,
    /// Waits for all threads of the warp; orders their memory accesses.
    WarpBarrier,
    /// Orders this thread's memory accesses for the other threads of the device.
    Fence,
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
    /// Arrays shared by each block.
    pub shared: Vec<Shared>,
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

    /// Name, element type and number of elements of a view.
    pub fn view(&self, view: View) -> (&str, Scalar, u64) {
        match view {
            View::Param(id) => {
                let Param { name, scalar, len, .. } = self.param(id);
                (name, *scalar, *len)
            }
            View::Shared(SharedId(n)) => {
                let Shared { name, scalar, len } = &self.shared[n as usize];
                (name, *scalar, *len)
            }
        }
    }

    /// True if threads of a block or warp depend on each other: then they cannot run one by one.
    pub fn is_cooperative(&self) -> bool {
        fn any(block: &[Stmt]) -> bool {
            block.iter().any(|stmt| match stmt {
                Stmt::Barrier | Stmt::WarpBarrier => true,
                Stmt::For { body, .. } | Stmt::Loop { body } => any(body),
                Stmt::If { then, otherwise, .. } => any(then) || any(otherwise),
                _ => false,
            })
        }
        let talks = |expr: &Expr| matches!(expr, Expr::Shuffle { .. } | Expr::Vote { .. });
        !self.shared.is_empty() || self.exprs.iter().any(talks) || any(&self.body)
    }

    /// A variable.
    pub fn local(&self, id: LocalId) -> &Local {
        &self.locals[id.0 as usize]
    }
}
