//! Loads, stores and atomic updates of individual components and fields of array elements, so that
//! other instances may access the rest of the element at the same time.

use bornite_ir::{Args, Atomic, Check, ExprId, Op, Scalar, Stmt, Type, Value, View};
use ruff_text_size::Ranged;

use super::value::{ComponentGrid, Element, Projection, Rvalue};
use super::{Lower, LowerResult};
use crate::python::types::Ty;

/// The components of an element that make up a part of it.
pub(super) struct ElementPart {
    components: Vec<u32>,
    /// Added to each component index, if the part is selected at run time.
    dynamic_offset: Option<ExprId>,
}

impl<'p> Lower<'p> {
    /// The part of an element that its path leads to. `None` if that is the complete element, or if
    /// a run-time index selects among parts that are not evenly spaced: a component of a vector in
    /// a struct.
    pub(super) fn element_part(&mut self, element: &Element, at: &impl Ranged) -> LowerResult<Option<ElementPart>> {
        if element.path.is_empty() {
            return Ok(None);
        }
        let whole = self.ir_type(element.array.element, at)?;
        let count = whole.component_count(self.w.b.structs());
        let mut part = ElementPart { components: (0..count as u32).collect(), dynamic_offset: None };
        let mut ty = element.array.element;
        for step in &element.path {
            part.components = match *step {
                Projection::Field(n, inner) => {
                    let mut first = n as usize;
                    if let Ty::Struct(of) = ty {
                        first = 0;
                        for (_, field) in self.fields_of(of, at)?.iter().take(n as usize) {
                            let Some(field) = field.exact() else { return Ok(None) };
                            first += self.ir_type(field, at)?.component_count(self.w.b.structs());
                        }
                    }
                    let count = self.ir_type(inner, at)?.component_count(self.w.b.structs());
                    part.components[first..first + count].to_vec()
                }
                Projection::Components(grid, _) => grid.indices().map(|n| part.components[n as usize]).collect(),
                Projection::Index(index, inner) => {
                    let (width, components) = (inner.count(), &part.components);
                    let stride = components.get(width).map_or(0, |next| next - components[0]);
                    let is_even = |n: usize| components[n] == components[n % width] + (n / width) as u32 * stride;
                    if matches!(whole, Type::Struct(_)) || !(0..components.len()).all(is_even) {
                        return Ok(None);
                    }
                    let (row, rows) = (components[..width].to_vec(), components.len() / width);
                    let mut index = self.index_as_i32(index);
                    // An index among all components is checked by the access itself.
                    if part.dynamic_offset.is_some() || width > 1 || components.len() < count {
                        self.check_index(index, rows, element);
                    }
                    if stride != 1 {
                        let by = self.w.constant(Value::int(Scalar::I32, stride as i64));
                        index = self.op(Op::Mul, &[index, by]);
                    }
                    part.dynamic_offset = Some(match part.dynamic_offset {
                        Some(before) => self.op(Op::Add, &[before, index]),
                        None => index,
                    });
                    row
                }
            };
            ty = step.ty();
        }
        Ok(Some(part))
    }

    /// The indices into the view for each component of a part.
    fn component_indices(&mut self, element: &Element, part: &ElementPart, at: &impl Ranged) -> LowerResult<Vec<Args>> {
        let element_indices = self.memory_indices(&element.array, &element.indices);
        let mut all = vec![];
        for &component in &part.components {
            let mut index = self.w.constant(Value::int(Scalar::I32, component as i64));
            if let Some(offset) = part.dynamic_offset {
                index = if component == 0 { offset } else { self.op(Op::Add, &[offset, index]) };
            }
            let index = match self.w.b.constant_value(index) {
                Some(known) => self.w.constant(Value::int(self.index, known.as_i64())),
                None => self.cast_id(self.index, index),
            };
            match Args::new(&[&element_indices[..], &[index]].concat()) {
                Some(at) => all.push(at),
                None => return self.fail(at, "too many indices".into(), "", None),
            }
        }
        Ok(all)
    }

    pub(super) fn load_part(&mut self, element: &Element, part: &ElementPart, at: &impl Ranged) -> LowerResult<Rvalue> {
        let view = element.array.view;
        let indices = self.component_indices(element, part, at)?;
        let loads: Vec<ExprId> = indices.into_iter().map(|at| self.w.b.load(view, at)).collect();
        self.assemble(element.ty(), loads, at)
    }

    pub(super) fn store_part(
        &mut self,
        element: &Element,
        part: &ElementPart,
        value: ExprId,
        at: &impl Ranged,
    ) -> LowerResult {
        let mut values = vec![];
        self.flatten(value, &mut values);
        let view = element.array.view;
        for (at, value) in self.component_indices(element, part, at)?.into_iter().zip(values) {
            self.w.stmt(Stmt::Store { view, indices: at, value });
        }
        self.mark_componentwise(element);
        Ok(())
    }

