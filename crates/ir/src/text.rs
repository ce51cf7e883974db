//! The text form of a kernel, for people, golden tests and datasets.

use std::fmt;

use crate::{Access, Expr, ExprId, Kernel, LocalId, ParamId, Stmt};

/// Version of the text form, in its first line.
pub const VERSION: u32 = 1;

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "bornite-ir {VERSION}")?;
        writeln!(f, "kernel {} parallel_for {} index {}", self.name, self.launch.count(), self.index)?;
        for p in &self.params {
            let access = if p.access == Access::Read { "read" } else { "write" };
            writeln!(f, "  param {}: {access} {}[{}]", p.name, p.scalar, p.len)?;
        }
        for (n, local) in self.locals.iter().enumerate() {
            writeln!(f, "  var ${n} {}: {} = {}", local.name, local.init.scalar(), local.init)?;
        }
        writeln!(f, "{{")?;
        self.write_block(f, &self.body, 1)?;
        writeln!(f, "}}")
    }
}

impl Kernel {
    fn write_block(&self, f: &mut fmt::Formatter<'_>, block: &[Stmt], depth: usize) -> fmt::Result {
        let pad = "  ".repeat(depth);
        for stmt in block {
            match stmt {
                Stmt::Let(id) => writeln!(f, "{pad}%{}: {} = {}", id.0, self.scalar(*id), Right(self, *id))?,
                Stmt::Assign(local, value) => writeln!(f, "{pad}{} = {}", Var(*local), Operand(self, *value))?,
                Stmt::Store { view, index, value } => {
                    writeln!(f, "{pad}{} = {}", Element(self, *view, *index), Operand(self, *value))?;
                }
                Stmt::For { counter, end, body } => {
                    writeln!(f, "{pad}for {} below {} {{", Var(*counter), Operand(self, *end))?;
                    self.write_block(f, body, depth + 1)?;
                    writeln!(f, "{pad}}}")?;
                }
                Stmt::If { condition, then, otherwise } => {
                    writeln!(f, "{pad}if {} {{", Operand(self, *condition))?;
                    self.write_block(f, then, depth + 1)?;
                    if !otherwise.is_empty() {
                        writeln!(f, "{pad}}} else {{")?;
                        self.write_block(f, otherwise, depth + 1)?;
                    }
                    writeln!(f, "{pad}}}")?;
                }
            }
        }
        Ok(())
    }
}

/// A variable.
struct Var(LocalId);

impl fmt::Display for Var {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}", self.0.0)
    }
}

/// An operand: a constant or the index in place, anything else by number.
struct Operand<'a>(&'a Kernel, ExprId);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.expr(self.1) {
            Expr::Const(value) => write!(f, "{value}"),
            Expr::Index => f.write_str("index"),
            _ => write!(f, "%{}", self.1.0),
        }
    }
}

/// An element of a view.
struct Element<'a>(&'a Kernel, ParamId, ExprId);

impl fmt::Display for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.0.param(self.1).name, Operand(self.0, self.2))
    }
}

/// The right-hand side of a `Let`.
struct Right<'a>(&'a Kernel, ExprId);

impl fmt::Display for Right<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Right(kernel, id) = *self;
        match kernel.expr(id) {
            Expr::Const(_) | Expr::Index => write!(f, "{}", Operand(kernel, id)),
            Expr::Read(local) => write!(f, "{}", Var(*local)),
            Expr::Op(op, args) => {
                write!(f, "{}(", op.row().name)?;
                for (n, arg) in args.iter().enumerate() {
                    write!(f, "{}{}", if n > 0 { ", " } else { "" }, Operand(kernel, *arg))?;
                }
                f.write_str(")")
            }
            Expr::Cast(to, from) => write!(f, "cast {to} {}", Operand(kernel, *from)),
            Expr::Bitcast(to, from) => write!(f, "bitcast {to} {}", Operand(kernel, *from)),
            Expr::Load { view, index } => write!(f, "{}", Element(kernel, *view, *index)),
        }
    }
}
