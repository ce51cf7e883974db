//! The operations of tensors, each one node (or a few views and one node). Functions over these are in `composite.rs`.

use std::ops::{Add, Div, Mul, Neg, RangeFull, Sub};

use bornite_ir::{Op as Row, Value};

use crate::infer::broadcast;
use crate::node::{Cut, Op, Reduce};
use crate::{DType, Place, Tensor};

/// Which axes: one (`-1` is the last), several (`[0, 2]`), or all (`..`).
#[derive(Clone, Debug)]
pub enum Axes {
    /// All of them.
    All,
    /// These; negative ones count from the end.
    These(Vec<isize>),
}

impl From<RangeFull> for Axes {
    fn from(_: RangeFull) -> Axes {
        Axes::All
    }
}

impl From<isize> for Axes {
    fn from(axis: isize) -> Axes {
        Axes::These(vec![axis])
    }
}

impl<const N: usize> From<[isize; N]> for Axes {
    fn from(axes: [isize; N]) -> Axes {
        Axes::These(axes.to_vec())
    }
}

impl From<&[isize]> for Axes {
    fn from(axes: &[isize]) -> Axes {
        Axes::These(axes.to_vec())
    }
}

impl Axes {
    /// Sorted axes of a tensor of that rank.
    fn resolve(self, rank: usize) -> Result<Vec<usize>, String> {
        let Axes::These(axes) = self else { return Ok((0..rank).collect()) };
        let mut resolved = axes.iter().map(|&a| resolve_axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
        resolved.sort_unstable();
        match resolved.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("axis {} is named twice", pair[0])),
            None => Ok(resolved),
        }
    }
}

pub(crate) fn resolve_axis(axis: isize, rank: usize) -> Result<usize, String> {
    let from_start = if axis < 0 { axis + rank as isize } else { axis };
    if (0..rank as isize).contains(&from_start) {
        Ok(from_start as usize)
    } else {
        Err(format!("there is no axis {axis} among {rank}"))
    }
}

/// Broadcasts the inputs to one shape and applies a row of the op table.
pub(crate) fn map(row: Row, inputs: &[&Tensor], place: Place) -> Tensor {
    let mut shape = vec![];
    for input in inputs {
        let Ok(node) = input.node() else { return (*input).clone() };
        shape = match broadcast(&shape, &node.shape) {
            Ok(shape) => shape,
            Err(what) => return Tensor::failed(row.row().name, what, place),
        };
    }
    let inputs = inputs.iter().map(|input| input.broadcast_to(&shape, place)).collect();
    Tensor::build(Op::Map(row), inputs, place)
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $row:ident;)+) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self) -> Tensor {
            map(Row::$row, &[self], Place::here())
        }
    )+ } };
}

unary! {
    /// e to the power of each element.
    exp = Exp;
    /// Natural logarithm.
    log = Log;
    /// Square root.
    sqrt = Sqrt;
    /// Hyperbolic tangent.
    tanh = Tanh;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $row:ident;)+) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, other: &Tensor) -> Tensor {
            map(Row::$row, &[self, other], Place::here())
        }
    )+ } };
}

binary! {
    /// The larger of each pair; NaN where either is. Where equal, the gradient goes to `other`.
    maximum = Max;
    /// True where smaller than `other`.
    lt = Lt;
    /// True where equal to `other`.
    equal = Eq;
}

