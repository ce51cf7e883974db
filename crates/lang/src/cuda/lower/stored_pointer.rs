//! Pointers stored in structs and arrays, and returned by functions with several returns: numbers
//! that hold the position of an array among those that the pointer may point into, from 0, and an
//! offset. Position -1 is a null pointer.
//!
//! The arrays of a declaration are collected in [`MemoryNeeds`](super::MemoryNeeds), as those of
//! pointer variables are (`tagged.rs`). A pointer in a struct parameter of the kernel is a view
//! parameter, named `parameter.field`. Pointers in global memory, as in an array of structs,
//! point into one view parameter per field, so that the caller stores offsets in it.

use std::rc::Rc;

use bornite_ir::{Access, AlgebraOp, Extent, Field, IntRange, Op, Scalar, Type, View};

use super::lvalue::{CudaOperand, Lvalue, Pointer};
use super::names::unique_name;
use super::tagged::PointerChoice;
use super::{BoundArg, LowerFailed, LowerResult, Lowering};
use crate::cuda::ast::{Declarator, Expr, ExprKind};
use crate::cuda::types::CType;
use crate::lower::{Node, Tree};
use crate::{ParamRef, SourceSpan};

/// Bits of the offset of a stored pointer.
const OFFSET_BITS: i64 = 48;

/// Declaration of stored pointers.
#[derive(Clone, Copy)]
pub(super) struct PointerSlot {
    /// Type that the pointers point to.
    pub to: Type,
    pub constant: bool,
    pub declared: SourceSpan,
    /// Struct of one number that holds a pointer.
    ty: Type,
}

impl<'m> Lowering<'m> {
    /// Type of the pointers of a declaration when they are stored.
    pub(super) fn slot_type(&mut self, declared: SourceSpan, to: Type, constant: bool) -> Type {
        let known = |slot: &&PointerSlot| (slot.declared, slot.to, slot.constant) == (declared, to, constant);
        if let Some(slot) = self.pointer_slots.iter().find(known) {
            return slot.ty;
        }
        let taken = |name: &str| self.w.b.structs().iter().any(|other| other.name == name);
        let name = unique_name("pointer".to_owned(), taken);
        let field = Field { name: "bits".to_owned(), ty: Scalar::I64.into(), align: 1 };
        let ty = self.w.b.struct_from_fields(name, vec![field]);
        self.pointer_slots.push(PointerSlot { to, constant, declared, ty });
        ty
    }

    /// Declaration of the stored pointers of a type.
    pub(super) fn pointer_slot(&self, ty: Type) -> Option<PointerSlot> {
        self.pointer_slots.iter().find(|slot| slot.ty == ty).copied()
    }

    /// Returns true for the same types, and for pointers to the same type of two declarations.
    pub(super) fn is_same_pointee(&self, a: Type, b: Type) -> bool {
        let slot = |ty: Type| self.pointer_slot(ty).map(|slot| (slot.to, slot.constant));
        a == b || slot(a).is_some_and(|slot_a| slot(b) == Some(slot_a))
    }

    /// Returns true if values of a type hold pointers.
    pub(super) fn holds_pointers(&self, ty: Type) -> bool {
        let Type::Struct(id) = ty else { return false };
        self.pointer_slot(ty).is_some()
            || self.w.b.structs()[id.0 as usize].fields.iter().any(|field| self.holds_pointers(field.ty))
    }

    /// Returns true if the result of a function is a struct with pointers.
    pub(super) fn returns_pointers(&mut self, n: usize, bound: &[BoundArg]) -> bool {
        if self.pointer_slots.is_empty() {
            return false;
        }
        let function = &self.module.file.functions[n];
        let result = self
            .attempt(|lower| lower.in_file_scope(&function.templates, bound, |lower| lower.c_type(&function.result)));
        matches!(result, Some(CType::Value(ty)) if self.holds_pointers(ty))
    }

    /// Arrays that stored pointers may point into.
    fn slot_views(&self, slot: PointerSlot) -> Rc<[View]> {
        self.pointer_views(slot.declared).unwrap_or(&[]).into()
    }

    /// The pointer in a stored one; other operands are unchanged.
    pub(super) fn loaded_pointer(&mut self, operand: CudaOperand, span: SourceSpan) -> LowerResult<CudaOperand> {
        let Some(slot) = super::overload::value_type(&operand).and_then(|ty| self.pointer_slot(ty)) else {
            return Ok(operand);
        };
        let views = self.slot_views(slot);
        let stored = self.value_of(operand, span)?;
        let Some(view) = views.iter().copied().find(|view| self.points_into(*view, slot.to)) else {
            return Ok(CudaOperand::Null(Some(slot.to)));
        };
        self.require_wide_index();
        let bits = self.materialize(Tree::extract(stored, 0, Scalar::I64.into()));
        let count = |bits: i64| Tree::int(Scalar::I64, bits);
        let tag = Tree::op(Op::Shr, vec![bits.clone(), count(OFFSET_BITS)]);
        let tag = Tree::op(Op::Add, vec![tag, count(1)]);
        let left = Tree::op(Op::Shl, vec![bits, count(64 - OFFSET_BITS)]);
        let offset = Tree::op(Op::Shr, vec![left, count(64 - OFFSET_BITS)]);
        let tag = self.materialize(tag.cast(self.index_type));
        let offset = self.materialize(offset.cast(self.index_type));
        Ok(CudaOperand::Pointer(Pointer {
            offset: Some(offset),
            range: IntRange::of_type(self.index_type),
            constant: slot.constant,
            choice: Some(Rc::new(PointerChoice { tag, views })),
            ..Pointer::to_view(view, slot.to, 1, false, &[])
        }))
    }

