//! Conversions of C++, implicit and explicit, and operators on two numbers.

use bornite_ir::{Op, Scalar, Type};

use super::place::{Operand, Place, Pointer, Slots, Step};
use super::{Done, Failed, Lower};
use crate::Span;
use crate::cuda::ast::{Base, Binary, Expr, ExprKind, TypeName, Unary};
use crate::cuda::lex::Symbol;
use crate::cuda::types::{CType, common, promoted};
use crate::lower::{Node, Tree};

impl<'m> Lower<'m> {
    /// An implicit conversion of a number: of a literal, another literal.
    pub(super) fn widened(&mut self, tree: Tree, to: Scalar) -> Tree {
        match tree.known().and_then(|value| crate::lower::converted(to, value)) {
            Some(value) if tree.scalar() != Some(to) => Tree::constant(value),
            _ => tree.cast(to),
        }
    }

    /// An implicit conversion.
    pub(super) fn convert(&mut self, tree: Tree, to: Type, span: Span) -> Done<Tree> {
        if tree.ty == to {
            return Ok(tree);
        }
        let (Some(_), Some(target)) = (tree.scalar(), to.as_scalar()) else {
            let (found, wanted) = (self.type_name(tree.ty), self.type_name(to));
            let what = format!("'{found}' is not '{wanted}'");
            return self.fail(span, what, format!("expected '{wanted}'"), "");
        };
        Ok(self.widened(tree, target))
    }

