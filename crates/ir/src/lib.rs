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

pub use algebra::{AlgebraOp, AlgebraOpRow, Components};
pub use arg::{Arg, Fault, FaultKind, check_args, load_scalar, store_scalar};
pub use builder::{Builder, EnclosingCode, Mark};
pub use elementwise::{ElementwiseError, elementwise};
pub use emit::{Emit, EmitBits, LookupTable};
pub use expr::{
    Args, Atomic, Axis, Builtin, Check, Code, Expr, ExprId, FunctionId, Local, LocalId, Scope, Shuffle, Stmt, Vote,
    WARP_SIZE,
};
pub use formula::{FORMULAS, Formula, formula};
pub use kernel::{
    Access, Dim, Extent, Function, Kernel, Launch, MemorySpan, Param, ParamId, ParamRef, Shared, SharedId, ValueParam,
    View, ViewInfo, contiguous,
};
pub use op::{NativeFunction, Op, OpKind, OpRow, TypeRule, Ulp};
pub use parse::ParseError;
pub use print::{PrintPiece, format_print_line, print_format_from_printf, print_format_pieces};
pub use range::IntRange;
pub use scalar::{Scalar, Value};
pub use text::TEXT_FORMAT_VERSION;
pub use ty::{Field, Layout, MAX_ALIGN, MAX_COMPONENTS, Struct, StructId, Type};
pub use verify::{VerifyError, verify};
