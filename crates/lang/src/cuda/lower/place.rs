//! Places that are read and written: elements behind pointers, variables, their fields, components and slots.

use std::rc::Rc;

use bornite_ir::{Algebra, Args, Dim, ExprId, LocalId, Op, Range, Scalar, Stmt, Type, Value, View};

use super::{Binding, Done, Lower};
use crate::Span;
use crate::cuda::lex::Symbol;
use crate::lower::{Node, Tree};

/// A place in memory: a view, indices of its leading dimensions, and how far from there.
#[derive(Clone)]
pub struct Pointer {
    pub view: View,
    /// Indices of dimensions before the last.
    pub prefix: Vec<ExprId>,
    /// Dimensions of the view.
    pub rank: usize,
    /// Elements of the view from there, in the kernel's index type: modulo its width, what C++ computes in 64 bits.
    pub offset: Option<Tree>,
    /// Values of the offset as C++ computes it.
    pub range: Range,
    /// What it points to in memory.
    pub ty: Type,
    /// The type of the same width that a cast makes of it.
    pub seen: Option<Scalar>,
    /// 1, or how many elements of the view one of `ty` is.
    pub width: u8,
    /// Dimensions of a view that is not one row of elements: then an index must be written by them.
    pub dims: Option<Rc<[Dim]>>,
    /// Whether it is one element that is called by its name, not an array.
    pub single: bool,
    /// Sizes of an array of several dimensions that is one row in memory.
    pub sizes: Rc<[u64]>,
    /// Whether the source calls what it points to const.
    pub constant: bool,
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
            range: Range::up_to(0),
            ty,
            seen: None,
            width: 1,
            dims: None,
            single,
            sizes: if flat && sizes.len() > 1 { sizes.into() } else { [].into() },
            constant: false,
        }
    }

    /// The same pointer as a declaration calls it: a row is one to its first element.
    pub fn declared(self, constant: bool) -> Pointer {
        let sizes = if self.sizes.len() == 1 { [].into() } else { self.sizes };
        Pointer { sizes, constant, ..self }
    }

    /// Whether it is an array of several dimensions, not an element of it.
    pub fn has_rows(&self) -> bool {
        self.prefix.len() + 1 < self.rank || self.sizes.len() > 1
    }

    /// What it is a pointer to, by its type.
    pub fn to(&self) -> Type {
        self.seen.map_or(self.ty, Into::into)
    }
}

/// What holds a value.
#[derive(Clone)]
pub struct Place {
    pub root: Root,
    pub path: Vec<Step>,
    pub ty: Type,
    /// Whether the source calls it const.
    pub constant: bool,
}

impl Place {
    /// A const variable: a value with an address.
    pub fn of_value(tree: Tree) -> Place {
        Place { ty: tree.ty, root: Root::Value(tree), path: vec![], constant: true }
    }
}

