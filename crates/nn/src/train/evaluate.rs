//! Evaluation of a model on batches, and the source of batches.

use bornite::{DType, Tensor, error::SourceLocation, trace};

use crate::error::located;
use crate::{Error, Forward, Result};

/// Iterator over the batches of an epoch.
pub type BatchIterator<'a> = Box<dyn Iterator<Item = Result<Vec<Tensor>>> + 'a>;

/// Batches of tensors in epochs. The batches of an epoch do not depend on earlier calls, so that
/// training can resume within an epoch.
pub trait Batches {
    /// Returns the batches of an epoch, counted from 0, from batch number `first`.
    fn batches(&self, epoch: u64, first: u64) -> Result<BatchIterator<'_>>;
}

/// The same batches in every epoch.
impl Batches for [Vec<Tensor>] {
    fn batches(&self, _: u64, first: u64) -> Result<BatchIterator<'_>> {
        Ok(Box::new(self.iter().skip(usize::try_from(first).unwrap_or(usize::MAX)).map(|batch| Ok(batch.clone()))))
    }
}

/// The same batches in every epoch.
impl Batches for Vec<Vec<Tensor>> {
    fn batches(&self, epoch: u64, first: u64) -> Result<BatchIterator<'_>> {
        self[..].batches(epoch, first)
    }
}

impl<B: Batches + ?Sized> Batches for &B {
    fn batches(&self, epoch: u64, first: u64) -> Result<BatchIterator<'_>> {
        (**self).batches(epoch, first)
    }
}

/// Returns the mean of a metric over all samples of an epoch, in evaluation mode. A batch is inputs
/// and targets; its samples are along the first axis. See [`metrics`](crate::metrics).
///
/// ```
/// use bornite_nn::prelude::*;
/// # fn main() -> Result<()> {
/// let device = Device::cpu();
/// let net = Linear::new(&Params::new(device, 0), 4, 2);
/// let batch = |n: usize| vec![Tensor::ones(&[n, 4], DType::F32, device), Tensor::zeros(&[n], DType::I64, device)];
/// let accuracy = evaluate(&net, &vec![batch(8), batch(3)], metrics::accuracy)?;
/// assert!(accuracy == 0.0 || accuracy == 1.0);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn evaluate(
    model: &(impl Forward + Sync),
    batches: &(impl Batches + ?Sized),
    metric: impl Fn(&Tensor, &Tensor) -> Tensor + Send + Sync,
) -> Result<f64> {
    // A function that is passed as a value has no line of its own.
    let location = SourceLocation::here();
    located(|| {
        mean_over(batches, |b| match b {
            [x, targets] => {
                let output = model.forward(x);
                location.in_scope(|| metric(&output, targets))
            }
            _ => {
                let what = format!("a batch has {} tensors; expected inputs and targets", b.len());
                location.in_scope(|| Tensor::failed("evaluate", what))
            }
        })
    })
}

/// Returns the mean of a function of batches over all samples of epoch 0.
pub(crate) fn mean_over(
    batches: &(impl Batches + ?Sized),
    value: impl Fn(&[Tensor]) -> Tensor + Send + Sync,
) -> Result<f64> {
    let traced = trace(|batch: &[Tensor]| Ok((vec![value(batch).cast(DType::F32)], vec![])));
    weighted_mean(batches, |batch| Ok(traced.call(batch)?[0].item()?))
}

/// Returns the mean of a number per batch over epoch 0, weighted by the number of samples.
pub(crate) fn weighted_mean(
    batches: &(impl Batches + ?Sized),
    value: impl Fn(&[Tensor]) -> Result<f64>,
) -> Result<f64> {
    let (mut sum, mut count) = (0.0, 0u64);
    for batch in batches.batches(0, 0)? {
        let batch = batch?;
        let samples = batch.first().map(Tensor::shape).transpose()?.and_then(|shape| shape.first().copied());
        let samples = samples.unwrap_or(1) as u64;
        sum += value(&batch)? * samples as f64;
        count += samples;
    }
    if count == 0 {
        return Err(Error::data("there are no batches to evaluate"));
    }
    Ok(sum / count as f64)
}
