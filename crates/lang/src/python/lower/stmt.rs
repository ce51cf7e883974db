//! Lowering of statements; assignments are in `assign.rs`, branches and loops in `control.rs`.

use bornite_ir::{Stmt as Ir, Value};
use ruff_python_ast::{Expr, Stmt, StmtReturn};
use ruff_text_size::Ranged;

use super::names::{LoopKind, ReturnMode};
use super::value::{PyValue, Rvalue};
use super::{ErrorReported, Lower, LowerResult};
use crate::python::const_eval::{ConstValue, Evaluator};
use crate::python::program::FuncId;
use crate::python::types::{Pattern, Ty};

impl<'p> Lower<'p> {
    pub(super) fn body(&mut self, body: &'p [Stmt]) -> LowerResult<bool> {
        self.thread_indices(1);
        self.stmts(body)
    }

    /// Lowers statements. Returns true if the code after them is unreachable.
    pub(super) fn stmts(&mut self, block: &'p [Stmt]) -> LowerResult<bool> {
        let mut failed = false;
        for stmt in block {
            self.w.count_statement();
            if self.w.is_full() {
                if self.errors.is_empty() {
                    self.report(
                        stmt,
                        "the kernel is too large".into(),
                        "after unrolling loops and inlining calls",
                        Some("use fewer iterations in constant loops, or bounds known only at run time".into()),
                    );
                }
                return Err(ErrorReported);
            }
            let at = stmt.range();
            self.frame().current_range = at;
            let line = match self.frames.iter().find(|frame| !frame.prelude) {
                Some(frame) if frame.func.file == self.frames[0].func.file => {
                    self.program.files[frame.func.file].source.line(self.current_line_range().start().to_u32())
                }
                _ => 0,
            };
            self.w.b.source_line(line);
            match self.stmt(stmt) {
                Ok(false) => {}
                Ok(true) => return if failed { Err(ErrorReported) } else { Ok(true) },
                Err(ErrorReported) => {
                    failed = true;
                    self.mark_broken(stmt);
                }
            }
        }
        if failed { Err(ErrorReported) } else { Ok(false) }
    }

    /// The innermost statement in the file of the kernel.
    fn current_line_range(&self) -> ruff_text_size::TextRange {
        let file = self.frames[0].func.file;
        let own = self.frames.iter().rev().find(|frame| !frame.prelude && frame.func.file == file);
        own.map_or(self.frames[0].current_range, |frame| frame.current_range)
    }

    fn stmt(&mut self, stmt: &'p Stmt) -> LowerResult<bool> {
        match stmt {
            Stmt::Assign(assign) => self.assign(assign).map(|()| false),
            Stmt::AugAssign(assign) => self.augmented_assign(assign).map(|()| false),
            Stmt::If(branch) => self.branch(branch),
            Stmt::For(each) => self.for_loop(each).map(|()| false),
            Stmt::While(while_stmt) => self.while_loop(while_stmt).map(|()| false),
            Stmt::Break(_) => self.lower_jump(stmt, true),
            Stmt::Continue(_) => self.lower_jump(stmt, false),
            Stmt::Return(return_stmt) => self.lower_return(return_stmt),
            Stmt::Expr(expr) => match expr.value.as_ref() {
                Expr::StringLiteral(_) => Ok(false),
                Expr::Call(_) => self.eval(&expr.value).map(|_| false),
                other => {
                    // Evaluated for its errors only.
                    self.eval(other)?;
                    Ok(false)
                }
            },
            Stmt::Pass(_) => Ok(false),
            Stmt::Assert(assert) => {
                let truth = self.condition(&assert.test)?;
                let failed = self.op(bornite_ir::Op::Not, &[truth]);
                let line = self.source().line(stmt.range().start().to_u32());
                self.w.b.open_block();
                self.w.b.print(format!("assertion failed in line {line}"), &[]);
                let then = self.w.b.close_block();
                self.w.stmt(Ir::If { condition: failed, then, otherwise: vec![] });
                Ok(false)
            }
            other => {
                let (what, hint) = named(other);
                self.fail(other, format!("{what} is not supported in kernels"), "unsupported syntax", hint)
            }
        }
    }

