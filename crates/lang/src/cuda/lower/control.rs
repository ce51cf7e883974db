//! Loops and switches.

use bornite_ir::{LocalId, Op, Scalar, Stmt as IrStmt, Type, Value};

use super::{Binding, ControlScope, LowerResult, Lowering, ScopeKind, scan};
use crate::SourceSpan;
use crate::cuda::ast::{Binary, Case, Declarator, Expr, ExprKind, Stmt, StmtKind};
use crate::cuda::lex::Symbol;
use crate::cuda::types::CType;
use crate::lower::Tree;

/// Maximum iterations of an unrolled loop.
const MAX_UNROLLED: usize = 64;

/// A counting loop: its variable with the initial value, test, end and step.
struct CountingLoop<'m> {
    declared: &'m Declarator,
    test: Binary,
    end: &'m Expr,
    step: i64,
}

impl<'m> Lowering<'m> {
    fn scope(kind: ScopeKind) -> ControlScope<'m> {
        ControlScope { kind, step: None, check: None, continued: None, returned: false }
    }

    /// Lowers a loop body within `scope`, which it returns.
    fn loop_body(&mut self, scope: ControlScope<'m>, body: &'m Stmt) -> (ControlScope<'m>, LowerResult) {
        self.control_scopes.push(scope);
        self.loops += 1;
        let mark = self.scope.len();
        let done = match &body.kind {
            StmtKind::Block(inner) => self.block(inner),
            _ => self.stmt(body),
        };
        self.scope.truncate(mark);
        self.loops -= 1;
        (self.control_scopes.pop().unwrap_or_else(|| Self::scope(ScopeKind::Loop)), done)
    }

    pub(super) fn for_loop(
        &mut self,
        init: &'m Stmt,
        condition: Option<&'m Expr>,
        step: Option<&'m Expr>,
        body: &'m Stmt,
    ) -> LowerResult {
        if self.request.round_trip
            && let Some((counter, end)) = self.printed_counter(init, condition)
        {
            return self.counted_loop(counter, end, None, body);
        }
        if let Some(counting_loop) = counting_loop(init, condition, step) {
            if let Some(values) = self.unrolled_values(&counting_loop, body) {
                return self.unroll(&counting_loop, &values, body);
            }
            if let Some((end, scalar)) = self.counted_loop_end(&counting_loop, body)? {
                let text = self.text(counting_loop.declared.name);
                let counter = self.new_local(text, self.index_type.into(), &[Value::int(self.index_type, 0)]);
                let end = self.w.emit(&end);
                return self.counted_loop(counter, end, Some((counting_loop.declared.name, scalar)), body);
            }
        }
        self.stmt(init)?;
        self.general_loop(condition, step, body, None)
    }

    /// Counter and end of a loop as the CUDA printer writes it: `for (k_3 = 0; k_3 < end; ++k_3)`.
    fn printed_counter(
        &mut self,
        init: &'m Stmt,
        condition: Option<&'m Expr>,
    ) -> Option<(LocalId, bornite_ir::ExprId)> {
        let StmtKind::Expr(Expr { kind: ExprKind::Assign(None, lvalue, _), .. }) = &init.kind else { return None };
        let ExprKind::Name(name) = lvalue.kind else { return None };
        let Some(Binding::Local(counter, ty)) = self.lookup(name) else { return None };
        let ExprKind::Binary(Binary::Lt, _, end) = &condition?.kind else { return None };
        if ty != self.index_type.into() {
            return None;
        }
        let end = self.rvalue(end).ok()?.cast(self.index_type);
        Some((counter, self.w.emit(&end)))
    }

    /// Emits an IR loop that counts from 0; `name` is the source's name and type of the counter.
    fn counted_loop(
        &mut self,
        counter: LocalId,
        end: bornite_ir::ExprId,
        name: Option<(Symbol, Scalar)>,
        body: &'m Stmt,
    ) -> LowerResult {
        self.w.b.open_block();
        if let Some((name, scalar)) = name {
            let value = self.w.b.read(counter);
            let range = self.w.range(&Tree::emitted(end, self.index_type)).map(bornite_ir::IntRange::below);
            self.w.set_range(value, range);
            self.bind(name, Binding::Value(Tree::emitted(value, self.index_type).cast(scalar)));
        }
        let (scope, done) = self.loop_body(Self::scope(ScopeKind::Loop), body);
        let loop_stmts = self.w.b.close_block();
        self.w.stmt(IrStmt::For { counter, end, body: loop_stmts });
        self.propagate_exit(&scope, body.span)?;
        done
    }

    /// Returns the end of the loop and the type of its counter if the IR can count it: from 0 by 1
    /// to a loop-invariant end.
    fn counted_loop_end(
        &mut self,
        counting_loop: &CountingLoop<'m>,
        body: &'m Stmt,
    ) -> LowerResult<Option<(Tree, Scalar)>> {
        let CountingLoop { declared, test, end, step } = counting_loop;
        let zero = |expr: &Expr| matches!(expr.kind, ExprKind::Number { value, .. } if value.scalar().is_int() && value.bits() == 0);
        let scalar = match self.c_type(&declared.ty)? {
            CType::Value(Type::Scalar(scalar)) if scalar == Scalar::I32 || scalar == self.index_type => scalar,
            _ => return Ok(None),
        };
        if *test != Binary::Lt || *step != 1 || !declared.init.as_ref().is_some_and(zero) || !self.is_speculatable(end)
        {
            return Ok(None);
        }
        let changed = scan::assigned_in(self.module, std::slice::from_ref(body));
        let mut fixed = !changed.contains(&declared.name);
        scan::walk_expr(end, &mut |expr| {
            let may_change = |name: Symbol| {
                changed.contains(&name)
                    || name == declared.name
                    // A write through a pointer or reference does not name the variable.
                    || self.aliased.contains(&name) && matches!(self.lookup(name), Some(Binding::Local(..)))
            };
            fixed &= !matches!(expr.kind, ExprKind::Name(name) if may_change(name));
        });
        if !fixed {
            return Ok(None);
        }
        let end = self.rvalue(end)?;
        let known = self.w.fold(&end).map(Value::as_i64);
        let end = match (end.scalar(), known) {
            (Some(of), _) if of == scalar => end.cast(self.index_type),
            (Some(of), Some(n)) if of.is_int() && (0..=i32::MAX as i64).contains(&n) => Tree::int(self.index_type, n),
            (Some(of), _) if of.is_int() && of.bytes() < 4 => end.cast(self.index_type),
            _ => return Ok(None),
        };
        Ok(Some((end, scalar)))
    }

    /// Returns the counter's values if iterations index local arrays, which live in registers and
    /// need constant indices.
    fn unrolled_values(&mut self, counting_loop: &CountingLoop<'m>, body: &'m Stmt) -> Option<Vec<i64>> {
        let CountingLoop { declared, test, end, step } = counting_loop;
        let name = declared.name;
        let stmts = std::slice::from_ref(body);
        if self.request.round_trip || scan::exits_loop(std::slice::from_ref(body)) {
            return None;
        }
        let mut indexes_register_array = false;
        scan::for_each_expr(stmts, &mut |expr| {
            if let ExprKind::Index(base, index) = &expr.kind {
                let mut root = &**base;
                let mut inside = scan::mentions(index, name);
                while let ExprKind::Index(deeper, index) = &root.kind {
                    inside |= scan::mentions(index, name);
                    root = deeper;
                }
                if let ExprKind::Name(array) = root.kind {
                    indexes_register_array |= inside
                        && matches!(self.lookup(array), Some(Binding::RegisterArray(..) | Binding::ConstArray(..)));
                }
                // An array in a struct.
                indexes_register_array |= inside && matches!(root.kind, ExprKind::Member(..));
            }
        });
        if !indexes_register_array
            || scan::assigned_in(self.module, stmts).contains(&name)
            || !self.is_speculatable(end)
        {
            return None;
        }
        let known = |lower: &mut Self, expr: &'m Expr| {
            let tree = lower.rvalue(expr).ok()?;
            lower.w.fold(&tree).filter(|value| value.scalar().is_int()).map(Value::as_i64)
        };
        let init = declared.init.as_ref().filter(|init| self.is_speculatable(init))?;
        let (first, end) = (known(self, init)?, known(self, end)?);
        let holds = |at: i64| match test {
            Binary::Lt => at < end,
            Binary::Le => at <= end,
            Binary::Gt => at > end,
            Binary::Ge => at >= end,
            _ => at != end,
        };
        let mut values = vec![];
        let mut at = first;
        while holds(at) {
            values.push(at);
            if values.len() > MAX_UNROLLED {
                return None;
            }
            at = at.checked_add(*step)?;
        }
        Some(values)
    }

    fn unroll(&mut self, counting_loop: &CountingLoop<'m>, values: &[i64], body: &'m Stmt) -> LowerResult {
        let CType::Value(Type::Scalar(scalar)) = self.c_type(&counting_loop.declared.ty)? else {
            return self.unsupported(body.span, "a loop counter of this type", "");
        };
        for value in values {
            let mark = self.scope.len();
            self.bind(counting_loop.declared.name, Binding::Value(Tree::int(scalar, *value)));
            let done = self.stmt(body);
            self.scope.truncate(mark);
            done?;
        }
        Ok(())
    }

    /// Lowers a loop with arbitrary conditions.
    pub(super) fn general_loop(
        &mut self,
        condition: Option<&'m Expr>,
        step: Option<&'m Expr>,
        body: &'m Stmt,
        check: Option<&'m Expr>,
    ) -> LowerResult {
        self.w.b.open_block();
        self.loops += 1;
        let mut failed = condition.is_some_and(|condition| self.break_unless(condition).is_err());
        let scope = ControlScope { step, check, ..Self::scope(ScopeKind::Loop) };
        let (scope, done) = self.loop_body(scope, body);
        failed |= done.is_err();
        if let Some(step) = step {
            self.set_source_line(step.span);
            failed |= self.effect(step).is_err();
        }
        if let Some(check) = check {
            failed |= self.break_unless(check).is_err();
        }
        self.loops -= 1;
        let loop_stmts = self.w.b.close_block();
        self.w.stmt(IrStmt::Loop { body: loop_stmts });
        self.propagate_exit(&scope, body.span)?;
        if failed { Err(super::LowerFailed) } else { Ok(()) }
    }

    pub(super) fn switch(&mut self, value: &'m Expr, cases: &'m [Case], span: SourceSpan) -> LowerResult {
        let tree = self.rvalue(value)?;
        let Some(scalar) = tree.scalar().filter(|scalar| !scalar.is_float()) else {
            return self.fail(value.span, "'switch' needs an integer", "not an integer", "");
        };
        let tree = self.materialize(tree.cast(crate::cuda::types::promoted(scalar)));
        let mut labels = vec![];
        let mut tests = vec![];
        for case in cases {
            let mut here: Option<Tree> = None;
            for label in case.labels.iter().flatten() {
                let at = self.constant_int(label, "the label of a case")?;
                if labels.contains(&at) {
                    return self.fail(label.span, format!("duplicate case {at}"), "the second", "");
                }
                labels.push(at);
                let constant = Tree::int(tree.scalar().unwrap_or(Scalar::I32), at);
                let equal = Tree::op(Op::Eq, vec![tree.clone(), constant]);
                here = Some(match here {
                    Some(before) => Tree::op(Op::Or, vec![before, equal]),
                    None => equal,
                });
            }
            tests.push(here);
        }
        if cases.iter().filter(|case| case.labels.contains(&None)).count() > 1 {
            return self.fail(span, "more than one 'default'", "", "");
        }
        let apart = cases.iter().enumerate().all(|(n, case)| case_body(&case.body, n + 1 == cases.len()).is_some());
        if apart {
            let mut order: Vec<usize> = (0..cases.len()).filter(|n| !cases[*n].labels.contains(&None)).collect();
            let default = cases.iter().position(|case| case.labels.contains(&None));
            order.extend(default);
            return self.switch_chain(&order, cases, &tests, default);
        }
        self.fallthrough_switch(cases, &tests, span)
    }

    /// Lowers a switch without fallthrough as a chain of branches.
    fn switch_chain(
        &mut self,
        order: &[usize],
        cases: &'m [Case],
        tests: &[Option<Tree>],
        default: Option<usize>,
    ) -> LowerResult {
        let Some((&n, rest)) = order.split_first() else { return Ok(()) };
        let body = case_body(&cases[n].body, true).unwrap_or(&cases[n].body);
        let (Some(test), false) = (&tests[n], default == Some(n)) else { return self.block(body) };
        let condition = self.w.emit(test);
        self.w.b.open_block();
        let first = self.block(body);
        let then = self.w.b.close_block();
        self.w.b.open_block();
        let second = self.switch_chain(rest, cases, tests, default);
        let otherwise = self.w.b.close_block();
        self.w.stmt(IrStmt::If { condition, then, otherwise });
        first.and(second)
    }

    /// Lowers a switch with fallthrough: once a case matches, all later ones run, inside a loop
    /// that `break` leaves.
    fn fallthrough_switch(&mut self, cases: &'m [Case], tests: &[Option<Tree>], span: SourceSpan) -> LowerResult {
        let bool_local = |lower: &mut Self, name: &str| {
            let local = lower.new_local(name, Scalar::Bool.into(), &[Value::int(Scalar::Bool, 0)]);
            lower.assign(local, &Tree::int(Scalar::Bool, 0));
            local
        };
        let met = bool_local(self, "met");
        let continued = cases.iter().any(|case| scan::continues(&case.body)).then(|| bool_local(self, "continued"));
        let any = tests.iter().flatten().cloned().reduce(|a, b| Tree::op(Op::Or, vec![a, b]));
        let other = any.map_or(Tree::int(Scalar::Bool, 1), |any| Tree::op(Op::Not, vec![any]));
        let other = self.materialize(other);
        self.w.b.open_block();
        self.control_scopes.push(ControlScope { continued, ..Self::scope(ScopeKind::Switch) });
        let mut failed = false;
        for (case, test) in cases.iter().zip(tests) {
            let before = Tree::emitted(self.w.b.read(met), Scalar::Bool);
            let mut now = before;
            for more in test.iter().chain(case.labels.contains(&None).then_some(&other)) {
                now = Tree::op(Op::Or, vec![now, more.clone()]);
            }
            let now = self.materialize(now);
            self.assign(met, &now);
            let condition = self.w.emit(&now);
            self.w.b.open_block();
            failed |= self.block(&case.body).is_err();
            let then = self.w.b.close_block();
            self.w.stmt(IrStmt::If { condition, then, otherwise: vec![] });
        }
        self.w.stmt(IrStmt::Break);
        let scope = self.control_scopes.pop().unwrap_or_else(|| Self::scope(ScopeKind::Switch));
        let body = self.w.b.close_block();
        self.w.stmt(IrStmt::Loop { body });
        self.propagate_exit(&scope, span)?;
        if failed { Err(super::LowerFailed) } else { Ok(()) }
    }
}

