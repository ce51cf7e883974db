//! The source of a row before it is text: a small typed program in the terms of the Warp dialect.
//!
//! The generator makes it, the printers ([`python`], [`c`]) write it, and the evaluator runs it. It shares nothing with the
//! kernel IR, so that a mistake there cannot hide here.

pub mod c;
pub mod cancel;
pub mod python;
mod types;
mod walk;

pub use types::{Scalar, Ty};

/// A variable of a body: a parameter passed by value, a local one, or a loop's counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Var(pub u16);

/// An array parameter of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Array(pub u8);

/// A function of the program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Func(pub u8);

/// Operations on one value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unary {
    /// `-a`.
    Neg,
    /// `not a`.
    Not,
    /// `~a`.
    Invert,
}

/// Operations on two values that have an operator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// `/` of floats.
    Div,
    /// `//` of integers, neither negative.
    Quotient,
    /// `%` of integers, neither negative.
    Rem,
    BitAnd,
    BitOr,
    BitXor,
    Shl,
    Shr,
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
    And,
    Or,
}

macro_rules! builtins {
    ($($variant:ident $name:literal)*) => {
        /// Functions that the dialect offers.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[allow(missing_docs)]
        pub enum Builtin { $($variant,)* }

        impl Builtin {
            /// The name after `wp.`.
            pub fn name(self) -> &'static str {
                match self { $(Builtin::$variant => $name,)* }
            }
        }
    };
}

builtins! {
    Abs "abs" Sign "sign" Min "min" Max "max" Clamp "clamp"
    Floor "floor" Ceil "ceil" Round "round" Rint "rint" Trunc "trunc" Frac "frac"
    Sqrt "sqrt" Cbrt "cbrt" Pow "pow" Exp "exp" Log "log" Log2 "log2" Log10 "log10"
    Sin "sin" Cos "cos" Tan "tan" Asin "asin" Acos "acos" Atan "atan" Atan2 "atan2"
    Sinh "sinh" Cosh "cosh" Tanh "tanh" Erf "erf" Erfc "erfc" Copysign "copysign"
    Lerp "lerp" Smoothstep "smoothstep" Degrees "degrees" Radians "radians" BitCount "bit_count"
    Dot "dot" Length "length" LengthSq "length_sq" Normalize "normalize" Cross "cross" CwMul "cw_mul" CwDiv "cw_div"
    Transpose "transpose" Determinant "determinant" Trace "trace" Outer "outer"
}

/// A typed expression.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: Kind,
    /// The type of its value.
    pub ty: Ty,
}

/// What an expression is.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// A number, as it is written.
    Float(f64),
    /// An integer.
    Int(i64),
    /// A variable.
    Var(Var),
    /// An element of an array, by an index for each of its dimensions.
    Load(Array, Vec<Expr>),
    /// An operation on one value.
    Unary(Unary, Box<Expr>),
    /// An operation on two values. Products of matrices, vectors and scalars are [`Binary::Mul`].
    Binary(Binary, Box<[Expr; 2]>),
    /// A function of the dialect.
    Call(Builtin, Vec<Expr>),
    /// A function of the program.
    Function(Func, Vec<Expr>),
    /// The second where the first holds, else the third.
    Where(Box<[Expr; 3]>),
    /// A conversion to the expression's type.
    Cast(Box<Expr>),
    /// A component of a vector, an entry of a matrix (row by row), or a field of a struct.
    Part(Box<Expr>, u8),
    /// A vector, matrix or struct of its parts.
    Make(Vec<Expr>),
}

/// Updates that are atomic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Update {
    Add,
    Sub,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub enum Stmt {
    /// Names a value, or gives a variable that changes its first value.
    Let(Var, Expr),
    /// Sets a variable.
    Assign(Var, Expr),
    /// `var op= value`.
    Update(Var, Binary, Expr),
    /// Sets a component or field of a variable.
    SetPart(Var, u8, Expr),
    /// Writes an element.
    Store(Array, Vec<Expr>, Expr),
    /// Updates an element atomically. The variable, if there is one, takes the value from before.
    Atomic(Update, Array, Vec<Expr>, Expr),
    /// One of two blocks.
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    /// Counts from the first to below the second (both integers), by a step that is known.
    For(Var, Expr, Expr, i64, Vec<Stmt>),
    /// As long as the condition holds; at most so many turns by construction.
    While(Expr, Vec<Stmt>),
    /// Leaves the loop.
    Break,
    /// The next turn of the loop.
    Continue,
    /// Ends the instance, or the function with a value.
    Return(Option<Expr>),
    /// `state = wp.rand_init(seed, offset)`.
    Seed(Var, Expr, Expr),
    /// The next random number of a state: a float in [0, 1), or an integer from `low` to below `high`.
    Draw(Var, Var, Option<(i64, i64)>),
}

/// A variable as it is declared.
#[derive(Clone, PartialEq, Debug)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: Ty,
    /// Whether it is set after its declaration.
    pub changes: bool,
}

/// Variables and statements of a kernel or function; parameters are the first variables.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Body {
    /// Variables.
    pub vars: Vec<Variable>,
    /// How many of them are parameters.
    pub params: usize,
    /// Statements.
    pub stmts: Vec<Stmt>,
}

impl Body {
    /// A variable.
    pub fn var(&self, Var(n): Var) -> &Variable {
        &self.vars[n as usize]
    }
}

/// A function of the program.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// Name.
    pub name: String,
    /// The type of its value.
    pub result: Ty,
    /// What it does.
    pub body: Body,
}

