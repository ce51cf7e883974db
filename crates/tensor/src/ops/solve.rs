//! Linear equations by Gauss-Jordan elimination over tensor ops, so gradients of any order exist.
//! Each row of the matrix is a sequential step: for matrices of tens of rows, not thousands.

use bornite_ir::Op as ScalarOp;

use crate::graph::axes::Axes;
use crate::graph::infer::broadcast;
use crate::graph::node::{Op, Reduce};
use crate::ops::pointwise::map;
use crate::{DType, SourceLocation, Tensor};

impl Tensor {
    /// Inverse of the matrices in the last two axes; infinities and NaN for a singular matrix.
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
        self.gauss_jordan("inverse", &unit, location)
    }

    /// Solves `self` · x = `right` for x: matrices in the last two axes, leading axes broadcast.
    /// Uses partial pivoting; the result is infinities and NaN if there is no unique solution.
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
        self.gauss_jordan("solve", right, SourceLocation::here())
    }

    fn gauss_jordan(&self, name: &'static str, right: &Tensor, location: SourceLocation) -> Tensor {
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
                "inverse" => format!("expected square matrices, found shape {:?}", self.0.shape),
                _ => format!(
                    "expected a square matrix and as many rows, found {:?} and {:?}",
                    self.0.shape, right.0.shape
                ),
            };
            return Tensor::failed_at(name, message, location);
        }
        let lead = match broadcast(lead, more) {
            Ok(lead) => lead,
            Err(message) => return Tensor::failed_at(name, message, location),
        };
        let expand = |t: &Tensor, width: usize| t.broadcast_to(&[&lead[..], &[*n, width]].concat(), location);
        let (left, dtype) = self.widen();
        let right = right.cast_at(left.0.dtype, location);
        let both = vec![expand(&left, *n), expand(&right, *count)];
        let mut system = Tensor::build(Op::Concat(lead.len() + 1), both, location);
        for step in 0..*n {
            system = system.eliminate_column(step, location);
        }
        system.narrow_to(dtype)
    }

    /// Eliminates the first column from all rows except row `step`, and removes it.
    fn eliminate_column(&self, step: usize, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let [lead @ .., rows, columns] = &node.shape[..] else { return self.clone() };
        let tall = [lead, &[*rows, 1]].concat();
        let row_index = Tensor::iota(&tall, lead.len(), DType::I64, node.device, location);
        let number = |t: &Tensor, value: f64| t.scalar_like(value, location);
        let current = number(&row_index, step as f64);
        // The pivot is the largest element from this row on: earlier rows are done. A NaN counts as
        // largest.
        let size = map(ScalarOp::Abs, &[&self.narrow_at(-1, 0, 1, location)], location);
        let done = map(ScalarOp::Lt, &[&row_index, &current], location);
        let size = map(ScalarOp::Select, &[&done, &number(&size, -1.0), &size], location);
        let pivot = Tensor::build(Op::ArgReduce(Reduce::Max, lead.len()), vec![size], location);
        let pivot = pivot.reshape_at(&[lead, &[1, 1]].concat(), location);
        let order = map(
            ScalarOp::Select,
            &[&map(ScalarOp::Eq, &[&row_index, &pivot], location), &current, &row_index],
            location,
        );
        let order =
            map(ScalarOp::Select, &[&map(ScalarOp::Eq, &[&row_index, &current], location), &pivot, &order], location);
        let order = order.broadcast_to(&node.shape, location);
        let system = Tensor::build(Op::Gather(lead.len()), vec![self.clone(), order], location);
        // Divides the pivot row by the pivot, and subtracts multiples of it from the other rows.
        let row = system.narrow_at(-2, step, 1, location);
        let first = system.narrow_at(-1, 0, 1, location);
        let is_pivot = map(ScalarOp::Eq, &[&row_index, &current], location).cast_at(node.dtype, location);
        let factors = map(ScalarOp::Sub, &[&first, &is_pivot], location);
        let row = map(
            ScalarOp::Div,
            &[&row.narrow_at(-1, 1, columns - 1, location), &row.narrow_at(-1, 0, 1, location)],
            location,
        );
        let rest = system.narrow_at(-1, 1, columns - 1, location);
        map(ScalarOp::Sub, &[&rest, &map(ScalarOp::Mul, &[&factors, &row], location)], location)
    }

    /// `len` elements of an axis from `start`.
    pub(crate) fn narrow_at(&self, axis: isize, start: usize, len: usize, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let mut slices: Vec<_> = node.shape.iter().map(|&len| crate::graph::node::AxisSlice::full(len)).collect();
        if let Some(slice) = Axes::from(axis).resolve(slices.len()).ok().and_then(|axes| slices.get_mut(axes[0])) {
            (slice.start, slice.len) = (if len == 0 { 0 } else { start }, len);
        }
        Tensor::build(Op::Slice(slices), vec![self.clone()], location)
    }
}
