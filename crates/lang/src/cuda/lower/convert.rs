//! C++ conversions, implicit and explicit, and operators on two numbers.

use bornite_ir::{Op, Scalar, Stmt, Type, View};

use super::lvalue::{CudaOperand, Lvalue, Pointer, Projection, RegisterArray};
use super::pair::is_pair;
use super::reinterpret::same_width;
use super::{Binding, LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Base, Binary, Expr, ExprKind, TypeName, Unary};
use crate::cuda::lex::Symbol;
use crate::cuda::types::{CType, common_type, promoted};
use crate::lower::{Node, Tree};

impl<'m> Lowering<'m> {
    /// Implicit conversion of a number; a literal becomes a literal of the other type.
    pub(super) fn convert_scalar(&mut self, tree: Tree, to: Scalar) -> Tree {
        match tree.as_const().and_then(|value| crate::lower::fold_cast(to, value)) {
            Some(value) if tree.scalar() != Some(to) => Tree::constant(value),
            _ => tree.cast(to),
        }
    }

    /// Implicit conversion.
    pub(super) fn convert(&mut self, tree: Tree, to: Type, span: SourceSpan) -> LowerResult<Tree> {
        if tree.ty != to && self.has_explicit_constructor(to) {
            let (found, expected) = (self.type_name(tree.ty), self.type_name(to));
            let what = format!("cannot convert '{found}' to '{expected}': its constructor is explicit");
            return self.fail(span, what, format!("expected '{expected}'"), format!("write '{expected}(…)'"));
        }
        self.convert_or_construct(tree, to, span)
    }

    /// Returns true for a struct with an explicit constructor of one argument.
    pub(super) fn has_explicit_constructor(&self, ty: Type) -> bool {
        let functions = &self.module.file.functions;
        let is_explicit = |n: usize| functions[n].method.as_ref().is_some_and(|method| method.is_explicit);
        let item = if let Type::Struct(_) = ty { self.struct_of(ty) } else { None };
        item.is_some_and(|(item, _)| self.methods(item.name, item.name, 1).into_iter().any(is_explicit))
    }

    /// Conversion that may call an explicit constructor.
    pub(super) fn convert_or_construct(&mut self, tree: Tree, to: Type, span: SourceSpan) -> LowerResult<Tree> {
        if tree.ty == to {
            return Ok(tree);
        }
        let (Some(_), Some(target)) = (tree.scalar(), to.as_scalar()) else {
            let operands = vec![CudaOperand::Tree(tree.clone())];
            if let Type::Struct(_) = to
                && let Some(constructed) = self.call_constructor(to, Some(operands), &[], span)?
            {
                return Ok(constructed);
            }
            let (found, expected) = (self.type_name(tree.ty), self.type_name(to));
            let what = format!("cannot convert '{found}' to '{expected}'");
            return self.fail(span, what, format!("expected '{expected}'"), "");
        };
        Ok(self.convert_scalar(tree, target))
    }

