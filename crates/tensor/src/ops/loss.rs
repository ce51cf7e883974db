//! Losses: one number, the mean over examples. Predictions and targets have one shape: broadcasting here hides mistakes.

use std::sync::Arc;

use crate::fused::cross_entropy::CrossEntropy;
use crate::fused::fused_at;
use crate::{SourceLocation, Tensor};

impl Tensor {
    /// Nothing if both are floats of one shape, else the failed tensor that says so.
    fn alike(&self, name: &'static str, target: &Tensor, location: SourceLocation) -> Result<(), Tensor> {
        self.check_float(name, location)?;
        match target.node() {
            Err(_) => Err(target.clone()),
            Ok(node) if node.shape == self.0.shape => Ok(()),
            Ok(node) => {
                let message = format!("the prediction has shape {:?}, the target {:?}", self.0.shape, node.shape);
                Err(Tensor::failed_at(name, message, location))
            }
        }
    }

    /// Mean over rows of minus the log-probability that `self` (logits, last axis) gives to `targets`: classes (integers,
    /// of the shape without the last axis) or probabilities (floats, of the same shape). A class that there is not is an
    /// error of the read.
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
                    [lead @ .., _] if lead == node.shape => {
                        fused_at(Arc::new(CrossEntropy(location)), vec![logits, targets.clone()], location)
                            .remove(0)
                            .mean(..)
                    }
                    _ => logits.log_softmax(-1).nll(targets),
                }
            }
            Ok(_) => match self.alike("cross_entropy", targets, location) {
                Ok(()) => -(self.widen().0.log_softmax(-1) * targets).sum(-1).mean(..),
                Err(failed) => failed,
            },
        }
    }

    /// Mean over rows of minus `self` (log-probabilities, last axis) at the class that `classes` names.
    #[track_caller]
    pub fn nll(&self, classes: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        let (Ok(rows), Ok(index)) = (self.node(), classes.node()) else {
            return if self.node().is_err() { self.clone() } else { classes.clone() };
        };
        match &rows.shape[..] {
            [lead @ .., _] if lead == index.shape => -self.gather(-1, &classes.unsqueeze(-1)).mean(..),
            _ => {
                let message = format!("rows of shape {:?} have no classes of shape {:?}", rows.shape, index.shape);
                Tensor::failed_at("nll", message, location)
            }
        }
    }

    /// Mean squared difference.
    #[track_caller]
    pub fn mse(&self, target: &Tensor) -> Tensor {
        if let Err(failed) = self.alike("mse", target, SourceLocation::here()) {
            return failed;
        }
        (self - target).square().mean(..)
    }

    /// Mean absolute difference.
    #[track_caller]
    pub fn l1(&self, target: &Tensor) -> Tensor {
        if let Err(failed) = self.alike("l1", target, SourceLocation::here()) {
            return failed;
        }
        (self - target).abs().mean(..)
    }

    /// Mean of ½ d² where the difference d is at most `delta`, of `delta` (|d| - ½ `delta`) where it is more.
    #[track_caller]
    pub fn huber(&self, target: &Tensor, delta: f64) -> Tensor {
        if let Err(failed) = self.alike("huber", target, SourceLocation::here()) {
            return failed;
        }
        let size = (self - target).abs();
        let near = size.square() * 0.5;
        let far = (&size - 0.5 * delta) * delta;
        size.le(delta).select(near, far).mean(..)
    }

    /// Mean binary cross-entropy of probabilities; logarithms are not below -100, as in PyTorch.
    #[track_caller]
    pub fn bce(&self, target: &Tensor) -> Tensor {
        if let Err(failed) = self.alike("bce", target, SourceLocation::here()) {
            return failed;
        }
        let yes = self.log().maximum(-100.0);
        let no = (-self).log1p().maximum(-100.0);
        -(target * yes + (1.0 - target) * no).mean(..)
    }

    /// Mean binary cross-entropy of logits, without overflow.
    #[track_caller]
    pub fn bce_with_logits(&self, target: &Tensor) -> Tensor {
        if let Err(failed) = self.alike("bce_with_logits", target, SourceLocation::here()) {
            return failed;
        }
        (self.softplus() - self * target).mean(..)
    }

    /// Kullback and Leibler's divergence of `self` (log-probabilities, last axis) from `target` (probabilities): the mean
    /// over rows of Σ t (log t - x). PyTorch calls this `batchmean`.
    #[track_caller]
    pub fn kl_div(&self, target: &Tensor) -> Tensor {
        if let Err(failed) = self.alike("kl_div", target, SourceLocation::here()) {
            return failed;
        }
        // 0 log 0 is 0, with a gradient of 0.
        let positive = target.gt(0.0);
        let log = positive.select(target, 1.0).log();
        (target * (log - self)).sum(-1).mean(..)
    }
}
