//! Excerpts: a kernel with the statements of its file that it depends on, the operations in them,
//! and the number of indices that the kernel takes from `wp.tid()`.
//!
//! Dependencies are found by name. A dependency of another kind (through a string, say) is missed:
//! to be sure, lower the kernel of the excerpt and compare.

use std::collections::{BTreeSet, HashSet};

use ruff_python_ast::visitor::{Visitor, walk_body, walk_expr, walk_stmt};
use ruff_python_ast::{CmpOp, Expr, ExprContext, Operator, Stmt, StmtFunctionDef, UnaryOp};
use ruff_text_size::{Ranged, TextRange};

use super::File;
use super::const_eval::{ConstValue, Evaluator};
use super::program::{Func, MUTATING_METHODS, Program};

/// Number of indices that each `wp.tid()` call of a kernel returns, in source order.
pub(crate) fn tid_counts(program: &Program<'_>, func: &Func<'_>) -> Vec<usize> {
    let evaluator = Evaluator::new(program, false, func.scope);
    let is_tid = |expr: &Expr| match expr {
        Expr::Call(call) => matches!(evaluator.eval(&call.func), Ok(ConstValue::Builtin(name)) if name == "tid"),
        _ => false,
    };
    struct TidCalls<'f>(&'f dyn Fn(&Expr) -> bool, Vec<usize>);
    impl<'a> Visitor<'a> for TidCalls<'_> {
        fn visit_stmt(&mut self, stmt: &'a Stmt) {
            match stmt {
                Stmt::Assign(assign) if (self.0)(&assign.value) => {
                    let names = assign.targets.first().and_then(|target| target.as_tuple_expr());
                    self.1.push(names.map_or(1, |names| names.elts.len()));
                }
                _ => walk_stmt(self, stmt),
            }
        }

        fn visit_expr(&mut self, expr: &'a Expr) {
            if (self.0)(expr) {
                self.1.push(1);
            }
            walk_expr(self, expr);
        }
    }
    let mut calls = TidCalls(&is_tid, vec![]);
    walk_body(&mut calls, &func.def.body);
    calls.1
}

