//! Losses of classes over the last axis: cross-entropy of logits and negative log-likelihood of
//! log-probabilities. The short names are means over rows; those that end with `_loss` have
//! options.

use std::sync::Arc;

use super::loss::Reduction;
use crate::fused::cross_entropy::CrossEntropy;
use crate::fused::fused_at;
use crate::{DType, SourceLocation, Tensor};

/// Options of [`Tensor::cross_entropy_loss`]. The default is [`Tensor::cross_entropy`].
#[derive(Clone, Debug, Default)]
pub struct CrossEntropyOptions {
    /// Part of each target that is distributed evenly over all classes, from 0 to 1.
    pub label_smoothing: f64,
    /// Target value of rows to ignore. Such rows have no loss and no gradient, and the mean is over
    /// the other rows (NaN if there are none). Class indices only.
    pub ignore_index: Option<i64>,
    /// Weight per class, of shape `[classes]`. The mean over rows is weighted by the weights of
    /// their targets; for probabilities it is not.
    pub weight: Option<Tensor>,
    /// Reduction over rows.
    pub reduction: Reduction,
}

/// Options of [`Tensor::nll_loss`]. The default is [`Tensor::nll`].
#[derive(Clone, Debug, Default)]
pub struct NllOptions {
    /// As [`CrossEntropyOptions::ignore_index`].
    pub ignore_index: Option<i64>,
    /// As [`CrossEntropyOptions::weight`].
    pub weight: Option<Tensor>,
    /// Reduction over rows.
    pub reduction: Reduction,
}

/// Class indices of rows, with the rows that count and their weights.
struct ClassTargets {
    /// Class indices; 0 in ignored rows.
    classes: Tensor,
    /// True for rows that count; `None` if all do.
    counted: Option<Tensor>,
    /// Weights of the rows' classes.
    weights: Option<Tensor>,
}

impl ClassTargets {
    /// Validates the targets of `rows`, which are logits or log-probabilities.
    #[track_caller]
    fn new(
        name: &'static str,
        rows: &Tensor,
        targets: &Tensor,
        ignore_index: Option<i64>,
        weight: Option<&Tensor>,
    ) -> Result<ClassTargets, Tensor> {
        let location = SourceLocation::here();
        let Ok(node) = targets.node() else { return Err(targets.clone()) };
        let fail = |message| Err(Tensor::failed_at(name, message, location));
        if !node.dtype.is_int() {
            return fail(format!("targets are {}; expected class indices, integers", node.dtype));
        }
        match &rows.0.shape[..] {
            [lead @ .., _] if lead == node.shape => {}
            shape => {
                return fail(format!(
                    "rows {shape:?} do not match targets {:?}; expected the shape without the last axis",
                    node.shape
                ));
            }
        }
        // Compared in i64: the index may not fit the dtype of the targets, as -100 does not fit u8.
        let counted = ignore_index.map(|index| targets.cast(DType::I64).not_equal(index));
        let classes = counted.as_ref().map_or(targets.clone(), |counted| counted.select(targets, 0));
        let flat = |weight: &Tensor| {
            let weights = weight.cast(rows.0.dtype).index_select(0, &classes.reshape(&[node.shape.iter().product()]));
            weights.reshape(&node.shape)
        };
        Ok(ClassTargets { weights: weight.map(flat), classes, counted })
    }

    /// Reduces the losses of all rows, which are weighted already.
    #[track_caller]
    fn reduce(&self, losses: Tensor, reduction: Reduction) -> Tensor {
        let losses = self.mask(losses);
        let ones = || Tensor::ones(&losses.0.shape, losses.0.dtype, losses.0.device);
        match (reduction, &self.weights, &self.counted) {
            (Reduction::Mean, None, None) | (Reduction::Sum | Reduction::None, ..) => reduction.apply(losses),
            (Reduction::Mean, weights, _) if losses.node().is_ok() => {
                let weights = self.mask(weights.clone().unwrap_or_else(ones));
                losses.sum(..) / weights.sum(..)
            }
            _ => losses,
        }
    }

    /// Zeros in the rows that are ignored.
    #[track_caller]
    fn mask(&self, rows: Tensor) -> Tensor {
        match &self.counted {
            Some(counted) => counted.select(rows, 0.0),
            None => rows,
        }
    }

    /// Negative log-likelihood of each row, weighted.
    #[track_caller]
    fn nll(&self, log_probabilities: &Tensor) -> Tensor {
        let losses = -log_probabilities.gather(-1, &self.classes.unsqueeze(-1)).squeeze(-1);
        match &self.weights {
            Some(weights) => losses * weights,
            None => losses,
        }
    }
}

