//! Prints a program as CUDA C++ or as C++ for a CPU, in the style of handwritten code: nested
//! expressions, original names, and only the helper functions that the text calls (`prelude.rs`).

mod prelude;
mod stmts;

use std::fmt::Write;

use super::python::size_text;
use super::{
    BinaryOp, Body, BuiltinFn, CudaForm, DirectStyle, ExprKind, Guard, Program, ProgramExpr, ScalarType, SizeExpr, Ty,
    UnaryOp, VarId,
};
use prelude::Prelude;

/// Target of the printed text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CppTarget {
    /// CUDA C++.
    Cuda,
    /// C++17, with `_Float16` where 16-bit floats are used.
    Host,
}

/// Prints a program as CUDA C++.
pub fn cuda(program: &Program) -> String {
    match &program.form {
        CudaForm::Direct(style) => {
            let mut p = Printer::new(program, CppTarget::Cuda);
            let kernel = p.direct_kernel(*style);
            p.with_prelude(kernel)
        }
        CudaForm::Block(block) => block.text.clone(),
    }
}

/// Prints a program as C++: a function that runs all instances.
pub fn host(program: &Program) -> String {
    let mut p = Printer::new(program, CppTarget::Host);
    let kernel = p.host_loops();
    p.with_prelude(kernel)
}

/// Prints parts of a program in C++. Generators of block kernels assemble their texts from its
/// output.
pub struct Printer<'p> {
    program: &'p Program,
    body: &'p Body,
    target: CppTarget,
    prelude: Prelude,
    out: String,
    /// Statement that ends an instance.
    exit_stmt: &'static str,
}