/// The docstring of a function without indentation; empty if there is none.
pub(crate) fn docstring(def: &StmtFunctionDef) -> String {
    let Some(Stmt::Expr(first)) = def.body.first() else { return String::new() };
    let Expr::StringLiteral(text) = first.value.as_ref() else { return String::new() };
    let text = text.value.to_str();
    let rest = || text.lines().skip(1).filter(|line| !line.trim().is_empty());
    let indent = rest().map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    let lines = text.lines().enumerate().map(|(n, line)| match n {
        0 => line.trim(),
        _ => line.get(indent..).unwrap_or_default().trim_end(),
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// A kernel and the statements it depends on.
pub(crate) struct Excerpt<'a> {
    program: &'a Program<'a>,
    file: &'a File,
    /// Statements of the excerpt, in file order.
    needed: Vec<&'a Stmt>,
}

impl<'a> Excerpt<'a> {
    pub fn new(program: &'a Program<'a>, kernel: &Func<'a>) -> Excerpt<'a> {
        let file = &program.files[kernel.file];
        let own = kernel.def.range();
        let is_kernel =
            |stmt: &Stmt| program.kernels.iter().any(|&n| program.functions[n as usize].def.range() == stmt.range());
        let mut taken = vec![false; file.suite.len()];
        let mut names: HashSet<&str> = HashSet::new();
        loop {
            let before = taken.iter().filter(|taken| **taken).count();
            for (stmt, taken) in file.suite.iter().zip(&mut taken).filter(|(_, taken)| !**taken) {
                let is_own = stmt.range().contains_range(own);
                // A kernel does not depend on other kernels.
                let defines_needed =
                    || !is_kernel(stmt) && defined_names(stmt).iter().any(|name| *name == "*" || names.contains(name));
                if is_own || defines_needed() {
                    *taken = true;
                    names.extend(read_names(stmt));
                }
            }
            if taken.iter().filter(|taken| **taken).count() == before {
                break;
            }
        }
        let needed = file.suite.iter().zip(taken).filter(|(_, taken)| *taken).map(|(stmt, _)| stmt).collect();
        Excerpt { program, file, needed }
    }

    /// Source of the statements, with the comments directly above them.
    pub fn text(&self) -> String {
        let source = &self.file.source.text;
        let mut text = String::new();
        let mut was_block = false;
        for stmt in &self.needed {
            let is_block = matches!(stmt, Stmt::FunctionDef(_) | Stmt::ClassDef(_));
            if !text.is_empty() && (is_block || was_block) {
                text += "\n\n";
            }
            was_block = is_block;
            text += source[with_comments(source, stmt.range())].trim_end();
            text.push('\n');
        }
        text.replace("\r\n", "\n")
    }

    /// Names of the operators and builtins that the kernel and its functions use. A call of another
    /// function is a `call`, a type conversion a `cast`.
    pub fn operations(&self, kernel: &Func<'a>) -> BTreeSet<String> {
        let within = |func: &&Func<'a>| {
            func.file == kernel.file && self.needed.iter().any(|stmt| stmt.range().contains_range(func.def.range()))
        };
        let is_other_kernel = |func: &&Func<'a>| {
            let mut kernels = self.program.kernels.iter().map(|&n| self.program.functions[n as usize].def.range());
            func.def.range() != kernel.def.range() && kernels.any(|range| range == func.def.range())
        };
        let mut all = BTreeSet::new();
        for func in self.program.functions.iter().filter(within).filter(|func| !is_other_kernel(func)) {
            let evaluator = Evaluator::new(self.program, false, func.scope);
            let mut operations = Operations { evaluator, all: BTreeSet::new() };
            walk_body(&mut operations, &func.def.body);
            all.extend(operations.all);
        }
        all
    }
}

/// The range of a statement extended by the comment lines directly above it and the comment after
/// it.
fn with_comments(source: &str, range: TextRange) -> std::ops::Range<usize> {
    let (mut start, mut end) = (range.start().to_usize(), range.end().to_usize());
    while source[..start].ends_with('\n') {
        let above = source[..start - 1].rfind('\n').map_or(0, |n| n + 1);
        if !source[above..start].starts_with('#') {
            break;
        }
        start = above;
    }
    let rest = source[end..].lines().next().unwrap_or_default();
    if rest.trim_start().starts_with('#') {
        end += rest.len();
    }
    start..end
}

/// Names that a statement defines or modifies; `*` for `from __future__` imports.
fn defined_names(stmt: &Stmt) -> Vec<&str> {
    fn target<'a>(expr: &'a Expr, all: &mut Vec<&'a str>) {
        match expr {
            Expr::Name(name) => all.push(name.id.as_str()),
            Expr::Attribute(part) => target(&part.value, all),
            Expr::Subscript(part) => target(&part.value, all),
            Expr::Starred(rest) => target(&rest.value, all),
            Expr::Tuple(parts) => parts.elts.iter().for_each(|part| target(part, all)),
            Expr::List(parts) => parts.elts.iter().for_each(|part| target(part, all)),
            _ => {}
        }
    }
    struct Names<'a>(Vec<&'a str>);
    impl<'a> Visitor<'a> for Names<'a> {
        fn visit_stmt(&mut self, stmt: &'a Stmt) {
            match stmt {
                Stmt::FunctionDef(def) => self.0.push(def.name.as_str()),
                Stmt::ClassDef(class) => self.0.push(class.name.as_str()),
                Stmt::Assign(assign) => assign.targets.iter().for_each(|one| target(one, &mut self.0)),
                Stmt::AnnAssign(assign) => target(&assign.target, &mut self.0),
                Stmt::AugAssign(more) => target(&more.target, &mut self.0),
                Stmt::Import(import) => {
                    let top = |alias: &'a ruff_python_ast::Alias| alias.name.as_str().split('.').next();
                    let name = |alias: &'a ruff_python_ast::Alias| alias.asname.as_ref().map(|name| name.as_str());
                    self.0.extend(import.names.iter().filter_map(|alias| name(alias).or(top(alias))));
                }
                Stmt::ImportFrom(import) if import.module.as_ref().is_some_and(|of| of.as_str() == "__future__") => {
                    self.0.push("*");
                }
                Stmt::ImportFrom(import) => {
                    self.0
                        .extend(import.names.iter().map(|alias| alias.asname.as_ref().unwrap_or(&alias.name).as_str()));
                }
                Stmt::Expr(alone) => {
                    if let Expr::Call(call) = alone.value.as_ref()
                        && let Expr::Attribute(method) = call.func.as_ref()
                        && MUTATING_METHODS.contains(&method.attr.as_str())
                    {
                        target(&method.value, &mut self.0);
                    }
                }
                Stmt::For(each) => {
                    target(&each.target, &mut self.0);
                    walk_stmt(self, stmt);
                }
                _ => walk_stmt(self, stmt),
            }
        }
    }
    let mut names = Names(vec![]);
    names.visit_stmt(stmt);
    names.0
}

