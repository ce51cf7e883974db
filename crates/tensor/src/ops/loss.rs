//! Loss functions: the mean over examples, as a scalar. Predictions and targets must have the same
//! shape, since broadcasting would hide errors.

use std::sync::Arc;

use crate::fused::cross_entropy::CrossEntropy;
use crate::fused::fused_at;
use crate::{SourceLocation, Tensor};

impl Tensor {
    /// `Err` with a failed tensor if the dtype is not a float or the shapes differ.
    fn check_same_shape(&self, name: &'static str, target: &Tensor, location: SourceLocation) -> Result<(), Tensor> {
        self.check_float(name, location)?;
        match target.node() {
            Err(_) => Err(target.clone()),
            Ok(node) if node.shape == self.0.shape => Ok(()),
            Ok(node) => {
                let message = format!("the prediction has shape {:?} but the target {:?}", self.0.shape, node.shape);
                Err(Tensor::failed_at(name, message, location))
            }
        }
    }

    /// Cross-entropy of logits (`self`, over the last axis), averaged over rows. `targets` are
    /// class indices (integers, the shape without the last axis) or probabilities (floats, the same
    /// shape). A class out of range is an error of the read.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let logits = Tensor::from_slice(&[0.0f32, 0.0, 100.0, 0.0], &[2, 2], Device::cpu());
    /// let classes = Tensor::from_slice(&[1i64, 0], &[2], Device::cpu());
    /// assert!((logits.cross_entropy(&classes).item()? - 2f64.ln() / 2.0).abs() < 1e-6);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn cross_entropy(&self, targets: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_float("cross_entropy", location) {
            return failed;
        }
        match targets.node() {
            Err(_) => targets.clone(),
            Ok(node) if node.dtype.is_int() => {
                let logits = self.widen().0;
                match &logits.0.shape[..] {
                    &[ref lead @ .., classes] if lead == node.shape => {
                        let op = CrossEntropy { classes, location };
                        fused_at(Arc::new(op), vec![logits, targets.clone()], location).remove(0).mean(..)
                    }
                    _ => logits.log_softmax(-1).nll(targets),
                }
            }
            Ok(_) => match self.check_same_shape("cross_entropy", targets, location) {
                Ok(()) => -(self.widen().0.log_softmax(-1) * targets).sum(-1).mean(..),
                Err(failed) => failed,
            },
        }
    }

    /// Cross-entropy of each row of logits (`self`, over the last axis) and the class indices
    /// `targets`, which have the shape without the last axis. Only the first `classes` columns
    /// count; the others are padding, whose values are ignored and whose gradient is zero. A target
    /// out of range is an error of the read.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let logits = Tensor::from_slice(&[0.0f32, 0.0, 9.0, 100.0, 0.0, 9.0], &[2, 3], Device::cpu());
    /// let targets = Tensor::from_slice(&[1i32, 0], &[2], Device::cpu());
    /// let losses = logits.cross_entropy_per_row(&targets, 2).to_vec::<f32>()?;
    /// assert!((losses[0] - 2f32.ln()).abs() < 1e-6 && losses[1] == 0.0);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn cross_entropy_per_row(&self, targets: &Tensor, classes: usize) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_float("cross_entropy_per_row", location) {
            return failed;
        }
        let Ok(node) = targets.node() else { return targets.clone() };
        let logits = self.widen().0;
        let message = match &logits.0.shape[..] {
            _ if !node.dtype.is_int() => format!("targets are {}; expected class indices, integers", node.dtype),
            &[ref lead @ .., columns] if lead == node.shape && (1..=columns).contains(&classes) => {
                let op = CrossEntropy { classes, location };
                return fused_at(Arc::new(op), vec![logits, targets.clone()], location).remove(0);
            }
            [lead @ .., columns] if lead == node.shape => {
                format!("classes is {classes}, but a row has {columns} logits; expected 1 to {columns}")
            }
            shape => format!(
                "logits {shape:?} do not match targets {:?}; expected the shape without the last axis",
                node.shape
            ),
        };
        Tensor::failed_at("cross_entropy_per_row", message, location)
    }

    /// Negative log-likelihood of `classes` under log-probabilities (`self`, over the last axis),
    /// averaged over rows.
    #[track_caller]
    pub fn nll(&self, classes: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        let (Ok(rows), Ok(index)) = (self.node(), classes.node()) else {
            return if self.node().is_err() { self.clone() } else { classes.clone() };
        };
        match &rows.shape[..] {
            [lead @ .., _] if lead == index.shape => -self.gather(-1, &classes.unsqueeze(-1)).mean(..),
            _ => {
                let message = format!(
                    "log-probabilities {:?} do not match classes {:?}; expected the shape without the last axis",
                    rows.shape, index.shape
                );
                Tensor::failed_at("nll", message, location)
            }
        }
    }

    /// Mean squared error.
    #[track_caller]
    pub fn mse(&self, target: &Tensor) -> Tensor {
        if let Err(failed) = self.check_same_shape("mse", target, SourceLocation::here()) {
            return failed;
        }
        (self - target).square().mean(..)
    }

    /// Mean absolute error.
    #[track_caller]
    pub fn l1(&self, target: &Tensor) -> Tensor {
        if let Err(failed) = self.check_same_shape("l1", target, SourceLocation::here()) {
            return failed;
        }
        (self - target).abs().mean(..)
    }

    /// Huber loss: mean of ½ d² where |d| ≤ `delta`, else of `delta` (|d| - ½ `delta`), for the
    /// difference d.
    #[track_caller]
    pub fn huber(&self, target: &Tensor, delta: f64) -> Tensor {
        if let Err(failed) = self.check_same_shape("huber", target, SourceLocation::here()) {
            return failed;
        }
        let distance = (self - target).abs();
        let near = distance.square() * 0.5;
        let far = (&distance - 0.5 * delta) * delta;
        distance.le(delta).select(near, far).mean(..)
    }

    /// Mean binary cross-entropy of probabilities; logarithms are clamped at -100, as in PyTorch.
    #[track_caller]
    pub fn bce(&self, target: &Tensor) -> Tensor {
        if let Err(failed) = self.check_same_shape("bce", target, SourceLocation::here()) {
            return failed;
        }
        let yes = self.log().maximum(-100.0);
        let no = (-self).log1p().maximum(-100.0);
        -(target * yes + (1.0 - target) * no).mean(..)
    }

    /// Mean binary cross-entropy of logits, without overflow.
    #[track_caller]
    pub fn bce_with_logits(&self, target: &Tensor) -> Tensor {
        if let Err(failed) = self.check_same_shape("bce_with_logits", target, SourceLocation::here()) {
            return failed;
        }
        (self.softplus() - self * target).mean(..)
    }

    /// Kullback-Leibler divergence between `self` (log-probabilities, last axis) and `target`
    /// (probabilities): the mean over rows of Σ t (log t - x), PyTorch's reduction `batchmean`.
    #[track_caller]
    pub fn kl_div(&self, target: &Tensor) -> Tensor {
        if let Err(failed) = self.check_same_shape("kl_div", target, SourceLocation::here()) {
            return failed;
        }
        // 0 log 0 is 0, with a gradient of 0.
        let positive = target.gt(0.0);
        let log = positive.select(target, 1.0).log();
        (target * (log - self)).sum(-1).mean(..)
    }
}
