//! Assignments, increments and expression statements.

use bornite_ir::{IntRange, Op, Scalar};

use super::index::Index;
use super::lvalue::{CudaOperand, Lvalue, Pointer};
use super::{Binding, LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Binary, Expr, ExprKind};
use crate::lower::{Node, Tree};

impl<'m> Lowering<'m> {
    /// Lowers an expression for its side effects.
    pub(super) fn effect(&mut self, expr: &'m Expr) -> LowerResult {
        match self.operand(expr)? {
            // An atomic whose result is unused still has an effect.
            CudaOperand::Tree(tree) if !matches!(tree.node, Node::Const(_) | Node::Emitted(_) | Node::Builtin(_)) => {
                self.w.emit(&tree);
            }
            _ => {}
        }
        Ok(())
    }

    /// Lowers an expression to an assignable lvalue.
    pub(super) fn lvalue(&mut self, expr: &'m Expr) -> LowerResult<Lvalue> {
        match self.operand(expr)? {
            CudaOperand::Lvalue(lvalue) => {
                self.check_assignable(&lvalue, expr.span)?;
                Ok(lvalue)
            }
            CudaOperand::Tree(_) => {
                let what = "this expression cannot be assigned";
                self.fail(expr.span, what, "a constant or temporary value", "")
            }
            CudaOperand::RegisterArray(..) | CudaOperand::ConstArray(..) => {
                self.fail(expr.span, "an array cannot be assigned", "an array", "assign its elements")
            }
            _ => self.fail(expr.span, "this expression cannot be assigned", "", ""),
        }
    }

    /// Rejects assignment to structs with const members, as C++ does.
    fn check_no_const_members(&mut self, lvalue: &Lvalue, span: SourceSpan) -> LowerResult {
        let Some(field) = self.const_member(lvalue.ty) else { return Ok(()) };
        let what = format!("'{}' has a const member, '{}'", self.type_name(lvalue.ty), self.text(field.name));
        self.fail(span, what, "cannot be assigned", "remove 'const' from its declaration")
    }

