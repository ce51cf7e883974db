//! Components and fields of elements in memory, read, written and updated alone: what other instances do with the rest of an
//! element is theirs.

use bornite_ir::{Args, Atomic, Check, ExprId, Op, Scalar, Stmt, Type, Value, View};
use ruff_text_size::Ranged;

use super::value::{Element, Run, Several, Step};
use super::{Lower, Lowers};
use crate::python::types::Ty;

/// A part of an element: the numbers of its components, and what is added to each where only a run tells it.
pub(super) struct PartOf {
    places: Vec<u32>,
    further: Option<ExprId>,
}

impl<'p> Lower<'p> {
    /// The part of an element that its path leads to; `None` for all of it, and for what is one of several parts by an index that
    /// varies: an entry of a vector in a struct.
    pub(super) fn part_of(&mut self, element: &Element, at: &impl Ranged) -> Lowers<Option<PartOf>> {
        if element.path.is_empty() {
            return Ok(None);
        }
        let whole = self.ir_type(element.array.element, at)?;
        let count = whole.count(self.w.b.structs());
        let mut part = PartOf { places: (0..count as u32).collect(), further: None };
        let mut ty = element.array.element;
        for step in &element.path {
            part.places = match *step {
                Step::Part(n, inner) => {
                    let mut first = n as usize;
                    if let Ty::Struct(of) = ty {
                        first = 0;
                        for (_, field) in self.fields_of(of, at)?.iter().take(n as usize) {
                            let Some(field) = field.exact() else { return Ok(None) };
                            first += self.ir_type(field, at)?.count(self.w.b.structs());
                        }
                    }
                    let count = self.ir_type(inner, at)?.count(self.w.b.structs());
                    part.places[first..first + count].to_vec()
                }
                Step::Several(several, _) => several.places().map(|n| part.places[n as usize]).collect(),
                Step::Computed(index, inner) => {
                    let (width, places) = (inner.count(), &part.places);
                    let step = places.get(width).map_or(0, |next| next - places[0]);
                    let even = |n: usize| places[n] == places[n % width] + (n / width) as u32 * step;
                    if matches!(whole, Type::Struct(_)) || !(0..places.len()).all(even) {
                        return Ok(None);
                    }
                    let (row, rows) = (places[..width].to_vec(), places.len() / width);
                    let mut index = self.narrow_index(index);
                    // A component of all is checked where it is accessed.
                    if part.further.is_some() || width > 1 || places.len() < count {
                        self.claim_within(index, rows, element);
                    }
                    if step != 1 {
                        let by = self.w.constant(Value::int(Scalar::I32, step as i64));
                        index = self.op(Op::Mul, &[index, by]);
                    }
                    part.further = Some(match part.further {
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

    /// The indices of each component of a part.
    fn component_indices(&mut self, element: &Element, part: &PartOf, at: &impl Ranged) -> Lowers<Vec<Args>> {
        let places = self.places(&element.array, &element.at);
        let mut all = vec![];
        for &place in &part.places {
            let mut number = self.w.constant(Value::int(Scalar::I32, place as i64));
            if let Some(further) = part.further {
                number = if place == 0 { further } else { self.op(Op::Add, &[further, number]) };
            }
            let number = match self.w.b.known(number) {
                Some(known) => self.w.constant(Value::int(self.index, known.as_i64())),
                None => self.cast_id(self.index, number),
            };
            match Args::new(&[&places[..], &[number]].concat()) {
                Some(at) => all.push(at),
                None => return self.fail(at, "too many indices".into(), "", None),
            }
        }
        Ok(all)
    }

    pub(super) fn load_part(&mut self, element: &Element, part: &PartOf, at: &impl Ranged) -> Lowers<Run> {
        let view = element.array.view;
        let indices = self.component_indices(element, part, at)?;
        let loads: Vec<ExprId> = indices.into_iter().map(|at| self.w.b.load(view, at)).collect();
        self.assembled(element.ty(), loads, at)
    }

    pub(super) fn store_part(&mut self, element: &Element, part: &PartOf, value: ExprId, at: &impl Ranged) -> Lowers {
        let mut values = vec![];
        self.leaves(value, &mut values);
        let view = element.array.view;
        for (at, value) in self.component_indices(element, part, at)?.into_iter().zip(values) {
            self.w.stmt(Stmt::Store { view, at, value });
        }
        self.parted(element);
        Ok(())
    }

    /// Updates each component of a part; the values from before.
    pub(super) fn update_part(
        &mut self,
        atomic: Atomic,
        element: &Element,
        part: &PartOf,
        value: ExprId,
        at: &impl Ranged,
    ) -> Lowers<Run> {
        let mut values = vec![];
        self.leaves(value, &mut values);
        let view = element.array.view;
        let indices = self.component_indices(element, part, at)?;
        let olds =
            indices.into_iter().zip(values).map(|(at, value)| self.w.b.atomic(atomic, view, at, value)).collect();
        self.parted(element);
        self.assembled(element.ty(), olds, at)
    }

    fn parted(&mut self, element: &Element) {
        self.wrote(&element.array);
        self.parted.push(element.array.view);
    }

    /// Claims that an index of components is one.
    fn claim_within(&mut self, index: ExprId, count: usize, element: &Element) {
        let index = self.cast_id(self.index, index);
        let of = format!("{}, components", self.w.b.view_name(element.array.view));
        let check = Check::Within { index, len: count as u64, of };
        self.w.stmt(Stmt::Check(check));
    }

    /// Reads the part that an index in the path means.
    pub(super) fn load_chosen(&mut self, element: &Element, at: &impl Ranged) -> Lowers<Run> {
        let ty = self.ir_type(element.ty(), at)?;
        let zeros: Vec<Value> =
            ty.components(self.w.b.structs()).into_iter().map(|scalar| Value::int(scalar, 0)).collect();
        let local = self.w.b.local_of("chosen", ty, &zeros);
        self.for_each_choice(element, &mut |lower, chosen| {
            if let Some(part) = lower.part_of(chosen, at)? {
                let run = lower.load_part(chosen, &part, at)?;
                lower.w.b.assign(local, run.id);
            }
            Ok(())
        })?;
        Ok(Run::new(self.w.b.read(local), element.ty()))
    }

    /// Does something with each part that an index in the path may mean, where it means that one.
    pub(super) fn for_each_choice(
        &mut self,
        element: &Element,
        each: &mut dyn FnMut(&mut Self, &Element) -> Lowers,
    ) -> Lowers {
        let Some(n) = element.path.iter().position(|step| matches!(step, Step::Computed(..))) else {
            return each(self, element);
        };
        let Step::Computed(index, ty) = element.path[n] else { return Ok(()) };
        let around = if n == 0 { element.array.element } else { element.path[n - 1].ty() };
        let index = self.narrow_index(index);
        let width = ty.count() as u32;
        self.claim_within(index, around.count() / width as usize, element);
        for row in 0..around.count() as u32 / width {
            let number = self.w.constant(Value::int(Scalar::I32, row as i64));
            let condition = self.op(Op::Eq, &[index, number]);
            let mut chosen = element.clone();
            chosen.path[n] = match ty {
                Ty::Scalar(_) => Step::Part(row, ty),
                _ => Step::Several(Several::row(row * width, 1, width), ty),
            };
            self.w.b.open_block();
            let done = self.for_each_choice(&chosen, each);
            let then = self.w.b.close_block();
            self.w.stmt(Stmt::If { condition, then, otherwise: vec![] });
            done?;
        }
        Ok(())
    }

    /// Whether parts of a view are read alone.
    pub(super) fn is_parted(&self, view: View) -> bool {
        self.parts.contains(&view)
    }

    /// The components of a value, through all fields.
    fn leaves(&mut self, id: ExprId, all: &mut Vec<ExprId>) {
        let ty = self.w.b.type_of(id);
        let parts = match ty {
            Type::Scalar(_) => return all.push(id),
            Type::Struct(of) => self.w.b.structs()[of.0 as usize].fields.len(),
            other => other.count(&[]),
        };
        for n in 0..parts {
            let part = self.extracted(id, n as u32);
            self.leaves(part, all);
        }
    }

    /// A value of its components.
    fn assembled(&mut self, ty: Ty, components: Vec<ExprId>, at: &impl Ranged) -> Lowers<Run> {
        let whole = self.ir_type(ty, at)?;
        let id = self.constructed_of(whole, &mut components.into_iter());
        Ok(Run::new(id, ty))
    }

    fn constructed_of(&mut self, ty: Type, components: &mut dyn Iterator<Item = ExprId>) -> ExprId {
        let parts: Vec<ExprId> = match ty {
            Type::Scalar(_) => match components.next() {
                Some(one) => return one,
                None => vec![],
            },
            Type::Struct(of) => {
                let types: Vec<Type> = self.w.b.structs()[of.0 as usize].fields.iter().map(|field| field.ty).collect();
                types.into_iter().map(|ty| self.constructed_of(ty, components)).collect()
            }
            other => components.take(other.count(&[])).collect(),
        };
        self.w.b.construct(ty, &parts)
    }
}
