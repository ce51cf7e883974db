//! Timing of one op: many calls and one synchronization per sample, with rotated inputs.
//!
//! A sample of one short call would measure the clock and the synchronization; a sample that
//! repeats one input would measure the cache. [`measure`] avoids the first and [`rotations`] the
//! second. Statistics are in `measurement.rs`.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::Measurement;

/// Minimum number of samples, for meaningful quartiles.
const MIN_SAMPLES: usize = 3;

/// Maximum number of calls per sample.
const MAX_INNER: usize = 1 << 24;

/// Measurement settings. Times are finite, so that a report can be parsed again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Untimed calls before the measurement; at least one, which may compile kernels.
    pub warmup: usize,
    /// Number of samples; at least three are taken.
    pub samples: usize,
    /// A sample repeats the op until it lasts this long, or a third of `max_total_ms` if that is
    /// less.
    pub min_sample_ms: f64,
    /// No sample past the third begins if it would end later than this. Warm-up is counted apart
    /// and stops when it alone has taken this long.
    pub max_total_ms: f64,
}

impl Default for Config {
    /// For published results: up to three seconds per op.
    fn default() -> Self {
        Self { warmup: 5, samples: 31, min_sample_ms: 5.0, max_total_ms: 3_000.0 }
    }
}

impl Config {
    /// For a quick look and for tests: up to 0.2 seconds per op.
    pub fn quick() -> Self {
        Self { warmup: 2, samples: 9, min_sample_ms: 1.0, max_total_ms: 200.0 }
    }
}

/// Number of input sets, from 1 to 64, that together exceed four times the cache.
///
/// ```
/// use bornite_bench::rotations;
/// assert_eq!(rotations(16 << 20, 60 << 20), 16); // 256 MiB, past 240
/// assert_eq!(rotations(1 << 30, 60 << 20), 1); // one set flushes the cache by itself
/// ```
pub fn rotations(bytes_per_set: usize, cache_bytes: usize) -> usize {
    const CACHES: usize = 4;
    const MAX_SETS: usize = 64;
    match cache_bytes.saturating_mul(CACHES).checked_div(bytes_per_set) {
        Some(sets_that_fit) => sets_that_fit.saturating_add(1).min(MAX_SETS),
        None => MAX_SETS,
    }
}

/// Times `op`, which may be asynchronous, until `synchronise` returns.
///
/// `op` receives the index of the call, warm-up included: take it modulo the number of input sets.
/// The first error of either closure ends the measurement and is returned.
pub fn measure<E>(
    config: &Config,
    op: impl FnMut(usize) -> Result<(), E>,
    synchronise: impl FnMut() -> Result<(), E>,
) -> Result<Measurement, E> {
    let origin = Instant::now();
    measure_by(|| origin.elapsed().as_secs_f64() * 1e3, config, op, synchronise)
}

/// [`measure`] with an injected clock, for tests.
fn measure_by<E>(
    now_ms: impl Fn() -> f64,
    config: &Config,
    mut op: impl FnMut(usize) -> Result<(), E>,
    mut synchronise: impl FnMut() -> Result<(), E>,
) -> Result<Measurement, E> {
    let mut index = 0_usize;
    let mut time_ms = |calls: usize| -> Result<f64, E> {
        let start = now_ms();
        for _ in 0..calls {
            op(index)?;
            index = index.wrapping_add(1);
        }
        synchronise()?;
        Ok(now_ms() - start)
    };

    let mut warmup_ms = 0.0;
    for _ in 0..config.warmup.max(1) {
        warmup_ms += time_ms(1)?;
        if warmup_ms >= config.max_total_ms {
            break;
        }
    }

    let target_ms = config.min_sample_ms.min(config.max_total_ms / MIN_SAMPLES as f64);
    let mut inner = 1;
    let mut sample_ms = time_ms(inner)?;
    let mut total_ms = sample_ms;
    while sample_ms < target_ms && inner < MAX_INNER {
        inner = grow(inner, sample_ms, target_ms);
        sample_ms = time_ms(inner)?;
        total_ms += sample_ms;
    }

    let mut call_ms = Vec::new();
    while call_ms.len() < MIN_SAMPLES || (call_ms.len() < config.samples && total_ms + sample_ms <= config.max_total_ms)
    {
        sample_ms = time_ms(inner)?;
        total_ms += sample_ms;
        call_ms.push(sample_ms / inner as f64);
    }
    Ok(Measurement::of_samples(call_ms, inner))
}

