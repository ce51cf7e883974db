//! Prints statements in C.

use super::{CppTarget, Printer, operator, prelude};
use crate::program::{ArrayParam, AtomicOp, ProgramExpr, ProgramStmt, ScalarType, Ty};

impl Printer<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        for _ in 0..depth {
            self.out.push_str("    ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Prints statements as lines.
    pub fn lines(&mut self, stmts: &[ProgramStmt], depth: usize) -> String {
        let outer = std::mem::take(&mut self.out);
        self.block(stmts, depth);
        std::mem::replace(&mut self.out, outer)
    }

    pub(super) fn block(&mut self, stmts: &[ProgramStmt], depth: usize) {
        for stmt in stmts {
            let line = match stmt {
                ProgramStmt::Let(var, e) => {
                    let value = self.expr_text(e);
                    let ty = self.type_name(self.body.var(*var).ty);
                    format!("{ty} {} = {value};", self.name(*var))
                }
                ProgramStmt::Assign(var, e) => format!("{} = {};", self.name(*var), self.expr_text(e)),
                ProgramStmt::Update(var, op, e) => {
                    let variable = self.body.var(*var);
                    let narrow = matches!(variable.ty, Ty::Scalar(ScalarType::F16 | ScalarType::BF16));
                    if matches!(variable.ty, Ty::Vector(..) | Ty::Matrix(..)) || narrow {
                        let both = [ProgramExpr::var(*var, variable.ty), e.clone()];
                        let mut value = String::new();
                        self.binary(*op, &both, 0, &mut value);
                        format!("{} = {value};", variable.name)
                    } else {
                        format!("{} {}= {};", self.name(*var), operator(*op), self.expr_text(e))
                    }
                }
                ProgramStmt::SetComponent(var, at, e) => {
                    let variable = self.body.var(*var);
                    let member = match variable.ty {
                        Ty::Struct(n) => format!(".{}", self.program.structs[n as usize].fields[*at as usize].0),
                        ty => prelude::member(ty, *at),
                    };
                    format!("{}{member} = {};", variable.name, self.expr_text(e))
                }
                ProgramStmt::Store(array, at, e) => {
                    let array = self.program.array(*array);
                    format!("{}[{}] = {};", array.name, self.linear_index(&array.shape, at), self.expr_text(e))
                }
                ProgramStmt::Atomic(update, array, at, e) => self.atomic(*update, self.program.array(*array), at, e),
                ProgramStmt::If(condition, then, otherwise) => {
                    let head = format!("if ({}) {{", self.expr_text(condition));
                    self.line(depth, &head);
                    self.block(then, depth + 1);
                    match &otherwise[..] {
                        [] => self.line(depth, "}"),
                        [ProgramStmt::If(..)] => {
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
                ProgramStmt::For(var, low, high, step, body) => {
                    let (low, high, name) = (self.expr_text(low), self.expr_text(high), self.name(*var));
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
                ProgramStmt::While(condition, body) => {
                    let head = format!("while ({}) {{", self.expr_text(condition));
                    self.line(depth, &head);
                    self.block(body, depth + 1);
                    self.line(depth, "}");
                    continue;
                }
                ProgramStmt::Break => "break;".into(),
                ProgramStmt::Continue => "continue;".into(),
                ProgramStmt::Return(None) => self.exit_stmt.into(),
                ProgramStmt::Return(Some(e)) => format!("return {};", self.expr_text(e)),
                ProgramStmt::Seed(var, seed, offset) => {
                    let (seed, offset) = (self.expr_text(seed), self.expr_text(offset));
                    let call = self.prelude.call("rand_init", Ty::I32, &format!("{seed}, {offset}"));
                    format!("unsigned int {} = {call};", self.name(*var))
                }
                ProgramStmt::Draw(var, state, None) => {
                    let call = self.prelude.call("randf", Ty::F32, self.name(*state));
                    format!("float {} = {call};", self.name(*var))
                }
                ProgramStmt::Draw(var, state, Some((low, high))) => {
                    let args = format!("{}, {low}, {high}", self.name(*state));
                    let call = self.prelude.call("randi", Ty::I32, &args);
                    format!("int {} = {call};", self.name(*var))
                }
            };
            self.line(depth, &line);
        }
    }

    fn atomic(&mut self, update: AtomicOp, array: &ArrayParam, at: &[ProgramExpr], e: &ProgramExpr) -> String {
        let (index, value) = (self.linear_index(&array.shape, at), self.expr_text(e));
        let float = array.ty.element().is_some_and(ScalarType::is_float);
        if self.target == CppTarget::Host {
            let element = format!("{}[{index}]", array.name);
            return match update {
                AtomicOp::Add => format!("{element} += {value};"),
                AtomicOp::Sub => format!("{element} -= {value};"),
                AtomicOp::Min if float => format!("{element} = std::fmin({element}, {value});"),
                AtomicOp::Max if float => format!("{element} = std::fmax({element}, {value});"),
                AtomicOp::Min => format!("{element} = std::min({element}, {value});"),
                AtomicOp::Max => format!("{element} = std::max({element}, {value});"),
                AtomicOp::And => format!("{element} &= {value};"),
                AtomicOp::Or => format!("{element} |= {value};"),
                AtomicOp::Xor => format!("{element} ^= {value};"),
            };
        }
        let name = match update {
            AtomicOp::Sub if float => return format!("atomicAdd(&{}[{index}], -({value}));", array.name),
            AtomicOp::Add => "atomicAdd",
            AtomicOp::Sub => "atomicSub",
            AtomicOp::Min => "atomicMin",
            AtomicOp::Max => "atomicMax",
            AtomicOp::And => "atomicAnd",
            AtomicOp::Or => "atomicOr",
            AtomicOp::Xor => "atomicXor",
        };
        format!("{name}(&{}[{index}], {value});", array.name)
    }
}