#[derive(Clone)]
pub enum Root {
    Element {
        view: View,
        at: Vec<ExprId>,
        /// Values of the last index as C++ computes it.
        range: Range,
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
    /// The same bits as another type.
    Bits(Scalar),
}

impl Step {
    fn bits(&self) -> Option<Scalar> {
        if let Step::Bits(to) = self { Some(*to) } else { None }
    }
}

/// An array of a thread's own: a variable, or a field of one.
#[derive(Clone)]
pub struct Slots {
    /// What holds all of it: a vector or matrix.
    pub place: Place,
    pub name: Symbol,
    pub sizes: Rc<[u64]>,
}

/// Constants in an array.
pub struct Table {
    pub name: Symbol,
    pub values: Vec<Value>,
    pub sizes: Vec<u64>,
}

/// What an expression stands for.
pub enum Operand {
    Void,
    Tree(Tree),
    Place(Place),
    Pointer(Pointer),
    /// A pointer to one variable.
    Address(Place),
    /// `nullptr`.
    Null,
    /// A local array with sizes left.
    Array(Slots, Vec<Tree>),
    /// A constant array with sizes left.
    Table(Rc<Table>, Vec<Tree>),
}

impl<'m> Lower<'m> {
    /// The value of an operand.
    pub(super) fn value_of(&mut self, operand: Operand, span: Span) -> Done<Tree> {
        match operand {
            Operand::Tree(tree) => Ok(tree),
            Operand::Place(place) => self.read(&place, span),
            Operand::Void => self.fail(span, "this has no value", "expected a value", ""),
            Operand::Null => self.refuse(span, "'nullptr' here", "compare pointers with it, or leave it out"),
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
            Root::Element { view, at, width, element, .. } => {
                if !place.path.is_empty() && element.as_scalar().is_none() {
                    let alone = self.request.printed && *width == 1 || self.parts.contains(view);
                    match self.part_at(*element, &place.path).filter(|_| alone) {
                        Some(part) => {
                            let tree = self.read_part(*view, at, *width > 1, &part, span)?;
                            let seen = place.path.iter().rev().find_map(Step::bits);
                            return Ok(seen.map_or(tree.clone(), |to| tree.seen_as(to)));
                        }
                        None if alone => return self.read_chosen(place, span),
                        None => self.read_whole.push(*view),
                    }
                }
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
            Step::Bits(to) => Ok(whole.seen_as(*to)),
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

    pub(super) fn part_type(&self, whole: Type, at: u32) -> Type {
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
            Root::Element { view, at, width, element, .. } => {
                self.check_writable(*view, span)?;
                self.at(span);
                let part = if place.path.is_empty() { None } else { self.part_at(*element, &place.path) };
                if let Some(part) = part.filter(|_| element.as_scalar().is_none()) {
                    let value = match (place.path.last().and_then(Step::bits), part.ty) {
                        (Some(_), Type::Scalar(scalar)) => value.seen_as(scalar),
                        _ => value,
                    };
                    return self.write_part(*view, at, *width > 1, &part, value, span);
                }
                let value = match (&place.path[..], element.as_scalar()) {
                    ([], _) => value,
                    (steps, Some(scalar)) if steps.iter().all(|step| step.bits().is_some()) => value.seen_as(scalar),
                    _ => return self.write_chosen(place, value, span),
                };
                let Some(at) = Args::new(at) else {
                    return self.refuse(span, "an array of more than four dimensions", "");
                };
                let value = self.w.emit(&value);
                self.w.stmt(Stmt::Store { view: *view, at, value });
                Ok(())
            }
        }
    }

    /// Refuses to write what the source calls const.
    pub(super) fn check_assignable(&mut self, place: &Place, span: Span) -> Done {
        if let Root::Element { view, .. } = place.root {
            self.check_writable(view, span)?;
        }
        if place.constant {
            let text = self.m.source.text.get(span.start as usize..span.end as usize).unwrap_or_default();
            let what = format!("'{text}' is const");
            return self.fail(span, what, "cannot be written", "leave out 'const' where it is declared");
        }
        Ok(())
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
            Step::Bits(_) => Ok(value.seen_as(whole.ty.element().unwrap_or(Scalar::I32))),
            Step::Slot(index, array) => {
                let value = if rest.is_empty() { value } else { value.seen_as(array.element().unwrap_or(Scalar::I32)) };
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

    /// A pointer variable that is moved: its offset is a variable of 64 bits.
    pub(super) fn moving(&mut self, name: &str, pointer: Pointer) -> Binding {
        self.widen();
        let zero = Tree::int(self.index, 0);
        let local = self.new_local(name, self.index.into(), &[Value::int(self.index, 0)]);
        let offset = pointer.offset.clone().unwrap_or(zero);
        self.assign(local, &offset);
        Binding::Moving(Pointer { offset: None, range: Range::of_type(self.index), ..pointer }, local)
    }
}
