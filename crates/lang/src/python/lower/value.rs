//! What an expression stands for while a kernel is made: values, places in memory, and things that only exist now.

use bornite_ir::{ExprId, LocalId, Value, View};

use crate::python::fixed::Fixed;
use crate::python::types::Ty;

/// A value of the running kernel.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Run {
    pub id: ExprId,
    pub ty: Ty,
    /// What it is, if it is a constant by the dialect's rules: a literal, a name for one or a negated one, not what else is computed.
    pub constant: Option<Fixed>,
}

impl Run {
    pub fn new(id: ExprId, ty: Ty) -> Run {
        Run { id, ty, constant: None }
    }
}

/// How an axis of memory is reached.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Axis {
    /// At one place.
    At(ExprId),
    /// From a start, by a step; both may be left out.
    Along { start: Option<ExprId>, step: Option<ExprId>, extent: ExprId },
}

/// An array or a part of one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Array {
    pub view: View,
    pub element: Ty,
    pub axes: Vec<Axis>,
}

impl Array {
    pub fn rank(&self) -> usize {
        self.axes.iter().filter(|axis| matches!(axis, Axis::Along { .. })).count()
    }

    /// The extents of what is left.
    pub fn extents(&self) -> Vec<ExprId> {
        let extent = |axis: &Axis| if let Axis::Along { extent, .. } = axis { Some(*extent) } else { None };
        self.axes.iter().filter_map(extent).collect()
    }
}

/// Rows and columns of components: the first of them, distances and how many, of rows and within one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Several {
    pub first: u32,
    pub by: [i32; 2],
    pub count: [u32; 2],
}

impl Several {
    /// A single row.
    pub fn row(first: u32, by: i32, count: u32) -> Several {
        Several { first, by: [0, by], count: [1, count] }
    }

    /// The numbers of the components.
    pub fn places(self) -> impl Iterator<Item = u32> {
        let Several { first, by, count } = self;
        let row = move |r: u32| (0..count[1]).map(move |c| (first as i32 + r as i32 * by[0] + c as i32 * by[1]) as u32);
        (0..count[0]).flat_map(row)
    }
}

/// A step into a value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Step {
    /// A field of a struct, or a component that is known.
    Part(u32, Ty),
    /// Several components that are known.
    Several(Several, Ty),
    /// A component or row by an index that is only known in the run.
    Computed(ExprId, Ty),
}

impl Step {
    pub fn ty(self) -> Ty {
        match self {
            Step::Part(_, ty) | Step::Several(_, ty) | Step::Computed(_, ty) => ty,
        }
    }
}

/// Something that can be read and written.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Element {
    pub array: Array,
    pub at: Vec<ExprId>,
    pub path: Vec<Step>,
}

impl Element {
    pub fn ty(&self) -> Ty {
        self.path.last().map_or(self.array.element, |step| step.ty())
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Val {
    Run(Run),
    /// An element of an array: read where it is used, as the dialect does.
    Element(Element),
    Array(Array),
    /// `a.shape`.
    Shape(Array),
    /// `a.ptr`: nothing but an array can be made of it.
    Address(Array),
    Tuple(Vec<Val>),
    /// A struct with arrays in it, by its fields.
    Aggregate(u32, Vec<Val>),
    /// A field of such a struct that changes in a branch or a loop. Found where a name is bound only: whoever reads it
    /// gets what it holds then.
    Held(LocalId, Ty),
    /// What only exists while the kernel is made.
    Fixed(Fixed),
    /// `range(…)` as a value: start, end, step; and whether it runs backwards.
    Range(Vec<Run>, bool),
    Slice(Box<[Option<Run>; 3]>),
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Binding {
    Val(Val),
    Local(LocalId, Ty),
    /// Something went wrong with it already.
    Broken,
}

/// A number that is known, as a value of its type by default.
pub(crate) fn literal(fixed: &Fixed) -> Option<(Ty, Vec<Value>)> {
    use bornite_ir::Scalar;
    Some(match fixed {
        Fixed::Bool(b) => (Ty::Scalar(Scalar::Bool), vec![Value::int(Scalar::Bool, *b as i64)]),
        Fixed::Int(n) => (Ty::Scalar(Scalar::I32), vec![Value::int(Scalar::I32, *n)]),
        Fixed::Float(x) => (Ty::Scalar(Scalar::F32), vec![Value::from_f64(Scalar::F32, *x)]),
        Fixed::Typed(ty, parts) => (*ty, parts.clone()),
        _ => return None,
    })
}