/// A struct of the program.
#[derive(Clone, PartialEq, Debug)]
pub struct Struct {
    /// Name.
    pub name: String,
    /// Fields: names and types (no structs).
    pub fields: Vec<(String, Ty)>,
}

/// How an array is filled before the launch.
#[derive(Clone, PartialEq, Debug)]
pub enum Fill {
    /// Zeros.
    Zero,
    /// One number everywhere.
    All(f64),
    /// Floats between two, in steps of a 24-bit fraction; or integers, both bounds included.
    Uniform(f64, f64),
    /// Indices below the length of a dimension.
    Below(Size),
    /// Every index below the length of a dimension once, in random order.
    Permutation(Size),
    /// Rising offsets from 0 to the length of a dimension.
    Offsets(Size),
    /// The components of a struct, in order.
    Fields(Vec<Fill>),
}

/// A length: a size parameter, and what is done to it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Size {
    /// The size parameter of that number (into [`Program::sizes`]).
    Param(u8),
    /// A number.
    Known(u32),
    /// A size parameter divided by a number, rounded up.
    Blocks(u8, u32),
    /// A size parameter and a few.
    Plus(u8, u32),
    /// A size parameter, so many times.
    Times(u8, u32),
}

/// An array parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct ArrayParam {
    /// Name.
    pub name: String,
    /// Element type.
    pub ty: Ty,
    /// Lengths, one to three.
    pub shape: Vec<Size>,
    /// What it holds before.
    pub fill: Fill,
    /// Whether it is written.
    pub written: bool,
}

/// A value parameter that is not a size: it is one of the body's first variables.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueParam {
    /// The variable.
    pub var: Var,
    /// What is passed: floats between two, or integers, both included.
    pub range: (f64, f64),
}

/// A size parameter: a length that a launch chooses.
#[derive(Clone, PartialEq, Debug)]
pub struct SizeParam {
    /// The variable of the kernel that holds it.
    pub var: Var,
    /// Whether the Python source takes it; otherwise only the texts that need a guard do.
    pub in_source: bool,
    /// The largest that a check should use.
    pub most: u32,
    /// The smallest that the kernel is for.
    pub least: u32,
}

/// A program: what one row is made of.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The kernel's name.
    pub name: String,
    /// What it does, in a sentence.
    pub doc: String,
    /// Structs.
    pub structs: Vec<Struct>,
    /// Functions; each calls only those before it.
    pub functions: Vec<Function>,
    /// Array parameters.
    pub arrays: Vec<ArrayParam>,
    /// Value parameters.
    pub values: Vec<ValueParam>,
    /// Size parameters.
    pub sizes: Vec<SizeParam>,
    /// The kernel. Its parameters are value parameters and sizes.
    pub body: Body,
    /// What `wp.tid()` gives: a variable and the extent for each dimension of the launch.
    pub grid: Vec<(Var, Size)>,
    /// How the CUDA text is written and launched.
    pub form: Form,
}

/// How the CUDA text is written and launched.
#[derive(Clone, PartialEq, Debug)]
pub enum Form {
    /// A thread an instance, as the source has it.
    Direct(Style),
    /// A text of its own in which the threads of a block work together.
    Block(Cooperative),
}

/// How indices and guards of a direct text are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// How instances beyond the end are kept out.
    pub guard: Guard,
    /// Whether read-only pointers are `__restrict__`.
    pub restrict: bool,
}

/// How instances beyond the end are kept out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// `if (i >= n) return;`
    Return,
    /// `if (i < n) { … }`
    Around,
    /// A loop over all instances in steps of the grid.
    Stride,
}

/// A CUDA text in which threads work together.
#[derive(Clone, PartialEq, Debug)]
pub struct Cooperative {
    /// The whole kernel, without the functions and structs that come before it.
    pub text: String,
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks along x, y and z: of each, the extent that they cover and how much of it one covers.
    pub grid: [(Size, u32); 3],
    /// What the block form is called: for metadata and statistics.
    pub kind: &'static str,
}

impl Program {
    /// An array parameter.
    pub fn array(&self, Array(n): Array) -> &ArrayParam {
        &self.arrays[n as usize]
    }

    /// Threads of a block of the CUDA text.
    pub fn block(&self) -> [u32; 3] {
        match &self.form {
            Form::Direct(style) => style.block,
            Form::Block(block) => block.block,
        }
    }

    /// Blocks of a launch for these sizes.
    pub fn blocks(&self, sizes: &[u32]) -> [u32; 3] {
        match &self.form {
            Form::Direct(style) => {
                let mut grid = [1; 3];
                // The last dimension is the fastest, so it is x.
                for (n, (_, size)) in self.grid.iter().rev().enumerate() {
                    grid[n] = size.of(sizes).div_ceil(style.block[n]).max(1);
                }
                // A loop in steps of the grid must turn more than once to be tested.
                if style.guard == Guard::Stride {
                    grid[0] = grid[0].div_ceil(2);
                }
                grid
            }
            Form::Block(block) => block.grid.map(|(size, each)| size.of(sizes).div_ceil(each).max(1)),
        }
    }
}

impl Size {
    /// The length for these sizes.
    pub fn of(self, sizes: &[u32]) -> u32 {
        match self {
            Size::Param(n) => sizes[n as usize],
            Size::Known(n) => n,
            Size::Blocks(n, by) => sizes[n as usize].div_ceil(by),
            Size::Plus(n, more) => sizes[n as usize] + more,
            Size::Times(n, times) => sizes[n as usize] * times,
        }
    }
}
