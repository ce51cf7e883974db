//! Abstract syntax tree of the supported subset: items, statements, expressions and types as
//! written. Nothing here is resolved or typed; `lower/` does that.

use bornite_ir::{Scalar, Value};

use super::lex::{Interner, Symbol};
use super::namespaces::Namespaces;
use crate::diagnostic::Source;
use crate::{Diagnostic, SourceSpan};

/// A type as written in the source.
#[derive(Clone, PartialEq, Debug)]
pub struct TypeName {
    pub base: Base,
    /// Number of `*` after the base type.
    pub pointers: u8,
    /// True if the pointee, or the type itself if it is not a pointer, is const.
    pub constant: bool,
    /// True if the pointer itself is const: `int* const`.
    pub is_const_pointer: bool,
    /// True for a reference.
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
    /// A struct template with its arguments.
    Template(Symbol, Vec<TemplateArg>),
    /// `T::TempStorage` of a collective.
    TempStorage(Box<Base>),
}

/// Operators that can be overloaded; the function is named `operator+`.
pub const OVERLOADABLE: &[&str] = &[
    "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=", "+=", "-=", "*=", "/=", "%=",
    "&=", "|=", "^=", "<<=", ">>=", "=", "()", "[]", "!", "~", "++", "--", "&&", "||", "->", ",",
];

/// A binary operator.
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

impl Binary {
    /// Operator in the source.
    pub fn token(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
            Binary::Rem => "%",
            Binary::And => "&",
            Binary::Or => "|",
            Binary::Xor => "^",
            Binary::Shl => "<<",
            Binary::Shr => ">>",
            Binary::Eq => "==",
            Binary::Ne => "!=",
            Binary::Lt => "<",
            Binary::Le => "<=",
            Binary::Gt => ">",
            Binary::Ge => ">=",
            Binary::LogicalAnd => "&&",
            Binary::LogicalOr => "||",
            Binary::Comma => ",",
        }
    }
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

/// A template argument as written.
#[derive(Clone, PartialEq, Debug)]
pub enum TemplateArg {
    Type(TypeName),
    Value(Expr),
}

/// Template arguments as text: `float, 4`.
pub fn template_args_text(args: &[TemplateArg], names: &Interner, source: &Source) -> String {
    let text = |arg: &TemplateArg| match arg {
        TemplateArg::Type(ty) => ty.text(names, source),
        TemplateArg::Value(value) => value.text(names, source),
    };
    args.iter().map(text).collect::<Vec<_>>().join(", ")
}

impl TypeName {
    fn text(&self, names: &Interner, source: &Source) -> String {
        let base = match &self.base {
            Base::Void => "void".to_owned(),
            Base::Auto => "auto".to_owned(),
            Base::Scalar(Scalar::I8) => "char".to_owned(),
            Base::Scalar(scalar) => super::types::scalar_name(*scalar).to_owned(),
            Base::Named(name) => names.text(*name).to_owned(),
            Base::TempStorage(_) => "TempStorage".to_owned(),
            Base::Template(name, args) => {
                format!("{}<{}>", names.text(*name), template_args_text(args, names, source))
            }
        };
        let qualifier = if self.constant && self.pointers > 0 { "const " } else { "" };
        format!("{qualifier}{base}{}", "*".repeat(self.pointers as usize))
    }
}

