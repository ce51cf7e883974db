//! Conditional evaluation: `?:`, `&&` and `||`.

use bornite_ir::{LocalId, Op, Scalar, Stmt, Type, Value};

use super::lvalue::{CudaOperand, Pointer};
use super::{Binding, LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Binary, Expr, ExprKind, Unary};
use crate::cuda::types::common_type;
use crate::lower::Tree;

impl<'m> Lowering<'m> {
    pub(super) fn conditional(
        &mut self,
        condition: &'m Expr,
        a: &'m Expr,
        b: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let condition = self.condition(condition)?;
        if let Some(known) = self.w.fold(&condition).filter(|_| !self.request.round_trip) {
            let (taken, other) = if known.bits() != 0 { (a, b) } else { (b, a) };
            if self.is_pointer(taken) {
                return self.operand(taken);
            }
            let ty = self.type_of(other)?;
            let tree = self.rvalue(taken)?;
            return Ok(CudaOperand::Tree(match (tree.scalar(), ty.as_scalar()) {
                (Some(left), Some(right)) if left != right => self.convert_scalar(tree, common_type(left, right)),
                _ => tree,
            }));
        }
        if let Some(pointer) = self.conditional_pointer(&condition, a, b, span)? {
            return Ok(pointer);
        }
        if self.request.round_trip || self.is_speculatable(a) && self.is_speculatable(b) {
            let exprs = [a, b];
            let (a, b) = (self.rvalue(a)?, self.rvalue(b)?);
            self.check_distinct_chars(exprs, [a.ty, b.ty], span)?;
            if a.ty.element().is_some() && b.ty.element().is_some() {
                let (a, b) = self.unify_types(a, b, span)?;
                return Ok(CudaOperand::Tree(Tree::select(condition, a, b)));
            }
            let chosen = self.lazy_conditional(condition, |_| Ok(a), |_| Ok(b), span)?;
            return Ok(CudaOperand::Tree(chosen));
        }
        let chosen = self.lazy_conditional(condition, |l| l.rvalue(a), |l| l.rvalue(b), span)?;
        self.check_distinct_chars([a, b], [chosen.ty; 2], span)?;
        Ok(CudaOperand::Tree(chosen))
    }

    /// Rejects `?:` on two characters in a file that uses both `char` and `signed char`, for which
    /// the result of C++ is an `int`.
    fn check_distinct_chars(&mut self, exprs: [&Expr; 2], types: [Type; 2], span: SourceSpan) -> LowerResult {
        if types != [Type::Scalar(Scalar::I8); 2] {
            return Ok(());
        }
        let file = &self.module.file;
        let is_signed = file.integer_names.signed_char || self.module.names.find("int8_t").is_some();
        let is_literal = |expr: &&Expr| matches!(expr.kind, ExprKind::Number { .. });
        let is_plain = file.integer_names.plain_char || exprs.iter().any(is_literal);
        match is_signed && is_plain && !exprs.iter().all(is_literal) {
            true => {
                let what = "'?:' on characters in a file that uses both 'char' and 'signed char'";
                self.unsupported(span, what, "cast both operands to 'int', or use one of the types")
            }
            false => Ok(()),
        }
    }

    /// Returns true if an expression, which is not evaluated, is a pointer.
    fn is_pointer(&mut self, expr: &'m Expr) -> bool {
        let names = |lower: &Self, name| match lower.lookup(name) {
            Some(Binding::Pointer(pointer)) => !pointer.single,
            Some(
                Binding::MovingPointer(..) | Binding::TaggedPointer(_) | Binding::RegisterArray(_) | Binding::Null(_),
            ) => true,
            _ => false,
        };
        match &expr.kind {
            ExprKind::Name(name) => names(self, *name),
            ExprKind::Cast(ty, _) => ty.pointers > 0,
            ExprKind::Binary(Binary::Add | Binary::Sub, a, _) => self.is_pointer(a),
            ExprKind::Unary(Unary::Address, _) | ExprKind::Null => true,
            ExprKind::Call { callee, .. } => {
                let functions = &self.module.file.functions;
                functions.iter().any(|function| function.name == *callee && function.result.pointers > 0)
            }
            ExprKind::Member(..) | ExprKind::Arrow(..) | ExprKind::Index(..) => self.is_stored_pointer(expr),
            _ => false,
        }
    }

