//! Prints the text form of a kernel, for debugging, golden tests and datasets. `parse.rs` reads it
//! back.

use std::fmt;

use crate::{
    Access, Args, Axis, Builtin, Check, Code, Dim, Expr, ExprId, Extent, Field, Kernel, LaunchMode, LocalId, Stmt,
    Value, View,
};
use crate::{ValueParam, contiguous};

/// Version of the text form, printed in its first line.
pub const TEXT_FORMAT_VERSION: u32 = 3;

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "bornite-ir {TEXT_FORMAT_VERSION}")?;
        for found in &self.structs {
            let align = |align: u32| if align > 1 { format!(" align {align}") } else { String::new() };
            let field = |f: &Field| format!("{}: {}{}", f.name, f.ty.name(&self.structs), align(f.align));
            let fields = found.fields.iter().map(field);
            writeln!(f, "struct {} {{ {} }}", found.name, fields.collect::<Vec<_>>().join(", "))?;
        }
        for function in &self.functions {
            let params = (function.params.iter()).map(|p| format!("{}: {}", p.name, p.ty.name(&self.structs)));
            let params = params.collect::<Vec<_>>().join(", ");
            writeln!(f, "function {}({params}): {}", function.name, function.result.name(&self.structs))?;
            Writer { kernel: self, code: &function.code, arguments: &function.params }.code(f)?;
        }
        write!(f, "kernel {} ", self.name)?;
        match self.launch {
            LaunchMode::ParallelFor { count } => write!(f, "parallel_for {}", ExtentText(self, count))?,
            LaunchMode::Blocks { grid, block } => write!(f, "grid {grid:?} block {block:?}")?,
        }
        writeln!(f, " index {}", self.index)?;
        for value in &self.values {
            writeln!(f, "  value {}: {}", value.name, value.ty.name(&self.structs))?;
        }
        for p in &self.params {
            let access = match p.access {
                Access::Read => "read",
                Access::Write => "write",
                Access::ReadWrite => "update",
            };
            writeln!(f, "  param {}: {access} {}{}", p.name, p.ty.name(&self.structs), DimsText(self, &p.dims))?;
        }
        for s in &self.shared {
            writeln!(f, "  shared {}: {}{}", s.name, s.ty.name(&self.structs), DimsText(self, &s.dims))?;
        }
        for array in &self.local_arrays {
            let (ty, dims) = (array.ty.name(&self.structs), DimsText(self, &array.dims));
            writeln!(f, "  local {}: {ty}{dims}", array.name)?;
        }
        Writer { kernel: self, code: &self.code, arguments: &self.values }.code(f)
    }
}

/// Displays an extent: a number, or `@` and the name of a value parameter.
struct ExtentText<'a>(&'a Kernel, Extent);

impl fmt::Display for ExtentText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Extent::Const(n) => write!(f, "{n}"),
            Extent::Value(n) => match self.0.values.get(n as usize) {
                Some(value) => write!(f, "@{}", value.name),
                None => write!(f, "@{n}"),
            },
        }
    }
}

/// Displays dimensions such as `[4, 5]`, with strides if they are not contiguous.
struct DimsText<'a>(&'a Kernel, &'a [Dim]);

impl fmt::Display for DimsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents: Vec<Extent> = self.1.iter().map(|dim| dim.extent).collect();
        let plain = contiguous(&extents) == self.1;
        f.write_str("[")?;
        for (n, dim) in self.1.iter().enumerate() {
            write!(f, "{}{}", if n > 0 { ", " } else { "" }, ExtentText(self.0, dim.extent))?;
            if !plain {
                write!(f, " by {}", ExtentText(self.0, dim.stride))?;
            }
        }
        f.write_str("]")
    }
}

impl Kernel {
    /// Returns the line of the text form, from 1, that contains a statement of this kernel.
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
        // Each function has a header line, its variables and two braces.
        let mut line = 1 + self.structs.len();
        for function in &self.functions {
            line += 2 + function.code.locals.len();
            if find(&function.code.body, stmt, &mut line) {
                return Some(line);
            }
            line += 1;
        }
        line += self.head_lines();
        find(&self.code.body, stmt, &mut line).then_some(line)
    }
}