    /// A stored null pointer.
    pub(super) fn null_pointer(&self, ty: Type) -> Tree {
        let bits = Tree::int(Scalar::I64, -1 << OFFSET_BITS);
        Tree::of(Node::Algebra(AlgebraOp::Construct, 0, vec![bits]), ty)
    }

    /// Value of a stored pointer.
    pub(super) fn stored_pointer(
        &mut self,
        operand: CudaOperand,
        slot: PointerSlot,
        span: SourceSpan,
    ) -> LowerResult<Tree> {
        let construct = |bits: Tree| Tree::of(Node::Algebra(AlgebraOp::Construct, 0, vec![bits]), slot.ty);
        let pointer = match operand {
            CudaOperand::Null(_) => return Ok(self.null_pointer(slot.ty)),
            CudaOperand::Pointer(pointer) => pointer,
            operand if self.move_operand_to_memory(&operand) => return Err(LowerFailed),
            _ => return self.fail(span, "cannot convert this value to a pointer", "expected a pointer", ""),
        };
        self.check_same_pointee(slot.to, slot.constant, &pointer, span)?;
        self.check_plain(&pointer, span)?;
        let (choice, views) = (self.choice_of(&pointer), self.slot_views(slot));
        if choice.views.iter().any(|view| !views.contains(view)) {
            self.require_views(slot.declared, &choice.views);
            return Err(LowerFailed);
        }
        if self.is_shared_slot(slot) && views.iter().any(|view| matches!(view, View::Local(_))) {
            let what = "a '__shared__' pointer to a local variable";
            return self.unsupported(span, what, "other threads cannot access it: use a shared array");
        }
        self.require_wide_index();
        let count = |bits: i64| Tree::int(Scalar::I64, bits);
        let tag = self.translate_tag(&choice, &views).cast(Scalar::I64);
        let tag = Tree::op(Op::Sub, vec![tag, count(1)]);
        let offset = pointer.offset.unwrap_or(Tree::int(self.index_type, 0)).cast(Scalar::I64);
        let tag = Tree::op(Op::Shl, vec![tag, count(OFFSET_BITS)]);
        let offset = Tree::op(Op::And, vec![offset, count((1 << OFFSET_BITS) - 1)]);
        Ok(construct(Tree::op(Op::Or, vec![tag, offset])))
    }

    /// Returns true for pointers that are declared in shared memory, alone or in a struct.
    fn is_shared_slot(&self, slot: PointerSlot) -> bool {
        let shared = &self.w.b.kernel().shared;
        shared.iter().any(|array| array.ty == slot.ty || self.holds_slot(array.ty, slot.ty))
    }

    fn holds_slot(&self, ty: Type, slot: Type) -> bool {
        let Type::Struct(id) = ty else { return false };
        let fields = &self.w.b.structs()[id.0 as usize].fields;
        fields.iter().any(|field| field.ty == slot || self.holds_slot(field.ty, slot))
    }

    /// Returns true for an array that a stored pointer to `to` may point into.
    fn points_into(&self, view: View, to: Type) -> bool {
        self.is_array_declared(view) && self.is_plain_array(view, to)
    }

    /// Rejects the address of a pointer: of a stored one or of a variable.
    pub(super) fn check_no_pointer(&mut self, expr: &Expr, operand: &CudaOperand, span: SourceSpan) -> LowerResult {
        let is_variable = match (&expr.kind, operand) {
            (ExprKind::Name(name), CudaOperand::Pointer(pointer)) => {
                let is_array = pointer.array_bytes.is_some() || pointer.has_rows() || self.is_shared_array(*name);
                self.lookup(*name).is_some() && !is_array && !self.request.round_trip
            }
            _ => false,
        };
        let is_stored = super::overload::value_type(operand).is_some_and(|ty| self.pointer_slot(ty).is_some());
        match is_variable || is_stored {
            true => self.unsupported(span, "the address of a pointer", "pass the pointer, or a reference to it"),
            false => Ok(()),
        }
    }

    /// Declaration of the stored pointer that an expression refers to, which is not evaluated.
    fn slot_of(&mut self, expr: &'m Expr) -> Option<PointerSlot> {
        if self.pointer_slots.is_empty() {
            return None;
        }
        let (mark, locals) = (self.w.b.mark(), self.locals);
        let operand = self.attempt(|lower| lower.unloaded_operand(expr));
        self.w.rollback(&mark);
        self.locals = locals;
        operand.and_then(|operand| super::overload::value_type(&operand)).and_then(|ty| self.pointer_slot(ty))
    }

