//! Sums of gradients over all ranks, computed bucket by bucket while the backward pass still
//! computes other gradients.

use std::ops::Range;
use std::sync::mpsc;

use bornite::{DType, trace::HostValue};

use super::data_parallel::DataParallel;
use crate::{Error, Result};

/// Receiver of the gradients of buckets: number and values.
pub(crate) type ReceiveBucket<'a> = dyn FnMut(usize, HostValue) + 'a;

/// Ranks and the ranges of the flat gradients that they exchange.
pub(crate) struct GradientExchange {
    ranks: DataParallel,
    buckets: Vec<Range<usize>>,
    /// Order of the buckets, the same for all ranks: that in which rank 0 computed them in the
    /// first step.
    order: Option<Vec<usize>>,
}

/// Gradients that the ranks have exchanged, and the order in which this one computed its buckets.
struct Exchanged {
    flat: Vec<f32>,
    arrivals: Vec<usize>,
}

impl GradientExchange {
    pub fn new(ranks: DataParallel, buckets: Vec<Range<usize>>) -> GradientExchange {
        GradientExchange { ranks, buckets, order: None }
    }

    pub fn buckets(&self) -> &[Range<usize>] {
        &self.buckets
    }

    /// Runs `compute`, which passes the gradients of each bucket on as soon as they are computed.
    /// Returns its result and the flat gradients, added to `accumulated` and summed over all ranks;
    /// if the optimizer is sharded, only the part of this rank is. The sums do not depend on the
    /// buckets.
    pub fn run<R>(
        &mut self,
        accumulated: Option<Vec<f32>>,
        compute: impl FnOnce(&mut ReceiveBucket<'_>) -> Result<R>,
    ) -> Result<(R, Vec<f32>)> {
        let (sender, receiver) = mpsc::channel();
        let (computed, exchanged) = std::thread::scope(|scope| {
            let exchange = || self.exchange(accumulated, receiver);
            let thread = std::thread::Builder::new().name("bornite-gradients".into()).spawn_scoped(scope, exchange);
            let thread = thread.map_err(|error| Error::config(format!("cannot start a thread: {error}")))?;
            let computed = compute(&mut |bucket, value| {
                // A receiver that is gone has failed: its error is returned below.
                let _ = sender.send((bucket, value));
            });
            drop(sender);
            let exchanged = thread.join().unwrap_or_else(|_| Err(Error::config("a thread panicked")));
            Ok::<_, Error>((computed, exchanged))
        })?;
        let (computed, Exchanged { flat, arrivals }) = (computed?, exchanged?);
        if self.order.is_none() {
            let mut order: Vec<u64> = arrivals.iter().map(|bucket| *bucket as u64).collect();
            self.ranks.broadcast(&mut order)?;
            self.order = Some(order.into_iter().map(|bucket| bucket as usize).collect());
        }
        Ok((computed, flat))
    }

    /// Sums buckets over all ranks as they arrive. If not all do, the computation has failed.
    fn exchange(
        &self,
        accumulated: Option<Vec<f32>>,
        receiver: mpsc::Receiver<(usize, HostValue)>,
    ) -> Result<Exchanged> {
        let total = self.buckets.last().map_or(0, |bucket| bucket.end);
        let is_accumulated = accumulated.is_some();
        let mut flat = accumulated.unwrap_or_else(|| vec![0.0; total]);
        let mut waiting: Vec<Option<Vec<f32>>> = vec![None; self.buckets.len()];
        let mut order = (0..self.buckets.len()).map(|n| self.order.as_ref().map_or(n, |order| order[n])).peekable();
        let mut arrivals = vec![];
        for (bucket, value) in receiver {
            arrivals.push(bucket);
            waiting[bucket] = Some(to_f32(&value)?);
            while let Some(values) = order.peek().and_then(|next| waiting[*next].take()) {
                let Some(range) = order.next().map(|next| self.buckets[next].clone()) else { break };
                let sums = &mut flat[range.clone()];
                match is_accumulated {
                    true => sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
                    false => sums.copy_from_slice(&values),
                }
                match self.ranks.shards_optimizer() {
                    true => self.ranks.reduce_scatter_slice(sums, range.start, total)?,
                    false => self.ranks.all_reduce(sums)?,
                }
            }
        }
        Ok(Exchanged { flat, arrivals })
    }
}

fn to_f32(value: &HostValue) -> Result<Vec<f32>> {
    Ok(match value.dtype() {
        DType::BF16 => value.to_vec::<half::bf16>()?.into_iter().map(f32::from).collect(),
        DType::F16 => value.to_vec::<half::f16>()?.into_iter().map(f32::from).collect(),
        _ => value.to_vec::<f32>()?,
    })
}