impl Kernel {
    /// Returns the number of lines from the kernel's header to the opening brace of its code.
    fn head_lines(&self) -> usize {
        let arrays = self.params.len() + self.shared.len() + self.local_arrays.len();
        2 + self.values.len() + arrays + self.code.locals.len()
    }

    /// Returns the source line of each line of the text form, given the source lines of all
    /// statements without nested blocks, in order.
    pub(crate) fn source_lines(&self, functions: &[Vec<u32>], code: &[u32]) -> Vec<u32> {
        fn walk(block: &[Stmt], lines: &mut dyn Iterator<Item = u32>, out: &mut Vec<u32>) {
            for stmt in block {
                match stmt {
                    Stmt::For { body, .. } | Stmt::Loop { body } => {
                        out.push(0);
                        walk(body, lines, out);
                        out.push(0);
                    }
                    Stmt::If { then, otherwise, .. } => {
                        out.push(0);
                        walk(then, lines, out);
                        if !otherwise.is_empty() {
                            out.push(0);
                            walk(otherwise, lines, out);
                        }
                        out.push(0);
                    }
                    _ => out.push(lines.next().unwrap_or(0)),
                }
            }
        }
        let mut out = vec![0; 1 + self.structs.len()];
        for (function, lines) in self.functions.iter().zip(functions) {
            out.extend(std::iter::repeat_n(0, 2 + function.code.locals.len()));
            walk(&function.code.body, &mut lines.iter().copied(), &mut out);
            out.push(0);
        }
        out.extend(std::iter::repeat_n(0, self.head_lines()));
        walk(&self.code.body, &mut code.iter().copied(), &mut out);
        out.push(0);
        out
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

/// Prints code.
struct Writer<'a> {
    kernel: &'a Kernel,
    code: &'a Code,
    arguments: &'a [ValueParam],
}

impl<'a> Writer<'a> {
    /// Prints variables and statements.
    fn code(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, local) in self.code.locals.iter().enumerate() {
            write!(f, "  var ${n} {}: {} = ", local.name, local.ty.name(&self.kernel.structs))?;
            match &local.init[..] {
                [one] => writeln!(f, "{one}")?,
                all => writeln!(f, "{{{}}}", all.iter().map(Value::to_string).collect::<Vec<_>>().join(", "))?,
            }
        }
        writeln!(f, "{{")?;
        self.block(f, &self.code.body, 1)?;
        writeln!(f, "}}")
    }

    fn block(&self, f: &mut fmt::Formatter<'_>, block: &[Stmt], depth: usize) -> fmt::Result {
        let pad = "  ".repeat(depth);
        for stmt in block {
            f.write_str(&pad)?;
            match stmt {
                Stmt::Let(id) => {
                    let ty = self.code.ty(*id).name(&self.kernel.structs);
                    writeln!(f, "%{}: {ty} = {}", id.0, LetValue(self, *id))?;
                }
                Stmt::Assign(local, value) => writeln!(f, "{} = {}", Var(*local), Operand(self, *value))?,
                Stmt::Store { view, indices, value } => {
                    writeln!(f, "{} = {}", Element(self, *view, indices), Operand(self, *value))?;
                }
                Stmt::Declare(array) => {
                    writeln!(f, "declare {}", self.kernel.view((*array).into()).name)?;
                }
                Stmt::For { counter, end, body } => {
                    writeln!(f, "for {} below {} {{", Var(*counter), Operand(self, *end))?;
                    self.block(f, body, depth + 1)?;
                    writeln!(f, "{pad}}}")?;
                }
                Stmt::If { condition, then, otherwise } => {
                    writeln!(f, "if {} {{", Operand(self, *condition))?;
                    self.block(f, then, depth + 1)?;
                    if !otherwise.is_empty() {
                        writeln!(f, "{pad}}} else {{")?;
                        self.block(f, otherwise, depth + 1)?;
                    }
                    writeln!(f, "{pad}}}")?;
                }
                Stmt::Loop { body } => {
                    writeln!(f, "loop {{")?;
                    self.block(f, body, depth + 1)?;
                    writeln!(f, "{pad}}}")?;
                }
                Stmt::Break => writeln!(f, "break")?,
                Stmt::Continue => writeln!(f, "continue")?,
                Stmt::Return(None) => writeln!(f, "return")?,
                Stmt::Return(Some(value)) => writeln!(f, "return {}", Operand(self, *value))?,
                Stmt::Barrier => writeln!(f, "barrier")?,
                Stmt::WarpBarrier => writeln!(f, "warp_barrier")?,
                Stmt::Fence(scope) => writeln!(f, "fence {}", scope.name())?,
                Stmt::Check(Check::Assert { condition, message }) => {
                    writeln!(f, "claim \"{message}\", {}", Operand(self, *condition))?;
                }
                Stmt::Check(Check::InBounds { index, len, array }) => {
                    writeln!(f, "within \"{array}\", {}, {len}", Operand(self, *index))?;
                }
                Stmt::Print { format, args } if args.is_empty() => writeln!(f, "print \"{format}\"")?,
                Stmt::Print { format, args } => writeln!(f, "print \"{format}\", {}", List(self, args))?,
            }
        }
        Ok(())
    }
}

