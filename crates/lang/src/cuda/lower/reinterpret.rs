//! Reinterpretation: pointers cast to pointers to other types, and the bits of values.
//!
//! The elements of an array have one type in the IR. A pointer that is cast to another type spans
//! several elements (`(float4*)halves`: 8 of them) or a part of one (`(char*)ints`, read-only for
//! parameters of kernels). A cast of an array whose elements have several components, such as
//! `(float*)vectors`, lowers the kernel again with an array of scalars
//! ([`MemoryNeeds::elements`](super::MemoryNeeds)).

use bornite_ir::{Check, IntRange, MAX_COMPONENTS, Op, Scalar, Stmt, Type, View};

use super::lvalue::{CudaOperand, Lvalue, LvalueRoot, Pointer, Projection};
use super::{LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::lower::Tree;

/// Elements that a pointee consists of.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Grouping {
    /// The element or a vector of several.
    pub ty: Type,
    pub cast_type: Option<Type>,
    pub width: u8,
    /// Number of pointees in one element, if that is larger.
    pub split: u8,
}

impl Grouping {
    pub fn apply(self, pointer: Pointer) -> Pointer {
        let Grouping { ty, cast_type, width, split } = self;
        Pointer { ty, cast_type, width, split, ..pointer }
    }
}

/// Unsigned integer of a number of bytes, a power of 2.
fn unsigned(bytes: usize) -> Scalar {
    match bytes {
        1 => Scalar::U8,
        2 => Scalar::U16,
        4 => Scalar::U32,
        _ => Scalar::U64,
    }
}

/// The bits of a scalar as an unsigned integer of its width.
fn bits_of(tree: Tree) -> Tree {
    match tree.scalar() {
        Some(scalar) => tree.reinterpret(unsigned(scalar.bytes())),
        None => tree,
    }
}

impl<'m> Lowering<'m> {
    /// Reinterprets the bits of a value as another type of the same size.
    pub(super) fn regroup(&mut self, tree: Tree, to: Type) -> Tree {
        if tree.ty == to {
            return tree;
        }
        if let (Some(from), Some(scalar)) = (tree.ty.element(), to.element())
            && same_width(from, scalar)
            && tree.ty.with_element(scalar) == to
        {
            return tree.reinterpret(scalar);
        }
        let mut whole = self.materialize(tree);
        while let Some((source, ty)) = whole.as_emitted().and_then(|id| self.w.regrouped(id)) {
            whole = Tree::emitted(source, ty);
            if ty == to {
                return whole;
            }
        }
        let layout = |ty: Type| ty.layout(self.w.b.structs()).offsets;
        let (from, into) = (layout(whole.ty), layout(to));
        let mut components = vec![];
        self.scalar_components(whole.clone(), &mut components);
        let sources: Vec<(usize, usize, Tree)> =
            from.into_iter().zip(components).map(|((at, scalar), of)| (at, scalar.bytes(), bits_of(of))).collect();
        let mut parts = vec![];
        for (at, scalar) in into {
            let bytes = scalar.bytes();
            let mut bits: Option<Tree> = None;
            for (from, size, source) in &sources {
                if *from >= at + bytes || at >= from + size {
                    continue;
                }
                let word = unsigned(bytes.max(*size).max(4));
                let count = |bytes: usize| Tree::int(word, bytes as i64 * 8);
                let source = source.clone().cast(word);
                let part = match from.cmp(&at) {
                    std::cmp::Ordering::Equal => source,
                    std::cmp::Ordering::Less => Tree::op(Op::Shr, vec![source, count(at - from)]),
                    std::cmp::Ordering::Greater => Tree::op(Op::Shl, vec![source, count(from - at)]),
                };
                let part = self.materialize(part.cast(unsigned(bytes)));
                bits = Some(match bits {
                    Some(bits) => Tree::op(Op::Or, vec![bits, part]),
                    None => part,
                });
            }
            // Padding is 0.
            let bits = bits.unwrap_or(Tree::int(unsigned(bytes), 0));
            let part = if scalar == Scalar::Bool { bits.cast(scalar) } else { bits.reinterpret(scalar) };
            parts.push(self.materialize(part));
        }
        let value = self.assemble(to, &mut parts.into_iter());
        let value = self.materialize(value);
        if let (Some(id), Some(source)) = (value.as_emitted(), whole.as_emitted())
            && id > source
        {
            self.w.note_regrouped(id, source, whole.ty);
        }
        value
    }

    /// Returns how a pointee consists of elements of a scalar type; `None` if it does not.
    pub(super) fn grouping(&self, from: Scalar, to: Type) -> Option<Grouping> {
        let element = Type::Scalar(from);
        let layout = to.layout(self.w.b.structs());
        if from == Scalar::Bool {
            return (to == element).then_some(Grouping { ty: element, cast_type: None, width: 1, split: 1 });
        }
        if layout.bytes >= from.bytes() && layout.bytes.is_multiple_of(from.bytes()) {
            let width = layout.bytes / from.bytes();
            let ty = if width == 1 { element } else { Type::Vector(from, u8::try_from(width).ok()?) };
            let cast_type = (ty != to).then_some(to);
            return (width <= MAX_COMPONENTS).then_some(Grouping { ty, cast_type, width: width as u8, split: 1 });
        }
        let split = (from.bytes() / layout.bytes.max(1)) as u8;
        let is_even = layout.bytes > 0 && from.bytes().is_multiple_of(layout.bytes);
        let is_part = is_even && to.as_scalar().is_some();
        is_part.then_some(Grouping { ty: element, cast_type: Some(to), width: 1, split })
    }

