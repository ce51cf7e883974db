//! Kernel IR to CUDA C++.
//!
//! The text needs no header and gives the interpreter's bits when compiled with `--fmad=false`: products and sums are
//! fused only where the IR says `fma`, and op-table bodies become device functions printed from the same source.

use std::fmt::Write;

use bornite_ir::{Access, Emit, EmitBits, Expr, ExprId, Kernel, LocalId, Op, ParamId, Scalar, Stmt, Value};

/// Threads in a block of every printed kernel.
pub const BLOCK: u32 = 256;

/// Helpers whose meaning C++ does not spell; each is printed where its name is used.
const PRELUDE: &[(&str, &str)] = &[
    (
        "bn_max",
        "__device__ __forceinline__ float bn_max(float a, float b) {\n    \
         return a != a || b != b ? __int_as_float(0x7fffffff) : fmaxf(a, b);\n}\n\
         __device__ __forceinline__ double bn_max(double a, double b) {\n    \
         return a != a || b != b ? __longlong_as_double(0x7fffffffffffffffLL) : fmax(a, b);\n}\n\
         __device__ __forceinline__ int bn_max(int a, int b) { return a > b ? a : b; }\n\
         __device__ __forceinline__ long long bn_max(long long a, long long b) { return a > b ? a : b; }\n",
    ),
    (
        "bn_div",
        "template <class T> __device__ __forceinline__ T bn_div(T a, T b) {\n    \
         return b == 0 ? 0 : b == -1 ? (T)(0ULL - (unsigned long long)a) : a / b;\n}\n",
    ),
    (
        "bn_rem",
        "template <class T> __device__ __forceinline__ T bn_rem(T a, T b) {\n    \
         return b == 0 || b == -1 ? 0 : a % b;\n}\n",
    ),
    (
        "bn_to_i32",
        "__device__ __forceinline__ int bn_to_i32(float a) { return __float2int_rz(a); }\n\
         __device__ __forceinline__ int bn_to_i32(double a) { return a != a ? 0 : __double2int_rz(a); }\n",
    ),
    (
        "bn_to_i64",
        "__device__ __forceinline__ long long bn_to_i64(float a) { return a != a ? 0 : __float2ll_rz(a); }\n\
         __device__ __forceinline__ long long bn_to_i64(double a) { return a != a ? 0 : __double2ll_rz(a); }\n",
    ),
];

/// Words that cannot be names in CUDA C++ text, or that the printed text uses itself.
const TAKEN: &str = " alignas alignof and and_eq asm auto bitand bitor blockDim blockIdx bool break case catch char \
    char16_t char32_t char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr \
    constinit continue decltype default delete do double dynamic_cast else enum explicit export extern false float for \
    friend goto gridDim if index inline int long main mutable namespace new noexcept not not_eq nullptr operator or \
    or_eq private protected public register reinterpret_cast requires restrict return short signed sizeof static \
    static_assert static_cast struct switch template this thread_local threadIdx throw true try typedef typeid \
    typename union unsigned using virtual void volatile warpSize wchar_t while xor xor_eq ";

/// A name as it is printed: kept, but for an underscore after words that are taken (and after names that end in one,
/// so that different names stay different).
fn printed(name: &str) -> String {
    let numbered = name.strip_prefix('v').is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    let reserved = name.starts_with("bn_") || name.starts_with("__") || name.ends_with('_');
    let function = Op::by_name(name).is_some();
    let taken = TAKEN.contains(&format!(" {name} "));
    if numbered || reserved || function || taken { format!("{name}_") } else { name.into() }
}

/// The name of a kernel's function in its text.
pub fn symbol(kernel: &Kernel) -> String {
    printed(&kernel.name)
}

/// Prints a kernel as a translation unit of its own.
pub fn print(kernel: &Kernel) -> String {
    let mut p = Printer { kernel, terms: vec![None; kernel.exprs.len()], functions: vec![], lines: vec![], depth: 2 };
    p.block(&kernel.body);
    let mut kernel_text = String::new();
    p.signature(&mut kernel_text);
    let mut text = String::new();
    let bodies: String = p.functions.iter().map(|f| f.text.as_str()).collect();
    for (name, definition) in PRELUDE {
        if bodies.contains(name) || kernel_text.contains(name) {
            text += definition;
        }
    }
    text + &bodies + &kernel_text
}