    /// `break` or `continue`.
    fn lower_jump(&mut self, at: &'p Stmt, breaks: bool) -> LowerResult<bool> {
        let Some(kind) = self.frame().loops.last().copied() else {
            let keyword = if breaks { "break" } else { "continue" };
            return self.fail(at, format!("'{keyword}' outside a loop"), "", None);
        };
        match (kind, breaks) {
            (LoopKind::IrLoop, true) | (LoopKind::UnrolledIteration, false) => self.w.stmt(Ir::Break),
            (LoopKind::IrLoop, false) => self.w.stmt(Ir::Continue),
            // Loops with `break` are not unrolled.
            (LoopKind::UnrolledIteration, true) => {
                return self.fail(at, "'break' is not supported in an unrolled loop".into(), "", None);
            }
        }
        Ok(true)
    }

    fn lower_return(&mut self, return_stmt: &'p StmtReturn) -> LowerResult<bool> {
        if matches!(self.frame().return_mode, ReturnMode::Kernel) {
            return match &return_stmt.value {
                Some(value) if !matches!(value.as_ref(), Expr::NoneLiteral(_)) => self.fail(
                    value.as_ref(),
                    "a kernel cannot return a value".into(),
                    "",
                    Some("store it in an array".into()),
                ),
                _ => {
                    self.w.stmt(Ir::Return(None));
                    Ok(true)
                }
            };
        }
        let vals = self.returned(return_stmt)?;
        if let ReturnMode::SingleReturn(result) = &mut self.frame().return_mode {
            *result = Some(vals);
            return Ok(true);
        }
        let rvalues = self.checked_return_values(vals, return_stmt)?;
        let types: Vec<Ty> = rvalues.iter().map(|rvalue| rvalue.ty).collect();
        match self.frame().return_mode.clone() {
            ReturnMode::Function(_) => {
                let id = self.pack(&rvalues, return_stmt)?;
                self.w.stmt(Ir::Return(Some(id)));
            }
            ReturnMode::Inline { results, returned, .. } => {
                let results = match results {
                    Some(found) => found,
                    None => {
                        let locals = types.iter().map(|ty| self.zero_variable("result", *ty, return_stmt));
                        let locals = locals.collect::<LowerResult<Vec<_>>>()?;
                        if let ReturnMode::Inline { results, .. } = &mut self.frame().return_mode {
                            *results = Some(locals.clone());
                        }
                        locals
                    }
                };
                for (local, rvalue) in results.iter().zip(&rvalues) {
                    self.w.b.assign(*local, rvalue.id);
                }
                if let Some(flag) = returned {
                    let yes = self.w.constant(Value::int(bornite_ir::Scalar::Bool, 1));
                    self.w.b.assign(flag, yes);
                }
                self.w.stmt(Ir::Break);
            }
            ReturnMode::Kernel | ReturnMode::SingleReturn(_) => {}
        }
        Ok(true)
    }

    /// Values to return, with the types of other returns. An IR function also returns the
    /// parameters that are passed by reference.
    fn checked_return_values(&mut self, vals: Vec<PyValue>, return_stmt: &StmtReturn) -> LowerResult<Vec<Rvalue>> {
        let mut rvalues = vec![];
        for val in vals {
            rvalues.push(self.value(val, return_stmt)?);
        }
        if matches!(self.frame().return_mode, ReturnMode::Function(_)) {
            rvalues.extend(self.ref_param_values(return_stmt)?);
        }
        let types: Vec<Ty> = rvalues.iter().map(|rvalue| rvalue.ty).collect();
        self.check_returned(&types, return_stmt)?;
        Ok(rvalues)
    }

    /// The values of the last return statement of an IR function.
    pub(super) fn return_values(&mut self, return_stmt: &'p StmtReturn) -> LowerResult<Vec<Rvalue>> {
        self.frame().current_range = return_stmt.range();
        let vals = self.returned(return_stmt)?;
        self.checked_return_values(vals, return_stmt)
    }

    /// The operands of a return statement.
    fn returned(&mut self, return_stmt: &'p StmtReturn) -> LowerResult<Vec<PyValue>> {
        let vals = match &return_stmt.value {
            None => vec![],
            Some(value) => match self.eval(value)? {
                PyValue::Tuple(all) => all,
                PyValue::Const(ConstValue::None) => vec![],
                one => vec![one],
            },
        };
        self.check_annotated(&vals, return_stmt)?;
        Ok(vals)
    }