    /// Lowers a binary operator on numbers, with the usual arithmetic conversions.
    pub(super) fn binary(&mut self, op: Binary, a: Tree, b: Tree, span: SourceSpan) -> LowerResult<Tree> {
        if is_pair(a.ty) && a.ty == b.ty {
            let op = match op {
                Binary::Add => Op::Add,
                Binary::Sub => Op::Sub,
                Binary::Mul => Op::Mul,
                Binary::Div => Op::Div,
                _ => return self.unsupported(span, "this operator on pairs of floats", "apply it to each component"),
            };
            return Ok(Tree::op(op, vec![a, b]));
        }
        let (Some(left), Some(right)) = (a.scalar(), b.scalar()) else {
            self.report_unsupported(None)?;
            let (a, b) = (self.type_name(a.ty), self.type_name(b.ty));
            let what = format!("invalid operands of types '{a}' and '{b}'");
            return self.fail(
                span,
                what,
                "expected numbers",
                "CUDA has no operators on vectors; apply it to each component",
            );
        };
        let row = match op {
            Binary::Add => Op::Add,
            Binary::Sub => Op::Sub,
            Binary::Mul => Op::Mul,
            Binary::Div => Op::Div,
            Binary::Rem => Op::Rem,
            Binary::And => Op::And,
            Binary::Or => Op::Or,
            Binary::Xor => Op::Xor,
            Binary::Shl => Op::Shl,
            Binary::Shr => Op::Shr,
            Binary::Eq => Op::Eq,
            Binary::Ne => Op::Ne,
            Binary::Lt => Op::Lt,
            Binary::Le => Op::Le,
            Binary::Gt => Op::Gt,
            Binary::Ge => Op::Ge,
            Binary::LogicalAnd | Binary::LogicalOr | Binary::Comma => return Err(LowerFailed),
        };
        let integral = matches!(row, Op::Rem | Op::And | Op::Or | Op::Xor | Op::Shl | Op::Shr);
        if integral && (left.is_float() || right.is_float()) {
            let hint = if row == Op::Rem { "use fmodf or fmod" } else { "cast to an integer, or use __float_as_int" };
            return self.fail(span, "this operator needs integers", "a float", hint);
        }
        if matches!(row, Op::Shl | Op::Shr) {
            let ty = promoted(left);
            let (a, b) = (self.convert_scalar(a, ty), self.convert_scalar(b, ty));
            return Ok(Tree::op(row, vec![a, b]));
        }
        if self.request.round_trip
            && left == Scalar::Bool
            && right == Scalar::Bool
            && matches!(row, Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge)
        {
            return Ok(Tree::of(Node::Op(row, vec![a, b]), Scalar::Bool));
        }
        let ty = common_type(left, right);
        let (a, b) = (self.convert_scalar(a, ty), self.convert_scalar(b, ty));
        Ok(Tree::op(row, vec![a, b]))
    }

    /// Converts the operands of `?:` to their common type.
    pub(super) fn unify_types(&mut self, a: Tree, b: Tree, span: SourceSpan) -> LowerResult<(Tree, Tree)> {
        match (a.scalar(), b.scalar()) {
            (Some(left), Some(right)) if left != right => {
                let ty = common_type(left, right);
                Ok((self.convert_scalar(a, ty), self.convert_scalar(b, ty)))
            }
            (Some(_), Some(_)) => Ok((a, b)),
            _ if a.ty == b.ty => Ok((a, b)),
            _ => {
                let (a, b) = (self.type_name(a.ty), self.type_name(b.ty));
                self.fail(span, format!("incompatible types in '?:', '{a}' and '{b}'"), "expected the same type", "")
            }
        }
    }

    pub(super) fn cast(&mut self, ty: &'m TypeName, inner: &'m Expr, span: SourceSpan) -> LowerResult<CudaOperand> {
        if ty.base == Base::Void && ty.pointers == 0 {
            // The CUDA printer's form of a declaration in a loop.
            if let (true, ExprKind::Name(name)) = (self.request.round_trip, &inner.kind)
                && let Some(Binding::Pointer(Pointer { view: View::Local(id), .. })) = self.lookup(*name)
            {
                self.push_stmt(Stmt::Declare(id), span);
                return Ok(CudaOperand::Void);
            }
            self.effect(inner)?;
            return Ok(CudaOperand::Void);
        }
        let to = self.c_type(ty)?;
        let operand = self.operand(inner)?;
        match (to, operand) {
            // Components of a named element: `((float*)&v[i])[k]`.
            (CType::Pointer(Type::Scalar(to)), CudaOperand::Pointer(pointer))
                if !ty.reference
                    && pointer.width == 1
                    && pointer.offset.is_some()
                    && pointer.ty.as_scalar().is_none()
                    && pointer.ty.element() == Some(to)
                    && let ExprKind::Unary(Unary::Address, element) = &inner.kind
                    && let Some(name) = variable_of(element) =>
            {
                match self.element(pointer)? {
                    CudaOperand::Lvalue(lvalue) => {
                        let sizes = [lvalue.ty.component_count(&[]) as u64].into();
                        Ok(CudaOperand::RegisterArray(RegisterArray { lvalue, name, sizes }, vec![]))
                    }
                    _ => Err(LowerFailed),
                }
            }
            (CType::Pointer(Type::Scalar(to)), CudaOperand::Address(lvalue))
                if !ty.reference
                    && matches!(lvalue.ty, Type::Vector(of, _) if of == to)
                    && let ExprKind::Unary(Unary::Address, element) = &inner.kind
                    && let Some(name) = variable_of(element) =>
            {
                let sizes = [lvalue.ty.component_count(&[]) as u64].into();
                Ok(CudaOperand::RegisterArray(RegisterArray { lvalue, name, sizes }, vec![]))
            }
            (CType::Pointer(to), operand) if !ty.reference => {
                let constant = ty.constant;
                Ok(match self.cast_pointer(operand, to, span)? {
                    CudaOperand::Pointer(pointer) => CudaOperand::Pointer(Pointer { constant, ..pointer }),
                    other => other,
                })
            }
            (CType::Value(to), operand) if ty.reference => {
                let constant = self.is_const(ty);
                Ok(match self.cast_reference(operand, to, span)? {
                    CudaOperand::Lvalue(lvalue) => CudaOperand::Lvalue(Lvalue { constant, ..lvalue }),
                    other => other,
                })
            }
            (CType::Value(to), operand) => {
                let tree = self.value_of(operand, inner.span)?;
                Ok(CudaOperand::Tree(self.explicit(tree, to, span)?))
            }
            _ => self.unsupported(span, "this cast to or from a pointer", ""),
        }
    }

