//! Pointers into one of several arrays, or null: a tag selects the array, and accesses choose
//! between the arrays at run time.
//!
//! The arrays that a pointer variable may point into are known once all of its assignments have
//! been lowered, so they are collected in [`MemoryNeeds`](super::MemoryNeeds) and the kernel is
//! lowered again.

use std::rc::Rc;

use bornite_ir::{IntRange, LocalId, Op, Scalar, Stmt, Type, Value, View};

use super::lvalue::{CudaOperand, Lvalue, LvalueRoot, Pointer};
use super::{Binding, LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Binary, Declarator, Expr};
use crate::lower::Tree;

/// Array that a pointer points into, chosen at run time.
#[derive(Clone)]
pub struct PointerChoice {
    /// Position of the array in `views`, from 1; 0 for a null pointer. A value that is already
    /// evaluated.
    pub tag: Tree,
    pub views: Rc<[View]>,
}

/// A pointer variable that may point into different arrays.
#[derive(Clone)]
pub(super) struct TaggedPointer {
    to: Type,
    constant: bool,
    views: Rc<[View]>,
    tag: LocalId,
    offset: LocalId,
    declared: SourceSpan,
}

impl TaggedPointer {
    /// Returns true if its declaration was evaluated for its type only.
    pub(super) fn is_stale(&self, locals: u32) -> bool {
        self.tag.0 >= locals || self.offset.0 >= locals
    }
}