    /// Checks returned values against the return annotation, if there is one.
    fn check_annotated(&mut self, vals: &[PyValue], return_stmt: &StmtReturn) -> LowerResult {
        let (func, FuncId { prelude, closure, .. }) = (self.frame().func, self.frame().id);
        let Some(returns) = func.def.returns.as_deref().filter(|_| !prelude) else { return Ok(()) };
        let evaluator = Evaluator { closure, ..Evaluator::new(self.program, false, func.scope) };
        let annotated = match evaluator.annotation(returns) {
            Ok(ConstValue::Type(Pattern::Tuple(all))) => all,
            Ok(ConstValue::Type(one)) => vec![one],
            Ok(ConstValue::None) => vec![],
            _ => return Ok(()),
        };
        let types: Option<Vec<Ty>> = (vals.iter())
            .map(|val| match val {
                PyValue::Rvalue(rvalue) => Some(rvalue.ty),
                PyValue::Element(element) => Some(element.ty()),
                _ => None,
            })
            .collect();
        // Arrays and other objects are checked where they are used.
        let Some(types) = types else { return Ok(()) };
        let matches = |(pattern, ty): (&Pattern, &Ty)| pattern.exact().is_none_or(|exact| exact == *ty);
        if annotated.len() == types.len() && annotated.iter().zip(&types).all(matches) {
            return Ok(());
        }
        let names: Vec<String> = types.iter().map(|ty| self.type_name(*ty)).collect();
        let what = format!("the function returns ({}), which does not match its return annotation", names.join(", "));
        self.fail(
            return_stmt,
            what,
            "mismatched type",
            Some("convert the value, or change the annotation after '->'".into()),
        )
    }

    /// Checks that all returns of a function have the same types.
    fn check_returned(&mut self, types: &[Ty], return_stmt: &StmtReturn) -> LowerResult {
        let before = match &mut self.frame().return_mode {
            ReturnMode::Function(found) | ReturnMode::Inline { types: found, .. } => {
                if found.is_none() {
                    *found = Some(types.to_vec());
                }
                found.clone().unwrap_or_default()
            }
            _ => return Ok(()),
        };
        if before == types {
            return Ok(());
        }
        let names = |me: &Self, all: &[Ty]| all.iter().map(|ty| me.type_name(*ty)).collect::<Vec<_>>().join(", ");
        let (before, now) = (names(self, &before), names(self, types));
        self.fail(return_stmt, format!("inconsistent return types: ({before}) elsewhere, ({now}) here"), "", None)
    }

    /// Packs several values into one.
    pub(super) fn pack(&mut self, rvalues: &[Rvalue], at: &impl Ranged) -> LowerResult<bornite_ir::ExprId> {
        if let [one] = rvalues {
            return Ok(one.id);
        }
        let types: Vec<Ty> = rvalues.iter().map(|rvalue| rvalue.ty).collect();
        let ty = self.packed_type(&types, at)?;
        let ids: Vec<_> = rvalues.iter().map(|rvalue| rvalue.id).collect();
        Ok(self.w.b.construct(ty, &ids))
    }
}

/// A description of an unsupported statement, and a hint.
fn named(stmt: &Stmt) -> (&'static str, Option<String>) {
    let hint = |text: &str| Some(text.to_owned());
    match stmt {
        Stmt::AnnAssign(_) => ("an annotated assignment", hint("write 'x = float(1.0)' instead of 'x: float = 1.0'")),
        Stmt::FunctionDef(_) => ("a nested function", hint("move it out and decorate it with @wp.func")),
        Stmt::ClassDef(_) => ("a class definition", None),
        Stmt::With(_) => ("'with'", None),
        Stmt::Try(_) | Stmt::Raise(_) => ("exception handling", None),
        Stmt::Delete(_) => ("'del'", None),
        Stmt::Global(_) | Stmt::Nonlocal(_) => ("'global' or 'nonlocal'", hint("pass the value as a parameter")),
        Stmt::Import(_) | Stmt::ImportFrom(_) => ("an import", hint("import at the top of the file")),
        Stmt::Match(_) => ("'match'", hint("use if and elif")),
        _ => ("this statement", None),
    }
}