fn precedence(op: BinaryOp) -> u8 {
    use BinaryOp::*;
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

fn operator(op: BinaryOp) -> &'static str {
    use BinaryOp::*;
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
    pub fn new(program: &'p Program, target: CppTarget) -> Printer<'p> {
        let prelude = Prelude::new(target);
        Printer { program, body: &program.body, target, prelude, out: String::new(), exit_stmt: "return;" }
    }

    /// Prepends structs, device functions and the helper functions that were called to a kernel.
    pub fn with_prelude(&mut self, kernel: String) -> String {
        let mut structs = String::new();
        for found in &self.program.structs {
            let _ = writeln!(structs, "struct {} {{", found.name);
            for (name, ty) in &found.fields {
                self.prelude.uses(*ty);
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
            let prefix = if self.target == CppTarget::Cuda { "__device__ inline" } else { "static inline" };
            let result = function.result.c(&self.program.structs);
            self.prelude.uses(function.result);
            let _ = writeln!(functions, "{prefix} {result} {}({}) {{", function.name, params.join(", "));
            let outer = std::mem::take(&mut self.out);
            self.block(&function.body.stmts, 1);
            functions.push_str(&std::mem::replace(&mut self.out, outer));
            functions.push_str("}\n\n");
        }
        self.body = &self.program.body;
        for array in &self.program.arrays {
            self.prelude.uses(array.ty);
        }
        self.prelude.text(&structs, &self.program.structs) + &functions + &kernel
    }

    /// Parameter declarations of the kernel.
    pub fn params(&self, restrict: bool) -> Vec<String> {
        let structs = &self.program.structs;
        let restrict = match (restrict, self.target) {
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
        match (ty, self.target) {
            (Ty::Scalar(ScalarType::F16), CppTarget::Host) => "_Float16".into(),
            (Ty::Scalar(ScalarType::BF16), CppTarget::Host) => "bfloat16".into(),
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

    fn direct_kernel(&mut self, style: DirectStyle) -> String {
        let mut text = self.head("__global__ void", style.restrict);
        let indices: Vec<(String, &str, String)> = (self.program.grid.iter().rev().zip(["x", "y", "z"]))
            .map(|((var, extent), axis)| (self.name(*var).to_owned(), axis, size_text(self.program, *extent)))
            .collect();
        if style.guard == Guard::Stride && indices.len() == 1 {
            let (name, _, extent) = &indices[0];
            let _ = writeln!(
                text,
                "    for (int {name} = blockIdx.x * blockDim.x + threadIdx.x; {name} < {extent}; {name} += blockDim.x * gridDim.x) {{"
            );
            self.exit_stmt = "continue;";
            self.block(&self.program.body.stmts, 2);
            text.push_str(&std::mem::take(&mut self.out));
            text.push_str("    }\n}\n");
            return text;
        }
        for (name, axis, _) in &indices {
            let _ = writeln!(text, "    int {name} = blockIdx.{axis} * blockDim.{axis} + threadIdx.{axis};");
        }
        self.exit_stmt = "return;";
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

    fn host_loops(&mut self) -> String {
        let mut text = self.head("void", true);
        for (depth, (var, extent)) in self.program.grid.iter().enumerate() {
            let (name, extent) = (self.name(*var).to_owned(), size_text(self.program, *extent));
            let _ = writeln!(text, "{}for (int {name} = 0; {name} < {extent}; ++{name}) {{", "    ".repeat(depth + 1));
        }
        let depth = self.program.grid.len();
        self.exit_stmt = if depth == 0 { "return;" } else { "continue;" };
        self.block(&self.program.body.stmts, depth + 1);
        text.push_str(&std::mem::take(&mut self.out));
        for depth in (0..=depth).rev() {
            let _ = writeln!(text, "{}}}", "    ".repeat(depth));
        }
        text
    }

    /// Name of a variable.
    pub fn name(&self, var: VarId) -> &'p str {
        &self.body.var(var).name
    }

    /// Text of an expression.
    pub fn expr_text(&mut self, e: &ProgramExpr) -> String {
        let mut text = String::new();
        self.expr(e, 0, &mut text);
        text
    }

    fn list(&mut self, args: &[ProgramExpr]) -> String {
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
    fn linear_index(&mut self, shape: &[SizeExpr], at: &[ProgramExpr]) -> String {
        let mut text = String::new();
        for (n, index) in at.iter().enumerate() {
            if n > 0 {
                let by = size_text(self.program, shape[n]);
                let by = if by.contains(' ') { format!("({by})") } else { by };
                text = if n > 1 { format!("({text}) * {by} + ") } else { format!("{text} * {by} + ") };
                self.expr(index, 9, &mut text);
            } else {
                self.expr(index, if at.len() > 1 { 10 } else { 0 }, &mut text);
            }
        }
        text
    }

    fn expr(&mut self, e: &ProgramExpr, outer: u8, out: &mut String) {
        match &e.kind {
            ExprKind::Float(value) => {
                let text = super::python::float(*value) + if e.ty == Ty::F32 { "f" } else { "" };
                let text = match e.ty.element() {
                    Some(ScalarType::F16) => self.prelude.narrow(ScalarType::F16, &(text + "f")),
                    Some(ScalarType::BF16) => self.prelude.narrow(ScalarType::BF16, &(text + "f")),
                    _ => text,
                };
                out.push_str(&if text.starts_with('-') && outer > 8 { format!("({text})") } else { text });
            }
            ExprKind::Int(value) => {
                let text = match e.ty.element() {
                    Some(ScalarType::U32) => format!("{value}u"),
                    Some(ScalarType::I64) => format!("{value}ll"),
                    Some(ScalarType::U64) => format!("{}ull", *value as u64),
                    Some(ScalarType::Bool) => if *value != 0 { "true" } else { "false" }.into(),
                    Some(ScalarType::I32) | None => value.to_string(),
                    Some(other) => format!("({}){value}", other.c()),
                };
                out.push_str(&if text.starts_with(['-', '(']) && outer > 8 { format!("({text})") } else { text });
            }
            ExprKind::Var(var) => out.push_str(self.name(*var)),
            ExprKind::Load(array, at) => {
                let array = self.program.array(*array);
                let index = self.linear_index(&array.shape, at);
                let _ = write!(out, "{}[{index}]", array.name);
            }
            ExprKind::Unary(op, a) => match (op, a.ty) {
                (UnaryOp::Neg, Ty::Vector(..) | Ty::Matrix(..)) => {
                    let a = self.expr_text(a);
                    out.push_str(&self.prelude.call("neg", e.ty, &a));
                }
                (UnaryOp::Neg, Ty::Scalar(ScalarType::F16 | ScalarType::BF16)) if self.target == CppTarget::Cuda => {
                    let _ = write!(out, "__hneg({})", self.expr_text(a));
                }
                _ => {
                    let wrapped = outer > 11;
                    out.push_str(if wrapped { "(" } else { "" });
                    out.push(match op {
                        UnaryOp::Neg => '-',
                        UnaryOp::Not => '!',
                        UnaryOp::Invert => '~',
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
            ExprKind::Binary(op, both) => self.binary(*op, both, outer, out),
            ExprKind::Call(builtin, args) => self.call(*builtin, args, e.ty, outer, out),
            ExprKind::Function(func, args) => {
                let _ = write!(out, "{}({})", self.program.functions[func.0 as usize].name, self.list(args));
            }
            ExprKind::Where(three) => {
                let wrapped = outer > 0;
                out.push_str(if wrapped { "(" } else { "" });
                self.expr(&three[0], 1, out);
                out.push_str(" ? ");
                self.expr(&three[1], 1, out);
                out.push_str(" : ");
                self.expr(&three[2], 1, out);
                out.push_str(if wrapped { ")" } else { "" });
            }
            ExprKind::Cast(a) => self.cast(a, e.ty, outer, out),
            ExprKind::Component(a, at) => {
                self.expr(a, 13, out);
                match a.ty {
                    Ty::Struct(n) => {
                        let _ = write!(out, ".{}", self.program.structs[n as usize].fields[*at as usize].0);
                    }
                    ty => out.push_str(&prelude::member(ty, *at)),
                }
            }
            ExprKind::Construct(args) => {
                let args = self.list(args);
                out.push_str(&self.prelude.constructor(e.ty, &args, &self.program.structs));
            }
        }
    }

    fn cast(&mut self, a: &ProgramExpr, to: Ty, outer: u8, out: &mut String) {
        let (Some(from), Some(to)) = (a.ty.element(), to.element()) else { return self.expr(a, outer, out) };
        match (from, to, self.target) {
            (ScalarType::F16 | ScalarType::BF16, _, CppTarget::Cuda) => {
                let text = self.expr_text(a);
                let wide = self.prelude.widen(from, &text);
                match to {
                    ScalarType::F32 => out.push_str(&wide),
                    _ => {
                        let _ = write!(out, "({}){wide}", to.c());
                    }
                }
            }
            (_, ScalarType::F16 | ScalarType::BF16, CppTarget::Cuda) => {
                let text =
                    if from == ScalarType::F32 { self.expr_text(a) } else { format!("(float)({})", self.expr_text(a)) };
                out.push_str(&self.prelude.narrow(to, &text));
            }
            _ => {
                let wrapped = outer > 11;
                out.push_str(if wrapped { "(" } else { "" });
                let _ = write!(out, "({})", self.type_name(to.into()));
                self.expr(a, 12, out);
                out.push_str(if wrapped { ")" } else { "" });
            }
        }
    }

    fn binary(&mut self, op: BinaryOp, both: &[ProgramExpr; 2], outer: u8, out: &mut String) {
        let [a, b] = both;
        let composite = |ty: Ty| matches!(ty, Ty::Vector(..) | Ty::Matrix(..));
        if composite(a.ty) || composite(b.ty) {
            let (x, y) = (self.expr_text(a), self.expr_text(b));
            let text = self.prelude.operation(op, a.ty, b.ty, &x, &y);
            return out.push_str(&text);
        }
        if self.target == CppTarget::Cuda && matches!(a.ty, Ty::Scalar(ScalarType::F16 | ScalarType::BF16)) {
            let name = match op {
                BinaryOp::Add => "__hadd",
                BinaryOp::Sub => "__hsub",
                BinaryOp::Mul => "__hmul",
                BinaryOp::Div => "__hdiv",
                BinaryOp::Lt => "__hlt",
                BinaryOp::Le => "__hle",
                BinaryOp::Gt => "__hgt",
                _ => "__hge",
            };
            let (x, y) = (self.expr_text(a), self.expr_text(b));
            let _ = write!(out, "{name}({x}, {y})");
            return;
        }
        let arithmetic = matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div);
        // Compilers may keep intermediate results in higher precision; a conversion rounds.
        if a.ty == Ty::Scalar(ScalarType::F16) && arithmetic && outer > 0 {
            out.push_str("(_Float16)(");
            self.binary(op, both, 0, out);
            return out.push(')');
        }
        let level = precedence(op);
        // Compilers warn about bit operators, shifts, `&&` and `||` that are mixed without
        // parentheses.
        let mixed = |child: &ProgramExpr| match &child.kind {
            ExprKind::Binary(inner, _) if *inner != op => match level {
                1 | 2 => precedence(*inner) <= 5,
                6 | 7 => precedence(*inner) <= 8,
                3..=8 => true,
                _ => false,
            },
            _ => false,
        };
        let wrapped = outer > level;
        out.push_str(if wrapped { "(" } else { "" });
        let (left, right) = (mixed(a), mixed(b));
        self.expr(a, if left { 12 } else { level }, out);
        let _ = write!(out, " {} ", operator(op));
        self.expr(b, if right { 12 } else { level + 1 }, out);
        out.push_str(if wrapped { ")" } else { "" });
    }

    fn call(&mut self, builtin: BuiltinFn, args: &[ProgramExpr], ty: Ty, outer: u8, out: &mut String) {
        use BuiltinFn::*;
        let first = args[0].ty;
        if matches!(first, Ty::Vector(..) | Ty::Matrix(..)) {
            let list = self.list(args);
            return out.push_str(&self.prelude.call(builtin.name(), first, &list));
        }
        let scalar = first.element().unwrap_or(ScalarType::F32);
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
            let name = if self.target == CppTarget::Cuda { cuda } else { host };
            if builtin == Clamp {
                let (x, low, high) = (self.expr_text(&args[0]), self.expr_text(&args[1]), self.expr_text(&args[2]));
                let (min, max) = if self.target == CppTarget::Cuda { ("min", "max") } else { ("std::min", "std::max") };
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
        let _ = outer;
        let float = if scalar == ScalarType::F64 { "" } else { "f" };
        let name = match builtin {
            Abs => "fabs",
            Min => "fmin",
            Max => "fmax",
            Log => "log",
            Clamp => {
                let (x, low, high) = (self.expr_text(&args[0]), self.expr_text(&args[1]), self.expr_text(&args[2]));
                let std = if self.target == CppTarget::Host { "std::" } else { "" };
                let _ = write!(out, "{std}fmin{float}({std}fmax{float}({x}, {low}), {high})");
                return;
            }
            Sign | Frac | Lerp | Smoothstep | Degrees | Radians => {
                let list = self.list(args);
                return out.push_str(&self.prelude.call(builtin.name(), first, &list));
            }
            other => other.name(),
        };
        let list = self.list(args);
        let std = if self.target == CppTarget::Host { "std::" } else { "" };
        let float = if self.target == CppTarget::Host { "" } else { float };
        let _ = write!(out, "{std}{name}{float}({list})");
    }
}
