//! Prints statements in C.

use super::{Dialect, Printer, operator, pieces};
use crate::program::{ArrayParam, Expr, Scalar, Stmt, Ty, Update};

impl Printer<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        for _ in 0..depth {
            self.out.push_str("    ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Prints statements as lines.
    pub fn lines(&mut self, stmts: &[Stmt], depth: usize) -> String {
        let outer = std::mem::take(&mut self.out);
        self.block(stmts, depth);
        std::mem::replace(&mut self.out, outer)
    }

    pub(super) fn block(&mut self, stmts: &[Stmt], depth: usize) {
        for stmt in stmts {
            let line = match stmt {
                Stmt::Let(var, e) => {
                    let value = self.shown(e);
                    let ty = self.type_name(self.body.var(*var).ty);
                    format!("{ty} {} = {value};", self.name(*var))
                }
                Stmt::Assign(var, e) => format!("{} = {};", self.name(*var), self.shown(e)),
                Stmt::Update(var, op, e) => {
                    let variable = self.body.var(*var);
                    let narrow = matches!(variable.ty, Ty::Scalar(Scalar::F16 | Scalar::BF16));
                    if matches!(variable.ty, Ty::Vector(..) | Ty::Matrix(..)) || narrow {
                        let both = [Expr::var(*var, variable.ty), e.clone()];
                        let mut value = String::new();
                        self.binary(*op, &both, 0, &mut value);
                        format!("{} = {value};", variable.name)
                    } else {
                        format!("{} {}= {};", self.name(*var), operator(*op), self.shown(e))
                    }
                }
                Stmt::SetPart(var, at, e) => {
                    let variable = self.body.var(*var);
                    let member = match variable.ty {
                        Ty::Struct(n) => format!(".{}", self.program.structs[n as usize].fields[*at as usize].0),
                        ty => pieces::member(ty, *at),
                    };
                    format!("{}{member} = {};", variable.name, self.shown(e))
                }
                Stmt::Store(array, at, e) => {
                    let array = self.program.array(*array);
                    format!("{}[{}] = {};", array.name, self.linear_index(&array.shape, at), self.shown(e))
                }
                Stmt::Atomic(update, array, at, e) => self.atomic(*update, self.program.array(*array), at, e),
                Stmt::If(condition, then, otherwise) => {
                    let head = format!("if ({}) {{", self.shown(condition));
                    self.line(depth, &head);
                    self.block(then, depth + 1);
                    match &otherwise[..] {
                        [] => self.line(depth, "}"),
                        [Stmt::If(..)] => {
                            let start = self.out.len();
                            self.block(otherwise, depth);
                            self.out.insert_str(start + depth * 4, "} else ");
                        }
                        _ => {
                            self.line(depth, "} else {");
                            self.block(otherwise, depth + 1);
                            self.line(depth, "}");
                        }
                    }
                    continue;
                }
                Stmt::For(var, low, high, step, body) => {
                    let (low, high, name) = (self.shown(low), self.shown(high), self.name(*var));
                    let next = match step {
                        1 => format!("++{name}"),
                        -1 => format!("--{name}"),
                        step if *step > 0 => format!("{name} += {step}"),
                        step => format!("{name} -= {}", -step),
                    };
                    let compare = if *step > 0 { "<" } else { ">" };
                    let head = format!("for (int {name} = {low}; {name} {compare} {high}; {next}) {{");
                    self.line(depth, &head);
                    self.block(body, depth + 1);
                    self.line(depth, "}");
                    continue;
                }
                Stmt::While(condition, body) => {
                    let head = format!("while ({}) {{", self.shown(condition));
                    self.line(depth, &head);
                    self.block(body, depth + 1);
                    self.line(depth, "}");
                    continue;
                }
                Stmt::Break => "break;".into(),
                Stmt::Continue => "continue;".into(),
                Stmt::Return(None) => self.leave.into(),
                Stmt::Return(Some(e)) => format!("return {};", self.shown(e)),
                Stmt::Seed(var, seed, offset) => {
                    let (seed, offset) = (self.shown(seed), self.shown(offset));
                    let call = self.pieces.call("rand_init", Ty::I32, &format!("{seed}, {offset}"));
                    format!("unsigned int {} = {call};", self.name(*var))
                }
                Stmt::Draw(var, state, None) => {
                    let call = self.pieces.call("randf", Ty::F32, self.name(*state));
                    format!("float {} = {call};", self.name(*var))
                }
                Stmt::Draw(var, state, Some((low, high))) => {
                    let args = format!("{}, {low}, {high}", self.name(*state));
                    let call = self.pieces.call("randi", Ty::I32, &args);
                    format!("int {} = {call};", self.name(*var))
                }
            };
            self.line(depth, &line);
        }
    }

    fn atomic(&mut self, update: Update, array: &ArrayParam, at: &[Expr], e: &Expr) -> String {
        let (index, value) = (self.linear_index(&array.shape, at), self.shown(e));
        let float = array.ty.element().is_some_and(Scalar::is_float);
        if self.dialect == Dialect::Host {
            let element = format!("{}[{index}]", array.name);
            return match update {
                Update::Add => format!("{element} += {value};"),
                Update::Sub => format!("{element} -= {value};"),
                Update::Min if float => format!("{element} = std::fmin({element}, {value});"),
                Update::Max if float => format!("{element} = std::fmax({element}, {value});"),
                Update::Min => format!("{element} = std::min({element}, {value});"),
                Update::Max => format!("{element} = std::max({element}, {value});"),
                Update::And => format!("{element} &= {value};"),
                Update::Or => format!("{element} |= {value};"),
                Update::Xor => format!("{element} ^= {value};"),
            };
        }
        let name = match update {
            Update::Sub if float => return format!("atomicAdd(&{}[{index}], -({value}));", array.name),
            Update::Add => "atomicAdd",
            Update::Sub => "atomicSub",
            Update::Min => "atomicMin",
            Update::Max => "atomicMax",
            Update::And => "atomicAnd",
            Update::Or => "atomicOr",
            Update::Xor => "atomicXor",
        };
        format!("{name}(&{}[{index}], {value});", array.name)
    }
}