    /// Lowers `?:` on two pointers.
    fn conditional_pointer(
        &mut self,
        condition: &Tree,
        a: &'m Expr,
        b: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<Option<CudaOperand>> {
        if self.request.round_trip || !self.is_pointer(a) || !self.is_pointer(b) {
            return Ok(None);
        }
        let (a, b) = (self.operand(a)?, self.operand(b)?);
        if self.move_operand_to_memory(&a) | self.move_operand_to_memory(&b) {
            return Err(LowerFailed);
        }
        let (first, second) = match (a, b) {
            (CudaOperand::Pointer(first), CudaOperand::Pointer(second)) => (first, second),
            (CudaOperand::Pointer(first), CudaOperand::Null(_)) => {
                return self.choose_pointer(condition.clone(), Some(first), None, span).map(Some);
            }
            (CudaOperand::Null(_), CudaOperand::Pointer(second)) => {
                return self.choose_pointer(condition.clone(), None, Some(second), span).map(Some);
            }
            _ => return self.unsupported(span, "'?:' on these pointers", "choose between the values they point to"),
        };
        let is_chosen = first.choice.is_some() || second.choice.is_some();
        if first.view != second.view || first.prefix != second.prefix || is_chosen {
            return self.choose_pointer(condition.clone(), Some(first), Some(second), span).map(Some);
        }
        if first.pointee_type() != second.pointee_type() {
            return self.unsupported(span, "'?:' on pointers to different types", "cast one");
        }
        let zero = || Tree::int(self.index_type, 0);
        let (from, to) = (first.offset.clone().unwrap_or_else(zero), second.offset.unwrap_or_else(zero));
        let offset = self.materialize(Tree::select(condition.clone(), from, to));
        let (range, constant) = (first.range.union(second.range), first.constant || second.constant);
        Ok(Some(CudaOperand::Pointer(Pointer { offset: Some(offset), range, constant, ..first })))
    }

    /// Lowers `?:` so that only the selected operand is evaluated.
    pub(super) fn lazy_conditional(
        &mut self,
        condition: Tree,
        a: impl FnOnce(&mut Self) -> LowerResult<Tree>,
        b: impl FnOnce(&mut Self) -> LowerResult<Tree>,
        span: SourceSpan,
    ) -> LowerResult<Tree> {
        let condition = self.materialize(condition);
        let condition_id = self.w.emit(&condition);
        self.w.b.open_block();
        let first = a(self).map(|tree| self.store_chosen(tree, None));
        let then = self.w.b.close_block();
        self.w.b.open_block();
        let same = first.as_ref().ok().copied();
        let second = b(self).map(|tree| self.store_chosen(tree, same));
        let otherwise = self.w.b.close_block();
        let ((a, left), (b, right)) = (first?, second?);
        self.w.stmt(Stmt::If { condition: condition_id, then, otherwise });
        let value = Tree::emitted(self.w.b.read(a), left);
        if a == b {
            return Ok(value);
        }
        let other = Tree::emitted(self.w.b.read(b), right);
        let (a, b) = self.unify_types(value, other, span)?;
        Ok(Tree::select(condition, a, b))
    }

    /// Stores a value in a local variable: in `local` if its type matches, otherwise in a new one.
    pub(super) fn store_chosen(&mut self, tree: Tree, local: Option<(LocalId, Type)>) -> (LocalId, Type) {
        let tree = self.materialize(tree);
        let (local, ty) = match local.filter(|(_, ty)| *ty == tree.ty) {
            Some(local) => local,
            None => {
                let zeros = self.zeros(tree.ty);
                (self.new_local("chosen", tree.ty, &zeros), tree.ty)
            }
        };
        self.assign(local, &tree);
        (local, ty)
    }

    /// Lowers `&&` and `||`. The second operand is evaluated conditionally unless it is
    /// speculatable.
    pub(super) fn logical(&mut self, op: Binary, a: &'m Expr, b: &'m Expr) -> LowerResult<CudaOperand> {
        let first = self.condition(a)?;
        let row = if op == Binary::LogicalAnd { Op::And } else { Op::Or };
        if let Some(known) = self.w.fold(&first) {
            let decided = (known.bits() != 0) == (op == Binary::LogicalOr);
            return Ok(CudaOperand::Tree(if decided { first } else { self.condition(b)? }));
        }
        if self.is_speculatable(b) {
            let second = self.condition(b)?;
            return Ok(CudaOperand::Tree(Tree::op(row, vec![first, second])));
        }
        let first = self.materialize(first);
        let local = self.new_local("both", Scalar::Bool.into(), &[Value::int(Scalar::Bool, 0)]);
        self.assign(local, &first);
        let evaluates_second = if op == Binary::LogicalAnd { first } else { Tree::op(Op::Not, vec![first]) };
        let condition = self.w.emit(&evaluates_second);
        self.w.b.open_block();
        let second = self.condition(b);
        if let Ok(second) = &second {
            self.assign(local, second);
        }
        let then = self.w.b.close_block();
        self.w.stmt(Stmt::If { condition, then, otherwise: vec![] });
        second?;
        Ok(CudaOperand::Tree(Tree::emitted(self.w.b.read(local), Scalar::Bool)))
    }

    /// Type of an expression that is not evaluated.
    pub(super) fn type_of(&mut self, expr: &'m Expr) -> LowerResult<Type> {
        let (mark, locals) = (self.w.b.mark(), self.locals);
        let ty = self.rvalue(expr).map(|tree| tree.ty);
        self.w.rollback(&mark);
        self.locals = locals;
        ty
    }
}