/// Validates the weights of classes.
fn check_weight(
    name: &'static str,
    rows: &Tensor,
    weight: Option<&Tensor>,
    location: SourceLocation,
) -> Result<(), Tensor> {
    rows.check_float(name, location)?;
    let Some(weight) = weight else { return Ok(()) };
    weight.check_float(name, location)?;
    match rows.0.shape.last() {
        Some(&classes) if weight.0.shape != [classes] => {
            let message = format!(
                "weight has shape {:?}; expected [{classes}], one per class of {:?}",
                weight.0.shape, rows.0.shape
            );
            Err(Tensor::failed_at(name, message, location))
        }
        _ => Ok(()),
    }
}

impl Tensor {
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

    /// Cross-entropy of logits (`self`, over the last axis) with options. `targets` are class
    /// indices or probabilities, as of [`Tensor::cross_entropy`].
    ///
    /// ```
    /// use bornite::{Device, Tensor, ops::CrossEntropyOptions};
    /// # fn main() -> bornite::Result<()> {
    /// let logits = Tensor::from_slice(&[0.0f32, 0.0, 7.0, 5.0], &[2, 2], Device::cpu());
    /// let classes = Tensor::from_slice(&[1i64, -100], &[2], Device::cpu());
    /// let options = CrossEntropyOptions { ignore_index: Some(-100), label_smoothing: 0.1, ..Default::default() };
    /// assert!((logits.cross_entropy_loss(&classes, &options).item()? - 2f64.ln()).abs() < 1e-6);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn cross_entropy_loss(&self, targets: &Tensor, options: &CrossEntropyOptions) -> Tensor {
        let (name, location) = ("cross_entropy", SourceLocation::here());
        let CrossEntropyOptions { label_smoothing: smoothing, ignore_index, ref weight, reduction } = *options;
        if let Err(failed) = check_weight(name, self, weight.as_ref(), location) {
            return failed;
        }
        if !(0.0..=1.0).contains(&smoothing) {
            let message = format!("label_smoothing must be from 0 to 1, found {smoothing}");
            return Tensor::failed_at(name, message, location);
        }
        let Ok(node) = targets.node() else { return targets.clone() };
        let logits = self.widen().0;
        let classes = self.0.shape.last().copied().unwrap_or(1);
        if node.dtype.is_float() {
            if let Err(failed) = self.check_same_shape(name, targets, location) {
                return failed;
            }
            if ignore_index.is_some() {
                let message = "ignore_index needs class indices as targets, found probabilities".into();
                return Tensor::failed_at(name, message, location);
            }
            let smooth = if smoothing == 0.0 {
                targets.clone()
            } else {
                targets * (1.0 - smoothing) + smoothing / classes as f64
            };
            let weighted = weight.as_ref().map_or(smooth.clone(), |weight| smooth * weight.cast(logits.0.dtype));
            return reduction.apply(-(logits.log_softmax(-1) * weighted).sum(-1));
        }
        let targets = match ClassTargets::new(name, &logits, targets, ignore_index, weight.as_ref()) {
            Ok(targets) => targets,
            Err(failed) => return failed,
        };
        if weight.is_none() && smoothing == 0.0 {
            let op = CrossEntropy { classes, location };
            let losses = fused_at(Arc::new(op), vec![logits, targets.classes.clone()], location).remove(0);
            return targets.reduce(losses, reduction);
        }
        let log_probabilities = logits.log_softmax(-1);
        let losses = targets.nll(&log_probabilities);
        if smoothing == 0.0 {
            return targets.reduce(losses, reduction);
        }
        let weighted = match weight {
            Some(weight) => &log_probabilities * weight.cast(logits.0.dtype),
            None => log_probabilities,
        };
        targets.reduce(losses * (1.0 - smoothing) - weighted.sum(-1) * (smoothing / classes as f64), reduction)
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

    /// Negative log-likelihood of `classes` under log-probabilities (`self`, over the last axis),
    /// with options.
    ///
    /// ```
    /// use bornite::{Device, Tensor, ops::{NllOptions, Reduction}};
    /// # fn main() -> bornite::Result<()> {
    /// let log_probabilities = Tensor::from_slice(&[-1.0f32, -2.0, -3.0, -4.0], &[2, 2], Device::cpu());
    /// let classes = Tensor::from_slice(&[1i64, 0], &[2], Device::cpu());
    /// let options = NllOptions { reduction: Reduction::None, ..Default::default() };
    /// assert_eq!(log_probabilities.nll_loss(&classes, &options).to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn nll_loss(&self, classes: &Tensor, options: &NllOptions) -> Tensor {
        let NllOptions { ignore_index, ref weight, reduction } = *options;
        if let Err(failed) = check_weight("nll", self, weight.as_ref(), SourceLocation::here()) {
            return failed;
        }
        let (rows, original_dtype) = self.widen();
        match ClassTargets::new("nll", &rows, classes, ignore_index, weight.as_ref()) {
            Ok(targets) => targets.reduce(targets.nll(&rows), reduction).narrow_to(original_dtype),
            Err(failed) => failed,
        }
    }
}