    pub(super) fn assignment(
        &mut self,
        op: Option<Binary>,
        target: &'m Expr,
        value: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        if let ExprKind::Name(name) = target.kind
            && let Some(Binding::MovingPointer(pointer, local)) = self.lookup(name)
        {
            return self.assign_pointer(op, pointer, local, target, value, span);
        }
        if let (ExprKind::Name(name), None) = (&target.kind, op)
            && let Some(Binding::UnsetPointer(to, declared)) = self.lookup(*name)
        {
            return self.set_pointer(*name, (to, declared), value, span);
        }
        if let ExprKind::Name(name) = target.kind
            && let Some(Binding::TaggedPointer(tagged)) = self.lookup(name)
        {
            return self.assign_tagged(op, &tagged, value, span);
        }
        if let Some((lvalue, slot)) = self.pointer_target(target)? {
            let value = match op {
                None => self.operand(value)?,
                Some(op) => match self.loaded_pointer(CudaOperand::Lvalue(lvalue.clone()), target.span)? {
                    CudaOperand::Pointer(here) => self.pointer_arithmetic(op, here, value, span)?,
                    _ => return self.fail(span, "arithmetic on a null pointer", "always null here", ""),
                },
            };
            let stored = self.stored_pointer(value, slot, span)?;
            let stored = self.materialize(stored);
            self.write(&lvalue, stored.clone(), target.span)?;
            return self.loaded_pointer(CudaOperand::Tree(stored), span);
        }
        let token = op.map_or(String::new(), |op| op.token().to_owned()) + "=";
        if self.overloads(&token)
            && !matches!(value.kind, ExprKind::Braces(_))
            && self.attempted_type(target).is_some_and(Self::is_class)
        {
            let right = self.operand(value)?;
            let left = self.operand(target)?;
            match self.overloaded(&token, vec![left, right], &[target, value], span)? {
                Ok(result) => {
                    self.assigned_lvalue = None;
                    return Ok(result);
                }
                Err(operands) => {
                    let Ok([CudaOperand::Lvalue(lvalue), right]) = <[CudaOperand; 2]>::try_from(operands) else {
                        return self.fail(target.span, "this expression cannot be assigned", "", "");
                    };
                    self.check_assignable(&lvalue, target.span)?;
                    self.check_no_const_members(&lvalue, target.span)?;
                    let tree = self.value_of(right, value.span)?;
                    let tree = match op {
                        Some(op) => {
                            let left = self.read(&lvalue, target.span)?;
                            self.binary(op, left, tree, span)?
                        }
                        None => tree,
                    };
                    let tree = self.convert(tree, lvalue.ty, value.span)?;
                    let tree = self.materialize(tree);
                    self.write(&lvalue, tree.clone(), target.span)?;
                    self.assigned_lvalue = Some(lvalue);
                    return Ok(CudaOperand::Tree(tree));
                }
            }
        }
        let Some(op) = op else {
            // The right-hand side is evaluated first (C++17).
            if let ExprKind::Braces(_) = value.kind {
                let lvalue = self.lvalue(target)?;
                self.check_no_const_members(&lvalue, target.span)?;
                let tree = self.initializer(value, lvalue.ty)?;
                let tree = self.materialize(tree);
                self.write(&lvalue, tree.clone(), target.span)?;
                self.assigned_lvalue = Some(lvalue);
                return Ok(CudaOperand::Tree(tree));
            }
            let tree = self.rvalue(value)?;
            let tree = self.materialize_effects(tree);
            let lvalue = self.lvalue(target)?;
            self.check_no_const_members(&lvalue, target.span)?;
            let tree = self.convert(tree, lvalue.ty, value.span)?;
            let tree = self.materialize(tree);
            self.write(&lvalue, tree.clone(), target.span)?;
            self.assigned_lvalue = Some(lvalue);
            return Ok(CudaOperand::Tree(tree));
        };
        let right = self.rvalue(value)?;
        let right = self.materialize_effects(right);
        let lvalue = self.lvalue(target)?;
        let left = self.read(&lvalue, target.span)?;
        let sum = self.binary(op, left, right, span)?;
        let sum = self.convert(sum, lvalue.ty, span)?;
        let sum = self.materialize(sum);
        self.write(&lvalue, sum.clone(), target.span)?;
        self.assigned_lvalue = Some(lvalue);
        Ok(CudaOperand::Tree(sum))
    }

    /// Type of an expression, which is not evaluated.
    pub(super) fn attempted_type(&mut self, expr: &'m Expr) -> Option<bornite_ir::Type> {
        let (mark, locals) = (self.w.b.mark(), self.locals);
        let operand = self.attempt(|lower| lower.operand(expr));
        self.w.rollback(&mark);
        self.locals = locals;
        operand.and_then(|operand| super::overload::value_type(&operand))
    }

    /// Emits a tree that contains an atomic now, before anything that follows.
    pub(super) fn materialize_effects(&mut self, tree: Tree) -> Tree {
        fn updates(tree: &Tree) -> bool {
            match &tree.node {
                Node::Atomic { .. } => true,
                Node::Cast(_, inner) | Node::Bitcast(_, inner) => updates(inner),
                Node::Op(_, args) | Node::Algebra(_, _, args) | Node::Call(_, args) => args.iter().any(updates),
                _ => false,
            }
        }
        if updates(&tree) { self.materialize(tree) } else { tree }
    }

