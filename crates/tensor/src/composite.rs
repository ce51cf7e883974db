//! Functions over the operations of `ops.rs`: they have no kernels and no gradients of their own.

use bornite_ir::Op as Row;

use crate::ops::map;
use crate::{Axes, Place, Tensor};

impl Tensor {
    /// The larger of each element and 0; its gradient at 0 is 0.
    #[track_caller]
    pub fn relu(&self) -> Tensor {
        let place = Place::here();
        map(Row::Max, &[self, &self.scalar_like(0.0, place)], place)
    }

    /// Mean over axes, which vanish.
    #[track_caller]
    pub fn mean(&self, axes: impl Into<Axes>) -> Tensor {
        let sum = self.sum(axes);
        match (self.node(), sum.node()) {
            (Ok(all), Ok(kept)) => &sum / (all.elements() as f64 / kept.elements() as f64),
            _ => sum,
        }
    }

    /// exp(x) over its sum along an axis, computed without overflow.
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Tensor {
        let powers = self.centred(axis).exp();
        let total = powers.sum(axis).unsqueeze(axis);
        powers / total
    }

    /// The logarithm of [`Tensor::softmax`].
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Tensor {
        let centred = self.centred(axis);
        let total = centred.exp().sum(axis).unsqueeze(axis).log();
        centred - total
    }

    /// Mean over rows of minus the log-probability that `self` (logits, last axis) gives to `targets` (probabilities).
    #[track_caller]
    pub fn cross_entropy(&self, targets: &Tensor) -> Tensor {
        -(self.log_softmax(-1) * targets).sum(-1).mean(..)
    }

    /// x minus its largest element along an axis. The shift cancels in what uses this, so it carries no gradient.
    #[track_caller]
    fn centred(&self, axis: isize) -> Tensor {
        self - self.max(axis).unsqueeze(axis).detach()
    }

    /// A new axis of length 1, which will be axis `axis` of the result.
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let rank = node.shape.len() as isize + 1;
        let at = if axis < 0 { axis + rank } else { axis };
        let place = Place::here();
        if !(0..rank).contains(&at) {
            return Tensor::failed("unsqueeze", format!("there is no place {axis} among {rank} axes"), place);
        }
        let mut shape = node.shape.clone();
        shape.insert(at as usize, 1);
        self.reshape_at(&shape, place)
    }
}
