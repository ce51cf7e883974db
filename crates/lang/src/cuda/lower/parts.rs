//! Components and fields of elements in memory, read and written alone: what other threads do with the rest of an element is
//! theirs.

use bornite_ir::{Algebra, Args, ExprId, Op, Scalar, Stmt, Type, View};

use super::place::{Place, Step};
use super::{Done, Lower};
use crate::Span;
use crate::lower::{Node, Tree};

/// A part of an element.
pub(super) struct PartOf {
    /// The number of its first component.
    pub first: usize,
    /// Which one in its place, where only a run tells it.
    pub further: Option<Tree>,
    /// Its type in memory.
    pub ty: Type,
}

impl<'m> Lower<'m> {
    /// The part of an element that a path leads to; `None` where it is one of several by an index that varies: an entry of an
    /// array in a struct.
    pub(super) fn part_at(&self, element: Type, path: &[Step]) -> Option<PartOf> {
        let mut part = PartOf { first: 0, further: None, ty: element };
        for step in path {
            match (step, part.ty) {
                (Step::Bits(_), _) => {}
                (Step::Part(at), Type::Struct(id)) => {
                    let structs = self.w.b.structs();
                    let fields = &structs[id.0 as usize].fields;
                    part.first += fields[..*at as usize].iter().map(|field| field.ty.count(structs)).sum::<usize>();
                    part.ty = fields[*at as usize].ty;
                }
                (Step::Part(at), ty) => {
                    part.first += *at as usize;
                    part.ty = ty.element()?.into();
                }
                (Step::Slot(index, array), ty) if ty == *array && ty == element => {
                    part.further = Some(index.clone());
                    part.ty = ty.element()?.into();
                }
                (Step::Slot(..), _) => return None,
            }
        }
        Some(part)
    }

    /// The indices of each component of a part. Of a vector that is a view's neighbours, those are elements.
    fn component_indices(&mut self, at: &[ExprId], wide: bool, part: &PartOf, span: Span) -> Done<Vec<Args>> {
        let count = part.ty.count(self.w.b.structs());
        let mut all = vec![];
        for n in 0..count {
            let mut number = Tree::int(self.index, (part.first + n) as i64);
            if let Some(further) = &part.further {
                number = further.clone();
            }
            let mut at = at.to_vec();
            if wide && let Some(last) = at.pop() {
                number = Tree::op(Op::Add, vec![Tree::done(last, self.index), number]);
            }
            at.push(self.w.emit(&number));
            match Args::new(&at) {
                Some(at) => all.push(at),
                None => return self.refuse(span, "an array of more than four dimensions", ""),
            }
        }
        Ok(all)
    }

    /// Reads a part alone.
    pub(super) fn read_part(&mut self, view: View, at: &[ExprId], wide: bool, part: &PartOf, span: Span) -> Done<Tree> {
        self.at(span);
        let mut loads = vec![];
        for at in self.component_indices(at, wide, part, span)? {
            let id = self.w.b.load(view, at);
            loads.push(Tree::done(id, self.w.b.type_of(id)));
        }
        Ok(self.assembled(part.ty, &mut loads.into_iter()))
    }

    /// Writes a part alone.
    pub(super) fn write_part(
        &mut self,
        view: View,
        at: &[ExprId],
        wide: bool,
        part: &PartOf,
        value: Tree,
        span: Span,
    ) -> Done {
        let value = Tree::done(self.w.emit(&value), value.ty);
        let mut values = vec![];
        self.leaves(value, &mut values);
        self.at(span);
        for (at, value) in self.component_indices(at, wide, part, span)?.into_iter().zip(values) {
            let value = self.w.emit(&value);
            self.w.stmt(Stmt::Store { view, at, value });
        }
        self.parted.push(view);
        Ok(())
    }

    /// Writes the entry of an array in a struct that an index means.
    pub(super) fn write_chosen(&mut self, place: &Place, value: Tree, span: Span) -> Done {
        let value = Tree::done(self.w.emit(&value), value.ty);
        self.for_each_choice(place, &mut |lower, chosen| lower.write(chosen, value.clone(), span))
    }

    /// Reads the entry of an array in a struct that an index means.
    pub(super) fn read_chosen(&mut self, place: &Place, span: Span) -> Done<Tree> {
        let zeros = self.zeros(place.ty);
        let local = self.new_local("chosen", place.ty, &zeros);
        self.for_each_choice(place, &mut |lower, chosen| {
            let value = lower.read(chosen, span)?;
            lower.assign(local, &value);
            Ok(())
        })?;
        Ok(Tree::done(self.w.b.read(local), place.ty))
    }

    /// Does something with each entry that an index may mean, where it means that one.
    fn for_each_choice(&mut self, place: &Place, each: &mut dyn FnMut(&mut Self, &Place) -> Done) -> Done {
        let found = place.path.iter().enumerate().find_map(|(n, step)| match step {
            Step::Slot(index, array) => Some((n, index.clone(), *array)),
            _ => None,
        });
        let Some((n, index, array)) = found else { return each(self, place) };
        let index = Tree::done(self.w.emit(&index), self.index);
        for slot in 0..array.count(&[]) {
            let here = Tree::op(Op::Eq, vec![index.clone(), Tree::int(self.index, slot as i64)]);
            let condition = self.w.emit(&here);
            let mut chosen = place.clone();
            chosen.path[n] = Step::Part(slot as u32);
            self.w.b.open_block();
            let done = each(self, &chosen);
            let then = self.w.b.close_block();
            self.w.stmt(Stmt::If { condition, then, otherwise: vec![] });
            done?;
        }
        Ok(())
    }

    /// The components of a value, through all fields.
    fn leaves(&self, whole: Tree, all: &mut Vec<Tree>) {
        let structs = self.w.b.structs();
        match whole.ty {
            Type::Scalar(_) => all.push(whole),
            Type::Struct(id) => {
                for (n, field) in structs[id.0 as usize].fields.iter().enumerate() {
                    self.leaves(Tree::part(whole.clone(), n as u32, field.ty), all);
                }
            }
            other => {
                let scalar = other.element().unwrap_or(Scalar::Bool);
                all.extend((0..other.count(structs)).map(|n| Tree::part(whole.clone(), n as u32, scalar.into())));
            }
        }
    }

    /// A value of its components.
    fn assembled(&self, ty: Type, components: &mut dyn Iterator<Item = Tree>) -> Tree {
        let parts = match ty {
            Type::Scalar(_) => return components.next().unwrap_or(Tree::int(Scalar::I32, 0)),
            Type::Struct(id) => {
                let fields = &self.w.b.structs()[id.0 as usize].fields;
                fields.iter().map(|field| self.assembled(field.ty, components)).collect()
            }
            other => components.take(other.count(self.w.b.structs())).collect(),
        };
        Tree::of(Node::Algebra(Algebra::Construct, 0, parts), ty)
    }
}
