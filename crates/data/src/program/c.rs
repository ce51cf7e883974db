//! Prints a program as CUDA C++ or as C++ for a CPU, in the style of handwritten code: nested
//! expressions, original names, and only the helper functions that the text calls (`prelude.rs`).

mod pieces;
mod stmts;

use std::fmt::Write;

use super::python::size;
use super::{Binary, Body, Builtin, Expr, Form, Guard, Kind, Program, Scalar, Size, Style, Ty, Unary, Var};
use pieces::Pieces;

/// Target of the printed text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// CUDA C++.
    Cuda,
    /// C++17, with `_Float16` where 16-bit floats are used.
    Host,
}

/// Prints a program as CUDA C++.
pub fn cuda(program: &Program) -> String {
    match &program.form {
        Form::Direct(style) => {
            let mut p = Printer::new(program, Dialect::Cuda);
            let kernel = p.direct(*style);
            p.whole(kernel)
        }
        Form::Block(block) => block.text.clone(),
    }
}

/// Prints a program as C++: a function that runs all instances.
pub fn host(program: &Program) -> String {
    let mut p = Printer::new(program, Dialect::Host);
    let kernel = p.loops();
    p.whole(kernel)
}

/// Prints parts of a program in C++. Generators of block kernels assemble their texts from its
/// output.
pub struct Printer<'p> {
    program: &'p Program,
    body: &'p Body,
    dialect: Dialect,
    pieces: Pieces,
    out: String,
    /// Statement that ends an instance.
    leave: &'static str,
}

fn binding(op: Binary) -> u8 {
    use Binary::*;
    match op {
        Or => 1,
        And => 2,
        BitOr => 3,
        BitXor => 4,
        BitAnd => 5,
        Eq | Ne => 6,
        Lt | Le | Gt | Ge => 7,
        Shl | Shr => 8,
        Add | Sub => 9,
        Mul | Div | Quotient | Rem => 10,
    }
}

fn operator(op: Binary) -> &'static str {
    use Binary::*;
    match op {
        Add => "+",
        Sub => "-",
        Mul => "*",
        Div | Quotient => "/",
        Rem => "%",
        BitAnd => "&",
        BitOr => "|",
        BitXor => "^",
        Shl => "<<",
        Shr => ">>",
        Lt => "<",
        Le => "<=",
        Gt => ">",
        Ge => ">=",
        Eq => "==",
        Ne => "!=",
        And => "&&",
        Or => "||",
    }
}