/// Returns the statements of a case without its final `break`, if it does not fall through.
fn case_body(body: &[Stmt], last: bool) -> Option<&[Stmt]> {
    let body = match body {
        [Stmt { kind: StmtKind::Block(inner), .. }] => inner,
        body => body,
    };
    match body.split_last() {
        Some((Stmt { kind: StmtKind::Break, .. }, rest)) => (!scan::breaks(rest)).then_some(rest),
        Some((Stmt { kind: StmtKind::Return(_) | StmtKind::Continue, .. }, rest)) => {
            (!scan::breaks(rest)).then_some(body)
        }
        _ => (last && !scan::breaks(body)).then_some(body),
    }
}

/// Recognizes a loop that counts by a constant.
fn counting_loop<'m>(init: &'m Stmt, condition: Option<&'m Expr>, step: Option<&'m Expr>) -> Option<CountingLoop<'m>> {
    let StmtKind::Declare(_, all) = &init.kind else { return None };
    let [declared] = &all[..] else { return None };
    if !declared.sizes.is_empty() || declared.ty.pointers > 0 || declared.ty.reference || declared.ty.constant {
        return None;
    }
    let is_counter = |expr: &Expr| matches!(expr.kind, ExprKind::Name(name) if name == declared.name);
    let ExprKind::Binary(test @ (Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge | Binary::Ne), left, end) =
        &condition?.kind
    else {
        return None;
    };
    let step = match &step?.kind {
        ExprKind::IncDec { delta, lvalue, .. } if is_counter(lvalue) => *delta as i64,
        ExprKind::Assign(Some(op @ (Binary::Add | Binary::Sub)), lvalue, by) if is_counter(lvalue) => match by.kind {
            ExprKind::Number { value, .. } if value.scalar().is_int() => {
                if *op == Binary::Add {
                    value.as_i64()
                } else {
                    -value.as_i64()
                }
            }
            _ => return None,
        },
        _ => return None,
    };
    is_counter(left).then_some(CountingLoop { declared, test: *test, end, step })
}