/// A printed operand.
#[derive(Clone)]
struct Term {
    text: String,
    scalar: Scalar,
    /// The value, if it is a constant: lets division by it be printed plainly.
    known: Option<Value>,
}

/// A device function printed from an op-table body.
struct Function {
    op: Op,
    scalar: Scalar,
    text: String,
}

struct Printer<'k> {
    kernel: &'k Kernel,
    terms: Vec<Option<Term>>,
    functions: Vec<Function>,
    lines: Vec<String>,
    depth: usize,
}

fn c_type(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "bool",
        Scalar::I32 => "int",
        Scalar::I64 => "long long",
        Scalar::F32 => "float",
        Scalar::F64 => "double",
    }
}

fn literal(value: Value) -> String {
    let x = value.as_f64();
    match value.scalar() {
        Scalar::Bool => (value.bits() != 0).to_string(),
        Scalar::I32 if value.as_i64() == i32::MIN as i64 => "(-2147483647 - 1)".into(),
        Scalar::I32 => value.as_i64().to_string(),
        Scalar::I64 if value.as_i64() == i64::MIN => "(-9223372036854775807LL - 1)".into(),
        Scalar::I64 => format!("{}LL", value.as_i64()),
        // Shortest decimal that reads back as the same float.
        Scalar::F32 if x.is_finite() => format!("{:?}f", x as f32),
        Scalar::F32 => format!("__int_as_float({:#x})", value.bits()),
        Scalar::F64 if x.is_finite() => format!("{x:?}"),
        Scalar::F64 => format!("__longlong_as_double({:#x}LL)", value.bits()),
    }
}

