//! Prints a program as Python source in the dialect of NVIDIA Warp.
//!
//! Warp does not mix types: every literal is written in the type it is used in, and a variable that
//! is modified in a loop is initialized as `float(0.0)`, which makes it mutable.

use std::fmt::Write;

use super::{
    ArrayParam, AtomicOp, BinaryOp, Body, ExprKind, Program, ProgramExpr, ProgramStmt, ScalarType, SizeExpr, Ty,
    UnaryOp, VarId,
};

/// Prints a program as Python source.
pub fn print(program: &Program) -> String {
    let mut p = Printer { program, body: &program.body, text: "import warp as wp\n".into() };
    for found in &program.structs {
        let _ = write!(p.text, "\n\n@wp.struct\nclass {}:\n", found.name);
        for (name, ty) in &found.fields {
            let _ = writeln!(p.text, "    {name}: {}", ty.python(&program.structs));
        }
    }
    for function in &program.functions {
        p.body = &function.body;
        let params = (function.body.vars[..function.body.params].iter())
            .map(|var| format!("{}: {}", var.name, var.ty.python(&program.structs)));
        let params = params.collect::<Vec<_>>().join(", ");
        let result = function.result.python(&program.structs);
        let _ = write!(p.text, "\n\n@wp.func\ndef {}({params}) -> {result}:\n", function.name);
        p.block(&function.body.stmts, 1);
    }
    p.body = &program.body;
    let _ = write!(p.text, "\n\n@wp.kernel\ndef {}(", program.name);
    let mut params: Vec<String> =
        (program.arrays.iter()).map(|array| format!("{}: {}", array.name, array_type(array, program))).collect();
    let values = program.values.iter().map(|value| value.var);
    let sizes = program.sizes.iter().filter(|size| size.in_source).map(|size| size.var);
    for var in values.chain(sizes) {
        let var = program.body.var(var);
        params.push(format!("{}: {}", var.name, var.ty.python(&program.structs)));
    }
    let line: usize = params.iter().map(|param| param.len() + 2).sum();
    if line + program.name.len() > 92 {
        let _ = write!(p.text, "\n    {},\n):\n", params.join(",\n    "));
    } else {
        let _ = writeln!(p.text, "{}):", params.join(", "));
    }
    let _ = writeln!(p.text, "    \"\"\"{}\"\"\"", program.doc);
    let names: Vec<&str> = program.grid.iter().map(|(var, _)| program.body.var(*var).name.as_str()).collect();
    if !names.is_empty() {
        let _ = writeln!(p.text, "    {} = wp.tid()", names.join(", "));
    }
    p.block(&program.body.stmts, 1);
    p.text
}

/// First line of a statement's text.
pub fn first_line(program: &Program, body: &Body, stmt: &ProgramStmt) -> String {
    let mut p = Printer { program, body, text: String::new() };
    p.block(std::slice::from_ref(stmt), 0);
    p.text.lines().next().unwrap_or_default().to_owned()
}

/// Text of an expression.
pub fn expression(program: &Program, body: &Body, e: &ProgramExpr) -> String {
    Printer { program, body, text: String::new() }.expr_text(e)
}

fn array_type(array: &ArrayParam, program: &Program) -> String {
    let element = array.ty.python(&program.structs);
    match array.shape.len() {
        1 => format!("wp.array(dtype={element})"),
        n => format!("wp.array{n}d(dtype={element})"),
    }
}

struct Printer<'p> {
    program: &'p Program,
    body: &'p Body,
    text: String,
}

/// Operator precedence.
fn precedence(op: BinaryOp) -> u8 {
    use BinaryOp::*;
    match op {
        Or => 1,
        And => 2,
        Lt | Le | Gt | Ge | Eq | Ne => 4,
        BitOr => 5,
        BitXor => 6,
        BitAnd => 7,
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
        Div => "/",
        Quotient => "//",
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
        And => "and",
        Or => "or",
    }
}

/// Formats a float as in Python.
pub(super) fn float(value: f64) -> String {
    let text = format!("{value:?}");
    if text.contains(['.', 'e']) { text } else { text + ".0" }
}

