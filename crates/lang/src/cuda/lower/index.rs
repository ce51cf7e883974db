//! Elements by index: behind pointers, of local arrays, of tables of constants.

use std::rc::Rc;

use bornite_ir::{Check, Dim, Extent, Op, ParamId, Scalar, Stmt, Value, View};

use super::place::{Operand, Place, Pointer, Root, Slots, Step, Table};
use super::{Done, Lower};
use crate::cuda::ast::{Binary, Expr, ExprKind};
use crate::lower::{Node, Tree};
use crate::{Given, Span};

/// Entries of a table that is read at an index which varies.
const MAX_CHOICES: usize = 64;

impl<'m> Lower<'m> {
    /// An index in the kernel's index type.
    pub(super) fn index(&mut self, tree: Tree, span: Span) -> Done<Tree> {
        let Some(scalar) = tree.scalar().filter(|scalar| !scalar.is_float()) else {
            let what = format!("an index is an integer, this is '{}'", self.type_name(tree.ty));
            return self.fail(span, what, "expected an integer", "cast it: '(int)x'");
        };
        let small = self.w.fold(&tree).is_some_and(|value| i32::try_from(value.as_i64()).is_ok());
        if scalar.bytes() == 8
            && self.index == Scalar::I32
            && !small
            && !matches!(tree.node, Node::Cast(_, ref inner) if
            inner.scalar().is_some_and(|scalar| scalar.bytes() < 8))
        {
            self.needs_wide |= self.request.index.is_none();
        }
        Ok(tree.cast(self.index))
    }

    /// The place that a pointer and an index give, or a pointer to a row.
    pub(super) fn indexed(&mut self, base: Operand, index: &'m Expr, span: Span) -> Done<Operand> {
        match base {
            Operand::Pointer(pointer) if pointer.dims.is_some() => self.indexed_by_dims(pointer, index, span),
            Operand::Pointer(mut pointer) => {
                if pointer.single {
                    return self.fail(span, "this is one value, not an array", "no index here", "");
                }
                let at = self.rvalue(index)?;
                let at = self.index(at, index.span)?;
                if pointer.prefix.len() + 1 < pointer.rank {
                    pointer.prefix.push(self.w.emit(&at));
                    return Ok(Operand::Pointer(pointer));
                }
                if let [size, rest @ ..] = &pointer.sizes[..] {
                    let of =
                        |given: &Given| matches!(given, Given::View(n) if View::Param(ParamId(*n)) == pointer.view);
                    let name = self.params.iter().find(|(_, given)| of(given)).map(|(name, _)| name.as_str());
                    let name = name.or(self.shared_text(pointer.view)).unwrap_or_default().to_owned();
                    let at = self.inside(at, *size, &name, index.span)?;
                    let row: u64 = rest.iter().product();
                    let rest: Rc<[u64]> = rest.into();
                    let at = if row > 1 { Tree::op(Op::Mul, vec![at, Tree::int(self.index, row as i64)]) } else { at };
                    let moved = self.moved(pointer, at);
                    let last = rest.is_empty();
                    let moved = Pointer { sizes: rest, ..moved };
                    return if last { self.element(moved) } else { Ok(Operand::Pointer(moved)) };
                }
                let pointer = self.moved(pointer, at);
                self.element(pointer)
            }
            Operand::Array(slots, mut at) => {
                let tree = self.rvalue(index)?;
                let size = slots.sizes[at.len()];
                let of = self.text(slots.name);
                // Of elements in memory, whoever reads the printed text checks it as it checks their indices.
                let printed = self.request.printed && matches!(slots.place.root, Root::Element { .. });
                at.push(match printed {
                    true => self.index(tree, index.span)?,
                    false => self.inside(tree, size, of, index.span)?,
                });
                if at.len() < slots.sizes.len() {
                    return Ok(Operand::Array(slots, at));
                }
                let Slots { place, sizes, .. } = slots;
                let slot = self.flat(&at, &sizes);
                let step = match self.w.fold(&slot) {
                    Some(known) => Step::Part(known.as_i64() as u32),
                    None => Step::Slot(Tree::done(self.w.emit(&slot), self.index), place.ty),
                };
                let scalar = place.ty.element().unwrap_or(Scalar::I32);
                let mut path = place.path;
                path.push(step);
                Ok(Operand::Place(Place { root: place.root, path, ty: scalar.into() }))
            }
            Operand::Table(table, mut at) => {
                let tree = self.rvalue(index)?;
                let size = table.sizes[at.len()];
                let of = self.text(table.name);
                at.push(self.inside(tree, size, of, index.span)?);
                if at.len() < table.sizes.len() {
                    return Ok(Operand::Table(table, at));
                }
                let slot = self.flat(&at, &table.sizes);
                Ok(Operand::Tree(self.looked_up(&table, slot, span)?))
            }
            Operand::Address(place) => {
                let at = self.rvalue(index)?;
                match self.w.fold(&at) {
                    Some(at) if at.bits() == 0 => Ok(Operand::Place(place)),
                    _ => {
                        let what = "an element beside the variable that a pointer points to";
                        self.refuse(span, what, "index the array itself")
                    }
                }
            }
            Operand::Place(_) | Operand::Tree(_) | Operand::Void | Operand::Null => {
                self.fail(span, "only arrays and pointers have elements", "not an array", "")
            }
        }
    }

