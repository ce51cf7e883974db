//! The kernel IR of Bornite: scalar types, the op table, kernels, a builder, a verifier, a text form, an interpreter.
//!
//! Everything that computes anywhere in Bornite becomes a [`Kernel`]; four readers take it from there: the CUDA
//! printer and the CPU compiler (crate `bornite-codegen`), the [interpreter](interp), and the text form (`Display`).
//! This crate must not know of GPUs, tensors or files. Start reading at [`Op`] (what can be computed) and [`Kernel`].

mod algebra;
mod arg;
mod body;
mod builder;
mod elementwise;
mod emit;
mod expr;
mod formula;
pub mod interp;
mod kernel;
mod op;
mod parse;
mod print;
mod range;
mod scalar;
pub mod templates;
mod text;
mod ty;
mod verify;

pub use algebra::{Algebra, AlgebraRow, Parts};
pub use arg::{Arg, Fault, FaultKind, check_args, peek, poke};
pub use builder::{Builder, Mark, Outer};
pub use emit::{Emit, EmitBits, Table};
pub use expr::{
    Args, Atomic, Axis, Builtin, Check, Code, Expr, ExprId, FunctionId, Local, LocalId, Scope, Shuffle, Stmt, Vote,
    WARP,
};
pub use elementwise::{ElementwiseError, elementwise};
pub use formula::{FORMULAS, Formula, formula};
pub use kernel::{
    Access, Dim, Extent, Function, Kernel, Launch, Param, ParamId, ParamRef, Shared, SharedId, Span, ValueParam, View,
    Viewed, contiguous,
};
pub use op::{Kind, Native, Op, Row, TypeRule, Ulp};
pub use parse::ParseError;
pub use print::{Piece as PrintPiece, line as printed_line, of_c as print_of_c, pieces as print_pieces};
pub use range::Range;
pub use scalar::{Scalar, Value};
pub use text::VERSION;
pub use ty::{Field, Layout, MAX_ALIGN, MAX_COMPONENTS, Struct, StructId, Type};
pub use verify::{VerifyError, verify};