impl Printer<'_> {
    fn name(&self, var: VarId) -> &str {
        &self.body.var(var).name
    }

    fn list(&self, args: &[ProgramExpr]) -> String {
        let mut text = String::new();
        for (n, arg) in args.iter().enumerate() {
            if n > 0 {
                text.push_str(", ");
            }
            self.expr(arg, 0, &mut text);
        }
        text
    }

    fn expr_text(&self, e: &ProgramExpr) -> String {
        let mut text = String::new();
        self.expr(e, 0, &mut text);
        text
    }

    fn expr(&self, e: &ProgramExpr, outer: u8, out: &mut String) {
        let literal = |scalar: ScalarType, text: String| match scalar {
            ScalarType::F32 | ScalarType::I32 => text,
            _ => format!("{}({text})", scalar.python()),
        };
        match &e.kind {
            ExprKind::Float(value) => {
                let text = literal(e.ty.element().unwrap_or(ScalarType::F32), float(*value));
                let bare = text.starts_with('-') && outer > 9;
                out.push_str(&if bare { format!("({text})") } else { text });
            }
            ExprKind::Int(value) if e.ty == Ty::BOOL => out.push_str(if *value != 0 { "True" } else { "False" }),
            ExprKind::Int(value) => {
                let text = literal(e.ty.element().unwrap_or(ScalarType::I32), value.to_string());
                let bare = text.starts_with('-') && outer > 9;
                out.push_str(&if bare { format!("({text})") } else { text });
            }
            ExprKind::Var(var) => out.push_str(self.name(*var)),
            ExprKind::Load(array, at) => {
                let _ = write!(out, "{}[{}]", self.program.array(*array).name, self.list(at));
            }
            ExprKind::Unary(op, a) => {
                let (text, level) = match op {
                    UnaryOp::Neg => ("-", 11),
                    UnaryOp::Invert => ("~", 11),
                    UnaryOp::Not => ("not ", 3),
                };
                let wrapped = outer > level;
                out.push_str(if wrapped { "(" } else { "" });
                out.push_str(text);
                self.expr(a, level + 1, out);
                out.push_str(if wrapped { ")" } else { "" });
            }
            ExprKind::Binary(op, both) => {
                let level = precedence(*op);
                // Nested comparisons would form a chain.
                let left = if level == 4 { 5 } else { level };
                let wrapped = outer > level;
                out.push_str(if wrapped { "(" } else { "" });
                self.expr(&both[0], left, out);
                let _ = write!(out, " {} ", operator(*op));
                self.expr(&both[1], level + 1, out);
                out.push_str(if wrapped { ")" } else { "" });
            }
            ExprKind::Call(builtin, args) => {
                let _ = write!(out, "wp.{}({})", builtin.name(), self.list(args));
            }
            ExprKind::Function(func, args) => {
                let _ = write!(out, "{}({})", self.program.functions[func.0 as usize].name, self.list(args));
            }
            ExprKind::Where(three) => {
                let _ = write!(out, "wp.where({})", self.list(&three[..]));
            }
            ExprKind::Cast(a) => {
                let _ = write!(out, "{}({})", e.ty.python(&self.program.structs), self.expr_text(a));
            }
            ExprKind::Component(a, at) => {
                self.expr(a, 13, out);
                match a.ty {
                    Ty::Struct(n) => {
                        let _ = write!(out, ".{}", self.program.structs[n as usize].fields[*at as usize].0);
                    }
                    Ty::Matrix(_, n) => {
                        let _ = write!(out, "[{}, {}]", at / n, at % n);
                    }
                    _ => {
                        let _ = write!(out, "[{at}]");
                    }
                }
            }
            ExprKind::Construct(args) => {
                let _ = write!(out, "{}({})", e.ty.python(&self.program.structs), self.list(args));
            }
        }
    }

    fn line(&mut self, depth: usize, text: &str) {
        for _ in 0..depth {
            self.text.push_str("    ");
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn block(&mut self, stmts: &[ProgramStmt], depth: usize) {
        for stmt in stmts {
            let line = match stmt {
                ProgramStmt::Let(var, e) => {
                    let value = self.expr_text(e);
                    let changes = self.body.var(*var).mutable;
                    let plain = matches!(e.kind, ExprKind::Float(_) | ExprKind::Int(_));
                    let value = match e.ty {
                        Ty::Scalar(scalar @ (ScalarType::F32 | ScalarType::I32)) if changes && plain => {
                            format!("{}({value})", scalar.python())
                        }
                        _ => value,
                    };
                    format!("{} = {value}", self.name(*var))
                }
                ProgramStmt::Assign(var, e) => format!("{} = {}", self.name(*var), self.expr_text(e)),
                ProgramStmt::Update(var, op, e) => {
                    format!("{} {}= {}", self.name(*var), operator(*op), self.expr_text(e))
                }
                ProgramStmt::SetComponent(var, at, e) => match self.body.var(*var).ty {
                    Ty::Struct(n) => {
                        let field = &self.program.structs[n as usize].fields[*at as usize].0;
                        format!("{}.{field} = {}", self.name(*var), self.expr_text(e))
                    }
                    Ty::Matrix(_, n) => format!("{}[{}, {}] = {}", self.name(*var), at / n, at % n, self.expr_text(e)),
                    _ => format!("{}[{at}] = {}", self.name(*var), self.expr_text(e)),
                },
                ProgramStmt::Store(array, at, e) => {
                    format!("{}[{}] = {}", self.program.array(*array).name, self.list(at), self.expr_text(e))
                }
                ProgramStmt::Atomic(update, array, at, e) => {
                    let name = match update {
                        AtomicOp::Add => "add",
                        AtomicOp::Sub => "sub",
                        AtomicOp::Min => "min",
                        AtomicOp::Max => "max",
                        AtomicOp::And => "and",
                        AtomicOp::Or => "or",
                        AtomicOp::Xor => "xor",
                    };
                    let array = &self.program.array(*array).name;
                    format!("wp.atomic_{name}({array}, {}, {})", self.list(at), self.expr_text(e))
                }
                ProgramStmt::If(condition, then, otherwise) => {
                    let head = format!("if {}:", self.expr_text(condition));
                    self.line(depth, &head);
                    self.block(then, depth + 1);
                    match &otherwise[..] {
                        [] => {}
                        [ProgramStmt::If(..)] => {
                            let start = self.text.len();
                            self.block(otherwise, depth);
                            // `else: if` becomes `elif`.
                            let at = start + depth * 4;
                            self.text.insert_str(at, "el");
                        }
                        _ => {
                            self.line(depth, "else:");
                            self.block(otherwise, depth + 1);
                        }
                    }
                    continue;
                }
                ProgramStmt::For(var, low, high, step, body) => {
                    let range = match (&low.kind, step) {
                        (ExprKind::Int(0), 1) => self.expr_text(high),
                        (_, 1) => format!("{}, {}", self.expr_text(low), self.expr_text(high)),
                        _ => format!("{}, {}, {step}", self.expr_text(low), self.expr_text(high)),
                    };
                    let head = format!("for {} in range({range}):", self.name(*var));
                    self.line(depth, &head);
                    self.block(body, depth + 1);
                    continue;
                }
                ProgramStmt::While(condition, body) => {
                    let head = format!("while {}:", self.expr_text(condition));
                    self.line(depth, &head);
                    self.block(body, depth + 1);
                    continue;
                }
                ProgramStmt::Break => "break".into(),
                ProgramStmt::Continue => "continue".into(),
                ProgramStmt::Return(None) => "return".into(),
                ProgramStmt::Return(Some(e)) => format!("return {}", self.expr_text(e)),
                ProgramStmt::Seed(var, seed, offset) => {
                    format!("{} = wp.rand_init({}, {})", self.name(*var), self.expr_text(seed), self.expr_text(offset))
                }
                ProgramStmt::Draw(var, state, None) => format!("{} = wp.randf({})", self.name(*var), self.name(*state)),
                ProgramStmt::Draw(var, state, Some((low, high))) => {
                    format!("{} = wp.randi({}, {low}, {high})", self.name(*var), self.name(*state))
                }
            };
            self.line(depth, &line);
        }
    }
}

/// Text of a size: `n`, `n + 1`, `(n + 255) / 256`.
pub fn size_text(program: &Program, size: SizeExpr) -> String {
    let name = |n: u8| &program.body.var(program.sizes[n as usize].var).name;
    match size {
        SizeExpr::Param(n) => name(n).clone(),
        SizeExpr::Constant(n) => n.to_string(),
        SizeExpr::DivCeil(n, by) => format!("({} + {}) / {by}", name(n), by - 1),
        SizeExpr::Plus(n, more) => format!("{} + {more}", name(n)),
        SizeExpr::Times(n, times) => format!("{} * {times}", name(n)),
    }
}
