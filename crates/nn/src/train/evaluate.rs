//! Evaluation of a model on batches, and the source of batches.

use bornite::{DType, Tensor, error::SourceLocation, trace};

use crate::data::{DataCursor, DataLoader, Epoch};
use crate::error::located;
use crate::random::mix;
use crate::{Error, Forward, Result};

/// Iterator over the batches of an epoch.
pub type BatchIterator<'a> = Box<dyn Iterator<Item = Result<Vec<Tensor>>> + 'a>;

/// Source of batches of tensors, in epochs. The batches of an epoch do not depend on earlier calls,
/// so that training can resume within an epoch.
pub trait BatchSource {
    /// Returns the batches of an epoch, counted from 0, from batch number `first`.
    fn batches_of(&self, epoch: u64, first: u64) -> Result<BatchIterator<'_>>;

    /// Identifies the batches, so that training is not resumed with others; 0 if they are not
    /// compared.
    fn fingerprint(&self) -> u64 {
        0
    }
}

/// The same batches in every epoch.
impl BatchSource for [Vec<Tensor>] {
    fn batches_of(&self, _: u64, first: u64) -> Result<BatchIterator<'_>> {
        Ok(Box::new(self.iter().skip(usize::try_from(first).unwrap_or(usize::MAX)).map(|batch| Ok(batch.clone()))))
    }
}

/// The same batches in every epoch.
impl BatchSource for Vec<Vec<Tensor>> {
    fn batches_of(&self, epoch: u64, first: u64) -> Result<BatchIterator<'_>> {
        self[..].batches_of(epoch, first)
    }
}

impl<B: BatchSource + ?Sized> BatchSource for &B {
    fn batches_of(&self, epoch: u64, first: u64) -> Result<BatchIterator<'_>> {
        (**self).batches_of(epoch, first)
    }

    fn fingerprint(&self) -> u64 {
        (**self).fingerprint()
    }
}

/// Batches of an epoch, independent of the loader's cursor, which is restored.
impl BatchSource for DataLoader {
    fn batches_of(&self, epoch: u64, first: u64) -> Result<BatchIterator<'_>> {
        let (before, position) = (self.cursor(), first.saturating_mul(self.batch_size() as u64));
        // Also an empty dataset, which the loader reports.
        if position > 0 && position >= before.sequences {
            return Ok(Box::new(std::iter::empty()));
        }
        if before.sequences > 0 {
            self.seek(DataCursor { epoch, position, ..before })?;
        }
        Ok(Box::new(LoaderBatches { loader: self, epoch: Some(self.epoch()), before }))
    }

    fn fingerprint(&self) -> u64 {
        let DataCursor { seed, sequences, fingerprint, .. } = self.cursor();
        [seed, sequences, fingerprint, self.batch_size() as u64].into_iter().fold(0, |sum, part| mix(sum ^ mix(part)))
    }
}

/// Batches of a loader's epoch.
struct LoaderBatches<'a> {
    loader: &'a DataLoader,
    epoch: Option<Epoch<'a>>,
    /// Cursor to restore.
    before: DataCursor,
}

impl Iterator for LoaderBatches<'_> {
    type Item = Result<Vec<Tensor>>;

    fn next(&mut self) -> Option<Result<Vec<Tensor>>> {
        self.epoch.as_mut()?.next()
    }
}

impl Drop for LoaderBatches<'_> {
    fn drop(&mut self) {
        // The cursor cannot change while an epoch is read.
        self.epoch = None;
        let _ = self.loader.seek(self.before);
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
    batches: &(impl BatchSource + ?Sized),
    metric: impl Fn(&Tensor, &Tensor) -> Tensor + Send + Sync,
) -> Result<f64> {
    // A function that is passed as a value has no line of its own.
    let location = SourceLocation::here();
    located(|| {
        let metric = |b: &[Tensor]| match b {
            [x, targets] => {
                let output = model.forward(x);
                location.in_scope(|| metric(&output, targets))
            }
            _ => {
                let what = format!("a batch has {} tensors; expected inputs and targets", b.len());
                location.in_scope(|| Tensor::failed("evaluate", what))
            }
        };
        mean_over(batches, metric, |work| work())
    })
}

/// Returns the mean of a function of batches over all samples of epoch 0. `run` calls the work of a
/// batch.
pub(crate) fn mean_over(
    batches: &(impl BatchSource + ?Sized),
    value: impl Fn(&[Tensor]) -> Tensor + Send + Sync,
    run: impl Fn(&dyn Fn() -> Result<f64>) -> Result<f64>,
) -> Result<f64> {
    let traced = trace(|batch: &[Tensor]| Ok((vec![value(batch).cast(DType::F32)], vec![])));
    weighted_mean(batches, |batch| run(&|| Ok(traced.call(batch)?[0].item()?)))
}

/// Returns the mean of a number per batch over epoch 0, weighted by the number of samples.
pub(crate) fn weighted_mean(
    batches: &(impl BatchSource + ?Sized),
    value: impl Fn(&[Tensor]) -> Result<f64>,
) -> Result<f64> {
    let (mut sum, mut count) = (0.0, 0u64);
    for batch in batches.batches_of(0, 0)? {
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