    fn cast_pointer(&mut self, operand: CudaOperand, to: Type, span: SourceSpan) -> LowerResult<CudaOperand> {
        match (to, operand) {
            (to, CudaOperand::Null(_)) => Ok(CudaOperand::Null(Some(to))),
            (to, CudaOperand::Pointer(pointer)) => self.reinterpret_pointer(pointer, to, span),
            (to, CudaOperand::Address(lvalue)) if lvalue.ty == to => Ok(CudaOperand::Address(lvalue)),
            (Type::Scalar(to), CudaOperand::Address(mut lvalue))
                if lvalue.ty.as_scalar().is_some_and(|from| same_width(from, to)) =>
            {
                lvalue.path.push(Projection::Reinterpret(to.into()));
                Ok(CudaOperand::Address(Lvalue { ty: to.into(), ..lvalue }))
            }
            (_, operand) if self.move_operand_to_memory(&operand) => Err(LowerFailed),
            _ => self.unsupported(span, "this cast to or from a pointer", ""),
        }
    }

    /// Reinterprets the bits: `reinterpret_cast<int&>(x)` is `*(int*)&x`.
    fn cast_reference(&mut self, operand: CudaOperand, to: Type, span: SourceSpan) -> LowerResult<CudaOperand> {
        match operand {
            CudaOperand::Tree(tree) => match (tree.scalar(), to.as_scalar()) {
                _ if tree.ty == to => Ok(CudaOperand::Tree(tree)),
                (Some(from), Some(to)) if same_width(from, to) => Ok(CudaOperand::Tree(tree.reinterpret(to))),
                _ => {
                    let (from, to) = (self.type_name(tree.ty), self.type_name(to));
                    self.unsupported(
                        span,
                        format!("reinterpreting '{from}' as '{to}'"),
                        "reinterpret it as a scalar of the same width",
                    )
                }
            },
            CudaOperand::Lvalue(lvalue) if lvalue.ty == to => Ok(CudaOperand::Lvalue(lvalue)),
            CudaOperand::Lvalue(_) => {
                let pointer = self.address(operand, span)?;
                let cast_type = self.cast_pointer(pointer, to, span)?;
                Ok(CudaOperand::Lvalue(self.pointee(cast_type, span)?))
            }
            _ => self.unsupported(span, "a reference to something other than a variable or element", ""),
        }
    }

    /// Explicit conversion; of a literal, a cast.
    pub(super) fn explicit(&mut self, tree: Tree, to: Type, span: SourceSpan) -> LowerResult<Tree> {
        match (tree.scalar(), to.as_scalar()) {
            (Some(_), Some(to)) => Ok(tree.cast(to)),
            _ => self.convert_or_construct(tree, to, span),
        }
    }
}

/// Name of the variable in an expression of it or of an element: `v`, `v[i]`.
fn variable_of(element: &Expr) -> Option<Symbol> {
    match &element.kind {
        ExprKind::Name(name) => Some(*name),
        ExprKind::Index(array, _) => variable_of(array),
        _ => None,
    }
}
