//! Statements: blocks, branches, returns. After an error in one statement, the next is lowered.

use bornite_ir::{LocalId, Op, Scalar, Stmt as IrStmt, Value};

use super::{Binding, CodeKind, LowerFailed, LowerResult, Lowering, ScopeKind};
use crate::SourceSpan;
use crate::cuda::ast::{Expr, Stmt, StmtKind};
use crate::lower::Tree;

/// Maximum nesting of an else-if chain in the IR; later arms go into a separate `if` after it.
const NESTED_ARMS: usize = 16;

/// An `if` of an else-if chain: its condition, statement and else branch.
type Arm<'m> = (&'m Expr, &'m Stmt, Option<&'m Stmt>);

/// Next `if` of a chain.
fn next_arm<'m>(otherwise: Option<&'m Stmt>) -> Option<Arm<'m>> {
    match &otherwise?.kind {
        StmtKind::If(condition, then, otherwise) => Some((condition, then, otherwise.as_deref())),
        _ => None,
    }
}

impl<'m> Lowering<'m> {
    /// Lowers statements in a new scope.
    pub(super) fn block(&mut self, stmts: &'m [Stmt]) -> LowerResult {
        let mark = self.scope.len();
        let done = self.sequence(stmts);
        self.scope.truncate(mark);
        done
    }

    /// Lowers statements in the current scope.
    pub(super) fn sequence(&mut self, stmts: &'m [Stmt]) -> LowerResult {
        let mut failed = false;
        let mut at = 0;
        while at < stmts.len() && self.errors.len() < super::MAX_ERRORS && !self.w.is_full() {
            if self.request.round_trip && at + 1 < stmts.len() {
                match self.printed_insert(&stmts[at], &stmts[at + 1]) {
                    Ok(true) => {
                        at += 2;
                        continue;
                    }
                    Ok(false) => {}
                    Err(_) => failed = true,
                }
            }
            self.cas_initial_read = super::cas_loop::initial_read(self.module, &stmts[at], stmts.get(at + 1));
            if self.deeper(stmts[at].span, |lower| lower.stmt(&stmts[at])).is_err() {
                failed = true;
                self.report_failure(stmts[at].span);
            }
            at += 1;
        }
        if self.w.is_full()
            && self.errors.is_empty()
            && let Some(stmt) = stmts.get(at)
        {
            let _: LowerResult = self.fail(
                stmt.span,
                "this kernel is too large after inlining and unrolling",
                "",
                "use loops, not macros",
            );
            failed = true;
        }
        if failed { Err(LowerFailed) } else { Ok(()) }
    }

    pub(super) fn stmt(&mut self, stmt: &'m Stmt) -> LowerResult {
        self.set_source_line(stmt.span);
        match &stmt.kind {
            StmtKind::Empty => Ok(()),
            StmtKind::Assertion(assertion) => self.static_assertion(assertion),
            StmtKind::Declare(storage, all) => {
                let mut failed = false;
                for declared in all {
                    failed |= self.declare(*storage, declared).is_err();
                }
                if failed { Err(LowerFailed) } else { Ok(()) }
            }
            StmtKind::Alias(name, ty) => {
                let ty = self.c_type(ty)?;
                self.bind(*name, Binding::Type(ty));
                Ok(())
            }
            StmtKind::Expr(expr) => self.effect(expr),
            StmtKind::Block(inner) => self.block(inner),
            StmtKind::If(condition, then, otherwise) => self.branch((condition, then, otherwise.as_deref())),
            StmtKind::For { init, condition, step, body } => {
                let mark = self.scope.len();
                let done = self.for_loop(init, condition.as_ref(), step.as_ref(), body);
                self.scope.truncate(mark);
                done
            }
            StmtKind::While(condition, body) => self.general_loop(Some(condition), None, body, None),
            StmtKind::Do(body, condition) => self.general_loop(None, None, body, Some(condition)),
            StmtKind::Switch(value, cases) => self.switch(value, cases, stmt.span),
            StmtKind::Break => match self.control_scopes.last() {
                Some(scope) if scope.kind != ScopeKind::InlinedCall => {
                    self.w.stmt(IrStmt::Break);
                    Ok(())
                }
                _ => self.fail(stmt.span, "'break' outside a loop or switch", "no enclosing loop or switch", ""),
            },
            StmtKind::Continue => self.continue_loop(stmt.span),
            StmtKind::Return(value) => self.return_from(value.as_ref(), stmt.span),
        }
    }

    /// Emits statements into a new block and scope.
    fn nested(&mut self, write: impl FnOnce(&mut Self) -> LowerResult) -> (Vec<IrStmt>, LowerResult) {
        self.w.b.open_block();
        let mark = self.scope.len();
        let done = write(self);
        self.scope.truncate(mark);
        (self.w.b.close_block(), done)
    }

    /// Lowers an `if` with its whole else-if chain.
    fn branch(&mut self, arm: Arm<'m>) -> LowerResult {
        let (mut next, mut entered, mut failed) = (Some(arm), None, false);
        while let Some(arm) = next {
            let max_arms = if self.request.round_trip { usize::MAX } else { NESTED_ARMS };
            next = std::iter::successors(Some(arm), |arm| next_arm(arm.2)).nth(max_arms);
            let rest = next.map(|_| {
                let local = self.new_local("rest", Scalar::Bool.into(), &[Value::int(Scalar::Bool, 0)]);
                self.assign(local, &Tree::int(Scalar::Bool, 0));
                local
            });
            let condition = entered.map(|local| self.w.b.read(local));
            if condition.is_some() {
                self.w.b.open_block();
            }
            failed |= self.arms(arm, max_arms, rest).is_err();
            if let Some(condition) = condition {
                let then = self.w.b.close_block();
                self.w.stmt(IrStmt::If { condition, then, otherwise: vec![] });
            }
            entered = rest;
        }
        if failed { Err(LowerFailed) } else { Ok(()) }
    }