impl Expr {
    fn text(&self, names: &Interner, source: &Source) -> String {
        let text = |inner: &Expr| inner.text(names, source);
        match &self.kind {
            ExprKind::Number { value, .. } if value.scalar() == Scalar::Bool => (value.bits() != 0).to_string(),
            ExprKind::Number { value, .. } if value.scalar().is_int() => value.as_i64().to_string(),
            ExprKind::Name(name) => names.text(*name).to_owned(),
            ExprKind::Unary(Unary::Minus, a) => format!("-{}", text(a)),
            ExprKind::SizeOf(ty) => format!("sizeof({})", ty.text(names, source)),
            ExprKind::Cast(ty, a) => format!("({}){}", ty.text(names, source), text(a)),
            ExprKind::Conditional(a, b, c) => format!("({} ? {} : {})", text(a), text(b), text(c)),
            ExprKind::Binary(op, a, b) => format!("({} {} {})", text(a), op.token(), text(b)),
            _ => source.text_of(self.span).split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: SourceSpan,
    /// Depth of this expression's tree.
    pub depth: u16,
}

#[derive(Clone, PartialEq, Debug)]
pub enum ExprKind {
    /// A number; `hex` if it was written in hexadecimal.
    Number {
        value: Value,
        hex: bool,
    },
    /// A string literal: the text between its quotes, with escape sequences as written.
    Str(Box<str>),
    /// `nullptr`.
    Null,
    Name(Symbol),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `a = b`, or `a op= b`.
    Assign(Option<Binary>, Box<Expr>, Box<Expr>),
    /// `++a`, `--a`, `a++` and `a--`; a postfix one evaluates to the old value.
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
    /// `object.f(…)`; `object->f(…)` has a dereferenced object.
    MethodCall {
        object: Box<Expr>,
        name: Symbol,
        templates: Vec<TemplateArg>,
        args: Vec<Expr>,
    },
    /// `S::f(…)`.
    ScopedCall {
        scope: TypeName,
        name: Symbol,
        templates: Vec<TemplateArg>,
        args: Vec<Expr>,
    },
    /// `S::N`.
    Scoped(TypeName, Symbol),
    /// A call of an expression: `functor()(…)`.
    Invoke(Box<Expr>, Vec<Expr>),
    This,
    Index(Box<Expr>, Box<Expr>),
    Member(Box<Expr>, Symbol),
    Arrow(Box<Expr>, Symbol),
    Cast(TypeName, Box<Expr>),
    /// `T(a, b)`; `T{a, b}` has one argument, the braced list.
    Construct(TypeName, Vec<Expr>),
    Braces(Vec<Expr>),
    /// `.x = 1` in a braced list.
    Designated(Symbol, Box<Expr>),
    SizeOf(TypeName),
    SizeOfExpr(Box<Expr>),
}

/// Specifiers in front of a declaration.
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
    /// Union of both sets of specifiers.
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
    /// Array sizes; `None` for `[]`.
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
    Assertion(Assertion),
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

/// `static_assert(condition, "message");`
#[derive(Clone, PartialEq, Debug)]
pub struct Assertion {
    pub condition: Expr,
    pub message: Option<Box<str>>,
}

/// Labels of a switch and the statements after them; a `None` label is `default`.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    pub labels: Vec<Option<Expr>>,
    pub body: Vec<Stmt>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TemplateParam {
    pub name: Symbol,
    /// Type of an integer parameter; `None` for a type parameter.
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
    /// Arguments of an explicit specialization: `template <> int f<int>()`.
    pub specialization: Option<Vec<TemplateArg>>,
    pub is_kernel: bool,
    /// True inside a namespace, where the function hides a CUDA function of the same name.
    pub in_namespace: bool,
    pub is_constexpr: bool,
    /// Maximum threads per block from `__launch_bounds__`.
    pub launch_bound: Option<Expr>,
    pub result: TypeName,
    /// Parameters; those with an initializer have a default argument.
    pub params: Vec<Declarator>,
    pub body: Vec<Stmt>,
    /// Number of the token where it is first declared, and of that where it is defined: code sees
    /// the names that are declared before it.
    pub declared: u32,
    pub order: u32,
    /// True for `= delete`.
    pub is_deleted: bool,
    /// Set for a member function, whose template parameters begin with those of its struct.
    pub method: Option<Box<Method>>,
}

/// A member function.
#[derive(Clone, PartialEq, Debug)]
pub struct Method {
    /// Name of its struct.
    pub of: Symbol,
    pub kind: MethodKind,
    pub is_const: bool,
    /// True for an explicit constructor, which does not convert implicitly.
    pub is_explicit: bool,
    /// Members that a constructor initializes: `x(1), y{2}`.
    pub initializers: Vec<(Symbol, SourceSpan, Vec<Expr>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MethodKind {
    Plain,
    Static,
    Constructor,
}

#[derive(Clone, PartialEq, Debug)]
pub struct StructItem {
    pub name: Symbol,
    pub span: SourceSpan,
    pub templates: Vec<TemplateParam>,
    /// Alignment in bytes from `__align__` or `alignas`.
    pub align: Option<Expr>,
    /// Limit in bytes from `#pragma pack`.
    pub pack: Option<u64>,
    pub fields: Vec<Declarator>,
    /// Alignments in bytes from `__align__` or `alignas` on fields, by field index.
    pub field_aligns: Vec<(usize, Expr)>,
    /// Static members with their initializers.
    pub statics: Vec<Declarator>,
    pub assertions: Vec<Assertion>,
    /// True if it has a constructor, for the host or for the device: then it is not an aggregate.
    pub has_constructor: bool,
    /// Members that only member functions can name.
    pub private_members: Vec<Symbol>,
    /// A member function that copying or destroying an object would call.
    pub copy_control: Option<Diagnostic>,
}

/// A function that uses unsupported constructs. Its errors are reported where it is called.
#[derive(Clone, Debug)]
pub struct UnsupportedFunction {
    /// `None` if it is not known.
    pub name: Option<Symbol>,
    /// Struct of a member function.
    pub method_of: Option<Symbol>,
    pub is_kernel: bool,
    pub span: SourceSpan,
    pub errors: Vec<Diagnostic>,
}

/// Integer types that the file uses and that have the same values as another one.
#[derive(Clone, Copy, Debug, Default)]
pub struct IntegerNames {
    pub plain_char: bool,
    pub signed_char: bool,
    pub long: bool,
    pub long_long: bool,
}

#[derive(Clone, Debug, Default)]
pub struct File {
    pub integer_names: IntegerNames,
    pub namespaces: Namespaces,
    pub functions: Vec<Function>,
    pub unsupported_functions: Vec<UnsupportedFunction>,
    pub structs: Vec<StructItem>,
    /// Vector types that the file declares itself, without the alignment of CUDA's vector types.
    pub unaligned_vectors: Vec<bornite_ir::Type>,
    /// Global constants and arrays in device memory.
    pub globals: Vec<(Storage, Declarator)>,
    /// Numbers of the tokens where the globals are declared.
    pub global_orders: Vec<u32>,
    pub aliases: Vec<(Symbol, TypeName)>,
    /// Assertions outside of functions and structs.
    pub assertions: Vec<Assertion>,
    pub enums: Vec<Symbol>,
    /// Functions of the host, which overload those of the device.
    pub host_functions: Vec<Symbol>,
    /// Constants of scoped enums, by enum.
    pub enumerators: Vec<(Symbol, Declarator)>,
    /// Explicit instantiations: `template __global__ void k<float, 4>(…);`
    pub instances: Vec<(Symbol, Vec<TemplateArg>)>,
    /// Declarations that kernels cannot use, with the error to report where one does.
    pub unsupported_items: Vec<(Symbol, Diagnostic)>,
}

impl File {
    /// Returns the error for using an unsupported declaration at `span`.
    pub fn unsupported_item(
        &self,
        name: Symbol,
        names: &Interner,
        source: &Source,
        span: SourceSpan,
    ) -> Option<Diagnostic> {
        let (_, why) = self.unsupported_items.iter().find(|(found, _)| *found == name)?;
        let line = source.line_in_words(span.start, why.span.start);
        let used = format!("'{}', used in {line}, is not available because of this", names.text(name));
        Some(Diagnostic { hint: Some(used), ..why.clone() })
    }
}
