//! Coverage of operations by operand type, and the reasons why some combinations do not occur.
//!
//! A combination counts if the operation has an operand of that type: `a + b` of two vectors is an
//! `add` of vectors, not of their components. `where` counts by the values it selects from, `cast`
//! by the type it converts from, a call of a program's function by its arguments, atomic updates by
//! the element type, random numbers (which have no operand) by the type drawn, and
//! block-cooperative operations by the elements that the kernel writes.

use crate::program::{AtomicOp, BinaryOp, CudaForm, ExprKind, Program, ProgramStmt, ScalarType, Ty, UnaryOp};

/// Operation name and operand type name.
pub type OpTypePair = (&'static str, &'static str);

/// Type names, in table order.
pub const TYPES: &[&str] = &[
    "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "vec_f16", "vec_f32",
    "vec_f64", "vec_i32", "mat_f32", "mat_f64", "struct",
];

fn name(ty: Ty) -> &'static str {
    match ty {
        Ty::Scalar(scalar) => scalar.name(),
        Ty::Vector(ScalarType::F16, _) => "vec_f16",
        Ty::Vector(ScalarType::F64, _) => "vec_f64",
        Ty::Vector(scalar, _) if scalar.is_int() => "vec_i32",
        Ty::Vector(..) => "vec_f32",
        Ty::Matrix(ScalarType::F64, _) => "mat_f64",
        Ty::Matrix(..) => "mat_f32",
        Ty::Struct(_) => "struct",
    }
}

/// Name of an operator.
pub(crate) fn operator(op: BinaryOp) -> &'static str {
    use BinaryOp::*;
    match op {
        Add => "add",
        Sub => "sub",
        Mul => "mul",
        Div => "div",
        Quotient => "floordiv",
        Rem => "mod",
        BitAnd => "bit_and",
        BitOr => "bit_or",
        BitXor => "bit_xor",
        Shl => "shift_left",
        Shr => "shift_right",
        Lt | Le | Gt | Ge => "compare",
        Eq | Ne => "equal",
        And | Or => "logical",
    }
}

/// Sorted, deduplicated combinations that a program uses.
pub fn pairs(program: &Program) -> Vec<OpTypePair> {
    let mut all: Vec<OpTypePair> = vec![];
    program.each_expr(&mut |e| {
        let (op, operands) = match &e.kind {
            ExprKind::Binary(op, both) => (operator(*op), &both[..]),
            ExprKind::Unary(UnaryOp::Neg, a) => ("neg", std::slice::from_ref(&**a)),
            ExprKind::Unary(_, a) => ("not", std::slice::from_ref(&**a)),
            ExprKind::Call(builtin, args) => (builtin.name(), &args[..]),
            ExprKind::Where(three) => ("where", &three[1..]),
            ExprKind::Cast(a) => ("cast", std::slice::from_ref(&**a)),
            ExprKind::Function(_, args) => ("call", &args[..]),
            _ => return,
        };
        all.extend(operands.iter().map(|operand| (op, name(operand.ty))));
    });
    for body in program.functions.iter().map(|f| &f.body).chain([&program.body]) {
        body.stmts.iter().for_each(|stmt| {
            stmt.walk(&mut |stmt| {
                all.extend(match stmt {
                    ProgramStmt::Update(var, op, _) => Some((operator(*op), name(body.var(*var).ty))),
                    ProgramStmt::If(..) => Some(("if", "bool")),
                    ProgramStmt::While(..) => Some(("while", "bool")),
                    ProgramStmt::For(var, ..) => Some(("for", name(body.var(*var).ty))),
                    ProgramStmt::Atomic(update, array, ..) => Some((atomic(*update), name(program.array(*array).ty))),
                    ProgramStmt::Draw(_, _, None) => Some(("randf", "f32")),
                    ProgramStmt::Draw(..) => Some(("randi", "i32")),
                    _ => None,
                });
            });
        });
    }
    if let CudaForm::Block(block) = &program.form {
        all.extend(program.arrays.iter().filter(|array| array.written).map(|array| (block.kind, name(array.ty))));
    }
    all.sort_unstable();
    all.dedup();
    all
}

pub(crate) fn atomic(update: AtomicOp) -> &'static str {
    match update {
        AtomicOp::Add => "atomic_add",
        AtomicOp::Sub => "atomic_sub",
        AtomicOp::Min => "atomic_min",
        AtomicOp::Max => "atomic_max",
        AtomicOp::And => "atomic_and",
        AtomicOp::Or => "atomic_or",
        AtomicOp::Xor => "atomic_xor",
    }
}

/// Operand types that an operation accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// Sums and products, including vectors and matrices.
    Arithmetic,
    /// Quotients, including vectors and matrices.
    Quotient,
    /// Subtraction, negation and absolute value, including vectors.
    Signed,
    /// Minimum and maximum, componentwise for vectors.
    Ordered,
    /// Comparisons and selection.
    Comparison,
    Equality,
    Integer,
    Bits,
    Float,
    Logical,
    Vector,
    Matrix,
    Atomic,
    AtomicBits,
    /// Block-cooperative operations.
    Cooperative,
    Counting,
    Random(&'static str),
    /// Conversions and calls of functions.
    Anything,
}

