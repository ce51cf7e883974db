//! Statements.

use bornite_ir::{Stmt as Ir, Value};
use ruff_python_ast::{Expr, Stmt, StmtReturn};
use ruff_text_size::Ranged;

use super::names::{Back, Turn};
use super::value::{Run, Val};
use super::{Lower, Lowers, Noted};
use crate::python::fixed::{Evaluator, Fixed};
use crate::python::program::FuncId;
use crate::python::types::{Pattern, Ty};

impl<'p> Lower<'p> {
    pub(super) fn body(&mut self, body: &'p [Stmt]) -> Lowers<bool> {
        self.place(1);
        self.stmts(body)
    }

    /// Lowers statements; true if what follows them is never reached.
    pub(super) fn stmts(&mut self, block: &'p [Stmt]) -> Lowers<bool> {
        let mut failed = false;
        for stmt in block {
            self.w.count_statement();
            if self.w.is_full() {
                if self.errors.is_empty() {
                    self.note(
                        stmt,
                        "the kernel is too large".into(),
                        "with its loops and calls written out",
                        Some("use fewer turns of constant loops, or bounds that are known only at run time".into()),
                    );
                }
                return Err(Noted);
            }
            let at = stmt.range();
            self.frame().at = at;
            let line = match self.frames.iter().find(|frame| !frame.prelude) {
                Some(frame) if frame.func.file == self.frames[0].func.file => {
                    self.program.files[frame.func.file].source.line(self.line_place().start().to_u32())
                }
                _ => 0,
            };
            self.w.b.source_line(line);
            match self.stmt(stmt) {
                Ok(false) => {}
                Ok(true) => return if failed { Err(Noted) } else { Ok(true) },
                Err(Noted) => {
                    failed = true;
                    self.broken(stmt);
                }
            }
        }
        if failed { Err(Noted) } else { Ok(false) }
    }

    /// The innermost statement in the kernel's own file.
    fn line_place(&self) -> ruff_text_size::TextRange {
        let file = self.frames[0].func.file;
        let own = self.frames.iter().rev().find(|frame| !frame.prelude && frame.func.file == file);
        own.map_or(self.frames[0].at, |frame| frame.at)
    }

