//! Program tree of a row: a small typed program in the Warp dialect.
//!
//! The generator builds it, the printers ([`python`], [`c`]) print it, and the evaluator runs it.
//! It shares nothing with the kernel IR, so that a bug there cannot hide here.

pub mod c;
pub mod cancel;
pub mod python;
mod types;
mod walk;

pub use types::{ScalarType, Ty};

/// A variable of a body: a scalar parameter, a local variable, or a loop counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VarId(pub u16);

/// An array parameter of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ArrayId(pub u8);

/// A function of the program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FuncId(pub u8);

/// Unary operators.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnaryOp {
    /// `-a`.
    Neg,
    /// `not a`.
    Not,
    /// `~a`.
    Invert,
}

/// Binary operators.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    /// `/` of floats.
    Div,
    /// `//` of non-negative integers.
    Quotient,
    /// `%` of non-negative integers.
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
        /// Builtin functions of the Warp dialect.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[allow(missing_docs)]
        pub enum BuiltinFn { $($variant,)* }

        impl BuiltinFn {
            /// Name after `wp.`.
            pub fn name(self) -> &'static str {
                match self { $(BuiltinFn::$variant => $name,)* }
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
pub struct ProgramExpr {
    /// Node kind and operands.
    pub kind: ExprKind,
    /// Type of its value.
    pub ty: Ty,
}

/// Node kind of an expression.
#[derive(Clone, PartialEq, Debug)]
pub enum ExprKind {
    /// A float literal.
    Float(f64),
    /// An integer or boolean literal.
    Int(i64),
    /// A variable.
    Var(VarId),
    /// An array element, with one index per dimension.
    Load(ArrayId, Vec<ProgramExpr>),
    /// A unary operation.
    Unary(UnaryOp, Box<ProgramExpr>),
    /// A binary operation. Products of matrices, vectors and scalars are [`BinaryOp::Mul`].
    Binary(BinaryOp, Box<[ProgramExpr; 2]>),
    /// A call of a builtin function.
    Call(BuiltinFn, Vec<ProgramExpr>),
    /// A call of a function of the program.
    Function(FuncId, Vec<ProgramExpr>),
    /// `wp.where`: the second operand if the first is true, else the third.
    Where(Box<[ProgramExpr; 3]>),
    /// A conversion to the expression's type.
    Cast(Box<ProgramExpr>),
    /// A component of a vector, an entry of a matrix (row-major), or a field of a struct.
    Component(Box<ProgramExpr>, u8),
    /// A vector, matrix or struct constructed from its components.
    Construct(Vec<ProgramExpr>),
}

/// Atomic read-modify-write operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum AtomicOp {
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
pub enum ProgramStmt {
    /// Declares a variable with its initial value.
    Let(VarId, ProgramExpr),
    /// Assigns to a variable.
    Assign(VarId, ProgramExpr),
    /// `var op= value`.
    Update(VarId, BinaryOp, ProgramExpr),
    /// Assigns to a component or field of a variable.
    SetComponent(VarId, u8, ProgramExpr),
    /// Stores an array element.
    Store(ArrayId, Vec<ProgramExpr>, ProgramExpr),
    /// Updates an array element atomically.
    Atomic(AtomicOp, ArrayId, Vec<ProgramExpr>, ProgramExpr),
    /// Conditional with a then and an else block.
    If(ProgramExpr, Vec<ProgramStmt>, Vec<ProgramStmt>),
    /// Loop from the first bound to below the second (both integers) with a constant step.
    For(VarId, ProgramExpr, ProgramExpr, i64, Vec<ProgramStmt>),
    /// Loop while the condition holds; the number of iterations is bounded by construction.
    While(ProgramExpr, Vec<ProgramStmt>),
    /// Exits the loop.
    Break,
    /// Continues with the next iteration.
    Continue,
    /// Ends the instance, or returns a value from a function.
    Return(Option<ProgramExpr>),
    /// `state = wp.rand_init(seed, offset)`.
    Seed(VarId, ProgramExpr, ProgramExpr),
    /// Draws the next random number of a state: a float in [0, 1), or an integer in `low..high`.
    Draw(VarId, VarId, Option<(i64, i64)>),
}

/// Declaration of a variable.
#[derive(Clone, PartialEq, Debug)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: Ty,
    /// True if it is assigned after its declaration.
    pub mutable: bool,
}

/// Variables and statements of a kernel or function; the parameters are the first variables.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Body {
    /// Variables.
    pub vars: Vec<Variable>,
    /// Number of parameters.
    pub params: usize,
    /// Statements.
    pub stmts: Vec<ProgramStmt>,
}

impl Body {
    /// Returns a variable's declaration.
    pub fn var(&self, VarId(n): VarId) -> &Variable {
        &self.vars[n as usize]
    }
}

/// A function of the program.
#[derive(Clone, PartialEq, Debug)]
pub struct FunctionDef {
    /// Name.
    pub name: String,
    /// Return type.
    pub result: Ty,
    /// Variables and statements.
    pub body: Body,
}

/// A struct of the program.
#[derive(Clone, PartialEq, Debug)]
pub struct StructDef {
    /// Name.
    pub name: String,
    /// Field names and types (no nested structs).
    pub fields: Vec<(String, Ty)>,
}