/// Next number of calls to try if `inner` calls took `sample_ms`, less than `target_ms`.
///
/// At most ten times more, since a first call is mostly launch and synchronization. 20 % is added
/// so that jitter does not fall below the target.
fn grow(inner: usize, sample_ms: f64, target_ms: f64) -> usize {
    let factor = (1.2 * target_ms / sample_ms).min(10.0); // a clock that stood still gives 10
    ((inner as f64 * factor).ceil() as usize).clamp(inner + 1, MAX_INNER)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, convert::Infallible};

    use super::*;

    const CONFIG: Config = Config { warmup: 2, samples: 10, min_sample_ms: 5.0, max_total_ms: 1_000.0 };

    /// Record of a measurement of an op with fixed call and synchronization times.
    struct Fake {
        measurement: Measurement,
        indices: Vec<usize>,
        synchronisations: usize,
        total_ms: f64,
    }

    fn fake(config: &Config, op_ms: f64, synchronise_ms: f64) -> Fake {
        let (clock, mut indices, mut synchronisations) = (Cell::new(0.0), vec![], 0);
        let measured = measure_by(
            || clock.get(),
            config,
            |i| {
                indices.push(i);
                clock.set(clock.get() + op_ms);
                Ok::<(), Infallible>(())
            },
            || {
                synchronisations += 1;
                clock.set(clock.get() + synchronise_ms);
                Ok(())
            },
        );
        let Ok(measurement) = measured;
        Fake { measurement, indices, synchronisations, total_ms: clock.get() }
    }

    #[test]
    fn a_sample_lasts_at_least_the_minimum() {
        for (op_ms, synchronise_ms) in [(0.001, 0.0), (0.001, 0.02), (0.3, 0.0), (4.9, 1.0)] {
            let got = fake(&CONFIG, op_ms, synchronise_ms).measurement;
            let sample_ms = got.median_ms * got.inner as f64;
            assert!(sample_ms >= CONFIG.min_sample_ms, "{op_ms}: a sample of {sample_ms} ms");
            assert!(sample_ms < 2.0 * CONFIG.min_sample_ms, "{op_ms}: a sample of {sample_ms} ms");
            assert_eq!(got.samples, CONFIG.samples);
        }
    }

    #[test]
    fn a_long_op_runs_once_a_sample() {
        let got = fake(&CONFIG, 8.0, 0.0);
        assert_eq!((got.measurement.inner, got.measurement.samples), (1, 10));
        assert_eq!(got.indices, (0..2 + 1 + 10).collect::<Vec<_>>());
        assert_eq!(got.synchronisations, got.indices.len());
    }

    #[test]
    fn synchronises_once_a_sample_and_counts_on() {
        let got = fake(&CONFIG, 0.375, 0.0);
        assert_eq!(got.measurement.inner, 16); // 1, ten times that, then 1.2 of the target
        assert_eq!(got.indices, (0..2 + 1 + 10 + 16 + 10 * 16).collect::<Vec<_>>());
        assert_eq!(got.synchronisations, 2 + 3 + 10);
    }

    #[test]
    fn the_time_limit_cuts_samples_but_leaves_three() {
        let limit = |max_total_ms| Config { max_total_ms, ..CONFIG };
        let cut = fake(&limit(70.0), 10.0, 0.0);
        assert_eq!(cut.measurement.samples, 6); // and one to choose `inner`
        assert_eq!(cut.total_ms, 20.0 + 70.0);
        assert_eq!(fake(&limit(1.0), 10.0, 0.0).measurement.samples, 3);
        assert_eq!(fake(&limit(1.0), 10.0, 0.0).total_ms, 10.0 * (1 + 1 + 3) as f64);
        assert!(fake(&limit(3.0), 0.001, 0.0).total_ms < 6.0, "a sample is a third of the limit");
    }

    #[test]
    fn odd_configurations_still_measure() {
        let zero = Config { warmup: 0, samples: 0, min_sample_ms: 0.0, max_total_ms: 0.0 };
        let nan = Config { min_sample_ms: f64::NAN, max_total_ms: f64::NAN, ..CONFIG };
        for config in [zero, nan] {
            assert_eq!(fake(&config, 1.0, 0.0).measurement.samples, 3);
        }
        let frozen = measure_by(|| 0.0, &CONFIG, |_| Ok::<(), Infallible>(()), || Ok(()));
        assert_eq!(frozen.unwrap().inner, MAX_INNER);
    }

    #[test]
    fn errors_come_back_at_once() {
        let op = |i| if i == 4 { Err("op failed") } else { Ok(()) };
        assert_eq!(measure(&CONFIG, op, || Ok(())), Err("op failed"));
        assert_eq!(measure(&CONFIG, |_| Ok(()), || Err("lost device")), Err("lost device"));
    }

    #[test]
    fn rotations_exceed_four_caches() {
        let cases = [
            (1 << 20, 1 << 20, 5),
            ((4 << 20) + 1, 1 << 20, 1),
            (4 << 20, 1 << 20, 2),
            (12_000, 60 << 20, 64),
            (1, 0, 1),
            (0, 1 << 20, 64),
            (usize::MAX, usize::MAX, 2),
        ];
        for (bytes_per_set, cache_bytes, expected) in cases {
            assert_eq!(rotations(bytes_per_set, cache_bytes), expected, "{bytes_per_set}");
        }
    }
}
