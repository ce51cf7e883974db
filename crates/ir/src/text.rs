//! The text form of a kernel, for people, golden tests and datasets.

use std::fmt;

use crate::{Access, Axis, Builtin, Expr, ExprId, Kernel, Launch, LocalId, Stmt, View};

/// Version of the text form, in its first line.
pub const VERSION: u32 = 1;

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "bornite-ir {VERSION}")?;
        match self.launch {
            Launch::ParallelFor { count } => {
                writeln!(f, "kernel {} parallel_for {count} index {}", self.name, self.index)?
            }
            Launch::Blocks { grid, block } => {
                writeln!(f, "kernel {} grid {grid:?} block {block:?} index {}", self.name, self.index)?;
            }
        }
        for p in &self.params {
            let access = match p.access {
                Access::Read => "read",
                Access::Write => "write",
                Access::ReadWrite => "update",
            };
            writeln!(f, "  param {}: {access} {}[{}]", p.name, p.scalar, p.len)?;
        }
        for s in &self.shared {
            writeln!(f, "  shared {}: {}[{}]", s.name, s.scalar, s.len)?;
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
                Stmt::Loop { body } => {
                    writeln!(f, "{pad}loop {{")?;
                    self.write_block(f, body, depth + 1)?;
                    writeln!(f, "{pad}}}")?;
                }
                Stmt::Break => writeln!(f, "{pad}break")?,
                Stmt::Continue => writeln!(f, "{pad}continue")?,
                Stmt::Return => writeln!(f, "{pad}return")?,
                Stmt::Barrier => writeln!(f, "{pad}barrier")?,
                Stmt::WarpBarrier => writeln!(f, "{pad}warp_barrier")?,
                Stmt::Fence => writeln!(f, "{pad}fence")?,
            }
        }
        Ok(())
    }

    /// The line of the text form that a statement of this kernel stands in, from 1.
    pub fn line_of(&self, stmt: &Stmt) -> Option<usize> {
        fn find(block: &[Stmt], wanted: &Stmt, line: &mut usize) -> bool {
            for stmt in block {
                *line += 1;
                if std::ptr::eq(stmt, wanted) {
                    return true;
                }
                let found = match stmt {
                    Stmt::For { body, .. } | Stmt::Loop { body } => find(body, wanted, line),
                    Stmt::If { then, otherwise, .. } => {
                        find(then, wanted, line) || {
                            *line += !otherwise.is_empty() as usize;
                            find(otherwise, wanted, line)
                        }
                    }
                    _ => continue,
                };
                if found {
                    return true;
                }
                *line += 1; // the closing brace
            }
            false
        }
        // Version, kernel, views and variables, the opening brace.
        let mut line = 3 + self.params.len() + self.shared.len() + self.locals.len();
        find(&self.body, stmt, &mut line).then_some(line)
    }
}

impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, axis) = match self {
            Builtin::Thread(axis) => ("thread", axis),
            Builtin::Block(axis) => ("block", axis),
            Builtin::BlockSize(axis) => ("block_size", axis),
            Builtin::GridSize(axis) => ("grid_size", axis),
        };
        let axis = match axis {
            Axis::X => "x",
            Axis::Y => "y",
            Axis::Z => "z",
        };
        write!(f, "{name}.{axis}")
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
            Expr::Builtin(builtin) => write!(f, "{builtin}"),
            _ => write!(f, "%{}", self.1.0),
        }
    }
}

/// An element of a view.
struct Element<'a>(&'a Kernel, View, ExprId);

impl fmt::Display for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.0.view(self.1).0, Operand(self.0, self.2))
    }
}

/// The right-hand side of a `Let`.
struct Right<'a>(&'a Kernel, ExprId);

impl fmt::Display for Right<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Right(kernel, id) = *self;
        match kernel.expr(id) {
            Expr::Const(_) | Expr::Index | Expr::Builtin(_) => write!(f, "{}", Operand(kernel, id)),
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
            Expr::Atomic { atomic, view, index, value } => {
                let (name, value) = (atomic.name(), Operand(kernel, *value));
                write!(f, "atomic {name} {}, {value}", Element(kernel, *view, *index))
            }
            Expr::CompareExchange { view, index, expected, value } => {
                let (expected, value) = (Operand(kernel, *expected), Operand(kernel, *value));
                write!(f, "atomic compare_exchange {}, {expected}, {value}", Element(kernel, *view, *index))
            }
            Expr::Shuffle { shuffle, value, lane } => {
                write!(f, "shuffle {} {}, {}", shuffle.name(), Operand(kernel, *value), Operand(kernel, *lane))
            }
            Expr::Vote { vote, value } => write!(f, "vote {} {}", vote.name(), Operand(kernel, *value)),
        }
    }
}