/// True for functions that put a kernel into the category `math`.
pub(crate) fn is_math(name: &str) -> bool {
    ["abs", "min", "max", "clamp"].contains(&name) || FLOAT_FUNCTIONS.contains(&name)
}

/// Functions that only accept floats.
const FLOAT_FUNCTIONS: &[&str] = &[
    "sign",
    "floor",
    "ceil",
    "round",
    "rint",
    "trunc",
    "frac",
    "sqrt",
    "cbrt",
    "pow",
    "exp",
    "log",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "erf",
    "erfc",
    "copysign",
    "lerp",
    "smoothstep",
    "degrees",
    "radians",
];

/// Operation names by class, in table order.
const OPERATIONS: &[(Class, &[&str])] = &[
    (Class::Arithmetic, &["add", "mul"]),
    (Class::Signed, &["sub", "neg", "abs"]),
    (Class::Quotient, &["div"]),
    (Class::Integer, &["floordiv", "mod"]),
    (Class::Bits, &["bit_and", "bit_or", "bit_xor", "shift_left", "shift_right", "bit_count"]),
    (Class::Ordered, &["min", "max"]),
    (Class::Comparison, &["clamp", "compare", "where"]),
    (Class::Equality, &["equal"]),
    (Class::Logical, &["logical", "if", "while"]),
    (Class::Bits, &["not"]),
    (Class::Counting, &["for"]),
    (Class::Anything, &["cast", "call"]),
    (Class::Float, FLOAT_FUNCTIONS),
    (Class::Vector, &["dot", "length", "length_sq", "normalize", "cross", "cw_mul", "cw_div", "outer"]),
    (Class::Matrix, &["transpose", "determinant", "trace"]),
    (Class::Atomic, &["atomic_add", "atomic_sub", "atomic_min", "atomic_max"]),
    (Class::AtomicBits, &["atomic_and", "atomic_or", "atomic_xor"]),
    (Class::Random("f32"), &["randf"]),
    (Class::Random("i32"), &["randi"]),
];

/// Operation names, in table order; any others in a dataset are listed after them.
pub fn operations() -> impl Iterator<Item = &'static str> {
    OPERATIONS.iter().flat_map(|(_, names)| names.iter().copied())
}

/// Reason why no program applies an operation to operands of this type.
pub fn why_missing(op: &str, ty: &str) -> &'static str {
    let class =
        OPERATIONS.iter().find(|(_, names)| names.contains(&op)).map_or(Class::Cooperative, |(class, _)| *class);
    let float = ["f16", "bf16", "f32", "f64"].contains(&ty);
    let (vector, matrix) = (ty.starts_with("vec_"), ty.starts_with("mat_"));
    let integer = !float && !vector && !matrix && ty != "bool" && ty != "struct";
    match class {
        Class::Random(other) if ty != other => "random functions return one type",
        Class::Counting if ty != "i32" => "loop counters are i32",
        Class::Logical if ty != "bool" => "booleans only",
        Class::Vector if !vector => "vectors only",
        Class::Matrix if !matrix => "matrices only",
        Class::Anything | Class::Logical => NOT_GENERATED,
        Class::Bits if op == "not" && ty == "bool" => NOT_GENERATED,
        _ if ty == "struct" => "structs are only used field by field",
        _ if ty == "bool" => "numbers only",
        Class::Float if !float => "floats only",
        Class::Integer | Class::Bits | Class::AtomicBits if !integer => "integers only",
        Class::Quotient if integer => "`/` is for floats; integers use `//`",
        Class::Atomic | Class::Cooperative if vector || matrix => {
            "block-cooperative and atomic operations only take scalars"
        }
        Class::Comparison | Class::Equality if (vector || matrix) && op != "where" => {
            "vectors and matrices are not ordered"
        }
        Class::Ordered | Class::Signed | Class::Quotient if matrix && op != "sub" => "scalars and vectors only",
        Class::Equality if float => "floats are not compared for equality",
        Class::Signed if ty.starts_with('u') && op == "sub" => "a difference could be negative",
        Class::Signed if ty.starts_with('u') => "unsigned types have no sign",
        _ if ["i8", "i16", "u8", "u16"].contains(&ty) => "integers of 8 and 16 bits are converted before use",
        Class::Arithmetic => NOT_GENERATED,
        _ if ["f16", "bf16"].contains(&ty) && !["sub", "neg"].contains(&op) => {
            "16-bit floats are converted for everything but sums and products"
        }
        Class::Atomic if op != "atomic_add" && float => "CUDA has no such atomic operation",
        _ => NOT_GENERATED,
    }
}

/// Reason for combinations that are valid but never generated.
pub const NOT_GENERATED: &str = "not generated";
