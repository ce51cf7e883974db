//! Access to single components and fields of elements in memory, so that other threads can access
//! the rest of the element without a race.

use bornite_ir::{AlgebraOp, Args, ExprId, Op, Scalar, Stmt, Type, View};

use super::lvalue::{Lvalue, Projection};
use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::lower::{Node, Tree};

/// A component, or a range of components, of an element.
pub(super) struct ElementPart {
    /// Index of its first component.
    pub first: usize,
    /// Index of the component, where it is known only at run time.
    pub dynamic_index: Option<Tree>,
    /// Type in memory.
    pub ty: Type,
}

impl<'m> Lowering<'m> {
    /// Returns the part of an element that a path selects; `None` for an array in a struct at a
    /// non-constant index.
    pub(super) fn element_part(&self, element: Type, path: &[Projection]) -> Option<ElementPart> {
        let mut part = ElementPart { first: 0, dynamic_index: None, ty: element };
        for step in path {
            match (step, part.ty) {
                (Projection::Reinterpret(_), _) => {}
                (Projection::Field(at), Type::Struct(id)) => {
                    let structs = self.w.b.structs();
                    let fields = &structs[id.0 as usize].fields;
                    part.first +=
                        fields[..*at as usize].iter().map(|field| field.ty.component_count(structs)).sum::<usize>();
                    part.ty = fields[*at as usize].ty;
                }
                (Projection::Field(at), ty) => {
                    part.first += *at as usize;
                    part.ty = ty.element()?.into();
                }
                (Projection::DynamicIndex(index, array), ty) if ty == *array && ty == element => {
                    part.dynamic_index = Some(index.clone());
                    part.ty = ty.element()?.into();
                }
                (Projection::DynamicIndex(..), _) => return None,
            }
        }
        Some(part)
    }

    /// Returns the indices of each component of a part. In a vector that spans several elements of
    /// a view, components are elements.
    fn component_indices(
        &mut self,
        at: &[ExprId],
        wide: bool,
        part: &ElementPart,
        span: SourceSpan,
    ) -> LowerResult<Vec<Args>> {
        let count = part.ty.component_count(self.w.b.structs());
        let mut all = vec![];
        for n in 0..count {
            let mut number = Tree::int(self.index_type, (part.first + n) as i64);
            if let Some(dynamic_index) = &part.dynamic_index {
                number = dynamic_index.clone();
            }
            let mut at = at.to_vec();
            if wide && let Some(last) = at.pop() {
                number = Tree::op(Op::Add, vec![Tree::emitted(last, self.index_type), number]);
            }
            at.push(self.w.emit(&number));
            match Args::new(&at) {
                Some(at) => all.push(at),
                None => return self.unsupported(span, "an array of more than four dimensions", ""),
            }
        }
        Ok(all)
    }

    /// Loads a part of an element.
    pub(super) fn read_component(
        &mut self,
        view: View,
        at: &[ExprId],
        wide: bool,
        part: &ElementPart,
        span: SourceSpan,
    ) -> LowerResult<Tree> {
        self.set_source_line(span);
        let mut loads = vec![];
        for at in self.component_indices(at, wide, part, span)? {
            let id = self.w.b.load(view, at);
            loads.push(Tree::emitted(id, self.w.b.type_of(id)));
        }
        Ok(self.assemble(part.ty, &mut loads.into_iter()))
    }

    /// Stores a part of an element.
    pub(super) fn write_component(
        &mut self,
        view: View,
        at: &[ExprId],
        wide: bool,
        part: &ElementPart,
        value: Tree,
        span: SourceSpan,
    ) -> LowerResult {
        let value = Tree::emitted(self.w.emit(&value), value.ty);
        let mut values = vec![];
        self.scalar_components(value, &mut values);
        self.set_source_line(span);
        for (at, value) in self.component_indices(at, wide, part, span)?.into_iter().zip(values) {
            let value = self.w.emit(&value);
            self.w.stmt(Stmt::Store { view, indices: at, value });
        }
        self.component_writes.push(view);
        Ok(())
    }

    /// Stores an element of an array in a struct at a non-constant index.
    pub(super) fn write_dynamic(&mut self, lvalue: &Lvalue, value: Tree, span: SourceSpan) -> LowerResult {
        let value = Tree::emitted(self.w.emit(&value), value.ty);
        self.for_each_index(lvalue, &mut |lower, selected| lower.write(selected, value.clone(), span))
    }

    /// Loads an element of an array in a struct at a non-constant index.
    pub(super) fn read_dynamic(&mut self, lvalue: &Lvalue, span: SourceSpan) -> LowerResult<Tree> {
        let zeros = self.zeros(lvalue.ty);
        let local = self.new_local("chosen", lvalue.ty, &zeros);
        self.for_each_index(lvalue, &mut |lower, selected| {
            let value = lower.read(selected, span)?;
            lower.assign(local, &value);
            Ok(())
        })?;
        Ok(Tree::emitted(self.w.b.read(local), lvalue.ty))
    }

    /// Runs `each` for every possible value of a non-constant index, under the condition that it
    /// has that value.
    fn for_each_index(
        &mut self,
        lvalue: &Lvalue,
        each: &mut dyn FnMut(&mut Self, &Lvalue) -> LowerResult,
    ) -> LowerResult {
        let found = lvalue.path.iter().enumerate().find_map(|(n, step)| match step {
            Projection::DynamicIndex(index, array) => Some((n, index.clone(), *array)),
            _ => None,
        });
        let Some((n, index, array)) = found else { return each(self, lvalue) };
        let index = Tree::emitted(self.w.emit(&index), self.index_type);
        for slot in 0..array.component_count(&[]) {
            let here = Tree::op(Op::Eq, vec![index.clone(), Tree::int(self.index_type, slot as i64)]);
            let condition = self.w.emit(&here);
            let mut selected = lvalue.clone();
            selected.path[n] = Projection::Field(slot as u32);
            self.w.b.open_block();
            let done = each(self, &selected);
            let then = self.w.b.close_block();
            self.w.stmt(Stmt::If { condition, then, otherwise: vec![] });
            done?;
        }
        Ok(())
    }

    /// Collects the scalar components of a value, through all fields.
    fn scalar_components(&self, whole: Tree, all: &mut Vec<Tree>) {
        let structs = self.w.b.structs();
        match whole.ty {
            Type::Scalar(_) => all.push(whole),
            Type::Struct(id) => {
                for (n, field) in structs[id.0 as usize].fields.iter().enumerate() {
                    self.scalar_components(Tree::extract(whole.clone(), n as u32, field.ty), all);
                }
            }
            other => {
                let scalar = other.element().unwrap_or(Scalar::Bool);
                all.extend(
                    (0..other.component_count(structs)).map(|n| Tree::extract(whole.clone(), n as u32, scalar.into())),
                );
            }
        }
    }

    /// Builds a value from its scalar components.
    fn assemble(&self, ty: Type, components: &mut dyn Iterator<Item = Tree>) -> Tree {
        let parts = match ty {
            Type::Scalar(_) => return components.next().unwrap_or(Tree::int(Scalar::I32, 0)),
            Type::Struct(id) => {
                let fields = &self.w.b.structs()[id.0 as usize].fields;
                fields.iter().map(|field| self.assemble(field.ty, components)).collect()
            }
            other => components.take(other.component_count(self.w.b.structs())).collect(),
        };
        Tree::of(Node::Algebra(AlgebraOp::Construct, 0, parts), ty)
    }
}