    /// An operator on two numbers, with the conversions of C++.
    pub(super) fn binary(&mut self, op: Binary, a: Tree, b: Tree, span: Span) -> Done<Tree> {
        let (Some(left), Some(right)) = (a.scalar(), b.scalar()) else {
            self.told_refused(None)?;
            let (a, b) = (self.type_name(a.ty), self.type_name(b.ty));
            let what = format!("no such operator on '{a}' and '{b}'");
            return self.fail(
                span,
                what,
                "expected numbers",
                "CUDA has no operators on vectors: write it by components",
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
            Binary::Both | Binary::Either | Binary::Comma => return Err(Failed),
        };
        let integral = matches!(row, Op::Rem | Op::And | Op::Or | Op::Xor | Op::Shl | Op::Shr);
        if integral && (left.is_float() || right.is_float()) {
            let hint = if row == Op::Rem { "use fmodf or fmod" } else { "cast to an integer, or see __float_as_int" };
            return self.fail(span, "this operator is for integers", "a float", hint);
        }
        if matches!(row, Op::Shl | Op::Shr) {
            let ty = promoted(left);
            let (a, b) = (self.widened(a, ty), self.widened(b, ty));
            return Ok(Tree::op(row, vec![a, b]));
        }
        if self.request.printed
            && left == Scalar::Bool
            && right == Scalar::Bool
            && matches!(row, Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge)
        {
            return Ok(Tree::of(Node::Op(row, vec![a, b]), Scalar::Bool));
        }
        let ty = common(left, right);
        let (a, b) = (self.widened(a, ty), self.widened(b, ty));
        Ok(Tree::op(row, vec![a, b]))
    }

    /// Two values in the type in which C++ chooses between them.
    pub(super) fn met(&mut self, a: Tree, b: Tree, span: Span) -> Done<(Tree, Tree)> {
        match (a.scalar(), b.scalar()) {
            (Some(left), Some(right)) if left != right => {
                let ty = common(left, right);
                Ok((self.widened(a, ty), self.widened(b, ty)))
            }
            (Some(_), Some(_)) => Ok((a, b)),
            _ if a.ty == b.ty => Ok((a, b)),
            _ => {
                let (a, b) = (self.type_name(a.ty), self.type_name(b.ty));
                self.fail(span, format!("a choice between '{a}' and '{b}'"), "expected one type", "")
            }
        }
    }

    pub(super) fn cast(&mut self, ty: &'m TypeName, inner: &'m Expr, span: Span) -> Done<Operand> {
        if ty.base == Base::Void && ty.pointers == 0 {
            self.effect(inner)?;
            return Ok(Operand::Void);
        }
        let to = self.c_type(ty)?;
        let operand = self.operand(inner)?;
        match (to, operand) {
            // The components of one element, which is named: `((float*)&v[i])[k]`.
            (CType::Pointer(Type::Scalar(to)), Operand::Pointer(pointer))
                if !ty.reference
                    && pointer.width == 1
                    && pointer.offset.is_some()
                    && pointer.ty.as_scalar().is_none()
                    && pointer.ty.element() == Some(to)
                    && let ExprKind::Unary(Unary::Address, element) = &inner.kind
                    && let Some(name) = array_of(element) =>
            {
                match self.element(pointer)? {
                    Operand::Place(place) => {
                        let sizes = [place.ty.count(&[]) as u64].into();
                        Ok(Operand::Array(Slots { place, name, sizes }, vec![]))
                    }
                    _ => Err(Failed),
                }
            }
            (CType::Pointer(to), operand) if !ty.reference => {
                let constant = ty.constant;
                Ok(match self.cast_pointer(operand, to, span)? {
                    Operand::Pointer(pointer) => Operand::Pointer(Pointer { constant, ..pointer }),
                    other => other,
                })
            }
            (CType::Value(to), operand) if ty.reference => {
                let constant = self.is_const(ty);
                Ok(match self.cast_reference(operand, to, span)? {
                    Operand::Place(place) => Operand::Place(Place { constant, ..place }),
                    other => other,
                })
            }
            (CType::Value(to), operand) => {
                let tree = self.value_of(operand, inner.span)?;
                Ok(Operand::Tree(self.explicit(tree, to, span)?))
            }
            _ => self.refuse(span, "a cast to or from a pointer", ""),
        }
    }

    fn cast_pointer(&mut self, operand: Operand, to: Type, span: Span) -> Done<Operand> {
        match (to, operand) {
            (to, Operand::Pointer(pointer)) => self.seen_as(pointer, to, span),
            (to, Operand::Address(place)) if place.ty == to => Ok(Operand::Address(place)),
            (Type::Scalar(to), Operand::Address(mut place))
                if place.ty.as_scalar().is_some_and(|from| same_width(from, to)) =>
            {
                place.path.push(Step::Bits(to));
                Ok(Operand::Address(Place { ty: to.into(), ..place }))
            }
            _ => self.refuse(span, "a cast to or from a pointer", ""),
        }
    }

    /// A reference of another type is the same bits: `reinterpret_cast<int&>(x)` is `*(int*)&x`.
    fn cast_reference(&mut self, operand: Operand, to: Type, span: Span) -> Done<Operand> {
        match operand {
            Operand::Tree(tree) => match (tree.scalar(), to.as_scalar()) {
                _ if tree.ty == to => Ok(Operand::Tree(tree)),
                (Some(from), Some(to)) if same_width(from, to) => Ok(Operand::Tree(tree.seen_as(to))),
                _ => {
                    let (from, to) = (self.type_name(tree.ty), self.type_name(to));
                    self.refuse(span, format!("a '{from}' seen as a '{to}'"), "see it as a number of its width")
                }
            },
            Operand::Place(place) if place.ty == to => Ok(Operand::Place(place)),
            Operand::Place(_) => {
                let pointer = self.address(operand, span)?;
                let seen = self.cast_pointer(pointer, to, span)?;
                Ok(Operand::Place(self.pointee(seen, span)?))
            }
            _ => self.refuse(span, "a reference to something that is no variable or element", ""),
        }
    }

    /// An explicit conversion: of a literal, the conversion itself.
    pub(super) fn explicit(&mut self, tree: Tree, to: Type, span: Span) -> Done<Tree> {
        match (tree.scalar(), to.as_scalar()) {
            (Some(_), Some(to)) => Ok(tree.cast(to)),
            _ => self.convert(tree, to, span),
        }
    }

    /// A pointer to scalars seen as one to vectors of them, or back, or to scalars of the same width.
    pub(super) fn seen_as(&mut self, pointer: Pointer, to: Type, span: Span) -> Done<Operand> {
        if pointer.prefix.len() + 1 < pointer.rank && pointer.dims.is_none() {
            return self.refuse(span, "a cast of an array of several dimensions here", "cast it where it is declared");
        }
        let pointer = Pointer { sizes: [].into(), ..pointer };
        let scalar = pointer.ty.element();
        match (pointer.ty, to) {
            (from, to) if from == to => Ok(Operand::Pointer(Pointer { seen: None, ..pointer })),
            (Type::Scalar(from), Type::Vector(scalar, n))
                if from == scalar && matches!(n, 2 | 4) && pointer.dims.is_none() =>
            {
                Ok(Operand::Pointer(Pointer { ty: to, width: n, seen: None, ..pointer }))
            }
            (Type::Vector(..), Type::Scalar(to)) if pointer.width > 1 && scalar == Some(to) => {
                Ok(Operand::Pointer(Pointer { ty: to.into(), width: 1, seen: None, ..pointer }))
            }
            (Type::Scalar(from), Type::Scalar(to)) if same_width(from, to) => {
                Ok(Operand::Pointer(Pointer { seen: Some(to), ..pointer }))
            }
            _ => {
                let (from, to) = (self.type_name(pointer.to()), self.type_name(to));
                let what = format!("a pointer to '{from}' seen as one to '{to}'");
                self.refuse(
                    span,
                    what,
                    "numbers can be seen as vectors of 2 or 4 of them, or as numbers of their width",
                )
            }
        }
    }
}

/// The array that an element is of, where that is written out: `v[i]`.
fn array_of(element: &Expr) -> Option<Symbol> {
    let ExprKind::Index(array, _) = &element.kind else { return None };
    if let ExprKind::Name(name) = array.kind { Some(name) } else { array_of(array) }
}

/// Numbers of one width: their bits can be seen as each other.
fn same_width(a: Scalar, b: Scalar) -> bool {
    a != Scalar::Bool && b != Scalar::Bool && a.bytes() == b.bytes()
}