    /// Returns true for expressions that refer to a stored pointer.
    pub(super) fn is_stored_pointer(&mut self, expr: &'m Expr) -> bool {
        self.slot_of(expr).is_some()
    }

    /// The stored pointer that an expression refers to, which is evaluated; `None` if it is
    /// something else, which is not evaluated.
    pub(super) fn pointer_target(&mut self, expr: &'m Expr) -> LowerResult<Option<(Lvalue, PointerSlot)>> {
        let Some(slot) = self.slot_of(expr) else { return Ok(None) };
        match self.unloaded_operand(expr)? {
            CudaOperand::Lvalue(lvalue) => {
                self.check_assignable(&lvalue, expr.span)?;
                Ok(Some((lvalue, slot)))
            }
            _ => self.fail(expr.span, "this expression cannot be assigned", "a temporary value", ""),
        }
    }

    /// Initial value of a stored pointer.
    pub(super) fn pointer_initializer(&mut self, expr: &'m Expr, slot: PointerSlot) -> LowerResult<Tree> {
        let operand = match &expr.kind {
            ExprKind::Braces(all) if all.is_empty() => CudaOperand::Null(None),
            ExprKind::Number { value, .. } if value.bits() == 0 => CudaOperand::Null(None),
            _ => self.operand(expr)?,
        };
        self.stored_pointer(operand, slot, expr.span)
    }

    /// Value of a struct parameter of the kernel with view parameters for its pointers; they are
    /// named after `path`.
    pub(super) fn with_pointer_params(
        &mut self,
        value: Tree,
        path: &str,
        fields: &'m [Declarator],
        span: SourceSpan,
    ) -> LowerResult<Tree> {
        let ty = value.ty;
        let mut whole = value;
        if !self.holds_pointers(ty) {
            return Ok(whole);
        }
        for (n, field) in fields.iter().enumerate() {
            let part = self.field_type(ty, n as u32);
            let path = format!("{path}.{}", self.text(field.name));
            let value = match self.pointer_slot(part) {
                Some(slot) => {
                    let pointer = self.pointer_param(slot, &path, span)?;
                    self.stored_pointer(CudaOperand::Pointer(pointer), slot, span)?
                }
                None if self.holds_pointers(part) => {
                    let inner = Tree::extract(whole.clone(), n as u32, part);
                    let fields = self.declared_fields(part);
                    self.with_pointer_params(inner, &path, fields, span)?
                }
                None => continue,
            };
            let inserted = Tree::of(Node::Algebra(AlgebraOp::Insert, n as u32, vec![whole, value]), ty);
            whole = self.materialize(inserted);
        }
        Ok(whole)
    }

    /// Declares the array that a pointer in a parameter points to.
    fn pointer_param(&mut self, slot: PointerSlot, path: &str, span: SourceSpan) -> LowerResult<Pointer> {
        let name = path.replace("[]", "_elements").replace('.', "_");
        let name = self.unique_shared_name(&name);
        let Some(dims) = self.view_dims(&name, path) else {
            let what = format!("the length of '{path}' is not known");
            let hint = "specify the number of elements of each array";
            return self.fail(span, what, "no length specified for this launch", hint);
        };
        if dims.len() != 1 || dims[0].stride != Extent::Const(1) {
            return self.unsupported(span, "a strided array in a struct", "pass a contiguous array");
        }
        self.check_view_type(slot.to, span)?;
        let access = if slot.constant { Access::Read } else { Access::ReadWrite };
        let view: View = self.w.b.view(&name, slot.to, &dims, access).into();
        if slot.constant {
            self.read_only.push((view, path.to_owned()));
        }
        self.params.push((path.to_owned(), ParamRef::View(self.views)));
        self.views += 1;
        Ok(Pointer { constant: slot.constant, ..Pointer::to_view(view, slot.to, 1, false, &[]) })
    }

    /// Declares the arrays that pointers in global memory point into: one per field.
    pub(super) fn pointers_in_memory(&mut self, ty: Type, path: &str, span: SourceSpan) -> LowerResult {
        if let Some(slot) = self.pointer_slot(ty) {
            if self.holds_pointers(slot.to) {
                return self.unsupported(span, "a pointer to pointers in global memory", "pass one array and offsets");
            }
            let path = if path.contains('.') { path.to_owned() } else { format!("{path}[]") };
            let pointer = self.pointer_param(slot, &path, span)?;
            // Numbers in memory count from the first array.
            match self.slot_views(slot).first() {
                None => self.require_views(slot.declared, &[pointer.view]),
                Some(first) if *first == pointer.view => {}
                Some(_) => {
                    let what = "a second array of structs with these pointers";
                    return self.unsupported(span, what, "pass one array of them");
                }
            }
            return Ok(());
        }
        for (n, field) in self.declared_fields(ty).iter().enumerate() {
            let part = self.field_type(ty, n as u32);
            if self.holds_pointers(part) {
                self.pointers_in_memory(part, &format!("{path}.{}", self.text(field.name)), span)?;
            }
        }
        Ok(())
    }
}
