//! Masks for axes of which only the first elements are valid. Their number is a tensor, so that one
//! trace serves every length up to a bound (see [`crate::Trace::bounded`]).

use bornite_ir::Op as ScalarOp;

use crate::graph::axes::resolve_axis;
use crate::graph::node::Op;
use crate::ops::pointwise::map;
use crate::{DType, SourceLocation, Tensor};

impl Tensor {
    /// Mask over a new last axis of length `bound`, true for the first `length` elements. `length`
    /// is an integer tensor of any shape.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let lengths = Tensor::from_slice(&[2i64, 0, 3], &[3], Device::cpu());
    /// let mask = Tensor::length_mask(3, &lengths);
    /// assert_eq!(mask.to_vec::<bool>()?, [true, true, false, false, false, false, true, true, true]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn length_mask(bound: usize, length: &Tensor) -> Tensor {
        Tensor::length_mask_at("length_mask", bound, length, SourceLocation::here())
    }

    fn length_mask_at(name: &'static str, bound: usize, length: &Tensor, location: SourceLocation) -> Tensor {
        let Ok(node) = length.node() else { return length.clone() };
        if !node.dtype.is_int() {
            return Tensor::failed_at(name, format!("a length must be an integer, found {}", node.dtype), location);
        }
        let shape = [&node.shape[..], &[bound]].concat();
        let indices = Tensor::iota(&shape, node.shape.len(), DType::I64, node.device, location);
        let length = Tensor::build(Op::Cast(DType::I64), vec![length.clone()], location);
        let length = length.reshape_at(&[&length.0.shape[..], &[1]].concat(), location).broadcast_to(&shape, location);
        map(ScalarOp::Lt, &[&indices, &length], location)
    }

    /// Replaces the elements from index `length` of an axis by `fill`. `length` is a scalar, or has
    /// one element for each element of the axes before. No gradient flows through replaced
    /// elements.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], Device::cpu());
    /// let length = Tensor::from_slice(&[2i64], &[], Device::cpu());
    /// assert_eq!(x.masked(1, &length, -1.0).to_vec::<f32>()?, [1.0, 2.0, -1.0, 4.0, 5.0, -1.0]);
    /// assert_eq!(x.masked_mean(1, &length).to_vec::<f32>()?, [1.5, 4.5]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn masked(&self, axis: isize, length: &Tensor, fill: f64) -> Tensor {
        self.masked_at("masked", axis, length, fill, SourceLocation::here())
    }

    fn masked_at(
        &self,
        name: &'static str,
        axis: isize,
        length: &Tensor,
        fill: f64,
        location: SourceLocation,
    ) -> Tensor {
        let (Ok(node), Ok(count)) = (self.node(), length.node()) else {
            return if self.node().is_err() { self.clone() } else { length.clone() };
        };
        let axis = match resolve_axis(axis, node.shape.len()) {
            Ok(axis) => axis,
            Err(message) => return Tensor::failed_at(name, message, location),
        };
        let (lead, rest) = (&node.shape[..axis], node.shape.len() - axis - 1);
        let lead = match &count.shape[..] {
            [] => vec![1; axis],
            shape if shape == lead => lead.to_vec(),
            shape => {
                let message = format!(
                    "expected one length or lengths {lead:?} for axis {axis} of {:?}, found {shape:?}",
                    node.shape
                );
                return Tensor::failed_at(name, message, location);
            }
        };
        let mask = Tensor::length_mask_at(name, node.shape[axis], length, location);
        let mask = mask.reshape_at(&[&lead[..], &[node.shape[axis]], &vec![1; rest]].concat(), location);
        map(ScalarOp::Select, &[&mask, self, &self.scalar_like(fill, location)], location)
    }

    /// The mean of the first `length` elements of an axis, which is removed; `length` as in
    /// [`Tensor::masked`].
    #[track_caller]
    pub fn masked_mean(&self, axis: isize, length: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_float("masked_mean", location) {
            return failed;
        }
        let (x, original_dtype) = self.widen();
        let sum = x.masked_at("masked_mean", axis, length, 0.0, location).sum(axis);
        let Ok(count) = length.node() else { return sum };
        let rest = sum.0.shape.len().saturating_sub(count.shape.len());
        let shape = if count.shape.is_empty() { vec![] } else { [&count.shape[..], &vec![1; rest]].concat() };
        let count = Tensor::build(Op::Cast(sum.0.dtype), vec![length.clone()], location).reshape_at(&shape, location);
        map(ScalarOp::Div, &[&sum, &count], location).narrow_to(original_dtype)
    }
}