/// Names that a statement reads, without the local variables of a function.
fn read_names(stmt: &Stmt) -> HashSet<&str> {
    #[derive(Default)]
    struct Names<'a> {
        read: HashSet<&'a str>,
        local: HashSet<&'a str>,
    }
    impl<'a> Visitor<'a> for Names<'a> {
        fn visit_expr(&mut self, expr: &'a Expr) {
            if let Expr::Name(name) = expr {
                let all = if name.ctx == ExprContext::Load { &mut self.read } else { &mut self.local };
                all.insert(name.id.as_str());
            }
            walk_expr(self, expr);
        }
    }
    let mut head = Names::default();
    let Stmt::FunctionDef(def) = stmt else {
        head.visit_stmt(stmt);
        return head.read;
    };
    def.decorator_list.iter().for_each(|decorator| head.visit_expr(&decorator.expression));
    head.visit_parameters(&def.parameters);
    def.returns.iter().for_each(|returns| head.visit_expr(returns));
    let mut body = Names::default();
    walk_body(&mut body, &def.body);
    body.local.extend(def.parameters.iter_non_variadic_params().map(|parameter| parameter.name().as_str()));
    head.read.extend(body.read.difference(&body.local));
    head.read
}

struct Operations<'p> {
    evaluator: Evaluator<'p, 'static>,
    all: BTreeSet<String>,
}

impl Operations<'_> {
    fn add(&mut self, name: &str) {
        if !self.all.contains(name) {
            self.all.insert(name.to_owned());
        }
    }
}

fn operator(op: Operator) -> &'static str {
    match op {
        Operator::Add => "add",
        Operator::Sub => "sub",
        Operator::Mult => "mul",
        Operator::MatMult => "matmul",
        Operator::Div => "div",
        Operator::Mod => "mod",
        Operator::Pow => "pow",
        Operator::LShift => "shift_left",
        Operator::RShift => "shift_right",
        Operator::BitOr => "bit_or",
        Operator::BitXor => "bit_xor",
        Operator::BitAnd => "bit_and",
        Operator::FloorDiv => "floordiv",
    }
}

impl<'a> Visitor<'a> for Operations<'_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::AugAssign(more) => self.add(operator(more.op)),
            Stmt::If(_) => self.add("if"),
            Stmt::For(_) => self.add("for"),
            Stmt::While(_) => self.add("while"),
            _ => {}
        }
        walk_stmt(self, stmt);
    }

    fn visit_annotation(&mut self, _: &'a Expr) {}

    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::BinOp(binary) => self.add(operator(binary.op)),
            Expr::BoolOp(_) => self.add("logical"),
            Expr::If(_) => self.add("where"),
            Expr::UnaryOp(unary) => match unary.op {
                UnaryOp::USub if !unary.operand.is_number_literal_expr() => self.add("neg"),
                UnaryOp::Not | UnaryOp::Invert => self.add("not"),
                _ => {}
            },
            Expr::Compare(compare) => {
                for op in &compare.ops {
                    self.add(if matches!(op, CmpOp::Eq | CmpOp::NotEq) { "equal" } else { "compare" });
                }
            }
            Expr::Call(call) => match self.evaluator.eval(&call.func) {
                // Its argument is evaluated at compile time.
                Ok(ConstValue::Builtin(name)) if name == "static" => return,
                Ok(ConstValue::Builtin(name)) if name != "tid" => self.add(&name),
                Ok(ConstValue::Functions(_)) => self.add("call"),
                Ok(ConstValue::Type(pattern)) if pattern.exact().is_some_and(|ty| ty.scalar().is_some()) => {
                    self.add("cast")
                }
                Ok(ConstValue::PythonBuiltin(name) | ConstValue::PlainFunction(name, ..))
                    if !matches!(name.as_str(), "range" | "len") =>
                {
                    self.add(&name)
                }
                _ => {}
            },
            _ => {}
        }
        walk_expr(self, expr);
    }
}
