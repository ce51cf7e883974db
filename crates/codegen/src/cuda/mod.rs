//! Kernel IR to CUDA C++.
//!
//! The text needs no header and gives the interpreter's bits when compiled with `--fmad=false`: products and sums are
//! fused only where the IR says `fma`, and op-table bodies become device functions printed from the same source.

mod prelude;
mod spell;

use std::fmt::Write;

use bornite_ir::{
    Access, Emit, EmitBits, Expr, ExprId, Kernel, Kind, Launch, LocalId, Op, Scalar, Shuffle, Stmt, Value, View, Vote,
};

use prelude::PRELUDE;
use spell::{atomic_call, bitcast, c_type, call, cast_step, compare_exchange, literal, place, primitive};

/// Threads in a block of every printed kernel.
pub const BLOCK: u32 = 256;

/// Which spelling of op-table rows is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spelling {
    /// The interpreter's bits: bodies of the op table become device functions.
    Exact,
    /// CUDA's own functions where a row names one; within the bounds that the row gives.
    Native,
}

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

/// Prints a kernel as a translation unit of its own, exactly spelled.
pub fn print(kernel: &Kernel) -> String {
    print_as(kernel, Spelling::Exact)
}

/// Prints a kernel as a translation unit of its own.
pub fn print_as(kernel: &Kernel, spelling: Spelling) -> String {
    let terms = vec![None; kernel.exprs.len()];
    let depth = if let Launch::ParallelFor { .. } = kernel.launch { 2 } else { 1 };
    let mut p = Printer { kernel, spelling, terms, functions: vec![], lines: vec![], depth };
    p.block(&kernel.body);
    let mut kernel_text = String::new();
    p.signature(&mut kernel_text);
    let mut text = String::new();
    let bodies: String = p.functions.iter().map(|f| f.text.as_str()).collect();
    // A helper may call those above it, so the last are looked at first.
    let mut needed: Vec<&str> = vec![];
    for (name, definition) in PRELUDE.iter().rev() {
        let call = format!("{name}(");
        if [&bodies[..], &kernel_text].iter().chain(&needed).any(|text| text.contains(&call)) {
            needed.push(definition);
        }
    }
    text.extend(needed.into_iter().rev());
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

/// A device function: an op-table body, an op on a narrow type, or a conversion of several steps.
struct Function {
    name: String,
    text: String,
}

struct Printer<'k> {
    kernel: &'k Kernel,
    spelling: Spelling,
    terms: Vec<Option<Term>>,
    functions: Vec<Function>,
    lines: Vec<String>,
    depth: usize,
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
        let threads = match launch {
            Launch::ParallelFor { .. } => BLOCK,
            Launch::Blocks { block, .. } => block.iter().product(),
        };
        let params = params.join(", ");
        let _ = writeln!(text, "extern \"C\" __global__ void __launch_bounds__({threads})\n{name}({params}) {{");
        let mut pad = "    ";
        if let Launch::ParallelFor { count } = launch {
            // Unsigned, so that stepping past the end cannot overflow: the grid never exceeds the count by a block.
            let (counter, suffix) =
                if *index == Scalar::I32 { ("unsigned", "u") } else { ("unsigned long long", "ull") };
            let first = format!("{counter} i_ = ({counter})blockIdx.x * blockDim.x + threadIdx.x");
            if returns(&self.kernel.body) {
                // An instance that ends early must not end those that would follow in a loop.
                let _ = writeln!(text, "    const {first};\n    if (i_ < {count}{suffix}) {{");
            } else {
                let step = format!("i_ += ({counter})gridDim.x * blockDim.x");
                let _ = writeln!(text, "    for ({first}; i_ < {count}{suffix};\n         {step}) {{");
            }
            pad = "        ";
            let _ = writeln!(text, "{pad}const {0} index = ({0})i_;", c_type(*index));
        }
        for shared in &self.kernel.shared {
            let (ty, name, len) = (c_type(shared.scalar), printed(&shared.name), shared.len.max(1));
            let _ = writeln!(text, "{pad}__shared__ {ty} {name}[{len}];");
        }
        for (n, local) in self.kernel.locals.iter().enumerate() {
            let _ = writeln!(text, "{pad}{} {} = {};", c_type(local.init.scalar()), self.local(n), literal(local.init));
        }
        for line in &self.lines {
            *text += line;
            text.push('\n');
        }
        if pad.len() > 4 {
            *text += "    }\n";
        }
        *text += "}\n";
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
                Stmt::Loop { body } => {
                    self.line("for (;;) {".into());
                    self.nested(body);
                    self.line("}".into());
                }
                Stmt::Break => self.line("break;".into()),
                Stmt::Continue => self.line("continue;".into()),
                Stmt::Return => self.line("return;".into()),
                Stmt::Barrier => self.line("__syncthreads();".into()),
                Stmt::WarpBarrier => self.line("__syncwarp();".into()),
                Stmt::Fence => self.line("__threadfence();".into()),
            }
        }
    }

    fn nested(&mut self, block: &[Stmt]) {
        self.depth += 1;
        self.block(block);
        self.depth -= 1;
    }

    fn element(&self, view: View, index: ExprId) -> String {
        format!("{}[{}]", printed(self.kernel.view(view).0), self.term(index).text)
    }

    fn term(&self, id: ExprId) -> Term {
        let scalar = self.kernel.scalar(id);
        match self.kernel.expr(id) {
            Expr::Const(value) => Term { text: literal(*value), scalar, known: Some(*value) },
            Expr::Index => Term { text: "index".into(), scalar, known: None },
            Expr::Builtin(builtin) => {
                Term { text: format!("({}){}", c_type(scalar), place(*builtin)), scalar, known: None }
            }
            _ => self.terms[id.0 as usize].clone().unwrap_or(Term { text: format!("v{}", id.0), scalar, known: None }),
        }
    }

    /// The right-hand side of a `Let`.
    fn right(&mut self, id: ExprId) -> Term {
        let scalar = self.kernel.scalar(id);
        let text = match *self.kernel.expr(id) {
            Expr::Const(_) | Expr::Index | Expr::Builtin(_) => self.term(id).text,
            Expr::Read(LocalId(n)) => self.local(n as usize),
            Expr::Op(op, args) => {
                let args: Vec<Term> = args.iter().map(|&a| self.term(a)).collect();
                self.spell(op, &args)
            }
            Expr::Cast(to, from) => {
                let from = self.term(from);
                self.convert(to, &from)
            }
            Expr::Bitcast(to, from) => bitcast(to, &self.term(from)),
            Expr::Load { view, index } => self.element(view, index),
            Expr::Atomic { atomic, view, index, value } => {
                atomic_call(atomic, scalar, &self.element(view, index), &self.term(value).text)
            }
            Expr::CompareExchange { view, index, expected, value } => {
                let (expected, value) = (self.term(expected), self.term(value));
                compare_exchange(scalar, &self.element(view, index), &expected.text, &value.text)
            }
            Expr::Shuffle { shuffle, value, lane } => {
                let function = match shuffle {
                    Shuffle::Index => "__shfl_sync",
                    Shuffle::Up => "__shfl_up_sync",
                    Shuffle::Down => "__shfl_down_sync",
                    Shuffle::Xor => "__shfl_xor_sync",
                };
                format!("{function}(0xffffffffu, {}, (int){})", self.term(value).text, self.term(lane).text)
            }
            Expr::Vote { vote, value } => {
                let function = match vote {
                    Vote::Any => "__any_sync",
                    Vote::All => "__all_sync",
                    Vote::Ballot => "__ballot_sync",
                };
                format!("{function}(0xffffffffu, {})", self.term(value).text)
            }
        };
        Term { text, scalar, known: None }
    }

    /// An op-table row over printed operands.
    fn spell(&mut self, op: Op, args: &[Term]) -> String {
        let row = op.row();
        let scalar = args[args.len() - 1].scalar;
        if let (Spelling::Native, Some(native)) = (self.spelling, row.native) {
            match scalar {
                Scalar::F32 => return call(native.f32, args),
                Scalar::F64 => return call(native.f64, args),
                _ => {}
            }
        }
        if op == Op::Select || row.kind == Kind::Primitive && scalar == scalar.wide() {
            return primitive(op, args);
        }
        let name = format!("bn_{}_{scalar}", row.name);
        let params: Vec<Term> = (row.args.iter()).map(|a| Term { text: (*a).into(), scalar, known: None }).collect();
        self.define(&name, &params, |body| {
            let args: Vec<&Term> = params.iter().collect();
            body.expand(op, &args).unwrap_or_else(|| body.op(op, &args))
        });
        call(&name, args)
    }

    /// A conversion, as a function where it takes several steps.
    fn convert(&mut self, to: Scalar, from: &Term) -> String {
        let wide = |scalar: Scalar| scalar == scalar.wide();
        let narrowed = matches!(from.scalar, Scalar::I32 | Scalar::U32) && to.is_int() || from.scalar == to.wide();
        if from.scalar.wide() == to || wide(from.scalar) && (wide(to) || narrowed && from.scalar != Scalar::Bool) {
            return cast_step(to, from);
        }
        let name = format!("bn_cast_{}_{to}", from.scalar);
        let param = Term { text: "a".into(), scalar: from.scalar, known: None };
        self.define(&name, std::slice::from_ref(&param), |body| body.cast(to, &param));
        call(&name, std::slice::from_ref(from))
    }

    /// Prints a device function unless it is there already.
    fn define(&mut self, name: &str, params: &[Term], emit: impl FnOnce(&mut Body<'_, '_>) -> Term) {
        if self.functions.iter().any(|f| f.name == name) {
            return;
        }
        let mut body = Body { printer: self, lines: vec![] };
        let result = emit(&mut body);
        let lines = body.lines;
        let params: Vec<String> = params.iter().map(|p| format!("{} {}", c_type(p.scalar), p.text)).collect();
        let mut text =
            format!("__device__ __forceinline__ {} {name}({}) {{\n", c_type(result.scalar), params.join(", "));
        for line in lines {
            let _ = writeln!(text, "    {line}");
        }
        let _ = writeln!(text, "    return {};\n}}", result.text);
        self.functions.push(Function { name: name.into(), text });
    }
}

/// True if some instance may end early.
fn returns(block: &[Stmt]) -> bool {
    block.iter().any(|stmt| match stmt {
        Stmt::Return => true,
        Stmt::For { body, .. } | Stmt::Loop { body } => returns(body),
        Stmt::If { then, otherwise, .. } => returns(then) || returns(otherwise),
        _ => false,
    })
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

    fn cast_step(&mut self, to: Scalar, v: &Term) -> Term {
        self.bind(to, cast_step(to, v))
    }

    fn bitcast(&mut self, to: Scalar, v: &Term) -> Term {
        self.bind(to, bitcast(to, v))
    }
}
