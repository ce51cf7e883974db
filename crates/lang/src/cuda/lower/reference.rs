//! Expressions that references bind to. `c ? a : b`, `++a` and `a = b` are lvalues in C++: a
//! reference to one of them refers to a variable, not to a copy.

use super::lvalue::{CudaOperand, Lvalue, LvalueRoot};
use super::overload::value_type;
use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Binary, Expr, ExprKind, Stmt, StmtKind, Unary};
use crate::cuda::types::common_type;

impl<'m> Lowering<'m> {
    /// Lowers an expression that a reference binds to.
    pub(super) fn referred(&mut self, expr: &'m Expr) -> LowerResult<CudaOperand> {
        match &expr.kind {
            _ if self.request.round_trip => self.operand(expr),
            ExprKind::Conditional(condition, a, b) => {
                self.deeper(expr.span, |lower| lower.referred_choice(condition, a, b, expr.span))
            }
            ExprKind::Assign(..) | ExprKind::IncDec { is_postfix: false, .. } => {
                self.assigned_lvalue = None;
                let operand = self.operand(expr)?;
                Ok(match (operand, self.assigned_lvalue.take()) {
                    (CudaOperand::Tree(_), Some(lvalue)) => CudaOperand::Lvalue(lvalue),
                    (operand, _) => operand,
                })
            }
            ExprKind::Binary(Binary::Comma, a, b) if !self.overloads(",") => {
                self.effect(a)?;
                self.referred(b)
            }
            ExprKind::Call { .. }
            | ExprKind::MethodCall { .. }
            | ExprKind::ScopedCall { .. }
            | ExprKind::Invoke(..) => {
                self.copied_reference = false;
                let operand = self.operand(expr)?;
                if std::mem::take(&mut self.copied_reference) && matches!(operand, CudaOperand::Tree(_)) {
                    let what = "a reference to the result of a function with several returns of a reference";
                    return self.unsupported(expr.span, what, "copy the result to a variable first");
                }
                Ok(operand)
            }
            _ => self.operand(expr),
        }
    }

    /// Lowers `condition ? a : b` for a reference.
    pub(super) fn referred_choice(
        &mut self,
        condition: &'m Expr,
        a: &'m Expr,
        b: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let (Some(first), Some(second)) = (self.lvalue_effects(a), self.lvalue_effects(b)) else {
            return self.conditional(condition, a, b, span);
        };
        let condition = self.condition(condition)?;
        if let Some(known) = self.w.fold(&condition) {
            let (taken, other) = if known.bits() != 0 { (a, b) } else { (b, a) };
            let ty = self.type_of(other)?;
            let operand = self.referred(taken)?;
            let Some(from) = value_type(&operand).filter(|from| *from != ty) else { return Ok(operand) };
            let tree = self.value_of(operand, span)?;
            return Ok(CudaOperand::Tree(match (from.as_scalar(), ty.as_scalar()) {
                (Some(from), Some(to)) => self.convert_scalar(tree, common_type(from, to)),
                _ => tree,
            }));
        }
        if first.has_effects || second.has_effects {
            let what = "a reference to one of two expressions with calls, assignments or loads";
            return self.unsupported(span, what, "copy the value to a variable first, or use 'if'");
        }
        let condition = self.materialize(condition);
        let mut two = vec![];
        for expr in [a, b] {
            two.push(match self.referred(expr)? {
                CudaOperand::Lvalue(lvalue) => lvalue,
                operand => {
                    let tree = self.value_of(operand, expr.span)?;
                    Lvalue::of_value(self.materialize(tree))
                }
            });
        }
        let is_value = |lvalue: &Lvalue| matches!(lvalue.root, LvalueRoot::Value(_));
        if two[0].ty != two[1].ty || two.iter().all(is_value) {
            let chosen = self.lazy_conditional(
                condition,
                |lower| lower.read(&two[0], a.span),
                |lower| lower.read(&two[1], b.span),
                span,
            )?;
            return Ok(CudaOperand::Tree(chosen));
        }
        let ty = two[0].ty;
        let root = LvalueRoot::Choice(condition, two.into());
        Ok(CudaOperand::Lvalue(Lvalue { root, path: vec![], ty, constant: true }))
    }

    /// The returns of `if (c) return a; return b;`, which returns `c ? a : b`.
    pub(super) fn two_returns(body: &'m [Stmt]) -> Option<(&'m Expr, &'m Expr, &'m Expr)> {
        fn returned(stmt: &Stmt) -> Option<&Expr> {
            match &stmt.kind {
                StmtKind::Return(value) => value.as_ref(),
                StmtKind::Block(all) => match &all[..] {
                    [one] => returned(one),
                    _ => None,
                },
                _ => None,
            }
        }
        match body {
            [Stmt { kind: StmtKind::If(condition, a, Some(b)), .. }] => Some((condition, returned(a)?, returned(b)?)),
            [Stmt { kind: StmtKind::If(condition, a, None), .. }, b] => Some((condition, returned(a)?, returned(b)?)),
            _ => None,
        }
    }

    /// Returns whether finding the variable or element that an expression refers to has effects or
    /// accesses memory; `None` if the expression is not an lvalue.
    fn lvalue_effects(&self, expr: &Expr) -> Option<LvalueEffects> {
        let found = |is_simple: bool| Some(LvalueEffects { has_effects: !is_simple });
        let returns_reference =
            |name| self.module.file.functions.iter().any(|function| function.name == name && function.result.reference);
        match &expr.kind {
            ExprKind::Name(_) => found(true),
            ExprKind::Member(whole, _) => self.lvalue_effects(whole),
            ExprKind::Arrow(pointer, _) | ExprKind::Unary(Unary::Deref, pointer) => {
                found(matches!(pointer.kind, ExprKind::This) || self.is_speculatable(pointer))
            }
            ExprKind::Index(base, index) => {
                let base =
                    self.lvalue_effects(base).map_or_else(|| self.is_speculatable(base), |base| !base.has_effects);
                found(base && self.is_speculatable(index))
            }
            ExprKind::Conditional(condition, a, b) => {
                let (a, b) = (self.lvalue_effects(a)?, self.lvalue_effects(b)?);
                found(!a.has_effects && !b.has_effects && self.is_speculatable(condition))
            }
            ExprKind::Assign(..) | ExprKind::IncDec { is_postfix: false, .. } => found(false),
            ExprKind::Binary(Binary::Comma, _, last) => self.lvalue_effects(last).and_then(|_| found(false)),
            ExprKind::Cast(ty, _) if ty.reference => found(false),
            ExprKind::Call { callee: name, .. }
            | ExprKind::MethodCall { name, .. }
            | ExprKind::ScopedCall { name, .. }
                if returns_reference(*name) =>
            {
                found(false)
            }
            _ => None,
        }
    }
}

/// An lvalue, before it is lowered.
struct LvalueEffects {
    has_effects: bool,
}
