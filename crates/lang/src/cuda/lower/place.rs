//! Places that are read and written: elements behind pointers, variables, their fields, components and slots.

use std::rc::Rc;

use bornite_ir::{Algebra, Args, Dim, ExprId, Extent, LocalId, Op, Scalar, Stmt, Type, Value, View};

use super::{Binding, Done, Lower};
use crate::Span;
use crate::cuda::ast::{Binary, Expr, ExprKind};
use crate::lower::{Node, Tree};

/// A place in memory: a view, indices of its leading dimensions, and how far from there.
#[derive(Clone)]
pub struct Pointer {
    pub view: View,
    /// Indices of dimensions before the last.
    pub prefix: Vec<ExprId>,
    /// Dimensions of the view.
    pub rank: usize,
    pub offset: Option<Tree>,
    /// What it points to.
    pub ty: Type,
    /// 1, or how many elements of the view one of `ty` is.
    pub width: u8,
    /// Dimensions of a view that is not one row of elements: then an index must be written by them.
    pub dims: Option<Rc<[Dim]>>,
    /// Whether it is one element that is called by its name, not an array.
    pub single: bool,
    /// Sizes of an array of several dimensions that is one row in memory.
    pub sizes: Rc<[u64]>,
}

impl Pointer {
    pub fn whole(view: View, ty: Type, rank: usize, single: bool, sizes: &[u64]) -> Pointer {
        // An array of the file has one dimension in memory, whatever it is called by.
        let flat = matches!(view, View::Param(_));
        Pointer {
            view,
            prefix: vec![],
            rank: if flat { 1 } else { rank },
            offset: None,
            ty,
            width: 1,
            dims: None,
            single,
            sizes: if flat && sizes.len() > 1 { sizes.into() } else { [].into() },
        }
    }
}

/// What holds a value.
#[derive(Clone)]
pub struct Place {
    pub root: Root,
    pub path: Vec<Step>,
    pub ty: Type,
}

#[derive(Clone)]
pub enum Root {
    Element {
        view: View,
        at: Vec<ExprId>,
        width: u8,
        element: Type,
    },
    Local(LocalId, Type),
    /// A value that is nowhere: it can be read only.
    Value(Tree),
}

#[derive(Clone)]
pub enum Step {
    /// A component or field.
    Part(u32),
    /// A slot of a local array.
    Slot(Tree, Type),
}

/// What an expression stands for.
pub enum Operand {
    Void,
    Tree(Tree),
    Place(Place),
    Pointer(Pointer),
    /// A pointer to one variable.
    Address(Place),
    /// A local array with sizes left.
    Array(LocalId, Scalar, Rc<[u64]>, Vec<Tree>),
    /// A constant array with sizes left.
    Table(Rc<[Value]>, Rc<[u64]>, Vec<Tree>),
}

impl<'m> Lower<'m> {
    /// The value of an operand.
    pub(super) fn value_of(&mut self, operand: Operand, span: Span) -> Done<Tree> {
        match operand {
            Operand::Tree(tree) => Ok(tree),
            Operand::Place(place) => self.read(&place, span),
            Operand::Void => self.fail(span, "this has no value", "expected a value", ""),
            Operand::Pointer(_) | Operand::Address(_) => self.fail(
                span,
                "a pointer where a number is expected",
                "a pointer",
                "write what it points to: '*p', 'p[i]'",
            ),
            Operand::Array(..) | Operand::Table(..) => {
                self.fail(span, "an array where a number is expected", "an array", "write one of its elements")
            }
        }
    }

    pub(super) fn read(&mut self, place: &Place, span: Span) -> Done<Tree> {
        let mut tree = match &place.root {
            Root::Value(tree) => tree.clone(),
            Root::Local(local, ty) => {
                let id = self.w.b.read(*local);
                Tree::done(id, *ty)
            }
            Root::Element { view, at, width, element } => {
                self.at(span);
                let Some(at) = Args::new(at) else {
                    return self.refuse(span, "an array of more than four dimensions", "");
                };
                let id = if *width > 1 { self.w.b.load_wide(*view, at, *width) } else { self.w.b.load(*view, at) };
                Tree::done(id, *element)
            }
        };
        for step in &place.path {
            tree = self.part(tree, step, span)?;
        }
        Ok(tree)
    }