impl<'p> Printer<'p> {
    /// Creates a printer for a program.
    pub fn new(program: &'p Program, dialect: Dialect) -> Printer<'p> {
        let pieces = Pieces::new(dialect);
        Printer { program, body: &program.body, dialect, pieces, out: String::new(), leave: "return;" }
    }

    /// Prepends structs, device functions and the helper functions that were called to a kernel.
    pub fn whole(&mut self, kernel: String) -> String {
        let mut structs = String::new();
        for found in &self.program.structs {
            let _ = writeln!(structs, "struct {} {{", found.name);
            for (name, ty) in &found.fields {
                self.pieces.uses(*ty);
                let _ = writeln!(structs, "    {} {name};", ty.c(&self.program.structs));
            }
            structs.push_str("};\n\n");
        }
        let mut functions = String::new();
        for function in &self.program.functions {
            self.body = &function.body;
            let params: Vec<String> = (function.body.vars[..function.body.params].iter())
                .map(|var| format!("{} {}", var.ty.c(&self.program.structs), var.name))
                .collect();
            let prefix = if self.dialect == Dialect::Cuda { "__device__ inline" } else { "static inline" };
            let result = function.result.c(&self.program.structs);
            self.pieces.uses(function.result);
            let _ = writeln!(functions, "{prefix} {result} {}({}) {{", function.name, params.join(", "));
            let outer = std::mem::take(&mut self.out);
            self.block(&function.body.stmts, 1);
            functions.push_str(&std::mem::replace(&mut self.out, outer));
            functions.push_str("}\n\n");
        }
        self.body = &self.program.body;
        for array in &self.program.arrays {
            self.pieces.uses(array.ty);
        }
        self.pieces.text(&structs, &self.program.structs) + &functions + &kernel
    }

    /// Parameter declarations of the kernel.
    pub fn params(&self, restrict: bool) -> Vec<String> {
        let structs = &self.program.structs;
        let restrict = match (restrict, self.dialect) {
            (true, _) => " __restrict__",
            (false, _) => "",
        };
        let arrays = self.program.arrays.iter().map(|array| {
            let constant = if array.written { "" } else { "const " };
            format!("{constant}{}*{restrict} {}", self.type_name(array.ty), array.name)
        });
        let values = self.program.values.iter().map(|value| value.var);
        let sizes = self.program.sizes.iter().map(|size| size.var);
        let values = values.chain(sizes).map(|var| {
            let var = self.program.body.var(var);
            format!("{} {}", var.ty.c(structs), var.name)
        });
        arrays.chain(values).collect()
    }

    fn type_name(&self, ty: Ty) -> String {
        match (ty, self.dialect) {
            (Ty::Scalar(Scalar::F16), Dialect::Host) => "_Float16".into(),
            (Ty::Scalar(Scalar::BF16), Dialect::Host) => "bfloat16".into(),
            _ => ty.c(&self.program.structs),
        }
    }

    /// Head of the kernel function.
    pub fn head(&self, prefix: &str, restrict: bool) -> String {
        let params = self.params(restrict);
        let line: usize = params.iter().map(|param| param.len() + 2).sum();
        if line + self.program.name.len() > 100 {
            let indent = "    ";
            format!("{prefix} {}(\n{indent}{}) {{\n", self.program.name, params.join(&format!(",\n{indent}")))
        } else {
            format!("{prefix} {}({}) {{\n", self.program.name, params.join(", "))
        }
    }

    fn direct(&mut self, style: Style) -> String {
        let mut text = self.head("__global__ void", style.restrict);
        let indices: Vec<(String, &str, String)> = (self.program.grid.iter().rev().zip(["x", "y", "z"]))
            .map(|((var, extent), axis)| (self.name(*var).to_owned(), axis, size(self.program, *extent)))
            .collect();
        if style.guard == Guard::Stride && indices.len() == 1 {
            let (name, _, extent) = &indices[0];
            let _ = writeln!(
                text,
                "    for (int {name} = blockIdx.x * blockDim.x + threadIdx.x; {name} < {extent}; {name} += blockDim.x * gridDim.x) {{"
            );
            self.leave = "continue;";
            self.block(&self.program.body.stmts, 2);
            text.push_str(&std::mem::take(&mut self.out));
            text.push_str("    }\n}\n");
            return text;
        }
        for (name, axis, _) in &indices {
            let _ = writeln!(text, "    int {name} = blockIdx.{axis} * blockDim.{axis} + threadIdx.{axis};");
        }
        self.leave = "return;";
        if style.guard == Guard::Around {
            let inside: Vec<String> = indices.iter().map(|(name, _, extent)| format!("{name} < {extent}")).collect();
            let _ = writeln!(text, "    if ({}) {{", inside.join(" && "));
            self.block(&self.program.body.stmts, 2);
            text.push_str(&std::mem::take(&mut self.out));
            text.push_str("    }\n}\n");
        } else {
            let outside: Vec<String> = indices.iter().map(|(name, _, extent)| format!("{name} >= {extent}")).collect();
            let _ = writeln!(text, "    if ({}) return;", outside.join(" || "));
            self.block(&self.program.body.stmts, 1);
            text.push_str(&std::mem::take(&mut self.out));
            text.push_str("}\n");
        }
        text
    }

    fn loops(&mut self) -> String {
        let mut text = self.head("void", true);
        for (depth, (var, extent)) in self.program.grid.iter().enumerate() {
            let (name, extent) = (self.name(*var).to_owned(), size(self.program, *extent));
            let _ = writeln!(text, "{}for (int {name} = 0; {name} < {extent}; ++{name}) {{", "    ".repeat(depth + 1));
        }
        let depth = self.program.grid.len();
        self.leave = if depth == 0 { "return;" } else { "continue;" };
        self.block(&self.program.body.stmts, depth + 1);
        text.push_str(&std::mem::take(&mut self.out));
        for depth in (0..=depth).rev() {
            let _ = writeln!(text, "{}}}", "    ".repeat(depth));
        }
        text
    }

    /// Name of a variable.
    pub fn name(&self, var: Var) -> &'p str {
        &self.body.var(var).name
    }