    /// Scalar type of all components of a type, if it has no padding.
    fn uniform_scalar(&self, ty: Type) -> Option<Scalar> {
        let layout = ty.layout(self.w.b.structs());
        let (_, first) = *layout.offsets.first()?;
        let is_uniform = layout.offsets.iter().all(|(_, scalar)| *scalar == first);
        (is_uniform && layout.bytes == first.bytes() * layout.offsets.len()).then_some(first)
    }

    /// Type of the elements of a view.
    fn memory_type(&self, view: View) -> Type {
        self.w.b.kernel().view(view).ty
    }

    /// Requests another lowering in which the memory of an array has scalar elements that `to`
    /// consists of; returns false if that is not possible or the case already.
    pub(super) fn require_scalars(&mut self, view: View, to: Type) -> bool {
        let declared = self.declared_views.iter().rev().find(|(found, _)| *found == view);
        let Some((_, declared)) = declared else { return false };
        let memory = self.memory_type(view);
        let smallest = |ty: Type| {
            let sizes = ty.layout(self.w.b.structs()).offsets.into_iter().map(|(_, scalar)| scalar.bytes());
            sizes.min().unwrap_or(8)
        };
        let bytes = smallest(to);
        let scalar = match (self.uniform_scalar(memory), view) {
            (Some(scalar), _) if scalar != Scalar::Bool && scalar.bytes() <= bytes => scalar,
            // The caller provides elements of the declared scalar type.
            (Some(scalar), View::Param(_)) => scalar,
            (None, View::Param(_)) => return false,
            _ => unsigned(bytes.min(smallest(memory))),
        };
        if memory == Type::Scalar(scalar) || self.request.round_trip {
            return false;
        }
        let need = (*declared, scalar);
        self.found_needs.elements.push(need);
        true
    }

    /// Scalar type of the memory of a declaration, if pointers to it are cast.
    pub(super) fn memory_scalar(&self, declared: SourceSpan) -> Option<Scalar> {
        self.needs.elements.iter().find(|(found, _)| *found == declared).map(|(_, scalar)| *scalar)
    }

    /// Casts a pointer.
    pub(super) fn reinterpret_pointer(
        &mut self,
        pointer: Pointer,
        to: Type,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        if pointer.prefix.len() + 1 < pointer.rank && pointer.dims.is_none() {
            return self.unsupported(span, "casting a multidimensional array here", "cast it where it is declared");
        }
        let pointer = Pointer { sizes: [].into(), ..pointer };
        if pointer.pointee_type() == to {
            return Ok(CudaOperand::Pointer(pointer));
        }
        let memory = self.memory_type(pointer.view);
        if self.holds_pointers(memory) || self.holds_pointers(to) {
            return self.unsupported(span, "the bytes of pointers", "copy the struct or its fields");
        }
        if memory == to {
            let pointer = self.in_parts(pointer, 1, span);
            let plain = Grouping { ty: to, cast_type: None, width: 1, split: 1 };
            return Ok(CudaOperand::Pointer(plain.apply(pointer)));
        }
        let grouping = memory.as_scalar().and_then(|scalar| self.grouping(scalar, to));
        let is_plain = |grouping: &Grouping| grouping.width == 1 && grouping.split == 1;
        let is_local = !matches!(pointer.view, View::Param(_));
        match grouping {
            Some(grouping) if grouping.split > 1 && is_local && self.require_scalars(pointer.view, to) => {
                Err(LowerFailed)
            }
            Some(grouping) if pointer.dims.is_none() || is_plain(&grouping) => {
                // Parts of one size are counted in parts of another.
                let pointer = self.in_parts(pointer, grouping.split, span);
                if grouping.split == pointer.split {
                    return Ok(CudaOperand::Pointer(grouping.apply(pointer)));
                }
                // Offsets count pointees, also where 32 bits do not hold them.
                self.require_wide_index();
                let factor = grouping.split / pointer.split;
                let times = |tree: Tree| Tree::op(Op::Mul, vec![tree, Tree::int(self.index_type, factor.into())]);
                let offset = pointer.offset.clone().map(times);
                let range = pointer.range.times(factor.into());
                Ok(CudaOperand::Pointer(Pointer { offset, range, ..grouping.apply(pointer) }))
            }
            None if self.require_scalars(pointer.view, to) => Err(LowerFailed),
            _ => {
                let (from, to) = (self.type_name(pointer.pointee_type()), self.type_name(to));
                let what = format!("reinterpreting a pointer to '{from}' as a pointer to '{to}'");
                self.unsupported(span, what, "use types of which one consists of a whole number of the other")
            }
        }
    }