    /// Lowers at most `left` arms of a chain; sets `rest` if none of them is taken.
    fn arms(&mut self, (condition, then, otherwise): Arm<'m>, left: usize, rest: Option<LocalId>) -> LowerResult {
        let tree = self.condition(condition)?;
        if let Some(known) = self.w.fold(&tree).filter(|_| !self.request.round_trip) {
            return match known.bits() != 0 {
                true => self.stmt(then),
                false => self.otherwise(otherwise, left, rest),
            };
        }
        let condition = self.w.emit(&tree);
        let (then, first) = self.nested(|lower| lower.stmt(then));
        let (otherwise, second) = self.nested(|lower| lower.otherwise(otherwise, left, rest));
        self.w.stmt(IrStmt::If { condition, then, otherwise });
        first.and(second)
    }

    /// Lowers the else branch of an arm.
    fn otherwise(&mut self, otherwise: Option<&'m Stmt>, left: usize, rest: Option<LocalId>) -> LowerResult {
        match (next_arm(otherwise), otherwise, rest) {
            (Some(_), _, Some(rest)) if left == 1 => {
                self.assign(rest, &Tree::int(Scalar::Bool, 1));
                Ok(())
            }
            (Some(arm), Some(stmt), _) => {
                self.set_source_line(stmt.span);
                self.arms(arm, left.saturating_sub(1), rest)
            }
            (_, Some(stmt), _) => self.stmt(stmt),
            (_, None, _) => Ok(()),
        }
    }

    /// `if (condition) break;`
    pub(super) fn break_if(&mut self, condition: &Tree) {
        let condition = self.w.emit(condition);
        self.w.b.open_block();
        self.w.stmt(IrStmt::Break);
        let then = self.w.b.close_block();
        self.w.stmt(IrStmt::If { condition, then, otherwise: vec![] });
    }

    /// `if (!condition) break;`
    pub(super) fn break_unless(&mut self, condition: &'m Expr) -> LowerResult {
        self.set_source_line(condition.span);
        let tree = self.condition(condition)?;
        match self.w.fold(&tree) {
            Some(value) if value.bits() != 0 => {}
            _ => self.break_if(&Tree::op(Op::Not, vec![tree])),
        }
        Ok(())
    }

    /// Lowers `continue`.
    fn continue_loop(&mut self, span: SourceSpan) -> LowerResult {
        let Some(scope) = self.control_scopes.last_mut().filter(|scope| scope.kind != ScopeKind::InlinedCall) else {
            return self.fail(span, "'continue' outside a loop", "no enclosing loop", "");
        };
        if scope.kind == ScopeKind::Switch {
            let Some(flag) = scope.continued else {
                return self.fail(span, "'continue' outside a loop", "no enclosing loop", "");
            };
            self.assign(flag, &Tree::int(Scalar::Bool, 1));
            self.w.stmt(IrStmt::Break);
            return Ok(());
        }
        let (step, check) = (scope.step, scope.check);
        if let Some(step) = step {
            self.effect(step)?;
        }
        if let Some(check) = check {
            self.break_unless(check)?;
        }
        self.w.stmt(IrStmt::Continue);
        Ok(())
    }

    /// Emits the code after a loop or switch that an inner `return` or `continue` may leave.
    pub(super) fn propagate_exit(&mut self, scope: &super::ControlScope<'m>, span: SourceSpan) -> LowerResult {
        if scope.returned
            && let Some(left) = self.inlines.last().and_then(|inline| inline.left)
        {
            let left = Tree::emitted(self.w.b.read(left), Scalar::Bool);
            self.break_if(&left);
        }
        if let Some(flag) = scope.continued {
            let condition = self.w.b.read(flag);
            self.w.b.open_block();
            let done = self.continue_loop(span);
            let then = self.w.b.close_block();
            self.w.stmt(IrStmt::If { condition, then, otherwise: vec![] });
            return done;
        }
        Ok(())
    }

    /// Lowers `return`.
    fn return_from(&mut self, value: Option<&'m Expr>, span: SourceSpan) -> LowerResult {
        if let Some(inline) = self.inlines.last() {
            let (result, control_scopes, left) = (inline.result, inline.control_scopes, inline.left);
            match (result, value) {
                (Some((local, ty)), Some(value)) => {
                    let tree = self.initializer(value, ty)?;
                    self.assign(local, &tree);
                }
                (None, None) => {}
                (None, Some(_)) => return self.fail(span, "a 'void' function returns a value", "unexpected value", ""),
                (Some(_), None) => return self.fail(span, "'return' without a value", "expected a value", ""),
            }
            if self.control_scopes.len() > control_scopes + 1 {
                if let Some(left) = left {
                    self.assign(left, &Tree::constant(Value::int(Scalar::Bool, 1)));
                }
                self.control_scopes[control_scopes + 1..].iter_mut().for_each(|scope| scope.returned = true);
            }
            self.w.stmt(IrStmt::Break);
            return Ok(());
        }
        match (self.code, value) {
            (CodeKind::Kernel, None) => self.w.stmt(IrStmt::Return(None)),
            (CodeKind::Kernel, Some(_)) => {
                return self.fail(span, "a kernel cannot return a value", "unexpected value", "");
            }
            (CodeKind::Function(ty), Some(value)) => {
                let tree = self.initializer(value, ty)?;
                let value = self.w.emit(&tree);
                self.w.stmt(IrStmt::Return(Some(value)));
            }
            (CodeKind::Function(_), None) => {
                return self.fail(span, "'return' without a value", "expected a value", "");
            }
        }
        Ok(())
    }
}
