//! Metrics of predictions: scalars, averaged over the samples of a batch, for
//! [`evaluate`](crate::train::evaluate) and [`Fit::metric`](crate::train::Fit::metric).

use bornite::{DType, Tensor};

/// Fraction of rows whose largest logit is at the target class. `logits` are `[…, classes]`,
/// `targets` integers `[…]`.
///
/// ```
/// use bornite::{Device, Tensor};
/// use bornite_nn::metrics::accuracy;
/// # fn main() -> bornite::Result<()> {
/// let logits = Tensor::from_slice(&[2.0f32, 1.0, 0.0, 5.0], &[2, 2], Device::cpu());
/// let targets = Tensor::from_slice(&[0i64, 0], &[2], Device::cpu());
/// assert_eq!(accuracy(&logits, &targets).item()?, 0.5);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn accuracy(logits: &Tensor, targets: &Tensor) -> Tensor {
    top_k_accuracy(1, logits, targets)
}

/// Fraction of rows whose target class is among the `k` largest logits.
#[track_caller]
pub fn top_k_accuracy(k: usize, logits: &Tensor, targets: &Tensor) -> Tensor {
    if let (Ok([rows @ .., classes]), Ok(shape), Ok(dtype)) = (logits.shape(), targets.shape(), targets.dtype())
        && (rows != shape || dtype.is_float() || *classes == 0)
    {
        let what =
            format!("logits {:?} need integer targets {rows:?}, found {dtype}{shape:?}", [rows, &[*classes]].concat());
        return Tensor::failed("accuracy", what);
    }
    if k == 1 {
        return logits.argmax(-1).equal(targets.cast(DType::I64)).cast(DType::F32).mean(..);
    }
    let (_, classes) = logits.topk(k, -1);
    classes.cast(DType::I64).equal(targets.cast(DType::I64).unsqueeze(-1)).any(-1).cast(DType::F32).mean(..)
}

/// Mean absolute error.
#[track_caller]
pub fn mean_absolute_error(predicted: &Tensor, targets: &Tensor) -> Tensor {
    predicted.l1(targets)
}

/// Mean squared error.
#[track_caller]
pub fn mean_squared_error(predicted: &Tensor, targets: &Tensor) -> Tensor {
    predicted.mse(targets)
}