    /// A step into a value.
    fn part(&mut self, whole: Tree, step: &Step, span: Span) -> Done<Tree> {
        match step {
            Step::Part(at) => {
                let ty = self.part_type(whole.ty, *at);
                Ok(Tree::part(whole, *at, ty))
            }
            Step::Slot(index, array) => {
                let scalar = array.element().unwrap_or(Scalar::I32);
                let count = array.count(&[]) as i64;
                if let Some(at) = self.known_slot(index, count, span)? {
                    return Ok(Tree::part(whole, at as u32, scalar.into()));
                }
                let whole = Tree::done(self.w.emit(&whole), *array);
                let id = self.w.emit(index);
                let index = Tree::done(id, self.index);
                let mut value = Tree::part(whole.clone(), 0, scalar.into());
                for n in 1..count {
                    let here = Tree::op(Op::Eq, vec![index.clone(), Tree::int(self.index, n)]);
                    value = Tree::select(here, Tree::part(whole.clone(), n as u32, scalar.into()), value);
                    value = Tree::done(self.w.emit(&value), scalar);
                }
                Ok(value)
            }
        }
    }

    /// The number of a slot that is known; outside the array it is a mistake.
    fn known_slot(&mut self, index: &Tree, count: i64, span: Span) -> Done<Option<i64>> {
        match self.w.fold(index).map(Value::as_i64) {
            Some(at) if (0..count).contains(&at) => Ok(Some(at)),
            Some(at) => {
                let what = format!("index {at} is outside a local array of {count} elements");
                self.fail(span, what, "outside", "")
            }
            None => Ok(None),
        }
    }

    fn part_type(&self, whole: Type, at: u32) -> Type {
        match whole {
            Type::Struct(id) => self.w.b.structs()[id.0 as usize].fields[at as usize].ty,
            other => other.element().unwrap_or(Scalar::Bool).into(),
        }
    }

    pub(super) fn write(&mut self, place: &Place, value: Tree, span: Span) -> Done {
        match &place.root {
            Root::Value(_) => self.fail(span, "this cannot be assigned", "not a variable or element", ""),
            Root::Local(local, ty) => {
                let value = if place.path.is_empty() {
                    value
                } else {
                    let whole = Tree::done(self.w.b.read(*local), *ty);
                    self.replaced(whole, &place.path, value, span)?
                };
                self.assign(*local, &value);
                Ok(())
            }
            Root::Element { view, at, width, element } => {
                self.check_writable(*view, span)?;
                self.at(span);
                let Some(at) = Args::new(at) else {
                    return self.refuse(span, "an array of more than four dimensions", "");
                };
                let value = if place.path.is_empty() {
                    value
                } else {
                    let value = Tree::done(self.w.emit(&value), value.ty);
                    let id = if *width > 1 { self.w.b.load_wide(*view, at, *width) } else { self.w.b.load(*view, at) };
                    self.replaced(Tree::done(id, *element), &place.path, value, span)?
                };
                let value = self.w.emit(&value);
                self.w.stmt(Stmt::Store { view: *view, at, value });
                Ok(())
            }
        }
    }

    /// Refuses to write elements that are const.
    pub(super) fn check_writable(&mut self, view: View, span: Span) -> Done {
        match self.read_only.iter().find(|(found, _)| *found == view) {
            Some((_, name)) => {
                let what = format!("'{name}' is an array of const elements");
                self.fail(span, what, "cannot be written", "leave out 'const' where it is declared")
            }
            None => Ok(()),
        }
    }