    /// Text of an expression.
    pub fn shown(&mut self, e: &Expr) -> String {
        let mut text = String::new();
        self.expr(e, 0, &mut text);
        text
    }

    fn list(&mut self, args: &[Expr]) -> String {
        let mut text = String::new();
        for (n, arg) in args.iter().enumerate() {
            if n > 0 {
                text.push_str(", ");
            }
            self.expr(arg, 0, &mut text);
        }
        text
    }

    /// Linear index of an element in a contiguous array.
    fn linear_index(&mut self, shape: &[Size], at: &[Expr]) -> String {
        let mut text = String::new();
        for (n, index) in at.iter().enumerate() {
            if n > 0 {
                let by = size(self.program, shape[n]);
                let by = if by.contains(' ') { format!("({by})") } else { by };
                text = if n > 1 { format!("({text}) * {by} + ") } else { format!("{text} * {by} + ") };
                self.expr(index, 9, &mut text);
            } else {
                self.expr(index, if at.len() > 1 { 10 } else { 0 }, &mut text);
            }
        }
        text
    }

    fn expr(&mut self, e: &Expr, around: u8, out: &mut String) {
        match &e.kind {
            Kind::Float(value) => {
                let text = super::python::float(*value) + if e.ty == Ty::F32 { "f" } else { "" };
                let text = match e.ty.element() {
                    Some(Scalar::F16) => self.pieces.narrow(Scalar::F16, &(text + "f")),
                    Some(Scalar::BF16) => self.pieces.narrow(Scalar::BF16, &(text + "f")),
                    _ => text,
                };
                out.push_str(&if text.starts_with('-') && around > 8 { format!("({text})") } else { text });
            }
            Kind::Int(value) => {
                let text = match e.ty.element() {
                    Some(Scalar::U32) => format!("{value}u"),
                    Some(Scalar::I64) => format!("{value}ll"),
                    Some(Scalar::U64) => format!("{}ull", *value as u64),
                    Some(Scalar::Bool) => if *value != 0 { "true" } else { "false" }.into(),
                    Some(Scalar::I32) | None => value.to_string(),
                    Some(other) => format!("({}){value}", other.c()),
                };
                out.push_str(&if text.starts_with(['-', '(']) && around > 8 { format!("({text})") } else { text });
            }
            Kind::Var(var) => out.push_str(self.name(*var)),
            Kind::Load(array, at) => {
                let array = self.program.array(*array);
                let index = self.linear_index(&array.shape, at);
                let _ = write!(out, "{}[{index}]", array.name);
            }
            Kind::Unary(op, a) => match (op, a.ty) {
                (Unary::Neg, Ty::Vector(..) | Ty::Matrix(..)) => {
                    let a = self.shown(a);
                    out.push_str(&self.pieces.call("neg", e.ty, &a));
                }
                (Unary::Neg, Ty::Scalar(Scalar::F16 | Scalar::BF16)) if self.dialect == Dialect::Cuda => {
                    let _ = write!(out, "__hneg({})", self.shown(a));
                }
                _ => {
                    let wrapped = around > 11;
                    out.push_str(if wrapped { "(" } else { "" });
                    out.push(match op {
                        Unary::Neg => '-',
                        Unary::Not => '!',
                        Unary::Invert => '~',
                    });
                    let start = out.len();
                    self.expr(a, 12, out);
                    // `- -a` must not become `--a`.
                    if out[start..].starts_with('-') {
                        out.insert(start, ' ');
                    }
                    out.push_str(if wrapped { ")" } else { "" });
                }
            },
            Kind::Binary(op, both) => self.binary(*op, both, around, out),
            Kind::Call(builtin, args) => self.call(*builtin, args, e.ty, around, out),
            Kind::Function(func, args) => {
                let _ = write!(out, "{}({})", self.program.functions[func.0 as usize].name, self.list(args));
            }
            Kind::Where(three) => {
                let wrapped = around > 0;
                out.push_str(if wrapped { "(" } else { "" });
                self.expr(&three[0], 1, out);
                out.push_str(" ? ");
                self.expr(&three[1], 1, out);
                out.push_str(" : ");
                self.expr(&three[2], 1, out);
                out.push_str(if wrapped { ")" } else { "" });
            }
            Kind::Cast(a) => self.cast(a, e.ty, around, out),
            Kind::Part(a, at) => {
                self.expr(a, 13, out);
                match a.ty {
                    Ty::Struct(n) => {
                        let _ = write!(out, ".{}", self.program.structs[n as usize].fields[*at as usize].0);
                    }
                    ty => out.push_str(&pieces::member(ty, *at)),
                }
            }
            Kind::Make(args) => {
                let args = self.list(args);
                out.push_str(&self.pieces.made(e.ty, &args, &self.program.structs));
            }
        }
    }