    /// Converts the offset of a pointer to parts of elements to one that counts larger parts, of
    /// which an element has `split`; a pointer into such a part is a fault.
    fn in_parts(&mut self, pointer: Pointer, split: u8, span: SourceSpan) -> Pointer {
        if pointer.split <= split {
            return pointer;
        }
        let Some(offset) = pointer.offset.clone() else { return Pointer { split, ..pointer } };
        let offset = self.materialize(offset);
        let (element, part) = self.split_index(offset, pointer.split / split);
        let is_first = Tree::op(Op::Eq, vec![part, Tree::int(self.index_type, 0)]);
        self.check_claim(&is_first, "the address is a multiple of the type's alignment", span);
        Pointer { offset: Some(element), range: IntRange::of_type(self.index_type), split, ..pointer }
    }

    /// Element that a part of one belongs to, and the part's number in it.
    fn split_index(&mut self, offset: Tree, split: u8) -> (Tree, Tree) {
        let constant = |value: i64| Tree::int(self.index_type, value);
        let element = Tree::op(Op::Shr, vec![offset.clone(), constant(split.ilog2().into())]);
        (element, Tree::op(Op::And, vec![offset, constant(i64::from(split) - 1)]))
    }

    /// Checks a condition at run time unless it is known to hold.
    pub(super) fn check_claim(&mut self, claim: &Tree, message: &str, span: SourceSpan) {
        if self.w.fold(claim).is_some_and(|value| value.bits() != 0) {
            return;
        }
        let condition = self.w.emit(claim);
        self.push_stmt(Stmt::Check(Check::Assert { condition, message: message.to_owned() }), span);
    }

    /// Dereferences a pointer to a part of an element.
    pub(super) fn part_of_element(&mut self, pointer: Pointer) -> LowerResult<CudaOperand> {
        let (split, to, zero) = (pointer.split, pointer.pointee_type(), Tree::int(self.index_type, 0));
        let (Some(from), Some(scalar)) = (pointer.ty.as_scalar(), to.as_scalar()) else { return Err(LowerFailed) };
        let offset = self.materialize(pointer.offset.clone().unwrap_or(zero));
        let (element, part) = self.split_index(offset, split);
        let (low, high) = (pointer.range.low.div_euclid(split.into()), pointer.range.high.div_euclid(split.into()));
        let whole = Pointer {
            offset: Some(element),
            range: IntRange { low, high },
            cast_type: None,
            split: 1,
            ty: from.into(),
            ..pointer
        };
        let CudaOperand::Lvalue(lvalue) = self.element(whole)? else { return Err(LowerFailed) };
        let parts = Type::Vector(scalar, split);
        let path = vec![Projection::Reinterpret(parts), Projection::DynamicIndex(part, parts)];
        Ok(CudaOperand::Lvalue(Lvalue { path, ty: to, ..lvalue }))
    }

    /// Pointer to an element in memory, or to a part of one that consists of whole elements of its
    /// view.
    pub(super) fn element_address(&self, lvalue: &Lvalue) -> Option<Pointer> {
        let LvalueRoot::Element { view, at, range, width, element, choice } = &lvalue.root else { return None };
        let (mut prefix, rank) = (at.clone(), at.len());
        let last = Tree::emitted(prefix.pop()?, self.index_type);
        let constant = lvalue.constant || self.read_only.iter().any(|(found, _)| found == view);
        let pointer =
            Pointer { constant, prefix, choice: choice.clone(), ..Pointer::to_view(*view, *element, rank, false, &[]) };
        let pointer = Pointer { offset: Some(last), range: *range, rank, width: *width, ..pointer };
        match &lvalue.path[..] {
            [] => Some(pointer),
            [Projection::Reinterpret(to)] => Some(Pointer { cast_type: Some(*to), ..pointer }),
            [Projection::Reinterpret(Type::Vector(_, split)), Projection::DynamicIndex(part, _)] => {
                let times =
                    Tree::op(Op::Mul, vec![pointer.offset.clone()?, Tree::int(self.index_type, (*split).into())]);
                let offset = Some(Tree::op(Op::Add, vec![times, part.clone()]));
                let split = Grouping { ty: *element, cast_type: Some(lvalue.ty), width: 1, split: *split };
                Some(split.apply(Pointer { offset, range: IntRange::of_type(self.index_type), ..pointer }))
            }
            path => {
                let scalar = element.element().filter(|_| *width > 1)?;
                let part = self.element_part(*element, path).filter(|part| part.dynamic_index.is_none())?;
                let grouping = self.grouping(scalar, lvalue.ty).filter(|grouping| grouping.split == 1)?;
                let first = part.first as i64;
                let offset = Tree::op(Op::Add, vec![pointer.offset.clone()?, Tree::int(self.index_type, first)]);
                let by = IntRange { low: first.into(), high: first.into() };
                Some(grouping.apply(Pointer { offset: Some(offset), range: range.plus(by), ..pointer }))
            }
        }
    }
}

/// Returns true if both types have the same width, so that one can be reinterpreted as the other.
pub(super) fn same_width(a: Scalar, b: Scalar) -> bool {
    a != Scalar::Bool && b != Scalar::Bool && a.bytes() == b.bytes()
}