impl Printer<'_> {
    fn line(&mut self, text: String) {
        self.lines.push(format!("{}{text}", "    ".repeat(self.depth)));
    }

    fn signature(&mut self, text: &mut String) {
        let Kernel { launch, index, .. } = self.kernel;
        let name = symbol(self.kernel);
        let params: Vec<String> = (self.kernel.params.iter())
            .map(|p| {
                let constness = if p.access == Access::Read { "const " } else { "" };
                format!("{constness}{}* __restrict__ {}", c_type(p.scalar), printed(&p.name))
            })
            .collect();
        // Unsigned, so that stepping past the end cannot overflow: the grid never exceeds the count by a block.
        let (counter, suffix) = if *index == Scalar::I32 { ("unsigned", "u") } else { ("unsigned long long", "ull") };
        let _ = writeln!(
            text,
            "extern \"C\" __global__ void __launch_bounds__({BLOCK})\n{name}({}) {{\n    \
             for ({counter} i_ = ({counter})blockIdx.x * blockDim.x + threadIdx.x; i_ < {}{suffix};\n         \
             i_ += ({counter})gridDim.x * blockDim.x) {{\n        const {} index = ({})i_;",
            params.join(", "),
            launch.count(),
            c_type(*index),
            c_type(*index),
        );
        for (n, local) in self.kernel.locals.iter().enumerate() {
            let _ =
                writeln!(text, "        {} {} = {};", c_type(local.init.scalar()), self.local(n), literal(local.init));
        }
        for line in &self.lines {
            *text += line;
            text.push('\n');
        }
        *text += "    }\n}\n";
    }

    fn local(&self, n: usize) -> String {
        format!("{}_{n}", self.kernel.locals[n].name)
    }

    fn block(&mut self, block: &[Stmt]) {
        for stmt in block {
            match stmt {
                Stmt::Let(id) => {
                    let value = self.right(*id);
                    let text = format!("v{}", id.0);
                    self.line(format!("const {} {text} = {};", c_type(value.scalar), value.text));
                    self.terms[id.0 as usize] = Some(Term { text, ..value });
                }
                Stmt::Assign(LocalId(n), value) => {
                    let line = format!("{} = {};", self.local(*n as usize), self.term(*value).text);
                    self.line(line);
                }
                Stmt::Store { view, index, value } => {
                    let line = format!("{} = {};", self.element(*view, *index), self.term(*value).text);
                    self.line(line);
                }
                Stmt::For { counter: LocalId(n), end, body } => {
                    let (name, end) = (self.local(*n as usize), self.term(*end).text);
                    self.line(format!("for ({name} = 0; {name} < {end}; ++{name}) {{"));
                    self.nested(body);
                    self.line("}".into());
                }
                Stmt::If { condition, then, otherwise } => {
                    let condition = self.term(*condition).text;
                    self.line(format!("if ({condition}) {{"));
                    self.nested(then);
                    if !otherwise.is_empty() {
                        self.line("} else {".into());
                        self.nested(otherwise);
                    }
                    self.line("}".into());
                }
            }
        }
    }

    fn nested(&mut self, block: &[Stmt]) {
        self.depth += 1;
        self.block(block);
        self.depth -= 1;
    }

    fn element(&self, ParamId(n): ParamId, index: ExprId) -> String {
        format!("{}[{}]", printed(&self.kernel.params[n as usize].name), self.term(index).text)
    }

    fn term(&self, id: ExprId) -> Term {
        let scalar = self.kernel.scalar(id);
        match self.kernel.expr(id) {
            Expr::Const(value) => Term { text: literal(*value), scalar, known: Some(*value) },
            Expr::Index => Term { text: "index".into(), scalar, known: None },
            _ => self.terms[id.0 as usize].clone().unwrap_or(Term { text: format!("v{}", id.0), scalar, known: None }),
        }
    }

    /// The right-hand side of a `Let`.
    fn right(&mut self, id: ExprId) -> Term {
        let scalar = self.kernel.scalar(id);
        let text = match *self.kernel.expr(id) {
            Expr::Const(_) | Expr::Index => self.term(id).text,
            Expr::Read(LocalId(n)) => self.local(n as usize),
            Expr::Op(op, args) => {
                let args: Vec<Term> = args.iter().map(|&a| self.term(a)).collect();
                self.spell(op, &args)
            }
            Expr::Cast(to, from) => cast(to, &self.term(from)),
            Expr::Bitcast(to, from) => bitcast(to, &self.term(from)),
            Expr::Load { view, index } => self.element(view, index),
        };
        Term { text, scalar, known: None }
    }

    /// An op-table row over printed operands.
    fn spell(&mut self, op: Op, args: &[Term]) -> String {
        if op.row().kind == bornite_ir::Kind::Body {
            return self.call(op, args);
        }
        primitive(op, args)
    }

    /// A call of the device function for a body, printed on first use.
    fn call(&mut self, op: Op, args: &[Term]) -> String {
        let scalar = args[0].scalar;
        let name = format!("bn_{}_{scalar}", op.row().name);
        if !self.functions.iter().any(|f| f.op == op && f.scalar == scalar) {
            let mut body = Body { printer: self, lines: vec![] };
            let params: Vec<Term> =
                (op.row().args.iter()).map(|a| Term { text: (*a).into(), scalar, known: None }).collect();
            let result = op.body(&mut body, &params.iter().collect::<Vec<_>>());
            let lines = body.lines;
            let params: Vec<String> = params.iter().map(|p| format!("{} {}", c_type(scalar), p.text)).collect();
            let mut text = format!("__device__ __forceinline__ {} {name}({}) {{\n", c_type(scalar), params.join(", "));
            for line in lines {
                let _ = writeln!(text, "    {line}");
            }
            let _ = writeln!(text, "    return {};\n}}", result.map_or(String::new(), |r| r.text));
            self.functions.push(Function { op, scalar, text });
        }
        format!("{name}({})", args.iter().map(|a| a.text.as_str()).collect::<Vec<_>>().join(", "))
    }
}