impl<'m> Lowering<'m> {
    /// Arrays that a pointer variable may point into, if there are several or it may be null.
    pub(super) fn pointer_views(&self, declared: SourceSpan) -> Option<&'m [View]> {
        self.needs.pointers.iter().find(|(found, _)| *found == declared).map(|(_, views)| &views[..])
    }

    /// Requests another lowering in which a pointer variable may also point into `views`.
    pub(super) fn require_views(&mut self, declared: SourceSpan, views: &[View]) {
        self.found_needs.pointers.push((declared, views.to_vec()));
    }

    /// Returns true if a pointer variable may be null or point into different arrays.
    pub(super) fn is_tagged(&self, d: &Declarator) -> bool {
        self.pointer_views(d.span).is_some()
    }

    /// Requests another lowering for a pointer whose first value needs a tag.
    pub(super) fn first_value_needs_tag(&mut self, declared: SourceSpan, value: &CudaOperand) {
        let views = match value {
            CudaOperand::Pointer(pointer) => self.choice_of(pointer).views.clone(),
            _ => [].into(),
        };
        self.require_views(declared, &views);
    }

    /// Adds the array of a pointer's first value, if the pointer turned out to need a tag.
    pub(super) fn note_first_array(&mut self, declared: SourceSpan, pointer: &Pointer) {
        if self.found_needs.pointers.iter().any(|(found, _)| *found == declared) {
            self.require_views(declared, &[pointer.view]);
        }
    }

    /// Binds a pointer variable that is assigned to its initial value.
    pub(super) fn bind_assigned_pointer(
        &mut self,
        d: &Declarator,
        to: Type,
        value: CudaOperand,
        constant: bool,
    ) -> LowerResult<Binding> {
        let Some(views) = self.pointer_views(d.span) else {
            return match value {
                CudaOperand::Pointer(pointer) if pointer.choice.is_none() => {
                    let binding = self.bind_moving_pointer(self.text(d.name), pointer);
                    if let Binding::MovingPointer(_, local) = binding {
                        self.note_register(local, d, true);
                    }
                    Ok(binding)
                }
                CudaOperand::Pointer(Pointer { choice: Some(choice), .. }) => {
                    self.require_views(d.span, &choice.views);
                    Err(LowerFailed)
                }
                _ => {
                    self.require_views(d.span, &[]);
                    Ok(Binding::UnsetPointer(to, d.span))
                }
            };
        };
        self.require_wide_index();
        let fits = |view: &View| !self.is_array_declared(*view) || self.is_plain_array(*view, to);
        let views: Rc<[View]> = views.iter().copied().filter(fits).collect();
        let zero = [Value::int(self.index_type, 0)];
        let tag = self.new_local(&format!("{}_array", self.text(d.name)), self.index_type.into(), &zero);
        let offset = self.new_local(self.text(d.name), self.index_type.into(), &zero);
        let tagged = TaggedPointer { to, constant, views, tag, offset, declared: d.span };
        self.store_tagged(&tagged, value, d.span)?;
        Ok(Binding::TaggedPointer(tagged))
    }

    /// Returns true if an array is declared already: an earlier lowering may know later ones.
    pub(super) fn is_array_declared(&self, view: View) -> bool {
        let kernel = self.w.b.kernel();
        let (n, count) = match view {
            View::Param(id) => (id.0, kernel.params.len()),
            View::Shared(id) => (id.0, kernel.shared.len()),
            View::Local(id) => (id.0, kernel.local_arrays.len()),
        };
        (n as usize) < count
    }

    /// Returns true for a one-dimensional array of a type.
    pub(super) fn is_plain_array(&self, view: View, ty: Type) -> bool {
        let viewed = self.w.b.kernel().view(view);
        viewed.ty == ty && viewed.dims.len() == 1
    }

    /// Value of a tagged pointer variable.
    pub(super) fn tagged_operand(&mut self, tagged: &TaggedPointer) -> CudaOperand {
        let Some(view) = tagged.views.iter().find(|view| self.is_array_declared(**view)) else {
            return CudaOperand::Null(Some(tagged.to));
        };
        let tag = Tree::emitted(self.w.b.read(tagged.tag), self.index_type);
        let offset = Tree::emitted(self.w.b.read(tagged.offset), self.index_type);
        CudaOperand::Pointer(Pointer {
            offset: Some(offset),
            range: IntRange::of_type(self.index_type),
            constant: tagged.constant,
            choice: Some(Rc::new(PointerChoice { tag, views: tagged.views.clone() })),
            ..Pointer::to_view(*view, tagged.to, 1, false, &[])
        })
    }

    /// Assigns a pointer, or an offset with `op`, to a tagged pointer variable.
    pub(super) fn assign_tagged(
        &mut self,
        op: Option<Binary>,
        tagged: &TaggedPointer,
        value: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let value = match (op, self.tagged_operand(tagged)) {
            (None, _) => self.operand(value)?,
            (Some(op), CudaOperand::Pointer(here)) => self.pointer_arithmetic(op, here, value, span)?,
            _ => return self.fail(span, "arithmetic on a null pointer", "always null here", ""),
        };
        self.store_tagged(tagged, value, span)?;
        Ok(self.tagged_operand(tagged))
    }

    /// Moves a tagged pointer variable by one element; returns its old or its new value.
    pub(super) fn increment_tagged(&mut self, delta: i8, is_postfix: bool, tagged: &TaggedPointer) -> CudaOperand {
        let old = self.tagged_operand(tagged);
        let offset = Tree::emitted(self.w.b.read(tagged.offset), self.index_type);
        let new = Tree::op(Op::Add, vec![offset, Tree::int(self.index_type, delta as i64)]);
        self.assign(tagged.offset, &new);
        if is_postfix { old } else { self.tagged_operand(tagged) }
    }

    fn store_tagged(&mut self, tagged: &TaggedPointer, value: CudaOperand, span: SourceSpan) -> LowerResult {
        let zero = Tree::int(self.index_type, 0);
        let pointer = match value {
            CudaOperand::Null(_) => {
                self.assign(tagged.tag, &zero);
                self.assign(tagged.offset, &zero);
                return Ok(());
            }
            CudaOperand::Pointer(pointer) => pointer,
            operand if self.move_operand_to_memory(&operand) => return Err(LowerFailed),
            _ => return self.fail(span, "cannot assign a number to a pointer", "expected a pointer", ""),
        };
        self.check_same_pointee(tagged.to, tagged.constant, &pointer, span)?;
        self.check_plain(&pointer, span)?;
        let choice = self.choice_of(&pointer);
        if choice.views.iter().any(|view| !tagged.views.contains(view)) {
            self.require_views(tagged.declared, &choice.views);
            return Err(LowerFailed);
        }
        let tag = self.translate_tag(&choice, &tagged.views);
        self.assign(tagged.tag, &tag);
        self.assign(tagged.offset, &pointer.offset.unwrap_or(zero));
        Ok(())
    }

    /// Rejects an assignment of a pointer to another type, or to const if `constant` is not set.
    pub(super) fn check_same_pointee(
        &mut self,
        to: Type,
        constant: bool,
        pointer: &Pointer,
        span: SourceSpan,
    ) -> LowerResult {
        if pointer.pointee_type() != to {
            let (to, from) = (self.type_name(to), self.type_name(pointer.pointee_type()));
            let what = format!("cannot assign a pointer to '{from}' to a pointer to '{to}'");
            return self.fail(span, what, format!("expected '{to}*'"), "cast it");
        }
        if pointer.constant && !constant {
            let hint = "declare it as a pointer to const";
            let what = "cannot assign a pointer to const to a pointer to non-const";
            return self.fail(span, what, "discards 'const'", hint);
        }
        Ok(())
    }

    /// The pointer into the only array that it may point into, which is checked not to be null.
    pub(super) fn single_choice(&mut self, pointer: Pointer, span: SourceSpan) -> Pointer {
        let Some(choice) = &pointer.choice else { return pointer };
        let [view] = choice.views[..] else { return pointer };
        if !self.is_array_declared(view) || view != pointer.view {
            return pointer;
        }
        let is_valid = Tree::op(Op::Ne, vec![choice.tag.clone(), Tree::int(self.index_type, 0)]);
        self.check_not_null(&is_valid, span);
        Pointer { choice: None, ..pointer }
    }

    /// Rejects pointers to rows and to reinterpreted elements, which a tag cannot describe.
    pub(super) fn check_plain(&mut self, pointer: &Pointer, span: SourceSpan) -> LowerResult {
        let is_plain = pointer.rank == 1 && pointer.dims.is_none() && !pointer.has_rows();
        let is_cast = pointer.width > 1 || pointer.split > 1 || pointer.cast_type.is_some();
        if is_plain && !is_cast && !pointer.single {
            return Ok(());
        }
        let what = "a pointer that can point into different arrays, of several dimensions or cast,";
        self.unsupported(span, what, "use two pointers")
    }

    /// Array of a pointer as a choice.
    pub(super) fn choice_of(&self, pointer: &Pointer) -> Rc<PointerChoice> {
        let single = || PointerChoice { tag: Tree::int(self.index_type, 1), views: [pointer.view].into() };
        pointer.choice.clone().unwrap_or_else(|| Rc::new(single()))
    }

    /// Tag of the same array in another list, which has all arrays of the choice.
    pub(super) fn translate_tag(&mut self, choice: &PointerChoice, views: &[View]) -> Tree {
        if *choice.views == *views {
            return choice.tag.clone();
        }
        let mut translated = Tree::int(self.index_type, 0);
        for (n, view) in choice.views.iter().enumerate() {
            let here = Tree::op(Op::Eq, vec![choice.tag.clone(), Tree::int(self.index_type, n as i64 + 1)]);
            let at = views.iter().position(|found| found == view).map_or(0, |at| at as i64 + 1);
            translated = Tree::select(here, Tree::int(self.index_type, at), translated);
        }
        self.materialize(translated)
    }

    /// `?:` on two pointers, of which one may be null.
    pub(super) fn choose_pointer(
        &mut self,
        condition: Tree,
        a: Option<Pointer>,
        b: Option<Pointer>,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let Some(first) = a.as_ref().or(b.as_ref()).cloned() else { return Ok(CudaOperand::Null(None)) };
        let mut views: Vec<View> = vec![];
        for pointer in a.iter().chain(&b) {
            self.check_plain(pointer, span)?;
            if pointer.pointee_type() != first.pointee_type() {
                return self.unsupported(span, "'?:' on pointers to different types", "cast one");
            }
            for view in self.choice_of(pointer).views.iter() {
                if !views.contains(view) {
                    views.push(*view);
                }
            }
        }
        let (mut tags, mut offsets) = (vec![], vec![]);
        for pointer in [&a, &b] {
            let choice = pointer.as_ref().map(|pointer| self.choice_of(pointer));
            let zero = Tree::int(self.index_type, 0);
            tags.push(choice.map_or(zero.clone(), |choice| self.translate_tag(&choice, &views)));
            offsets.push(pointer.as_ref().and_then(|pointer| pointer.offset.clone()).unwrap_or(zero));
        }
        let condition = self.materialize(condition);
        let mut select = |values: Vec<Tree>| {
            let [a, b] = <[Tree; 2]>::try_from(values).map_err(|_| LowerFailed)?;
            Ok(self.materialize(Tree::select(condition.clone(), a, b)))
        };
        let (tag, offset) = (select(tags)?, select(offsets)?);
        let range = a.iter().chain(&b).fold(first.range, |range, pointer| range.union(pointer.range));
        let constant = a.iter().chain(&b).any(|pointer| pointer.constant);
        let choice = Some(Rc::new(PointerChoice { tag, views: views.into() }));
        Ok(CudaOperand::Pointer(Pointer { offset: Some(offset), range, constant, choice, ..first }))
    }

    /// Lowers a comparison or difference of two pointers into arrays that are chosen at run time.
    /// An order or a difference needs the same array.
    pub(super) fn chosen_pair(&mut self, op: Binary, a: Pointer, b: Pointer, span: SourceSpan) -> LowerResult<Tree> {
        let mut views: Vec<View> = vec![];
        for pointer in [&a, &b] {
            self.check_plain(pointer, span)?;
            let choice = self.choice_of(pointer);
            views.extend(choice.views.iter().filter(|view| !views.contains(view)).copied().collect::<Vec<_>>());
        }
        let tags = [&a, &b].map(|pointer| {
            let choice = self.choice_of(pointer);
            self.translate_tag(&choice, &views)
        });
        let is_same = Tree::op(Op::Eq, tags.to_vec());
        let is_same = self.materialize(is_same);
        let result = self.pointer_pair(op, a, b, span)?;
        match op {
            Binary::Eq => Ok(Tree::op(Op::And, vec![is_same, result])),
            Binary::Ne => Ok(Tree::op(Op::Or, vec![Tree::op(Op::Not, vec![is_same]), result])),
            _ => {
                self.check_claim(&is_same, "the pointers point into the same array", span);
                Ok(result)
            }
        }
    }

    /// Compares a pointer with null.
    pub(super) fn is_null(&mut self, pointer: &Pointer, op: Binary) -> Tree {
        match &pointer.choice {
            // Other pointers are never null in a launch.
            None => Tree::int(Scalar::Bool, (op == Binary::Ne) as i64),
            Some(choice) => {
                let op = if op == Binary::Ne { Op::Ne } else { Op::Eq };
                Tree::op(op, vec![choice.tag.clone(), Tree::int(self.index_type, 0)])
            }
        }
    }

    /// Reads an element of the array that a tag selects.
    pub(super) fn read_choice(&mut self, lvalue: &Lvalue, span: SourceSpan) -> LowerResult<Tree> {
        let zeros = self.zeros(lvalue.ty);
        let local = self.new_local("chosen", lvalue.ty, &zeros);
        self.for_each_array(lvalue, span, &mut |lower, selected| {
            let value = lower.read(selected, span)?;
            lower.assign(local, &value);
            Ok(())
        })?;
        Ok(Tree::emitted(self.w.b.read(local), lvalue.ty))
    }

    /// Writes an element of the array that a tag selects.
    pub(super) fn write_choice(&mut self, lvalue: &Lvalue, value: Tree, span: SourceSpan) -> LowerResult {
        let value = self.materialize(value);
        self.for_each_array(lvalue, span, &mut |lower, selected| lower.write(selected, value.clone(), span))
    }

    /// Runs `each` for every array that a pointer may point into, under the condition that it does.
    pub(super) fn for_each_array(
        &mut self,
        lvalue: &Lvalue,
        span: SourceSpan,
        each: &mut dyn FnMut(&mut Self, &Lvalue) -> LowerResult,
    ) -> LowerResult {
        let LvalueRoot::Element { choice: Some(choice), element, width, .. } = &lvalue.root else {
            return Err(LowerFailed);
        };
        let ty = if *width > 1 { element.element().map_or(*element, Type::Scalar) } else { *element };
        let is_valid = Tree::op(Op::Ne, vec![choice.tag.clone(), Tree::int(self.index_type, 0)]);
        self.check_not_null(&is_valid, span);
        for (n, view) in choice.views.iter().enumerate() {
            if !self.is_array_declared(*view) || !self.is_plain_array(*view, ty) {
                continue;
            }
            let mut selected = lvalue.clone();
            if let LvalueRoot::Element { view: selected_view, choice, .. } = &mut selected.root {
                (*selected_view, *choice) = (*view, None);
            }
            let here = Tree::op(Op::Eq, vec![choice.tag.clone(), Tree::int(self.index_type, n as i64 + 1)]);
            let condition = self.w.emit(&here);
            self.w.b.open_block();
            let done = each(self, &selected);
            let then = self.w.b.close_block();
            self.w.stmt(Stmt::If { condition, then, otherwise: vec![] });
            done?;
        }
        Ok(())
    }

    fn check_not_null(&mut self, is_valid: &Tree, span: SourceSpan) {
        self.check_claim(is_valid, "the pointer is not null", span);
    }

    /// Dereferences a null pointer: a fault if it is executed.
    pub(super) fn null_element(&mut self, to: Type, span: SourceSpan) -> Lvalue {
        self.check_not_null(&Tree::int(Scalar::Bool, 0), span);
        let zeros = self.zeros(to);
        let local = self.new_local("null", to, &zeros);
        Lvalue { root: LvalueRoot::Local(local, to), path: vec![], ty: to, constant: false }
    }

    /// Reports, or handles by another lowering, an assignment to a pointer variable that changes
    /// its array.
    pub(super) fn assign_other_array(
        &mut self,
        pointer: &Pointer,
        local: LocalId,
        value: CudaOperand,
        span: SourceSpan,
    ) -> LowerResult {
        let mut views = self.choice_of(pointer).views.to_vec();
        match &value {
            CudaOperand::Pointer(to) => {
                self.check_plain(pointer, span)?;
                self.check_plain(to, span)?;
                views.extend(self.choice_of(to).views.iter());
            }
            CudaOperand::Null(_) => self.check_plain(pointer, span)?,
            operand if self.move_operand_to_memory(operand) => return Err(LowerFailed),
            _ => return self.fail(span, "cannot assign a number to a pointer", "expected a pointer", ""),
        }
        match self.declaration_of(local) {
            Some(declared) if self.pointer_views(declared).is_none() => {
                self.require_views(declared, &views);
                Ok(())
            }
            _ => self.unsupported(span, "a pointer that can point into different arrays", "use two pointers"),
        }
    }
}