    /// Atomically updates each component of a part and returns the old values.
    pub(super) fn update_part(
        &mut self,
        atomic: Atomic,
        element: &Element,
        part: &ElementPart,
        value: ExprId,
        at: &impl Ranged,
    ) -> LowerResult<Rvalue> {
        let mut values = vec![];
        self.flatten(value, &mut values);
        let view = element.array.view;
        let indices = self.component_indices(element, part, at)?;
        let olds =
            indices.into_iter().zip(values).map(|(at, value)| self.w.b.atomic(atomic, view, at, value)).collect();
        self.mark_componentwise(element);
        self.assemble(element.ty(), olds, at)
    }

    fn mark_componentwise(&mut self, element: &Element) {
        self.mark_written(&element.array);
        self.componentwise_writes.push(element.array.view);
    }

    /// Emits a check that a component index is in range.
    fn check_index(&mut self, index: ExprId, count: usize, element: &Element) {
        let index = self.cast_id(self.index, index);
        let of = format!("{}, components", self.w.b.view_name(element.array.view));
        let check = Check::InBounds { index, len: count as u64, array: of };
        self.w.stmt(Stmt::Check(check));
    }

    /// Loads a part that is selected by a run-time index in its path.
    pub(super) fn load_dynamic(&mut self, element: &Element, at: &impl Ranged) -> LowerResult<Rvalue> {
        let ty = self.ir_type(element.ty(), at)?;
        let zeros: Vec<Value> =
            ty.components(self.w.b.structs()).into_iter().map(|scalar| Value::int(scalar, 0)).collect();
        let local = self.w.b.typed_local("chosen", ty, &zeros);
        self.for_each_choice(element, &mut |lower, chosen| {
            if let Some(part) = lower.element_part(chosen, at)? {
                let rvalue = lower.load_part(chosen, &part, at)?;
                lower.w.b.assign(local, rvalue.id);
            }
            Ok(())
        })?;
        Ok(Rvalue::new(self.w.b.read(local), element.ty()))
    }

    /// Resolves run-time indices in the path: calls `each` for every part that they may select, in
    /// a branch that runs if they do.
    pub(super) fn for_each_choice(
        &mut self,
        element: &Element,
        each: &mut dyn FnMut(&mut Self, &Element) -> LowerResult,
    ) -> LowerResult {
        let Some(n) = element.path.iter().position(|step| matches!(step, Projection::Index(..))) else {
            return each(self, element);
        };
        let Projection::Index(index, ty) = element.path[n] else { return Ok(()) };
        let container = if n == 0 { element.array.element } else { element.path[n - 1].ty() };
        let index = self.index_as_i32(index);
        let width = ty.count() as u32;
        self.check_index(index, container.count() / width as usize, element);
        for row in 0..container.count() as u32 / width {
            let row_index = self.w.constant(Value::int(Scalar::I32, row as i64));
            let condition = self.op(Op::Eq, &[index, row_index]);
            let mut chosen = element.clone();
            chosen.path[n] = match ty {
                Ty::Scalar(_) => Projection::Field(row, ty),
                _ => Projection::Components(ComponentGrid::row(row * width, 1, width), ty),
            };
            self.w.b.open_block();
            let result = self.for_each_choice(&chosen, each);
            let then = self.w.b.close_block();
            self.w.stmt(Stmt::If { condition, then, otherwise: vec![] });
            result?;
        }
        Ok(())
    }

    /// Returns true if components of a view are loaded individually.
    pub(super) fn is_componentwise(&self, view: View) -> bool {
        self.componentwise_views.contains(&view)
    }

    /// Collects the scalar components of a value, recursing into fields.
    fn flatten(&mut self, id: ExprId, all: &mut Vec<ExprId>) {
        let ty = self.w.b.type_of(id);
        let parts = match ty {
            Type::Scalar(_) => return all.push(id),
            Type::Struct(of) => self.w.b.structs()[of.0 as usize].fields.len(),
            other => other.component_count(&[]),
        };
        for n in 0..parts {
            let part = self.extract(id, n as u32);
            self.flatten(part, all);
        }
    }

    /// Constructs a value from its scalar components.
    fn assemble(&mut self, ty: Ty, components: Vec<ExprId>, at: &impl Ranged) -> LowerResult<Rvalue> {
        let whole = self.ir_type(ty, at)?;
        let id = self.construct_from(whole, &mut components.into_iter());
        Ok(Rvalue::new(id, ty))
    }

    fn construct_from(&mut self, ty: Type, components: &mut dyn Iterator<Item = ExprId>) -> ExprId {
        let parts: Vec<ExprId> = match ty {
            Type::Scalar(_) => match components.next() {
                Some(one) => return one,
                None => vec![],
            },
            Type::Struct(of) => {
                let types: Vec<Type> = self.w.b.structs()[of.0 as usize].fields.iter().map(|field| field.ty).collect();
                types.into_iter().map(|ty| self.construct_from(ty, components)).collect()
            }
            other => components.take(other.component_count(&[])).collect(),
        };
        self.w.b.construct(ty, &parts)
    }
}