/// Initial contents of an array.
#[derive(Clone, PartialEq, Debug)]
pub enum ArrayFill {
    /// Zeros.
    Zero,
    /// The same number everywhere.
    Constant(f64),
    /// Uniform floats between two bounds; or integers, both bounds included.
    Uniform(f64, f64),
    /// Indices below a size.
    Below(SizeExpr),
    /// A random permutation of the indices below a size.
    Permutation(SizeExpr),
    /// Sorted offsets from 0 to a size.
    Offsets(SizeExpr),
    /// Contents per component of a struct.
    Fields(Vec<ArrayFill>),
}

/// A size derived from a size parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SizeExpr {
    /// The size parameter with this number (into [`Program::sizes`]).
    Param(u8),
    /// A constant.
    Constant(u32),
    /// A size parameter divided by a number, rounded up.
    DivCeil(u8, u32),
    /// A size parameter plus a constant.
    Plus(u8, u32),
    /// A size parameter times a constant.
    Times(u8, u32),
}

/// An array parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct ArrayParam {
    /// Name.
    pub name: String,
    /// Element type.
    pub ty: Ty,
    /// One to three extents.
    pub shape: Vec<SizeExpr>,
    /// Initial contents.
    pub fill: ArrayFill,
    /// True if the kernel writes to it.
    pub written: bool,
}

/// A scalar parameter other than a size: one of the body's first variables.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgramValueParam {
    /// The variable.
    pub var: VarId,
    /// Range of values: floats, or integers with both bounds included.
    pub range: (f64, f64),
}

/// A size parameter, chosen per launch.
#[derive(Clone, PartialEq, Debug)]
pub struct SizeParam {
    /// Kernel variable that holds it.
    pub var: VarId,
    /// True if the Python source takes it as a parameter; otherwise only texts with a guard do.
    pub in_source: bool,
    /// Maximum value in checks.
    pub max: u32,
    /// Minimum value that the kernel supports.
    pub min: u32,
}

/// A program, from which one row is printed.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// Kernel name.
    pub name: String,
    /// One-sentence description.
    pub doc: String,
    /// Structs.
    pub structs: Vec<StructDef>,
    /// Functions; each calls only earlier ones.
    pub functions: Vec<FunctionDef>,
    /// Array parameters.
    pub arrays: Vec<ArrayParam>,
    /// Scalar parameters.
    pub values: Vec<ProgramValueParam>,
    /// Size parameters.
    pub sizes: Vec<SizeParam>,
    /// Body of the kernel. Its parameters are scalar parameters and sizes.
    pub body: Body,
    /// Results of `wp.tid()`: a variable and an extent for each dimension of the launch.
    pub grid: Vec<(VarId, SizeExpr)>,
    /// Form of the CUDA text and its launch.
    pub form: CudaForm,
}

/// Form of the CUDA text and its launch.
#[derive(Clone, PartialEq, Debug)]
pub enum CudaForm {
    /// One thread per instance, as in the source.
    Direct(DirectStyle),
    /// A separate text in which the threads of a block cooperate.
    Block(CooperativeKernel),
}

/// Style of index computation and bounds guard in a direct text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectStyle {
    /// Threads per block along x, y and z.
    pub block: [u32; 3],
    /// Bounds guard.
    pub guard: Guard,
    /// True if read-only pointers are `__restrict__`.
    pub restrict: bool,
}

/// Bounds guard of a direct text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// `if (i >= n) return;`
    Return,
    /// `if (i < n) { … }`
    Around,
    /// A grid-stride loop.
    Stride,
}

/// A CUDA text in which the threads of a block cooperate.
#[derive(Clone, PartialEq, Debug)]
pub struct CooperativeKernel {
    /// Complete text of the kernel, without preceding functions and structs.
    pub text: String,
    /// Threads per block.
    pub block: [u32; 3],
    /// Blocks along x, y and z: the extent that they cover and how much of it one block covers.
    pub grid: [(SizeExpr, u32); 3],
    /// Name of the block pattern, for metadata and statistics.
    pub kind: &'static str,
}

impl Program {
    /// Returns an array parameter.
    pub fn array(&self, ArrayId(n): ArrayId) -> &ArrayParam {
        &self.arrays[n as usize]
    }

    /// Threads per block of the CUDA text.
    pub fn block(&self) -> [u32; 3] {
        match &self.form {
            CudaForm::Direct(style) => style.block,
            CudaForm::Block(block) => block.block,
        }
    }

    /// Blocks per grid for these sizes.
    pub fn blocks(&self, sizes: &[u32]) -> [u32; 3] {
        match &self.form {
            CudaForm::Direct(style) => {
                let mut grid = [1; 3];
                // The last dimension varies fastest, so it is x.
                for (n, (_, size)) in self.grid.iter().rev().enumerate() {
                    grid[n] = size.eval(sizes).div_ceil(style.block[n]).max(1);
                }
                // A grid-stride loop must iterate more than once to be tested.
                if style.guard == Guard::Stride {
                    grid[0] = grid[0].div_ceil(2);
                }
                grid
            }
            CudaForm::Block(block) => block.grid.map(|(size, each)| size.eval(sizes).div_ceil(each).max(1)),
        }
    }
}

impl SizeExpr {
    /// Evaluates the size for these size parameters.
    pub fn eval(self, sizes: &[u32]) -> u32 {
        match self {
            SizeExpr::Param(n) => sizes[n as usize],
            SizeExpr::Constant(n) => n,
            SizeExpr::DivCeil(n, by) => sizes[n as usize].div_ceil(by),
            SizeExpr::Plus(n, more) => sizes[n as usize] + more,
            SizeExpr::Times(n, times) => sizes[n as usize] * times,
        }
    }
}