fn primitive(op: Op, args: &[Term]) -> String {
    let scalar = args[0].scalar;
    let t = |n: usize| args[n].text.as_str();
    let float = scalar.is_float();
    let suffix = if scalar == Scalar::F32 { "f" } else { "" };
    let unsigned = if scalar == Scalar::I32 { "unsigned" } else { "unsigned long long" };
    // Signed overflow is undefined in C++ and wraps in the IR.
    let wrapping = |sign: &str| format!("({})(({unsigned}){} {sign} ({unsigned}){})", c_type(scalar), t(0), t(1));
    let plain = |sign: &str| format!("{} {sign} {}", t(0), t(1));
    let width = scalar.bytes() * 8 - 1;
    match op {
        Op::Add if float => plain("+"),
        Op::Sub if float => plain("-"),
        Op::Mul if float => plain("*"),
        Op::Add => wrapping("+"),
        Op::Sub => wrapping("-"),
        Op::Mul => wrapping("*"),
        Op::Div if float => plain("/"),
        Op::Div | Op::Rem => {
            let safe = args[1].known.is_some_and(|v| !matches!(v.as_i64(), 0 | -1));
            match (op, safe) {
                (Op::Div, true) => plain("/"),
                (_, true) => plain("%"),
                (Op::Div, false) => format!("bn_div<{}>({}, {})", c_type(scalar), t(0), t(1)),
                (_, false) => format!("bn_rem<{}>({}, {})", c_type(scalar), t(0), t(1)),
            }
        }
        Op::Neg if float => format!("-{}", parenthesise(t(0))),
        Op::Neg => format!("({})(0 - ({unsigned}){})", c_type(scalar), t(0)),
        Op::Max => format!("bn_max({}, {})", t(0), t(1)),
        Op::And => plain("&"),
        Op::Shl => format!("({})(({unsigned}){} << ({} & {width}))", c_type(scalar), t(0), t(1)),
        Op::Shr => format!("{} >> ({} & {width})", t(0), t(1)),
        Op::Lt => plain("<"),
        Op::Eq => plain("=="),
        Op::Select => format!("{} ? {} : {}", t(0), t(1), t(2)),
        Op::Fma => format!("fma{suffix}({}, {}, {})", t(0), t(1), t(2)),
        Op::Sqrt if scalar == Scalar::F32 => format!("__fsqrt_rn({})", t(0)),
        Op::Sqrt => format!("__dsqrt_rn({})", t(0)),
        Op::Rint => format!("rint{suffix}({})", t(0)),
        Op::Exp | Op::Log | Op::Tanh => unreachable!("{op:?} has a body"),
    }
}

/// `- -1.0f` must not become `--1.0f`.
fn parenthesise(text: &str) -> String {
    if text.starts_with('-') { format!("({text})") } else { text.into() }
}

fn cast(to: Scalar, from: &Term) -> String {
    match (from.scalar.is_float(), to) {
        (_, Scalar::Bool) => format!("{} != 0", from.text),
        (true, Scalar::I32) => format!("bn_to_i32({})", from.text),
        (true, Scalar::I64) => format!("bn_to_i64({})", from.text),
        _ => format!("({}){}", c_type(to), parenthesise(&from.text)),
    }
}

fn bitcast(to: Scalar, from: &Term) -> String {
    let function = match (from.scalar, to) {
        (Scalar::F32, Scalar::I32) => "__float_as_int",
        (Scalar::I32, Scalar::F32) => "__int_as_float",
        (Scalar::F64, Scalar::I64) => "__double_as_longlong",
        (Scalar::I64, Scalar::F64) => "__longlong_as_double",
        _ => return from.text.clone(),
    };
    format!("{function}({})", from.text)
}

/// [`Emit`] by printing: one line a value.
struct Body<'p, 'k> {
    printer: &'p mut Printer<'k>,
    lines: Vec<String>,
}

impl Body<'_, '_> {
    fn bind(&mut self, scalar: Scalar, text: String) -> Term {
        let name = format!("t{}", self.lines.len());
        self.lines.push(format!("const {} {name} = {text};", c_type(scalar)));
        Term { text: name, scalar, known: None }
    }
}

impl Emit for Body<'_, '_> {
    type V = Term;

    fn op(&mut self, op: Op, args: &[&Term]) -> Term {
        let args: Vec<Term> = args.iter().map(|&a| a.clone()).collect();
        let types: Vec<Scalar> = args.iter().map(|a| a.scalar).collect();
        let scalar = op.row().rule.result(&types).unwrap_or(args[0].scalar);
        let text = self.printer.spell(op, &args);
        self.bind(scalar, text)
    }

    fn constant_like(&mut self, like: &Term, value: f64) -> Term {
        self.constant(Value::from_f64(like.scalar, value))
    }
}

impl EmitBits for Body<'_, '_> {
    fn scalar(&self, v: &Term) -> Scalar {
        v.scalar
    }

    fn constant(&mut self, value: Value) -> Term {
        Term { text: literal(value), scalar: value.scalar(), known: Some(value) }
    }

    fn cast(&mut self, to: Scalar, v: &Term) -> Term {
        self.bind(to, cast(to, v))
    }

    fn bitcast(&mut self, to: Scalar, v: &Term) -> Term {
        self.bind(to, bitcast(to, v))
    }
}
