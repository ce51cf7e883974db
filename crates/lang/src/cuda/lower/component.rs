//! Access to single components and fields of elements in memory, so that other threads can access
//! the rest of the element without a race.

use bornite_ir::{AlgebraOp, Args, ExprId, Op, Scalar, Stmt, Struct, Type, View};

use super::lvalue::{Lvalue, LvalueRoot, Projection};
use super::{LowerFailed, LowerResult, Lowering};
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
        for (n, step) in path.iter().enumerate() {
            match (step, part.ty) {
                (Projection::Reinterpret(to), _) => return self.reinterpreted_part(part, *to, &path[n + 1..]),
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

    /// Returns the part that a path selects of a part that is reinterpreted as another type; `None`
    /// if it does not consist of whole components.
    fn reinterpreted_part(&self, part: ElementPart, to: Type, path: &[Projection]) -> Option<ElementPart> {
        if path.is_empty() {
            return Some(part);
        }
        let structs = self.w.b.structs();
        let scalar = part.ty.element()?;
        let (mut at, mut ty) = (0, to);
        for step in path {
            match step {
                Projection::Reinterpret(to) => ty = *to,
                Projection::Field(n) => {
                    at += field_offset(ty, *n, structs);
                    ty = self.field_type(ty, *n);
                }
                Projection::DynamicIndex(..) => return None,
            }
        }
        let (size, bytes) = (scalar.bytes(), ty.bytes(structs));
        if part.dynamic_index.is_some() || at % size != 0 || bytes % size != 0 {
            return None;
        }
        let ty = if bytes == size { scalar.into() } else { Type::Vector(scalar, (bytes / size) as u8) };
        Some(ElementPart { first: part.first + at / size, dynamic_index: None, ty })
    }

    /// Loads a whole element.
    pub(super) fn load_element(&mut self, lvalue: &Lvalue, span: SourceSpan) -> LowerResult<Tree> {
        let LvalueRoot::Element { view, at, width, element, .. } = &lvalue.root else { return Err(LowerFailed) };
        self.set_source_line(span);
        let chunk = self.access_width(lvalue);
        let mut parts = vec![];
        for at in self.chunk_indices(at, *width, chunk, span)? {
            let id = if chunk > 1 { self.w.b.load_wide(*view, at, chunk) } else { self.w.b.load(*view, at) };
            let loaded = Tree::emitted(id, self.w.b.type_of(id));
            if chunk == *width {
                return Ok(loaded);
            }
            self.scalar_components(loaded, &mut parts);
        }
        Ok(self.assemble(*element, &mut parts.into_iter()))
    }

    /// Stores a whole element.
    pub(super) fn store_element(&mut self, lvalue: &Lvalue, value: Tree, span: SourceSpan) -> LowerResult {
        let LvalueRoot::Element { view, at, width, .. } = &lvalue.root else { return Err(LowerFailed) };
        self.set_source_line(span);
        let chunk = self.access_width(lvalue);
        if chunk == *width {
            let [at] = self.chunk_indices(at, *width, chunk, span)?[..] else { return Err(LowerFailed) };
            let value = self.w.emit(&value);
            self.w.stmt(Stmt::Store { view: *view, indices: at, value });
            return Ok(());
        }
        let mut parts = vec![];
        let value = Tree::emitted(self.w.emit(&value), value.ty);
        self.scalar_components(value, &mut parts);
        for (at, parts) in self.chunk_indices(at, *width, chunk, span)?.into_iter().zip(parts.chunks(chunk.into())) {
            let ty = parts[0].scalar().map_or(parts[0].ty, |scalar| Type::Vector(scalar, chunk));
            let value = match parts {
                [one] => one.clone(),
                _ => Tree::of(Node::Algebra(AlgebraOp::Construct, 0, parts.to_vec()), ty),
            };
            let value = self.w.emit(&value);
            self.w.stmt(Stmt::Store { view: *view, indices: at, value });
        }
        Ok(())
    }

    /// Number of elements of its view that a load or store of an element accesses at once, as its
    /// alignment allows.
    fn access_width(&self, lvalue: &Lvalue) -> u8 {
        let LvalueRoot::Element { width, element, .. } = &lvalue.root else { return 1 };
        if *width == 1 || self.request.round_trip {
            return *width;
        }
        let ty = match lvalue.path.first() {
            Some(Projection::Reinterpret(to)) => *to,
            _ => *element,
        };
        let align = self.vector_align(ty).max(ty.layout(self.w.b.structs()).align as u32).min(16);
        let bytes = element.element().map_or(16, |scalar| scalar.bytes() as u32);
        let mut chunk = 1;
        while u32::from(chunk) * 2 * bytes <= align && width % (chunk * 2) == 0 {
            chunk *= 2;
        }
        chunk
    }

    /// Indices of each access to an element that spans `width` elements of its view, `chunk` at
    /// once.
    fn chunk_indices(&mut self, at: &[ExprId], width: u8, chunk: u8, span: SourceSpan) -> LowerResult<Vec<Args>> {
        let mut all = vec![];
        for first in (0..width).step_by(chunk.into()) {
            let mut at = at.to_vec();
            if first > 0
                && let Some(last) = at.pop()
            {
                let last = Tree::emitted(last, self.index_type);
                let index = Tree::op(Op::Add, vec![last, Tree::int(self.index_type, first.into())]);
                at.push(self.w.emit(&index));
            }
            match Args::new(&at) {
                Some(at) => all.push(at),
                None => return self.unsupported(span, "an array of more than four dimensions", ""),
            }
        }
        Ok(all)
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

    /// Returns true if the path of an lvalue has a non-constant index.
    pub(super) fn has_dynamic_index(lvalue: &Lvalue) -> bool {
        lvalue.path.iter().any(|step| matches!(step, Projection::DynamicIndex(..)))
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
    pub(super) fn scalar_components(&self, whole: Tree, all: &mut Vec<Tree>) {
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
    pub(super) fn assemble(&self, ty: Type, components: &mut dyn Iterator<Item = Tree>) -> Tree {
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

/// Offset in bytes of a field of a struct or a component of a vector.
fn field_offset(ty: Type, at: u32, structs: &[Struct]) -> usize {
    let offsets = ty.layout(structs).offsets;
    let first = match ty {
        Type::Struct(id) => {
            let fields = &structs[id.0 as usize].fields;
            fields[..at as usize].iter().map(|field| field.ty.component_count(structs)).sum()
        }
        _ => at as usize,
    };
    offsets.get(first).map_or(0, |(offset, _)| *offset)
}