    pub(super) fn assign_pointer(
        &mut self,
        op: Option<Binary>,
        pointer: Pointer,
        local: bornite_ir::LocalId,
        target: &'m Expr,
        value: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let offset_by = match op {
            None => self.operand(value)?,
            Some(op) => match self.operand(target)? {
                CudaOperand::Pointer(here) => self.pointer_arithmetic(op, here, value, span)?,
                _ => return Err(LowerFailed),
            },
        };
        match offset_by {
            CudaOperand::Pointer(to) if to.pointee_type() != pointer.pointee_type() => {
                let (to, from) = (self.type_name(pointer.pointee_type()), self.type_name(to.pointee_type()));
                self.fail(
                    span,
                    format!("cannot assign a pointer to '{from}' to a pointer to '{to}'"),
                    format!("expected '{to}*'"),
                    "cast it",
                )
            }
            CudaOperand::Pointer(to) if to.constant && !pointer.constant => {
                let hint = "declare it as a pointer to const";
                self.fail(span, "cannot assign a pointer to const to a pointer to non-const", "discards 'const'", hint)
            }
            CudaOperand::Pointer(to)
                if to.view == pointer.view
                    && to.prefix == pointer.prefix
                    && (op.is_some() || to.choice.is_none() && pointer.choice.is_none()) =>
            {
                let offset = to.offset.unwrap_or(Tree::int(self.index_type, 0));
                self.assign(local, &offset);
                self.operand(target)
            }
            other => {
                self.assign_other_array(&pointer, local, other, span)?;
                self.operand(target)
            }
        }
    }

    pub(super) fn increment(
        &mut self,
        delta: i8,
        is_postfix: bool,
        target: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        if let ExprKind::Name(name) = target.kind
            && let Some(Binding::MovingPointer(pointer, local)) = self.lookup(name)
        {
            let old = Tree::emitted(self.w.b.read(local), self.index_type);
            let width = pointer.width as i64 * delta as i64;
            let new = Tree::op(Op::Add, vec![old.clone(), Tree::int(self.index_type, width)]);
            let new = self.materialize(new);
            self.assign(local, &new);
            return Ok(CudaOperand::Pointer(Pointer { offset: Some(if is_postfix { old } else { new }), ..pointer }));
        }
        if let ExprKind::Name(name) = target.kind
            && let Some(Binding::TaggedPointer(tagged)) = self.lookup(name)
        {
            return Ok(self.increment_tagged(delta, is_postfix, &tagged));
        }
        if let Some((lvalue, slot)) = self.pointer_target(target)? {
            let CudaOperand::Pointer(old) = self.loaded_pointer(CudaOperand::Lvalue(lvalue.clone()), target.span)?
            else {
                return self.fail(span, "arithmetic on a null pointer", "always null here", "");
            };
            let by = Index { tree: Tree::int(self.index_type, delta.into()), range: IntRange::of_type(Scalar::I8) };
            let new = self.offset_by(old.clone(), by);
            let stored = self.stored_pointer(CudaOperand::Pointer(new.clone()), slot, span)?;
            self.write(&lvalue, stored, target.span)?;
            return Ok(CudaOperand::Pointer(if is_postfix { old } else { new }));
        }
        let token = if delta > 0 { "++" } else { "--" };
        if self.overloads(token) && self.attempted_type(target).is_some_and(Self::is_class) {
            let mut operands = vec![self.operand(target)?];
            if is_postfix {
                operands.push(CudaOperand::Tree(Tree::int(Scalar::I32, 0)));
            }
            let count = operands.len();
            if let Ok(result) = self.overloaded(token, operands, &[target; 2][..count], span)? {
                self.assigned_lvalue = None;
                return Ok(result);
            }
        }
        let lvalue = self.lvalue(target)?;
        if lvalue.ty == Scalar::Bool.into() && !self.request.round_trip {
            let hint = "write 'b = true' or 'b = !b'";
            return self.fail(span, format!("'{token}' on a bool"), "not in C++17", hint);
        }
        let old = self.read(&lvalue, target.span)?;
        let old = self.materialize(old);
        let op = if delta > 0 { Binary::Add } else { Binary::Sub };
        let new = self.binary(op, old.clone(), Tree::int(Scalar::I32, 1), span)?;
        let new = self.convert(new, lvalue.ty, span)?;
        let new = self.materialize(new);
        self.write(&lvalue, new.clone(), target.span)?;
        self.assigned_lvalue = Some(lvalue);
        Ok(CudaOperand::Tree(if is_postfix { old } else { new }))
    }
}
