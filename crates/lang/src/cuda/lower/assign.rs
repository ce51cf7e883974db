//! Assignments, steps (`++`) and expressions for what they do.

use bornite_ir::{Op, Scalar};

use super::place::{Operand, Place, Pointer};
use super::{Binding, Done, Failed, Lower};
use crate::Span;
use crate::cuda::ast::{Binary, Expr, ExprKind};
use crate::lower::{Node, Tree};

impl<'m> Lower<'m> {
    /// An expression for what it does.
    pub(super) fn effect(&mut self, expr: &'m Expr) -> Done {
        match self.operand(expr)? {
            // An update whose old value nobody asks for is still one.
            Operand::Tree(tree) if !matches!(tree.node, Node::Const(_) | Node::Done(_) | Node::Builtin(_)) => {
                self.w.emit(&tree);
            }
            _ => {}
        }
        Ok(())
    }

    /// A place that can be assigned.
    pub(super) fn place(&mut self, expr: &'m Expr) -> Done<Place> {
        match self.operand(expr)? {
            Operand::Place(place) => {
                self.check_assignable(&place, expr.span)?;
                Ok(place)
            }
            Operand::Tree(_) => {
                let what = "this cannot be assigned";
                self.fail(expr.span, what, "a constant, or a value that is nowhere", "")
            }
            Operand::Array(..) | Operand::Table(..) => {
                self.fail(expr.span, "an array cannot be assigned", "an array", "assign its elements")
            }
            _ => self.fail(expr.span, "this cannot be assigned", "", ""),
        }
    }

    /// Refuses to assign structs with const members: C++ has no such assignment.
    fn check_members(&mut self, place: &Place, span: Span) -> Done {
        let Some(field) = self.const_member(place.ty) else { return Ok(()) };
        let what = format!("'{}' has a const member, '{}'", self.type_name(place.ty), self.text(field.name));
        self.fail(span, what, "cannot be assigned", "leave out 'const' where it is declared")
    }

    pub(super) fn assignment(
        &mut self,
        op: Option<Binary>,
        target: &'m Expr,
        value: &'m Expr,
        span: Span,
    ) -> Done<Operand> {
        if let ExprKind::Name(name) = target.kind
            && let Some(Binding::Moving(pointer, local)) = self.lookup(name)
        {
            return self.move_pointer(op, pointer, local, target, value, span);
        }
        let Some(op) = op else {
            // The value first, as C++17 has it.
            if let ExprKind::Braces(_) = value.kind {
                let place = self.place(target)?;
                self.check_members(&place, target.span)?;
                let tree = self.initial(value, place.ty)?;
                let tree = self.settle(tree);
                self.write(&place, tree.clone(), target.span)?;
                return Ok(Operand::Tree(tree));
            }
            let tree = self.rvalue(value)?;
            let tree = self.settle_effects(tree);
            let place = self.place(target)?;
            self.check_members(&place, target.span)?;
            let tree = self.convert(tree, place.ty, value.span)?;
            let tree = self.settle(tree);
            self.write(&place, tree.clone(), target.span)?;
            return Ok(Operand::Tree(tree));
        };
        let right = self.rvalue(value)?;
        let right = self.settle_effects(right);
        let place = self.place(target)?;
        let left = self.read(&place, target.span)?;
        let sum = self.binary(op, left, right, span)?;
        let sum = self.convert(sum, place.ty, span)?;
        let sum = self.settle(sum);
        self.write(&place, sum.clone(), target.span)?;
        Ok(Operand::Tree(sum))
    }

    /// A tree with an update in it is written before anything that follows.
    pub(super) fn settle_effects(&mut self, tree: Tree) -> Tree {
        fn updates(tree: &Tree) -> bool {
            match &tree.node {
                Node::Atomic { .. } => true,
                Node::Cast(_, inner) | Node::Bitcast(_, inner) => updates(inner),
                Node::Op(_, args) | Node::Algebra(_, _, args) | Node::Call(_, args) => args.iter().any(updates),
                _ => false,
            }
        }
        if updates(&tree) { self.settle(tree) } else { tree }
    }

    pub(super) fn move_pointer(
        &mut self,
        op: Option<Binary>,
        pointer: Pointer,
        local: bornite_ir::LocalId,
        target: &'m Expr,
        value: &'m Expr,
        span: Span,
    ) -> Done<Operand> {
        let moved = match op {
            None => self.operand(value)?,
            Some(op) => match self.operand(target)? {
                Operand::Pointer(here) => self.pointer_sum(op, here, value, span)?,
                _ => return Err(Failed),
            },
        };
        match moved {
            Operand::Pointer(to) if to.to() != pointer.to() => {
                let (to, from) = (self.type_name(pointer.to()), self.type_name(to.to()));
                self.fail(
                    span,
                    format!("a pointer to '{from}' for one to '{to}'"),
                    format!("expected '{to}*'"),
                    "cast it",
                )
            }
            Operand::Pointer(to) if to.constant && !pointer.constant => {
                let hint = "declare it as a pointer to const";
                self.fail(span, "a pointer to const for one that is not", "drops 'const'", hint)
            }
            Operand::Pointer(to) if to.view == pointer.view && to.prefix == pointer.prefix => {
                let offset = to.offset.unwrap_or(Tree::int(self.index, 0));
                self.assign(local, &offset);
                self.operand(target)
            }
            Operand::Pointer(_) => self.refuse(span, "a pointer that points into two arrays", "use two pointers"),
            _ => self.fail(span, "a pointer is assigned a number", "expected a pointer", ""),
        }
    }

    pub(super) fn step(&mut self, by: i8, before: bool, target: &'m Expr, span: Span) -> Done<Operand> {
        if let ExprKind::Name(name) = target.kind
            && let Some(Binding::Moving(pointer, local)) = self.lookup(name)
        {
            let old = Tree::done(self.w.b.read(local), self.index);
            let width = pointer.width as i64 * by as i64;
            let new = Tree::op(Op::Add, vec![old.clone(), Tree::int(self.index, width)]);
            let new = self.settle(new);
            self.assign(local, &new);
            return Ok(Operand::Pointer(Pointer { offset: Some(if before { old } else { new }), ..pointer }));
        }
        let place = self.place(target)?;
        let old = self.read(&place, target.span)?;
        let old = self.settle(old);
        let op = if by > 0 { Binary::Add } else { Binary::Sub };
        let new = self.binary(op, old.clone(), Tree::int(Scalar::I32, 1), span)?;
        let new = self.convert(new, place.ty, span)?;
        let new = self.settle(new);
        self.write(&place, new.clone(), target.span)?;
        Ok(Operand::Tree(if before { old } else { new }))
    }
}
