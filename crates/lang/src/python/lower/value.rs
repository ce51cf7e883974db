//! Values of Python expressions during lowering: run-time values, memory, and compile-time objects.

use bornite_ir::{ExprId, LocalId, Value, View};

use crate::python::const_eval::ConstValue;
use crate::python::types::Ty;

/// A value computed by the running kernel: an IR expression and its Warp type.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rvalue {
    pub id: ExprId,
    pub ty: Ty,
    /// The constant, if this is one by Warp's rules: a literal, a name bound to one, or a negated
    /// one. Other computed values are not constants, even if their operands are.
    pub constant: Option<ConstValue>,
}

impl Rvalue {
    pub fn new(id: ExprId, ty: Ty) -> Rvalue {
        Rvalue { id, ty, constant: None }
    }
}

/// Indexing of one axis of a view.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum ArrayAxis {
    /// At a single index.
    Index(ExprId),
    /// A range from `start` (default 0) by `step` (default 1).
    Range { start: Option<ExprId>, step: Option<ExprId>, extent: ExprId },
}

/// An array, or a slice of one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Array {
    pub view: View,
    pub element: Ty,
    pub axes: Vec<ArrayAxis>,
}

impl Array {
    pub fn rank(&self) -> usize {
        self.axes.iter().filter(|axis| matches!(axis, ArrayAxis::Range { .. })).count()
    }

    /// The extents of the axes that are not fixed by an index.
    pub fn extents(&self) -> Vec<ExprId> {
        let extent = |axis: &ArrayAxis| if let ArrayAxis::Range { extent, .. } = axis { Some(*extent) } else { None };
        self.axes.iter().filter_map(extent).collect()
    }
}

/// A strided grid of components of a vector or matrix. `stride` and `count` are those of the rows
/// and of the components within a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ComponentGrid {
    pub first: u32,
    pub stride: [i32; 2],
    pub count: [u32; 2],
}

impl ComponentGrid {
    /// A single row.
    pub fn row(first: u32, stride: i32, count: u32) -> ComponentGrid {
        ComponentGrid { first, stride: [0, stride], count: [1, count] }
    }

    /// The component indices, row by row.
    pub fn indices(self) -> impl Iterator<Item = u32> {
        let ComponentGrid { first, stride, count } = self;
        let row = move |r: u32| {
            (0..count[1]).map(move |c| (first as i32 + r as i32 * stride[0] + c as i32 * stride[1]) as u32)
        };
        (0..count[0]).flat_map(row)
    }
}

/// One step from a value to a part of it, with the type of the part.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Projection {
    /// A struct field, or a component with a constant index.
    Field(u32, Ty),
    /// Several components with constant indices.
    Components(ComponentGrid, Ty),
    /// A component or matrix row with an index computed at run time.
    Index(ExprId, Ty),
}

impl Projection {
    pub fn ty(self) -> Ty {
        match self {
            Projection::Field(_, ty) | Projection::Components(_, ty) | Projection::Index(_, ty) => ty,
        }
    }
}

/// An array element or a part of one: an lvalue in memory.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Element {
    pub array: Array,
    pub indices: Vec<ExprId>,
    pub path: Vec<Projection>,
}

impl Element {
    pub fn ty(&self) -> Ty {
        self.path.last().map_or(self.array.element, |projection| projection.ty())
    }
}

/// The value of a Python expression during lowering.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum PyValue {
    Rvalue(Rvalue),
    /// An array element, loaded where it is used, as in Warp.
    Element(Element),
    Array(Array),
    /// `a.shape`.
    Shape(Array),
    /// `a.ptr`, which can only be passed to `wp.array(ptr=…)`.
    Address(Array),
    Tuple(Vec<PyValue>),
    /// A struct that contains arrays: its index in `Program::structs`, and its fields.
    Aggregate(u32, Vec<PyValue>),
    /// A field of an `Aggregate` that is kept in a variable, since it changes in a branch or loop.
    /// Occurs in bindings only; reading the field yields an `Rvalue`.
    FieldVariable(LocalId, Ty),
    /// A compile-time value that has no run-time representation.
    Const(ConstValue),
    /// `range(…)`: start, end and step; and whether it is reversed.
    Range(Vec<Rvalue>, bool),
    Slice(Box<[Option<Rvalue>; 3]>),
}

/// Binding of a name.
#[derive(Clone, Debug)]
pub(crate) enum Binding {
    Value(PyValue),
    Local(LocalId, Ty),
    /// The assignment failed; the error is already reported.
    Broken,
}

/// A compile-time number as components of its default type.
pub(crate) fn literal(constant: &ConstValue) -> Option<(Ty, Vec<Value>)> {
    use bornite_ir::Scalar;
    Some(match constant {
        ConstValue::Bool(b) => (Ty::Scalar(Scalar::Bool), vec![Value::int(Scalar::Bool, *b as i64)]),
        ConstValue::Int(n) => (Ty::Scalar(Scalar::I32), vec![Value::int(Scalar::I32, *n)]),
        ConstValue::Float(x) => (Ty::Scalar(Scalar::F32), vec![Value::from_f64(Scalar::F32, *x)]),
        ConstValue::Typed(ty, parts) => (*ty, parts.clone()),
        _ => return None,
    })
}
