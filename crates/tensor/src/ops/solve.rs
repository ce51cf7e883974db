//! Linear equations, by elimination over the operations: gradients of any order come with them. Each row of the matrix is a
//! step of its own, so this is for matrices of tens of rows rather than thousands.

use bornite_ir::Op as ScalarOp;

use crate::graph::axes::Axes;
use crate::graph::infer::broadcast;
use crate::graph::node::{Op, Reduce};
use crate::ops::pointwise::map;
use crate::{DType, SourceLocation, Tensor};

impl Tensor {
    /// The inverse of the matrices in the last two axes. Of a matrix that has none, infinities and NaN.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[0.0f32, 2.0, 4.0, 0.0], &[2, 2], Device::cpu());
    /// assert_eq!(x.inverse().to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn inverse(&self) -> Tensor {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return self.clone() };
        let rows = node.shape.iter().rev().nth(1).copied().unwrap_or(0);
        let [i, j] = [0, 1].map(|axis| Tensor::iota(&[rows, rows], axis, DType::I64, node.device, location));
        let unit = map(ScalarOp::Eq, &[&i, &j], location).cast_at(node.dtype, location);
        self.eliminated("inverse", &unit, location)
    }

    /// The x of `self` · x = `right`: matrices in the last two axes, leading axes broadcast. Rows are exchanged so that
    /// pivots are as large as can be. Where there is no solution, or there are many, infinities and NaN.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let a = Tensor::from_slice(&[1.0f64, 1.0, 1.0, -1.0], &[2, 2], Device::cpu());
    /// let b = Tensor::from_slice(&[5.0f64, 1.0], &[2, 1], Device::cpu());
    /// assert_eq!(a.solve(&b).to_vec::<f64>()?, [3.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn solve(&self, right: &Tensor) -> Tensor {
        self.eliminated("solve", right, SourceLocation::here())
    }

    fn eliminated(&self, name: &'static str, right: &Tensor, location: SourceLocation) -> Tensor {
        for side in [self, right] {
            if let Err(failed) = side.check_float(name, location) {
                return failed;
            }
        }
        let ([lead @ .., n, columns], [more @ .., rows, count]) = (&self.0.shape[..], &right.0.shape[..]) else {
            let message = format!("expects at least two axes, found shapes {:?} and {:?}", self.0.shape, right.0.shape);
            return Tensor::failed_at(name, message, location);
        };
        if n != columns || n != rows {
            let message = match name {
                "inverse" => format!("the matrices of {:?} are not square", self.0.shape),
                _ => format!("{:?} is not square, or {:?} has not as many rows", self.0.shape, right.0.shape),
            };
            return Tensor::failed_at(name, message, location);
        }
        let lead = match broadcast(lead, more) {
            Ok(lead) => lead,
            Err(message) => return Tensor::failed_at(name, message, location),
        };
        let whole = |t: &Tensor, width: usize| t.broadcast_to(&[&lead[..], &[*n, width]].concat(), location);
        let (left, dtype) = self.widen();
        let right = right.cast_at(left.0.dtype, location);
        let both = vec![whole(&left, *n), whole(&right, *count)];
        let mut system = Tensor::build(Op::Concat(lead.len() + 1), both, location);
        for step in 0..*n {
            system = system.step(step, location);
        }
        system.narrow_to(dtype)
    }

    /// The first column eliminated from all rows but row `step`, and taken away.
    fn step(&self, step: usize, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let [lead @ .., rows, columns] = &node.shape[..] else { return self.clone() };
        let tall = [lead, &[*rows, 1]].concat();
        let places = Tensor::iota(&tall, lead.len(), DType::I64, node.device, location);
        let number = |t: &Tensor, value: f64| t.scalar_like(value, location);
        let here = number(&places, step as f64);
        // The largest element from this row on: rows before it had their turn. A NaN counts as largest.
        let size = map(ScalarOp::Abs, &[&self.narrow_at(-1, 0, 1, location)], location);
        let taken = map(ScalarOp::Lt, &[&places, &here], location);
        let size = map(ScalarOp::Select, &[&taken, &number(&size, -1.0), &size], location);
        let pivot = Tensor::build(Op::ArgReduce(Reduce::Max, lead.len()), vec![size], location);
        let pivot = pivot.reshape_at(&[lead, &[1, 1]].concat(), location);
        let order = map(ScalarOp::Select, &[&map(ScalarOp::Eq, &[&places, &pivot], location), &here, &places], location);
        let order = map(ScalarOp::Select, &[&map(ScalarOp::Eq, &[&places, &here], location), &pivot, &order], location);
        let order = order.broadcast_to(&node.shape, location);
        let system = Tensor::build(Op::Gather(lead.len()), vec![self.clone(), order], location);
        // Its row becomes itself over the pivot; others lose as many of it as their first element says.
        let row = system.narrow_at(-2, step, 1, location);
        let first = system.narrow_at(-1, 0, 1, location);
        let own = map(ScalarOp::Eq, &[&places, &here], location).cast_at(node.dtype, location);
        let times = map(ScalarOp::Sub, &[&first, &own], location);
        let row = map(ScalarOp::Div, &[&row.narrow_at(-1, 1, columns - 1, location), &row.narrow_at(-1, 0, 1, location)], location);
        let rest = system.narrow_at(-1, 1, columns - 1, location);
        map(ScalarOp::Sub, &[&rest, &map(ScalarOp::Mul, &[&times, &row], location)], location)
    }

    /// `len` elements of an axis, counted from the end, from `start`.
    pub(crate) fn narrow_at(&self, axis: isize, start: usize, len: usize, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let mut cuts: Vec<_> = node.shape.iter().map(|&len| crate::graph::node::AxisSlice::full(len)).collect();
        if let Some(cut) = Axes::from(axis).resolve(cuts.len()).ok().and_then(|axes| cuts.get_mut(axes[0])) {
            (cut.start, cut.len) = (if len == 0 { 0 } else { start }, len);
        }
        Tensor::build(Op::Slice(cuts), vec![self.clone()], location)
    }
}