impl Tensor {
    /// Any row of the op table, element by element over broadcast inputs.
    ///
    /// ```
    /// use bornite::{Device, Tensor, ir::Op};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[3.0f32, 5.0], &[2], Device::cpu());
    /// let y = Tensor::from_slice(&[4.0f32], &[1], Device::cpu());
    /// assert_eq!(Tensor::apply(Op::Hypot, &[&x, &y]).to_vec::<f32>()?[0], 5.0);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn apply(op: Row, inputs: &[&Tensor]) -> Tensor {
        map(op, inputs, Place::here())
    }

    /// `a` where `self` (a bool tensor) is true, else `b`.
    #[track_caller]
    pub fn select(&self, a: &Tensor, b: &Tensor) -> Tensor {
        map(Row::Select, &[self, a, b], Place::here())
    }

    /// Converts each element; float to integer saturates.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        match self.node() {
            Ok(node) if node.dtype == dtype => self.clone(),
            _ => Tensor::build(Op::Cast(dtype), vec![self.clone()], Place::here()),
        }
    }

    /// Sum over axes, which vanish.
    #[track_caller]
    pub fn sum(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Sum, axes.into(), Place::here())
    }

    /// Product over axes, which vanish.
    #[track_caller]
    pub fn prod(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Prod, axes.into(), Place::here())
    }

    /// Smallest element over axes, which vanish. Ties share the gradient.
    #[track_caller]
    pub fn min(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Min, axes.into(), Place::here())
    }

    /// Largest element over axes, which vanish. Ties share the gradient.
    #[track_caller]
    pub fn max(&self, axes: impl Into<Axes>) -> Tensor {
        self.reduce(Reduce::Max, axes.into(), Place::here())
    }

    pub(crate) fn reduce(&self, reduce: Reduce, axes: Axes, place: Place) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        match axes.resolve(node.shape.len()) {
            Ok(axes) => Tensor::build(Op::Reduce(reduce, axes), vec![self.clone()], place),
            Err(what) => Tensor::failed(Op::Reduce(reduce, vec![]).name(), what, place),
        }
    }

    /// Matrix product over the last two axes; leading axes broadcast.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        let place = Place::here();
        let (Ok(a), Ok(b)) = (self.node(), other.node()) else {
            return if self.node().is_err() { self.clone() } else { other.clone() };
        };
        let ([batch_a @ .., m, k], [batch_b @ .., k2, n]) = (a.shape.as_slice(), b.shape.as_slice()) else {
            let what = format!("expects at least two axes, found shapes {:?} and {:?}", a.shape, b.shape);
            return Tensor::failed("matmul", what, place);
        };
        match broadcast(batch_a, batch_b) {
            Ok(batch) => {
                let a = self.broadcast_to(&[&batch[..], &[*m, *k]].concat(), place);
                let b = other.broadcast_to(&[&batch[..], &[*k2, *n]].concat(), place);
                Tensor::build(Op::Matmul, vec![a, b], place)
            }
            Err(what) => Tensor::failed("matmul", what, place),
        }
    }

    /// The same elements under another shape.
    #[track_caller]
    pub fn reshape(&self, shape: &[usize]) -> Tensor {
        self.reshape_at(shape, Place::here())
    }

    pub(crate) fn reshape_at(&self, shape: &[usize], place: Place) -> Tensor {
        match self.node() {
            Ok(node) if node.shape == shape => self.clone(),
            _ => Tensor::build(Op::Reshape(shape.to_vec()), vec![self.clone()], place),
        }
    }

    /// The axes in another order: axis `n` of the result is axis `axes[n]` of this.
    #[track_caller]
    pub fn permute(&self, axes: &[usize]) -> Tensor {
        Tensor::build(Op::Permute(axes.to_vec()), vec![self.clone()], Place::here())
    }

    /// The elements along one axis in reverse.
    pub(crate) fn flip_at(&self, axis: usize, place: Place) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let mut cuts: Vec<Cut> = node.shape.iter().map(|&len| Cut::whole(len)).collect();
        if let Some(cut) = cuts.get_mut(axis).filter(|cut| cut.len > 0) {
            (cut.start, cut.step) = (cut.len - 1, -1);
        }
        Tensor::build(Op::Slice(cuts), vec![self.clone()], place)
    }

    /// Two axes exchanged.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Tensor {
        self.transpose_at(a, b, Place::here())
    }

    pub(crate) fn transpose_at(&self, a: isize, b: isize, place: Place) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let rank = node.shape.len();
        match (resolve_axis(a, rank), resolve_axis(b, rank)) {
            (Ok(a), Ok(b)) => {
                let mut axes: Vec<usize> = (0..rank).collect();
                axes.swap(a, b);
                Tensor::build(Op::Permute(axes), vec![self.clone()], place)
            }
            (Err(what), _) | (_, Err(what)) => Tensor::failed("transpose", what, place),
        }
    }

    /// Repeats axes of length 1 (and adds leading ones) to reach `shape`.
    #[track_caller]
    pub fn expand(&self, shape: &[usize]) -> Tensor {
        self.broadcast_to(shape, Place::here())
    }

    pub(crate) fn broadcast_to(&self, shape: &[usize], place: Place) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        if node.shape == shape {
            return self.clone();
        }
        let missing = shape.len().saturating_sub(node.shape.len());
        let padded = [&vec![1; missing][..], &node.shape].concat();
        Tensor::build(Op::Expand(shape.to_vec()), vec![self.reshape_at(&padded, place)], place)
    }

    /// The same value without history: no gradient flows through it.
    #[track_caller]
    pub fn detach(&self) -> Tensor {
        Tensor::build(Op::Detach, vec![self.clone()], Place::here())
    }

    /// A scalar of this tensor's dtype and device.
    pub(crate) fn scalar_like(&self, value: f64, place: Place) -> Tensor {
        match self.node() {
            Ok(node) => {
                let constant = Value::from_f64(node.dtype, value);
                if !node.dtype.is_float() && constant.as_f64() != value {
                    let what = format!("{value} is not a value of {}; cast the tensor first", node.dtype);
                    return Tensor::failed("scalar", what, place);
                }
                let op = Op::Full(constant);
                Tensor(std::sync::Arc::new(crate::node::Node::new(op, node.dtype, vec![], node.device, vec![], place)))
            }
            Err(_) => self.clone(),
        }
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident $row:ident;)+) => { $(
        operator!(@tensors $trait $method $row, Tensor, Tensor);
        operator!(@tensors $trait $method $row, Tensor, &Tensor);
        operator!(@tensors $trait $method $row, &Tensor, Tensor);
        operator!(@tensors $trait $method $row, &Tensor, &Tensor);
        operator!(@scalar $trait $method $row, Tensor);
        operator!(@scalar $trait $method $row, &Tensor);
    )+ };
    (@tensors $trait:ident $method:ident $row:ident, $a:ty, $b:ty) => {
        impl $trait<$b> for $a {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: $b) -> Tensor {
                map(Row::$row, &[&self, &other], Place::here())
            }
        }
    };
    // A scalar takes the tensor's dtype.
    (@scalar $trait:ident $method:ident $row:ident, $t:ty) => {
        impl $trait<f64> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: f64) -> Tensor {
                let place = Place::here();
                map(Row::$row, &[&self, &self.scalar_like(other, place)], place)
            }
        }
        impl $trait<$t> for f64 {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: $t) -> Tensor {
                let place = Place::here();
                map(Row::$row, &[&other.scalar_like(self, place), &other], place)
            }
        }
    };
}

operator! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
}

impl Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        map(Row::Neg, &[self], Place::here())
    }
}

impl Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        map(Row::Neg, &[&self], Place::here())
    }
}
