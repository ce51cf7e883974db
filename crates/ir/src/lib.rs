//! The kernel IR of Bornite: scalar types, the op table, kernels, a builder, a verifier, a text form, an interpreter.
//!
//! Everything that computes anywhere in Bornite becomes a [`Kernel`]; four readers take it from there: the CUDA
//! printer and the CPU compiler (crate `bornite-codegen`), the [interpreter](interp), and the text form (`Display`).
//! This crate must not know of GPUs, tensors or files. Start reading at [`Op`] (what can be computed) and [`Kernel`].

mod arg;
mod body;
mod builder;
mod emit;
pub mod interp;
mod kernel;
mod op;
mod parse;
mod scalar;
pub mod templates;
mod text;
mod verify;

pub use arg::{Arg, Fault, FaultKind, check_args};
pub use builder::Builder;
pub use emit::{Emit, EmitBits};
pub use kernel::{
    Access, Args, Atomic, Axis, Builtin, Expr, ExprId, Kernel, Launch, Local, LocalId, Param, ParamId, Shared,
    SharedId, Shuffle, Stmt, View, Vote, WARP,
};
pub use op::{Kind, Native, Op, Row, TypeRule, Ulp};
pub use parse::ParseError;
pub use scalar::{Scalar, Value};
pub use text::VERSION;
pub use verify::{VerifyError, verify};