/// Displays a variable.
struct Var(LocalId);

impl fmt::Display for Var {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}", self.0.0)
    }
}

/// Displays an operand: leaves in place, other expressions by number.
struct Operand<'a>(&'a Writer<'a>, ExprId);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.code.expr(self.1) {
            Expr::Const(value) => write!(f, "{value}"),
            Expr::Index => f.write_str("index"),
            Expr::Builtin(builtin) => write!(f, "{builtin}"),
            Expr::Argument(n) => match self.0.arguments.get(*n as usize) {
                Some(argument) => write!(f, "@{}", argument.name),
                None => write!(f, "@{n}"),
            },
            _ => write!(f, "%{}", self.1.0),
        }
    }
}

/// Displays operands separated by commas.
struct List<'a>(&'a Writer<'a>, &'a [ExprId]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, id) in self.1.iter().enumerate() {
            write!(f, "{}{}", if n > 0 { ", " } else { "" }, Operand(self.0, *id))?;
        }
        Ok(())
    }
}

/// Displays an element access.
struct Element<'a>(&'a Writer<'a>, View, &'a Args);

impl fmt::Display for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.0.kernel.view(self.1).name, List(self.0, self.2))
    }
}

/// Displays the right-hand side of a `Let`.
struct LetValue<'a>(&'a Writer<'a>, ExprId);

impl fmt::Display for LetValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LetValue(w, id) = *self;
        match w.code.expr(id) {
            Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) => write!(f, "{}", Operand(w, id)),
            Expr::Read(local) => write!(f, "{}", Var(*local)),
            Expr::Op(op, args) => write!(f, "{}({})", op.row().name, List(w, args)),
            Expr::Algebra { op, component, args } if op.has_component() => {
                write!(f, "{}.{component}({})", op.row().name, List(w, args))
            }
            Expr::Algebra { op, args, .. } => write!(f, "{}({})", op.row().name, List(w, args)),
            Expr::Cast(to, from) => write!(f, "cast {to} {}", Operand(w, *from)),
            Expr::Bitcast(to, from) => write!(f, "bitcast {to} {}", Operand(w, *from)),
            Expr::Call(function, args) => {
                let name = w.kernel.functions.get(function.0 as usize).map_or("?", |function| &function.name);
                write!(f, "call {name}({})", List(w, args))
            }
            Expr::Load { view, indices, width: 1 } => write!(f, "{}", Element(w, *view, indices)),
            Expr::Load { view, indices, width } => write!(f, "wide {width} {}", Element(w, *view, indices)),
            Expr::Atomic { atomic, view, indices, value } => {
                write!(f, "atomic {} {}, {}", atomic.name(), Element(w, *view, indices), Operand(w, *value))
            }
            Expr::CompareExchange { view, indices, expected, value } => {
                let (expected, value) = (Operand(w, *expected), Operand(w, *value));
                write!(f, "atomic compare_exchange {}, {expected}, {value}", Element(w, *view, indices))
            }
            Expr::Shuffle { shuffle, value, lane, mask } => {
                write!(f, "shuffle {} {}, {}", shuffle.name(), Operand(w, *value), Operand(w, *lane))?;
                mask.map_or(Ok(()), |mask| write!(f, " mask {}", Operand(w, mask)))
            }
            Expr::Vote { vote, value, mask } => {
                write!(f, "vote {} {}", vote.name(), Operand(w, *value))?;
                mask.map_or(Ok(()), |mask| write!(f, " mask {}", Operand(w, mask)))
            }
        }
    }
}