    /// An index of an array that is no memory: one that is known and outside is a mistake before any run, others are
    /// checked in a run.
    fn inside(&mut self, index: Tree, size: u64, of: &str, span: Span) -> Done<Tree> {
        let index = self.index(index, span)?;
        match self.w.fold(&index).map(Value::as_i64) {
            Some(at) if at < 0 || at as u64 >= size => {
                let what = format!("index {at} is outside an array of {size} elements");
                self.fail(span, what, "outside", "")
            }
            Some(_) => Ok(index),
            None => {
                let id = self.w.emit(&index);
                self.push(Stmt::Check(Check::Within { index: id, len: size, of: of.to_owned() }), span);
                Ok(Tree::done(id, self.index))
            }
        }
    }

    /// Indices of several dimensions as one.
    fn flat(&self, at: &[Tree], sizes: &[u64]) -> Tree {
        let mut sum = at[0].clone();
        for (index, size) in at.iter().zip(sizes).skip(1) {
            let scaled = Tree::op(Op::Mul, vec![sum, Tree::int(self.index, *size as i64)]);
            sum = Tree::op(Op::Add, vec![scaled, index.clone()]);
        }
        sum
    }

    /// An entry of a constant array: where the index is not known, by choices.
    fn looked_up(&mut self, table: &Table, slot: Tree, span: Span) -> Done<Tree> {
        let values = &table.values;
        if let Some(at) = self.w.fold(&slot) {
            let value = values.get(at.as_i64() as usize).copied();
            return Ok(Tree::constant(value.unwrap_or(values[0])));
        }
        if values.len() > MAX_CHOICES {
            let what = format!("a constant array of {} entries at an index that varies", values.len());
            let hint = "pass it as a pointer, or make it '__constant__' without values; 64 are possible";
            return self.refuse(span, what, hint);
        }
        let index = Tree::done(self.w.emit(&slot), self.index);
        let mut value = Tree::constant(values[0]);
        for (n, entry) in values.iter().enumerate().skip(1) {
            let here = Tree::op(Op::Eq, vec![index.clone(), Tree::int(self.index, n as i64)]);
            let chosen = Tree::select(here, Tree::constant(*entry), value);
            value = Tree::done(self.w.emit(&chosen), entry.scalar());
        }
        Ok(value)
    }

    /// The pointer so many elements on.
    pub(super) fn moved(&mut self, mut pointer: Pointer, by: Tree) -> Pointer {
        let by = match pointer.width {
            1 => by,
            width => Tree::op(Op::Mul, vec![by, Tree::int(self.index, width as i64)]),
        };
        pointer.offset = Some(match pointer.offset.take() {
            Some(offset) => Tree::op(Op::Add, vec![offset, by]),
            None => by,
        });
        pointer
    }

    /// What a pointer points to.
    pub(super) fn element(&mut self, pointer: Pointer) -> Done<Operand> {
        let Pointer { view, prefix, rank, offset, ty, width, seen, .. } = pointer;
        let mut at = prefix;
        let zero = Tree::int(self.index, 0);
        // A pointer to a row stands for its first element.
        while at.len() + 1 < rank {
            at.push(self.w.emit(&zero));
        }
        at.push(self.w.emit(&offset.unwrap_or(zero)));
        let path = seen.map(Step::Bits).into_iter().collect();
        Ok(Operand::Place(Place {
            root: Root::Element { view, at, width, element: ty },
            path,
            ty: seen.map_or(ty, Into::into),
        }))
    }

    /// An index of a view with gaps or several dimensions, written as our printer writes it: `i * 12 + j * n + k`.
    fn indexed_by_dims(&mut self, pointer: Pointer, index: &'m Expr, span: Span) -> Done<Operand> {
        let dims = pointer.dims.clone().unwrap_or_default();
        let steps: Vec<&Dim> = dims.iter().filter(|dim| dim.stride != Extent::Const(0)).collect();
        let mut terms = vec![];
        let mut rest = index;
        while terms.len() + 1 < steps.len()
            && let ExprKind::Binary(Binary::Add, left, right) = &rest.kind
        {
            terms.push(&**right);
            rest = left;
        }
        terms.push(rest);
        terms.reverse();
        if terms.len() != steps.len() && !steps.is_empty() {
            return self.fail(index.span, "this index is not written by the dimensions of its array", "", "");
        }
        let mut terms = terms.into_iter();
        let mut at = vec![];
        for dim in dims.iter() {
            let term = match dim.stride {
                Extent::Const(0) => None,
                _ => terms.next(),
            };
            let tree = match term {
                None => Tree::int(self.index, 0),
                Some(term) => {
                    let inner = match (&term.kind, dim.stride) {
                        (_, Extent::Const(1)) => term,
                        (ExprKind::Binary(Binary::Mul, inner, _), _) => inner,
                        _ => {
                            return self.fail(
                                term.span,
                                "this index is not written by the dimensions of its array",
                                "",
                                "",
                            );
                        }
                    };
                    let tree = self.rvalue(inner)?;
                    self.index(tree, span)?
                }
            };
            at.push(self.w.emit(&tree));
        }
        let ty = pointer.ty;
        let root = Root::Element { view: pointer.view, at, width: 1, element: ty };
        Ok(Operand::Place(Place { root, path: vec![], ty }))
    }
}