    fn cast(&mut self, a: &Expr, to: Ty, around: u8, out: &mut String) {
        let (Some(from), Some(to)) = (a.ty.element(), to.element()) else { return self.expr(a, around, out) };
        match (from, to, self.dialect) {
            (Scalar::F16 | Scalar::BF16, _, Dialect::Cuda) => {
                let text = self.shown(a);
                let wide = self.pieces.widen(from, &text);
                match to {
                    Scalar::F32 => out.push_str(&wide),
                    _ => {
                        let _ = write!(out, "({}){wide}", to.c());
                    }
                }
            }
            (_, Scalar::F16 | Scalar::BF16, Dialect::Cuda) => {
                let text = if from == Scalar::F32 { self.shown(a) } else { format!("(float)({})", self.shown(a)) };
                out.push_str(&self.pieces.narrow(to, &text));
            }
            _ => {
                let wrapped = around > 11;
                out.push_str(if wrapped { "(" } else { "" });
                let _ = write!(out, "({})", self.type_name(to.into()));
                self.expr(a, 12, out);
                out.push_str(if wrapped { ")" } else { "" });
            }
        }
    }

    fn binary(&mut self, op: Binary, both: &[Expr; 2], around: u8, out: &mut String) {
        let [a, b] = both;
        let composite = |ty: Ty| matches!(ty, Ty::Vector(..) | Ty::Matrix(..));
        if composite(a.ty) || composite(b.ty) {
            let (x, y) = (self.shown(a), self.shown(b));
            let text = self.pieces.operation(op, a.ty, b.ty, &x, &y);
            return out.push_str(&text);
        }
        if self.dialect == Dialect::Cuda && matches!(a.ty, Ty::Scalar(Scalar::F16 | Scalar::BF16)) {
            let name = match op {
                Binary::Add => "__hadd",
                Binary::Sub => "__hsub",
                Binary::Mul => "__hmul",
                Binary::Div => "__hdiv",
                Binary::Lt => "__hlt",
                Binary::Le => "__hle",
                Binary::Gt => "__hgt",
                _ => "__hge",
            };
            let (x, y) = (self.shown(a), self.shown(b));
            let _ = write!(out, "{name}({x}, {y})");
            return;
        }
        let arithmetic = matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div);
        // Compilers may keep intermediate results in higher precision; a conversion rounds.
        if a.ty == Ty::Scalar(Scalar::F16) && arithmetic && around > 0 {
            out.push_str("(_Float16)(");
            self.binary(op, both, 0, out);
            return out.push(')');
        }
        let binds = binding(op);
        // Compilers warn about bit operators, shifts, `&&` and `||` that are mixed without
        // parentheses.
        let mixed = |child: &Expr| match &child.kind {
            Kind::Binary(inner, _) if *inner != op => match binds {
                1 | 2 => binding(*inner) <= 5,
                6 | 7 => binding(*inner) <= 8,
                3..=8 => true,
                _ => false,
            },
            _ => false,
        };
        let wrapped = around > binds;
        out.push_str(if wrapped { "(" } else { "" });
        let (left, right) = (mixed(a), mixed(b));
        self.expr(a, if left { 12 } else { binds }, out);
        let _ = write!(out, " {} ", operator(op));
        self.expr(b, if right { 12 } else { binds + 1 }, out);
        out.push_str(if wrapped { ")" } else { "" });
    }

    fn call(&mut self, builtin: Builtin, args: &[Expr], ty: Ty, around: u8, out: &mut String) {
        use Builtin::*;
        let first = args[0].ty;
        if matches!(first, Ty::Vector(..) | Ty::Matrix(..)) {
            let list = self.list(args);
            return out.push_str(&self.pieces.call(builtin.name(), first, &list));
        }
        let scalar = first.element().unwrap_or(Scalar::F32);
        if scalar.is_int() {
            let (cuda, host) = match builtin {
                Abs if scalar.bits() == 64 => ("llabs", "std::abs"),
                Abs => ("abs", "std::abs"),
                Min => ("min", "std::min"),
                Max => ("max", "std::max"),
                BitCount if scalar.bits() == 64 => ("__popcll", "__builtin_popcountll"),
                BitCount => ("__popc", "__builtin_popcount"),
                _ => ("", ""),
            };
            let name = if self.dialect == Dialect::Cuda { cuda } else { host };
            if builtin == Clamp {
                let (x, low, high) = (self.shown(&args[0]), self.shown(&args[1]), self.shown(&args[2]));
                let (min, max) = if self.dialect == Dialect::Cuda { ("min", "max") } else { ("std::min", "std::max") };
                let _ = write!(out, "{min}({max}({x}, {low}), {high})");
                return;
            }
            let list = self.list(args);
            let count = builtin == BitCount && ty != Ty::I32;
            if count {
                let _ = write!(out, "({})", ty.c(&[]));
            }
            let _ = write!(out, "{name}({list})");
            return;
        }
        let _ = around;
        let float = if scalar == Scalar::F64 { "" } else { "f" };
        let name = match builtin {
            Abs => "fabs",
            Min => "fmin",
            Max => "fmax",
            Log => "log",
            Clamp => {
                let (x, low, high) = (self.shown(&args[0]), self.shown(&args[1]), self.shown(&args[2]));
                let std = if self.dialect == Dialect::Host { "std::" } else { "" };
                let _ = write!(out, "{std}fmin{float}({std}fmax{float}({x}, {low}), {high})");
                return;
            }
            Sign | Frac | Lerp | Smoothstep | Degrees | Radians => {
                let list = self.list(args);
                return out.push_str(&self.pieces.call(builtin.name(), first, &list));
            }
            other => other.name(),
        };
        let list = self.list(args);
        let std = if self.dialect == Dialect::Host { "std::" } else { "" };
        let float = if self.dialect == Dialect::Host { "" } else { float };
        let _ = write!(out, "{std}{name}{float}({list})");
    }
}
