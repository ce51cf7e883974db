//! The syntax of the subset: items, statements, expressions, types as they are written. Nothing here has a meaning yet.

use bornite_ir::{Scalar, Value};

use super::lex::{Interner, Symbol};
use crate::{Diagnostic, SourceSpan};

/// A type as it is written.
#[derive(Clone, PartialEq, Debug)]
pub struct TypeName {
    pub base: Base,
    /// Number of `*` behind it.
    pub pointers: u8,
    /// Whether what it points to, or it itself, is const.
    pub constant: bool,
    /// Whether it is a pointer that is const itself: `int* const`.
    pub is_const_pointer: bool,
    /// Whether it is a reference.
    pub reference: bool,
    pub span: SourceSpan,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Base {
    Void,
    Auto,
    Scalar(Scalar),
    /// A struct, vector type, alias or template parameter.
    Named(Symbol),
    /// A struct that is a template, and its arguments.
    Template(Symbol, Vec<TemplateArg>),
}

/// An operator of two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    LogicalAnd,
    LogicalOr,
    Comma,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unary {
    Minus,
    Plus,
    Not,
    Complement,
    Deref,
    Address,
}

/// An argument of a template.
#[derive(Clone, PartialEq, Debug)]
pub enum TemplateArg {
    Type(TypeName),
    Value(Expr),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: SourceSpan,
    /// How deep the tree below is.
    pub depth: u16,
}

#[derive(Clone, PartialEq, Debug)]
pub enum ExprKind {
    /// A number; `hex` if it was written as bits.
    Number {
        value: Value,
        hex: bool,
    },
    Str,
    /// `nullptr`.
    Null,
    Name(Symbol),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `a = b`, or `a op= b`.
    Assign(Option<Binary>, Box<Expr>, Box<Expr>),
    /// `++a` and its like: by how much, and whether the value is that from before.
    IncDec {
        delta: i8,
        is_postfix: bool,
        lvalue: Box<Expr>,
    },
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    Call {
        callee: Symbol,
        templates: Vec<TemplateArg>,
        args: Vec<Expr>,
    },
    Index(Box<Expr>, Box<Expr>),
    Member(Box<Expr>, Symbol),
    Arrow(Box<Expr>, Symbol),
    Cast(TypeName, Box<Expr>),
    /// `T(a, b)`; `T{a, b}` has one argument, the list in braces.
    Construct(TypeName, Vec<Expr>),
    Braces(Vec<Expr>),
    SizeOf(TypeName),
    SizeOfExpr(Box<Expr>),
}

/// What stands before a declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Storage {
    pub shared: bool,
    pub external: bool,
    pub constant: bool,
    pub device: bool,
    pub constant_memory: bool,
    pub is_static: bool,
}

impl Storage {
    /// What both say.
    pub fn merge(self, other: Storage) -> Storage {
        Storage {
            shared: self.shared || other.shared,
            external: self.external || other.external,
            constant: self.constant || other.constant,
            device: self.device || other.device,
            constant_memory: self.constant_memory || other.constant_memory,
            is_static: self.is_static || other.is_static,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Declarator {
    pub name: Symbol,
    pub span: SourceSpan,
    pub ty: TypeName,
    /// Sizes of an array; `None` for `[]`.
    pub sizes: Vec<Option<Expr>>,
    pub init: Option<Expr>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Stmt {
    pub kind: StmtKind,
    pub span: SourceSpan,
}

#[derive(Clone, PartialEq, Debug)]
pub enum StmtKind {
    Empty,
    Declare(Storage, Vec<Declarator>),
    Alias(Symbol, TypeName),
    Expr(Expr),
    Block(Vec<Stmt>),
    If(Expr, Box<Stmt>, Option<Box<Stmt>>),
    For { init: Box<Stmt>, condition: Option<Expr>, step: Option<Expr>, body: Box<Stmt> },
    While(Expr, Box<Stmt>),
    Do(Box<Stmt>, Expr),
    Switch(Expr, Vec<Case>),
    Break,
    Continue,
    Return(Option<Expr>),
}

/// Statements of a switch behind some labels; an empty label is `default`.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    pub labels: Vec<Option<Expr>>,
    pub body: Vec<Stmt>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TemplateParam {
    pub name: Symbol,
    /// The type of an integer; `None` if the parameter is a type.
    pub integer: Option<TypeName>,
    pub default: Option<TemplateArg>,
}

impl TemplateParam {
    pub fn is_type(&self) -> bool {
        self.integer.is_none()
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    pub name: Symbol,
    pub span: SourceSpan,
    pub templates: Vec<TemplateParam>,
    /// Of a specialisation, `template <> int f<int>()`, the arguments that it is for.
    pub specialization: Option<Vec<TemplateArg>>,
    pub is_kernel: bool,
    /// Whether it stands in a namespace, where it hides functions of CUDA.
    pub in_namespace: bool,
    /// Whether it is `constexpr`.
    pub is_constexpr: bool,
    /// Threads that `__launch_bounds__` names.
    pub launch_bound: Option<Expr>,
    pub result: TypeName,
    /// Those with an initial value may be left out in a call.
    pub params: Vec<Declarator>,
    pub body: Vec<Stmt>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct StructItem {
    pub name: Symbol,
    pub span: SourceSpan,
    pub templates: Vec<TemplateParam>,
    /// Bytes that `__align__` or `alignas` names.
    pub align: Option<Expr>,
    /// Bytes that `#pragma pack` names.
    pub pack: Option<u64>,
    pub fields: Vec<Declarator>,
    /// Bytes that `__align__` or `alignas` names for fields, by their number.
    pub field_aligns: Vec<(usize, Expr)>,
}

/// A function with constructs that the subset leaves out: what is wrong with it is told where it is used.
#[derive(Clone, Debug)]
pub struct UnsupportedFunction {
    /// `None` for an operator.
    pub name: Option<Symbol>,
    pub is_kernel: bool,
    pub span: SourceSpan,
    pub errors: Vec<Diagnostic>,
}

#[derive(Clone, Debug, Default)]
pub struct File {
    pub functions: Vec<Function>,
    pub unsupported_functions: Vec<UnsupportedFunction>,
    pub structs: Vec<StructItem>,
    /// Vector types that the file declares itself, without the alignment of CUDA's.
    pub unaligned_vectors: Vec<bornite_ir::Type>,
    /// Constants, and arrays in device memory.
    pub globals: Vec<(Storage, Declarator)>,
    pub aliases: Vec<(Symbol, TypeName)>,
    /// Instances that the file asks for: `template __global__ void k<float, 4>(…);`
    pub instances: Vec<(Symbol, Vec<TemplateArg>)>,
    /// What the host declares and kernels cannot use, with the reason: it is told where one does.
    pub host_only: Vec<(Symbol, Diagnostic)>,
}

impl File {
    /// Why a name cannot be used in a kernel, as one does in a line, if it is such a name of the host.
    pub fn host_only_error(&self, name: Symbol, names: &Interner, line: u32) -> Option<Diagnostic> {
        let (_, why) = self.host_only.iter().find(|(found, _)| *found == name)?;
        let used = format!("'{}', used in line {line}, was skipped as host code because of this", names.text(name));
        Some(Diagnostic { hint: Some(used), ..why.clone() })
    }
}
