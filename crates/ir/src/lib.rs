//! Kernel IR: scalar types, op table, kernels, builder, verifier, text form and a checking
//! interpreter.
//!
//! Every computation in Bornite becomes a [`Kernel`]. Four backends consume it: CUDA C++ and CPU
//! machine code (crate `bornite-codegen`), the [interpreter](interp), and the text form (`Display`
//! and `FromStr`). This crate knows nothing of GPUs, tensors or files. Start reading at [`Op`] (the
//! operations) and [`Kernel`].
//!
//! # Example
//!
//! Build a kernel, print it, and run it in the interpreter, which reports races, out-of-bounds
//! accesses, uninitialized reads and divergent barriers:
//!
//! ```
//! use bornite_ir::{Access, Arg, Builder, Emit, FaultKind, Scalar, interp, verify};
//!
//! // out[i] = x[i] * x[i]
//! let mut b = Builder::new("square", 4, Scalar::I32);
//! let x = b.param("x", Scalar::F64, 4, Access::Read);
//! let out = b.param("out", Scalar::F64, 4, Access::Write);
//! let i = b.index();
//! let value = b.load(x, i);
//! let square = b.mul(&value, &value);
//! b.store(out, i, square);
//! let kernel = b.finish()?; // verified
//! assert!(verify(&kernel).is_ok());
//! assert!(kernel.to_string().contains("mul(%1, %1)"));
//!
//! // Arguments are memory in 64-bit words.
//! let input = [1.0f64, 2.0, 3.0, 4.0].map(f64::to_bits);
//! let mut output = [0u64; 4];
//! interp::run(&kernel, &mut [Arg::Read(&input), Arg::Write(&mut output)])?;
//! assert_eq!(output.map(f64::from_bits), [1.0, 4.0, 9.0, 16.0]);
//!
//! // A kernel that reads one element too far.
//! let mut b = Builder::new("shift", 4, Scalar::I32);
//! let x = b.param("x", Scalar::F64, 4, Access::Read);
//! let out = b.param("out", Scalar::F64, 4, Access::Write);
//! let (i, one) = (b.index(), b.index_constant(1));
//! let next = b.add(&i, &one);
//! let value = b.load(x, next);
//! b.store(out, i, value);
//! let mut args = [Arg::Read(&input), Arg::Write(&mut output)];
//! let fault = interp::run(&b.finish()?, &mut args).unwrap_err();
//! assert!(matches!(fault.kind, FaultKind::OutOfBounds { index: 4, len: 4, .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod adjoint;
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
pub use arg::{Arg, EarlierAccess, Fault, FaultKind, check_args, load_scalar, store_scalar};
pub use builder::{Builder, EnclosingCode, Mark};
pub use elementwise::{ElementwiseError, elementwise};
pub use emit::{Emit, EmitBits, LookupTable};
pub use expr::{
    Args, Atomic, Axis, Builtin, Check, Code, Expr, ExprId, FunctionId, Local, LocalId, Scope, Shuffle, Stmt, Vote,
    WARP_SIZE,
};
pub use formula::{FORMULAS, Formula, formula};
pub use kernel::{
    Access, Dim, Extent, Function, Kernel, LaunchMode, LocalArray, LocalArrayId, MemorySpan, Param, ParamId, ParamRef,
    Shared, SharedId, ValueParam, View, ViewInfo, contiguous,
};
pub use op::{NativeFunction, Op, OpKind, OpRow, TypeRule, Ulp};
pub use parse::ParseError;
pub use print::{
    PrintPiece, format_print_line, print_format_from_printf, print_format_pieces, print_to_stderr, write_print_line,
};
pub use range::IntRange;
pub use scalar::{Scalar, Value};
pub use text::TEXT_FORMAT_VERSION;
pub use ty::{Field, Layout, MAX_ALIGN, MAX_COMPONENTS, Struct, StructId, Type};
pub use verify::{MAX_LOCAL_BYTES, VerifyError, verify};