    fn stmt(&mut self, stmt: &'p Stmt) -> Lowers<bool> {
        match stmt {
            Stmt::Assign(assign) => self.assign(assign).map(|()| false),
            Stmt::AugAssign(assign) => self.augment(assign).map(|()| false),
            Stmt::If(branch) => self.branch(branch),
            Stmt::For(each) => self.for_loop(each).map(|()| false),
            Stmt::While(turn) => self.while_loop(turn).map(|()| false),
            Stmt::Break(_) => self.leave(stmt, true),
            Stmt::Continue(_) => self.leave(stmt, false),
            Stmt::Return(back) => self.give_back(back),
            Stmt::Expr(expr) => match expr.value.as_ref() {
                Expr::StringLiteral(_) => Ok(false),
                Expr::Call(_) => self.eval(&expr.value).map(|_| false),
                other => {
                    // Its parts are checked as they are anywhere.
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
                self.fail(other, format!("{what} is not supported in kernels"), "not in the dialect", hint)
            }
        }
    }

    /// `break` or `continue`.
    fn leave(&mut self, at: &'p Stmt, breaks: bool) -> Lowers<bool> {
        let Some(turn) = self.frame().loops.last().copied() else {
            return self.fail(at, "this is not in a loop".into(), "", None);
        };
        match (turn, breaks) {
            (Turn::Loop, true) | (Turn::Once, false) => self.w.stmt(Ir::Break),
            (Turn::Loop, false) => self.w.stmt(Ir::Continue),
            // Such loops are not written out.
            (Turn::Once, true) => return self.fail(at, "a loop that is written out cannot be left".into(), "", None),
        }
        Ok(true)
    }

    fn give_back(&mut self, back: &'p StmtReturn) -> Lowers<bool> {
        if matches!(self.frame().back, Back::Kernel) {
            return match &back.value {
                Some(value) if !matches!(value.as_ref(), Expr::NoneLiteral(_)) => self.fail(
                    value.as_ref(),
                    "a kernel returns nothing".into(),
                    "",
                    Some("store it in an array".into()),
                ),
                _ => {
                    self.w.stmt(Ir::Return(None));
                    Ok(true)
                }
            };
        }
        let vals = self.returned(back)?;
        if let Back::Straight(result) = &mut self.frame().back {
            *result = Some(vals);
            return Ok(true);
        }
        let runs = self.settled_returns(vals, back)?;
        let types: Vec<Ty> = runs.iter().map(|run| run.ty).collect();
        match self.frame().back.clone() {
            Back::Function(_) => {
                let id = self.packed(&runs, back)?;
                self.w.stmt(Ir::Return(Some(id)));
            }
            Back::Inline { results, returned, .. } => {
                let results = match results {
                    Some(found) => found,
                    None => {
                        let made = types.iter().map(|ty| self.zero_variable("result", *ty, back));
                        let made = made.collect::<Lowers<Vec<_>>>()?;
                        if let Back::Inline { results, .. } = &mut self.frame().back {
                            *results = Some(made.clone());
                        }
                        made
                    }
                };
                for (local, run) in results.iter().zip(&runs) {
                    self.w.b.assign(*local, run.id);
                }
                if let Some(flag) = returned {
                    let yes = self.w.constant(Value::int(bornite_ir::Scalar::Bool, 1));
                    self.w.b.assign(flag, yes);
                }
                self.w.stmt(Ir::Break);
            }
            Back::Kernel | Back::Straight(_) => {}
        }
        Ok(true)
    }

    /// Values to return, of the types of other returns; with the caller's variables, where it is a function of the IR.
    fn settled_returns(&mut self, vals: Vec<Val>, back: &StmtReturn) -> Lowers<Vec<Run>> {
        let mut runs = vec![];
        for val in vals {
            runs.push(self.value(val, back)?);
        }
        if matches!(self.frame().back, Back::Function(_)) {
            runs.extend(self.ref_values(back)?);
        }
        let types: Vec<Ty> = runs.iter().map(|run| run.ty).collect();
        self.check_returned(&types, back)?;
        Ok(runs)
    }

    /// What the last return of a function of the IR gives.
    pub(super) fn return_values(&mut self, back: &'p StmtReturn) -> Lowers<Vec<Run>> {
        self.frame().at = back.range();
        let vals = self.returned(back)?;
        self.settled_returns(vals, back)
    }

    /// What a return statement gives.
    fn returned(&mut self, back: &'p StmtReturn) -> Lowers<Vec<Val>> {
        let vals = match &back.value {
            None => vec![],
            Some(value) => match self.eval(value)? {
                Val::Tuple(all) => all,
                Val::Fixed(Fixed::None) => vec![],
                one => vec![one],
            },
        };
        self.check_annotated(&vals, back)?;
        Ok(vals)
    }

    /// A function gives what its annotation says, if it has one.
    fn check_annotated(&mut self, vals: &[Val], back: &StmtReturn) -> Lowers {
        let (func, FuncId { prelude, around, .. }) = (self.frame().func, self.frame().id);
        let Some(returns) = func.def.returns.as_deref().filter(|_| !prelude) else { return Ok(()) };
        let evaluator = Evaluator { around, ..Evaluator::new(self.program, false, func.scope) };
        let said = match evaluator.annotation(returns) {
            Ok(Fixed::Type(Pattern::Tuple(all))) => all,
            Ok(Fixed::Type(one)) => vec![one],
            Ok(Fixed::None) => vec![],
            _ => return Ok(()),
        };
        let types: Option<Vec<Ty>> = (vals.iter())
            .map(|val| match val {
                Val::Run(run) => Some(run.ty),
                Val::Element(element) => Some(element.ty()),
                _ => None,
            })
            .collect();
        // What has no type of a number is looked at where it is used.
        let Some(types) = types else { return Ok(()) };
        let fits = |(said, ty): (&Pattern, &Ty)| said.exact().is_none_or(|exact| exact == *ty);
        if said.len() == types.len() && said.iter().zip(&types).all(fits) {
            return Ok(());
        }
        let names: Vec<String> = types.iter().map(|ty| self.type_name(*ty)).collect();
        let what = format!("the function returns ({}), and its annotation says otherwise", names.join(", "));
        self.fail(back, what, "of another type", Some("convert it, or change what stands behind '->'".into()))
    }

    /// All returns of a function give the same types.
    fn check_returned(&mut self, types: &[Ty], back: &StmtReturn) -> Lowers {
        let before = match &mut self.frame().back {
            Back::Function(found) | Back::Inline { types: found, .. } => {
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
        self.fail(back, format!("the function returns ({before}) elsewhere and ({now}) here"), "", None)
    }

    /// Several values as one.
    pub(super) fn packed(&mut self, runs: &[Run], at: &impl Ranged) -> Lowers<bornite_ir::ExprId> {
        if let [one] = runs {
            return Ok(one.id);
        }
        let types: Vec<Ty> = runs.iter().map(|run| run.ty).collect();
        let ty = self.pack_type(&types, at)?;
        let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
        Ok(self.w.b.construct(ty, &ids))
    }
}

/// A statement in words, and what to do instead.
fn named(stmt: &Stmt) -> (&'static str, Option<String>) {
    let hint = |text: &str| Some(text.to_owned());
    match stmt {
        Stmt::AnnAssign(_) => ("an assignment with a type", hint("write 'x = float(1.0)' instead of 'x: float = 1.0'")),
        Stmt::FunctionDef(_) => ("a function within a kernel", hint("move it out and decorate it with @wp.func")),
        Stmt::ClassDef(_) => ("a class within a kernel", None),
        Stmt::With(_) => ("'with'", None),
        Stmt::Try(_) | Stmt::Raise(_) => ("an exception", None),
        Stmt::Delete(_) => ("'del'", None),
        Stmt::Global(_) | Stmt::Nonlocal(_) => ("'global' or 'nonlocal'", hint("pass the value as a parameter")),
        Stmt::Import(_) | Stmt::ImportFrom(_) => ("an import", hint("import at the top of the file")),
        Stmt::Match(_) => ("'match'", hint("use if and elif")),
        _ => ("this statement", None),
    }
}
