//! Loss functions of predictions and targets of one shape; broadcasting would hide errors. The
//! short names (`mse`) are means, as a scalar; those that end with `_loss` have a [`Reduction`].
//! Losses of classes are in `class_loss.rs`.

use crate::{SourceLocation, Tensor};

/// Reduction of the losses of all examples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// The mean, as a scalar.
    #[default]
    Mean,
    /// The sum, as a scalar.
    Sum,
    /// No reduction: one loss per example.
    None,
}

impl Reduction {
    #[track_caller]
    pub(super) fn apply(self, losses: Tensor) -> Tensor {
        match self {
            Reduction::Mean => losses.mean(..),
            Reduction::Sum => losses.sum(..),
            Reduction::None => losses,
        }
    }
}

impl Tensor {
    /// `Err` with a failed tensor if the dtype is not a float or the shapes differ.
    pub(super) fn check_same_shape(
        &self,
        name: &'static str,
        target: &Tensor,
        location: SourceLocation,
    ) -> Result<(), Tensor> {
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

    /// Mean squared error.
    #[track_caller]
    pub fn mse(&self, target: &Tensor) -> Tensor {
        self.mse_loss(target, Reduction::Mean)
    }

    /// Squared error with a reduction.
    ///
    /// ```
    /// use bornite::{Device, Tensor, ops::Reduction};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
    /// let target = Tensor::from_slice(&[0.0f32, 4.0], &[2], Device::cpu());
    /// assert_eq!(x.mse_loss(&target, Reduction::None).to_vec::<f32>()?, [1.0, 4.0]);
    /// assert_eq!(x.mse_loss(&target, Reduction::Sum).item()?, 5.0);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        if let Err(failed) = self.check_same_shape("mse", target, SourceLocation::here()) {
            return failed;
        }
        reduction.apply((self - target).square())
    }

    /// Mean absolute error.
    #[track_caller]
    pub fn l1(&self, target: &Tensor) -> Tensor {
        self.l1_loss(target, Reduction::Mean)
    }

    /// Absolute error with a reduction.
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        if let Err(failed) = self.check_same_shape("l1", target, SourceLocation::here()) {
            return failed;
        }
        reduction.apply((self - target).abs())
    }

    /// Huber loss: mean of ½ d² where |d| ≤ `delta`, else of `delta` (|d| - ½ `delta`), for the
    /// difference d.
    #[track_caller]
    pub fn huber(&self, target: &Tensor, delta: f64) -> Tensor {
        self.huber_loss(target, delta, Reduction::Mean)
    }

    /// Huber loss with a reduction: ½ d² where |d| ≤ `delta`, else `delta` (|d| - ½ `delta`).
    #[track_caller]
    pub fn huber_loss(&self, target: &Tensor, delta: f64, reduction: Reduction) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_same_shape("huber", target, location) {
            return failed;
        }
        if delta.is_nan() || delta <= 0.0 {
            return Tensor::failed_at("huber", format!("delta must be greater than 0, found {delta}"), location);
        }
        let distance = (self - target).abs();
        let near = distance.square() * 0.5;
        let far = (&distance - 0.5 * delta) * delta;
        reduction.apply(distance.le(delta).select(near, far))
    }

    /// Smooth L1 loss with a reduction: ½ d² / `beta` where |d| < `beta`, else |d| - ½ `beta`. With
    /// `beta` 0 it is [`Tensor::l1_loss`].
    ///
    /// ```
    /// use bornite::{Device, Tensor, ops::Reduction};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1.0f32, 5.0], &[2], Device::cpu());
    /// let target = Tensor::from_slice(&[0.0f32, 1.0], &[2], Device::cpu());
    /// assert_eq!(x.smooth_l1_loss(&target, 2.0, Reduction::None).to_vec::<f32>()?, [0.25, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn smooth_l1_loss(&self, target: &Tensor, beta: f64, reduction: Reduction) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_same_shape("smooth_l1", target, location) {
            return failed;
        }
        if beta.is_nan() || beta < 0.0 {
            return Tensor::failed_at("smooth_l1", format!("beta must be at least 0, found {beta}"), location);
        }
        let distance = (self - target).abs();
        if beta == 0.0 {
            return reduction.apply(distance);
        }
        let near = distance.square() * (0.5 / beta);
        let far = &distance - 0.5 * beta;
        reduction.apply(distance.lt(beta).select(near, far))
    }

    /// Mean binary cross-entropy of probabilities; logarithms are clamped at -100, as in PyTorch.
    #[track_caller]
    pub fn bce(&self, target: &Tensor) -> Tensor {
        self.bce_loss(target, Reduction::Mean)
    }

    /// Binary cross-entropy of probabilities with a reduction; logarithms are clamped at -100, as
    /// in PyTorch.
    #[track_caller]
    pub fn bce_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        if let Err(failed) = self.check_same_shape("bce", target, SourceLocation::here()) {
            return failed;
        }
        let yes = self.log().maximum(-100.0);
        let no = (-self).log1p().maximum(-100.0);
        reduction.apply(-(target * yes + (1.0 - target) * no))
    }

    /// Mean binary cross-entropy of logits, without overflow.
    #[track_caller]
    pub fn bce_with_logits(&self, target: &Tensor) -> Tensor {
        self.bce_with_logits_loss(target, None, Reduction::Mean)
    }

    /// Binary cross-entropy of logits with a reduction, without overflow. `pos_weight` multiplies
    /// the loss of positive targets; it broadcasts to the shape of the targets.
    ///
    /// ```
    /// use bornite::{Device, Tensor, ops::Reduction};
    /// # fn main() -> bornite::Result<()> {
    /// let logits = Tensor::from_slice(&[0.0f32, 0.0], &[1, 2], Device::cpu());
    /// let target = Tensor::from_slice(&[1.0f32, 0.0], &[1, 2], Device::cpu());
    /// let pos_weight = Tensor::from_slice(&[3.0f32, 3.0], &[2], Device::cpu());
    /// let losses = logits.bce_with_logits_loss(&target, Some(&pos_weight), Reduction::None).to_vec::<f32>()?;
    /// assert!((losses[0] / losses[1] - 3.0).abs() < 1e-6);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn bce_with_logits_loss(&self, target: &Tensor, pos_weight: Option<&Tensor>, reduction: Reduction) -> Tensor {
        let (name, location) = ("bce_with_logits", SourceLocation::here());
        if let Err(failed) = self.check_same_shape(name, target, location) {
            return failed;
        }
        let Some(pos_weight) = pos_weight else { return reduction.apply(self.softplus() - self * target) };
        if let Err(failed) = pos_weight.check_float(name, location) {
            return failed;
        }
        let aligned = pos_weight.0.shape.iter().rev().zip(self.0.shape.iter().rev());
        if pos_weight.0.shape.len() > self.0.shape.len() || !aligned.clone().all(|(a, b)| a == b || *a == 1) {
            let message = format!(
                "pos_weight has shape {:?}, which does not broadcast to the targets' {:?}",
                pos_weight.0.shape, self.0.shape
            );
            return Tensor::failed_at(name, message, location);
        }
        // (1 - t) x + (1 + (w - 1) t) softplus(-x), which is softplus(x) - t x for w = 1.
        let scale = (pos_weight - 1.0) * target + 1.0;
        reduction.apply((1.0 - target) * self + scale * (-self).softplus())
    }

    /// Kullback-Leibler divergence between `self` (log-probabilities, last axis) and `target`
    /// (probabilities): the mean over rows of Σ t (log t - x), PyTorch's reduction `batchmean`.
    #[track_caller]
    pub fn kl_div(&self, target: &Tensor) -> Tensor {
        self.kl_div_loss(target, Reduction::Mean)
    }

    /// Kullback-Leibler divergence with a reduction: `Mean` is over rows, as [`Tensor::kl_div`],
    /// `Sum` over all elements, and `None` returns the terms t (log t - x) of all elements.
    #[track_caller]
    pub fn kl_div_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_same_shape("kl_div", target, location) {
            return failed;
        }
        // 0 log 0 is 0, with a gradient of 0.
        let positive = target.gt(0.0);
        let log = positive.select(target, 1.0).log();
        let terms = target * (log - self);
        match reduction {
            Reduction::Mean if self.0.shape.is_empty() => terms,
            Reduction::Mean => terms.sum(-1).mean(..),
            other => other.apply(terms),
        }
    }
}
