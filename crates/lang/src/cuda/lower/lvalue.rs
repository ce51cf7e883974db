//! Lvalues: elements behind pointers, variables, and their fields, components and array elements.
//! Reads and writes them.

use std::rc::Rc;

use bornite_ir::{AlgebraOp, Dim, ExprId, IntRange, LocalId, Op, Scalar, Type, Value, View};

use super::tagged::PointerChoice;
use super::{Binding, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::lex::Symbol;
use crate::cuda::types::{Collective, Group};
use crate::lower::{Node, Tree};

/// A pointer into memory: a view, indices of its leading dimensions, and an offset in the last one.
#[derive(Clone)]
pub struct Pointer {
    pub view: View,
    /// Indices of the dimensions before the last.
    pub prefix: Vec<ExprId>,
    /// Number of dimensions of the view.
    pub rank: usize,
    /// Offset in elements of the view, in the kernel's index type: the 64-bit C++ value modulo its
    /// width.
    pub offset: Option<Tree>,
    /// Range of the C++ value of the offset.
    pub range: IntRange,
    /// Type of the pointee in memory.
    pub ty: Type,
    /// Type of the same size that the pointer was cast to; of a part if `split` is above 1.
    pub cast_type: Option<Type>,
    /// Number of elements of the view that one `ty` spans.
    pub width: u8,
    /// Number of pointees in one `ty`, if that is larger; `offset` then counts pointees.
    pub split: u8,
    /// Dimensions of a view that is not contiguous and one-dimensional: indices must then follow
    /// these dimensions.
    pub dims: Option<Rc<[Dim]>>,
    /// True for a single variable in memory, which is accessed by name, not by index.
    pub single: bool,
    /// Sizes of a multidimensional array that is one-dimensional in memory.
    pub sizes: Rc<[u64]>,
    /// Size in bytes if this is a whole array, not a pointer into one.
    pub array_bytes: Option<u64>,
    /// True if the pointee is const in the source.
    pub constant: bool,
    /// The array, if it is chosen at run time; `view` then is one of the choices.
    pub choice: Option<Rc<PointerChoice>>,
}

impl Pointer {
    pub fn to_view(view: View, ty: Type, rank: usize, single: bool, sizes: &[u64]) -> Pointer {
        // Global arrays are one-dimensional in memory, whatever their declared shape.
        let flat = matches!(view, View::Param(_));
        Pointer {
            view,
            prefix: vec![],
            rank: if flat { 1 } else { rank },
            offset: None,
            range: IntRange::up_to(0),
            ty,
            cast_type: None,
            width: 1,
            split: 1,
            dims: None,
            single,
            sizes: if flat && sizes.len() > 1 { sizes.into() } else { [].into() },
            array_bytes: None,
            constant: false,
            choice: None,
        }
    }

    /// The pointer as a declaration sees it: a row decays to a pointer to its first element.
    pub fn declared(self, constant: bool) -> Pointer {
        let sizes = if self.sizes.len() == 1 { [].into() } else { self.sizes };
        Pointer { sizes, constant, array_bytes: None, ..self }
    }

    /// Returns true for a multidimensional array, as opposed to an element of it.
    pub fn has_rows(&self) -> bool {
        self.prefix.len() + 1 < self.rank || self.sizes.len() > 1
    }

    /// Type that the pointer points to, after casts.
    pub fn pointee_type(&self) -> Type {
        self.cast_type.unwrap_or(self.ty)
    }
}

/// An lvalue: a root and a path of projections into it.
#[derive(Clone)]
pub struct Lvalue {
    pub root: LvalueRoot,
    pub path: Vec<Projection>,
    pub ty: Type,
    /// True if it is const in the source.
    pub constant: bool,
}

impl Lvalue {
    /// A const variable: a value whose address can be taken.
    pub fn of_value(tree: Tree) -> Lvalue {
        Lvalue { ty: tree.ty, root: LvalueRoot::Value(tree), path: vec![], constant: true }
    }
}

#[derive(Clone)]
pub enum LvalueRoot {
    Element {
        view: View,
        at: Vec<ExprId>,
        /// Range of the C++ value of the last index.
        range: IntRange,
        width: u8,
        element: Type,
        /// The array, if it is chosen at run time.
        choice: Option<Rc<PointerChoice>>,
    },
    Local(LocalId, Type),
    /// A temporary value: read-only.
    Value(Tree),
    /// One of two lvalues, depending on a condition: read-only.
    Choice(Tree, Rc<[Lvalue]>),
}

#[derive(Clone)]
pub enum Projection {
    /// A component of a vector or a field of a struct.
    Field(u32),
    /// An element of a local array at a non-constant index.
    DynamicIndex(Tree, Type),
    /// The bits reinterpreted as another type of the same size.
    Reinterpret(Type),
}

impl Projection {
    fn is_reinterpret(&self) -> bool {
        matches!(self, Projection::Reinterpret(_))
    }
}

/// A local array: a variable, or a field of one.
#[derive(Clone)]
pub struct RegisterArray {
    /// The vector or matrix that holds the elements.
    pub lvalue: Lvalue,
    pub name: Symbol,
    pub sizes: Rc<[u64]>,
}

/// An array of constants.
pub struct ConstArray {
    pub name: Symbol,
    pub values: Vec<Value>,
    pub sizes: Vec<u64>,
}

/// Result of lowering an expression.
pub enum CudaOperand {
    Void,
    Tree(Tree),
    Lvalue(Lvalue),
    Pointer(Pointer),
    /// A pointer to a single variable.
    Address(Lvalue),
    /// A null pointer, with the type it points to if that is known.
    Null(Option<Type>),
    /// A cooperative group.
    Group(Group),
    /// A collective with its shared storage.
    Collective(Collective, Option<Pointer>),
    /// A local array with the indices applied so far.
    RegisterArray(RegisterArray, Vec<Tree>),
    /// A constant array with the indices applied so far.
    ConstArray(Rc<ConstArray>, Vec<Tree>),
}

impl<'m> Lowering<'m> {
    /// Converts an operand to its value.
    pub(super) fn value_of(&mut self, operand: CudaOperand, span: SourceSpan) -> LowerResult<Tree> {
        match operand {
            CudaOperand::Tree(tree) => Ok(tree),
            CudaOperand::Lvalue(lvalue) => self.read(&lvalue, span),
            CudaOperand::Void => self.fail(span, "this expression has no value", "expected a value", ""),
            CudaOperand::Group(_) | CudaOperand::Collective(..) => {
                self.fail(span, "expected a number, found a group", "a group or collective", "")
            }
            CudaOperand::Null(_) => {
                self.unsupported(span, "'nullptr' here", "compare pointers with it, or leave it out")
            }
            CudaOperand::Pointer(_) | CudaOperand::Address(_) => {
                self.fail(span, "expected a number, found a pointer", "a pointer", "dereference it: '*p', 'p[i]'")
            }
            CudaOperand::RegisterArray(..) | CudaOperand::ConstArray(..) => {
                self.fail(span, "expected a number, found an array", "an array", "write one of its elements")
            }
        }
    }

    pub(super) fn read(&mut self, lvalue: &Lvalue, span: SourceSpan) -> LowerResult<Tree> {
        let mut tree = match &lvalue.root {
            LvalueRoot::Element { choice: Some(_), .. } => return self.read_choice(lvalue, span),
            LvalueRoot::Value(tree) => tree.clone(),
            LvalueRoot::Choice(condition, two) => self.lazy_conditional(
                condition.clone(),
                |lower| lower.read(&two[0], span),
                |lower| lower.read(&two[1], span),
                span,
            )?,
            LvalueRoot::Local(local, ty) => {
                let id = self.w.b.read(*local);
                Tree::emitted(id, *ty)
            }
            LvalueRoot::Element { view, at, width, element, .. } => {
                if !lvalue.path.is_empty() && element.as_scalar().is_none() {
                    // Other components of an element in local memory may be uninitialized.
                    let alone = self.request.round_trip && *width == 1
                        || self.needs.component_views.contains(view)
                        || matches!(view, View::Local(_));
                    let is_whole = lvalue.path.iter().all(Projection::is_reinterpret);
                    match self.element_part(*element, &lvalue.path).filter(|_| alone && !is_whole) {
                        Some(part) => {
                            let tree = self.read_component(*view, at, *width > 1, &part, span)?;
                            return Ok(self.regroup(tree, lvalue.ty));
                        }
                        None if alone && Self::has_dynamic_index(lvalue) => return self.read_dynamic(lvalue, span),
                        None if is_whole => {}
                        None => self.whole_reads.push(*view),
                    }
                }
                self.load_element(lvalue, span)?
            }
        };
        for step in &lvalue.path {
            tree = self.project(tree, step, span)?;
        }
        Ok(tree)
    }

    /// Applies a projection to a value.
    fn project(&mut self, whole: Tree, step: &Projection, span: SourceSpan) -> LowerResult<Tree> {
        match step {
            Projection::Field(at) => {
                let ty = self.field_type(whole.ty, *at);
                Ok(Tree::extract(whole, *at, ty))
            }
            Projection::Reinterpret(to) => Ok(self.regroup(whole, *to)),
            Projection::DynamicIndex(index, array) => {
                let scalar = array.element().unwrap_or(Scalar::I32);
                let count = array.component_count(&[]) as i64;
                if let Some(at) = self.constant_index(index, count, span)? {
                    return Ok(Tree::extract(whole, at as u32, scalar.into()));
                }
                let whole = Tree::emitted(self.w.emit(&whole), *array);
                let id = self.w.emit(index);
                let index = Tree::emitted(id, self.index_type);
                let mut value = Tree::extract(whole.clone(), 0, scalar.into());
                for n in 1..count {
                    let here = Tree::op(Op::Eq, vec![index.clone(), Tree::int(self.index_type, n)]);
                    value = Tree::select(here, Tree::extract(whole.clone(), n as u32, scalar.into()), value);
                    value = Tree::emitted(self.w.emit(&value), scalar);
                }
                Ok(value)
            }
        }
    }

    /// Returns the value of a constant index; reports one that is out of bounds.
    fn constant_index(&mut self, index: &Tree, count: i64, span: SourceSpan) -> LowerResult<Option<i64>> {
        match self.w.fold(index).map(Value::as_i64) {
            Some(at) if (0..count).contains(&at) => Ok(Some(at)),
            Some(at) => {
                let what = format!("index {at} is out of bounds for a local array of {count} elements");
                self.fail(span, what, "out of bounds", "")
            }
            None => Ok(None),
        }
    }

    pub(super) fn field_type(&self, whole: Type, at: u32) -> Type {
        match whole {
            Type::Struct(id) => self.w.b.structs()[id.0 as usize].fields[at as usize].ty,
            other => other.element().unwrap_or(Scalar::Bool).into(),
        }
    }

    pub(super) fn write(&mut self, lvalue: &Lvalue, value: Tree, span: SourceSpan) -> LowerResult {
        match &lvalue.root {
            LvalueRoot::Element { choice: Some(_), .. } => self.write_choice(lvalue, value, span),
            LvalueRoot::Value(_) | LvalueRoot::Choice(..) => {
                self.fail(span, "this expression cannot be assigned", "not a variable or element", "")
            }
            LvalueRoot::Local(local, ty) => {
                let value = if lvalue.path.is_empty() {
                    value
                } else {
                    let whole = Tree::emitted(self.w.b.read(*local), *ty);
                    self.replace_part(whole, &lvalue.path, value, span)?
                };
                self.assign(*local, &value);
                Ok(())
            }
            LvalueRoot::Element { view, at, width, element, .. } => {
                self.check_writable(*view, span)?;
                self.set_source_line(span);
                let part = if lvalue.path.is_empty() { None } else { self.element_part(*element, &lvalue.path) };
                if lvalue.path.iter().all(Projection::is_reinterpret) {
                    let value = self.regroup(value, *element);
                    return self.store_element(lvalue, value, span);
                }
                match part.filter(|_| element.as_scalar().is_none()) {
                    Some(part) => {
                        let value = self.regroup(value, part.ty);
                        self.write_component(*view, at, *width > 1, &part, value, span)
                    }
                    None if lvalue.path.iter().any(Projection::is_reinterpret) => {
                        let what = "writing a part of a number through a pointer that was cast";
                        self.unsupported(span, what, "write whole elements, or use an array of the smaller type")
                    }
                    None => self.write_dynamic(lvalue, value, span),
                }
            }
        }
    }

    /// Rejects writes to const lvalues.
    pub(super) fn check_assignable(&mut self, lvalue: &Lvalue, span: SourceSpan) -> LowerResult {
        if let LvalueRoot::Element { view, .. } = lvalue.root {
            self.check_writable(view, span)?;
        }
        if lvalue.constant {
            let text = self.module.source.text_of(span);
            let what = format!("'{text}' is const");
            return self.fail(span, what, "cannot be written", "remove 'const' from its declaration");
        }
        Ok(())
    }

    /// Rejects writes to views of const elements.
    pub(super) fn check_writable(&mut self, view: View, span: SourceSpan) -> LowerResult {
        match self.read_only.iter().find(|(found, _)| *found == view) {
            Some((_, name)) => {
                let what = format!("'{name}' is an array of const elements");
                self.fail(span, what, "cannot be written", "remove 'const' from its declaration")
            }
            None => Ok(()),
        }
    }

    /// Returns `whole` with the part that a path selects replaced by `value`.
    fn replace_part(&mut self, whole: Tree, path: &[Projection], value: Tree, span: SourceSpan) -> LowerResult<Tree> {
        let Some((step, rest)) = path.split_first() else { return Ok(value) };
        let whole = Tree::emitted(self.w.emit(&whole), whole.ty);
        let insert =
            |at: u32, part: Tree| Tree::of(Node::Algebra(AlgebraOp::Insert, at, vec![whole.clone(), part]), whole.ty);
        match step {
            Projection::Field(at) => {
                let inner = self.project(whole.clone(), step, span)?;
                let part = self.replace_part(inner, rest, value, span)?;
                Ok(insert(*at, part))
            }
            Projection::Reinterpret(to) => {
                let inner = self.regroup(whole.clone(), *to);
                let part = self.replace_part(inner, rest, value, span)?;
                Ok(self.regroup(part, whole.ty))
            }
            Projection::DynamicIndex(index, array) => {
                let scalar = array.element().unwrap_or(Scalar::I32);
                let value = if rest.is_empty() { value } else { self.regroup(value, scalar.into()) };
                let count = array.component_count(&[]) as i64;
                if let Some(at) = self.constant_index(index, count, span)? {
                    return Ok(insert(at as u32, value));
                }
                let value = Tree::emitted(self.w.emit(&value), value.ty);
                let index = Tree::emitted(self.w.emit(index), self.index_type);
                let mut parts = vec![];
                for n in 0..count {
                    let here = Tree::op(Op::Eq, vec![index.clone(), Tree::int(self.index_type, n)]);
                    let old = Tree::extract(whole.clone(), n as u32, value.ty);
                    let part = Tree::select(here, value.clone(), old);
                    parts.push(Tree::emitted(self.w.emit(&part), value.ty));
                }
                Ok(Tree::of(Node::Algebra(AlgebraOp::Construct, 0, parts), whole.ty))
            }
        }
    }

    /// Binds a pointer variable that is reassigned: its offset becomes a 64-bit local.
    pub(super) fn bind_moving_pointer(&mut self, name: &str, pointer: Pointer) -> Binding {
        self.require_wide_index();
        let zero = Tree::int(self.index_type, 0);
        let local = self.new_local(name, self.index_type.into(), &[Value::int(self.index_type, 0)]);
        let offset = pointer.offset.clone().unwrap_or(zero);
        self.assign(local, &offset);
        Binding::MovingPointer(Pointer { offset: None, range: IntRange::of_type(self.index_type), ..pointer }, local)
    }
}