    /// A whole with one part, some steps inside it, replaced.
    fn replaced(&mut self, whole: Tree, path: &[Step], value: Tree, span: Span) -> Done<Tree> {
        let Some((step, rest)) = path.split_first() else { return Ok(value) };
        let whole = Tree::done(self.w.emit(&whole), whole.ty);
        let insert =
            |at: u32, part: Tree| Tree::of(Node::Algebra(Algebra::Insert, at, vec![whole.clone(), part]), whole.ty);
        match step {
            Step::Part(at) => {
                let inner = self.part(whole.clone(), step, span)?;
                let part = self.replaced(inner, rest, value, span)?;
                Ok(insert(*at, part))
            }
            Step::Slot(index, array) => {
                let count = array.count(&[]) as i64;
                if let Some(at) = self.known_slot(index, count, span)? {
                    return Ok(insert(at as u32, value));
                }
                let value = Tree::done(self.w.emit(&value), value.ty);
                let index = Tree::done(self.w.emit(index), self.index);
                let mut parts = vec![];
                for n in 0..count {
                    let here = Tree::op(Op::Eq, vec![index.clone(), Tree::int(self.index, n)]);
                    let old = Tree::part(whole.clone(), n as u32, value.ty);
                    let part = Tree::select(here, value.clone(), old);
                    parts.push(Tree::done(self.w.emit(&part), value.ty));
                }
                Ok(Tree::of(Node::Algebra(Algebra::Construct, 0, parts), whole.ty))
            }
        }
    }

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
                if let [_, rest @ ..] = &pointer.sizes[..] {
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
            Operand::Array(local, scalar, sizes, mut at) => {
                let tree = self.rvalue(index)?;
                let tree = self.index(tree, index.span)?;
                self.check_size(&tree, sizes[at.len()], index.span)?;
                at.push(tree);
                if at.len() < sizes.len() {
                    return Ok(Operand::Array(local, scalar, sizes, at));
                }
                let count: u64 = sizes.iter().product();
                let array = Type::Vector(scalar, count as u8);
                let slot = self.flat(&at, &sizes);
                let slot = match self.w.fold(&slot) {
                    Some(_) => slot,
                    None => Tree::done(self.w.emit(&slot), self.index),
                };
                let path = vec![Step::Slot(slot, array)];
                Ok(Operand::Place(Place { root: Root::Local(local, array), path, ty: scalar.into() }))
            }
            Operand::Table(values, sizes, mut at) => {
                let tree = self.rvalue(index)?;
                let tree = self.index(tree, index.span)?;
                self.check_size(&tree, sizes[at.len()], index.span)?;
                at.push(tree);
                if at.len() < sizes.len() {
                    return Ok(Operand::Table(values, sizes, at));
                }
                let slot = self.flat(&at, &sizes);
                Ok(Operand::Tree(self.looked_up(&values, slot, span)?))
            }
            Operand::Place(_) | Operand::Tree(_) | Operand::Void | Operand::Address(_) => {
                self.fail(span, "only arrays and pointers have elements", "not an array", "")
            }
        }
    }

    /// A constant index beyond a known size is a mistake before any run.
    fn check_size(&mut self, index: &Tree, size: u64, span: Span) -> Done {
        match self.w.fold(index).map(Value::as_i64) {
            Some(at) if at < 0 || at as u64 >= size => {
                let what = format!("index {at} is outside an array of {size} elements");
                self.fail(span, what, "outside", "")
            }
            _ => Ok(()),
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
    fn looked_up(&mut self, values: &[Value], slot: Tree, span: Span) -> Done<Tree> {
        if let Some(at) = self.w.fold(&slot) {
            let value = values.get(at.as_i64() as usize).copied();
            return Ok(Tree::constant(value.unwrap_or(values[0])));
        }
        if values.len() > 64 {
            let what = format!("a constant array of {} entries at an index that varies", values.len());
            return self.refuse(
                span,
                what,
                "pass it as a pointer, or make it '__constant__' without values; 64 are possible",
            );
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
        let Pointer { view, prefix, rank, offset, ty, width, .. } = pointer;
        let mut at = prefix;
        let zero = Tree::int(self.index, 0);
        // A pointer to a row stands for its first element.
        while at.len() + 1 < rank {
            at.push(self.w.emit(&zero));
        }
        at.push(self.w.emit(&offset.unwrap_or(zero)));
        Ok(Operand::Place(Place { root: Root::Element { view, at, width, element: ty }, path: vec![], ty }))
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

    /// A pointer variable that is moved: its place is a variable.
    pub(super) fn moving(&mut self, name: &str, pointer: Pointer) -> Binding {
        let zero = Tree::int(self.index, 0);
        let local = self.new_local(name, self.index.into(), &[Value::int(self.index, 0)]);
        let offset = pointer.offset.clone().unwrap_or(zero);
        self.assign(local, &offset);
        Binding::Moving(Pointer { offset: None, ..pointer }, local)
    }
}
