//! Timing of training steps on the code path of [`run`](super::run()): data, transfers, steps and
//! metrics, without evaluations, samples and checkpoints.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use bornite::Device;
use bornite_support::profile::{self, ProfileReport};
use bornite_support::tune::Tuner;

use super::config::RunConfig;
use super::metrics::StepMetrics;
use super::observer::{Observer, RunInfo, TrainEvent};
use super::prepare::prepare;
use crate::error::located;
use crate::{Error, Result};

/// Times of training steps; see [`benchmark_steps`].
#[derive(Debug)]
pub struct StepBenchmark {
    /// Facts about the run.
    pub info: RunInfo,
    /// Time of the first step, with compilation and tuning.
    pub first_step_seconds: f64,
    /// Metrics of the steps after the warm-up.
    pub steps: Vec<StepMetrics>,
    /// Peak of the memory allocated on the device; known for GPUs.
    pub peak_bytes: Option<u64>,
    /// Profile of one more step.
    pub profile: ProfileReport,
}

impl StepBenchmark {
    /// Durations of the timed steps in milliseconds.
    pub fn step_ms(&self) -> Vec<f64> {
        let tokens = self.info.tokens_per_step as f64;
        self.steps.iter().filter_map(|step| Some(tokens / step.tokens_per_second? * 1e3)).collect()
    }
}

/// Runs `warmup` steps of a new run in `folder`, at least one, then times `train.steps` more, and
/// profiles another one. The run is not saved. A stop returns [`ErrorKind::Stopped`](crate::ErrorKind::Stopped).
#[track_caller]
pub fn benchmark_steps(
    config: &RunConfig,
    warmup: u64,
    folder: &Path,
    device: Device,
    observer: &mut dyn Observer,
) -> Result<StepBenchmark> {
    located(|| {
        let _sealed = Tuner::global().map_err(bornite::Error::from)?.ignore_disk();
        // One step is profiled.
        let more_steps = warmup.max(1).saturating_add(1);
        let mut recorder = Recorder { observer, more_steps, info: None, steps: vec![] };
        let mut run = prepare(config, folder, device, false, None, &mut recorder)?;
        let Some(info) = recorder.info.take() else { return Err(Error::config("the run did not begin")) };
        let (timed, last) = (info.steps, info.steps.saturating_add(more_steps));
        let started = Instant::now();
        let mut first_step_seconds = 0.0;
        for step in 1..last {
            if recorder.should_stop() || !run.step(last, &mut recorder)? {
                return Err(Error::stopped());
            }
            if step == 1 {
                run.finish_unread(Instant::now(), None, &mut recorder)?;
                first_step_seconds = started.elapsed().as_secs_f64();
            }
        }
        device.synchronize()?;
        run.finish_unread(Instant::now(), None, &mut recorder)?;
        let peak_bytes = match device.is_cuda() {
            true => Some(device.pool()?.stats().peak_allocated),
            false => None,
        };
        let steps = recorder.steps.split_off(recorder.steps.len().saturating_sub(timed as usize));
        let scope = profile::scope();
        let profiled = run.step(last, &mut recorder)?;
        run.finish_unread(Instant::now(), None, &mut recorder)?;
        if !profiled {
            return Err(Error::stopped());
        }
        Ok(StepBenchmark { info, first_step_seconds, steps, peak_bytes, profile: scope.finish() })
    })
}

/// Forwards events and keeps the facts about the run and the metrics of its steps.
struct Recorder<'a> {
    observer: &'a mut dyn Observer,
    /// Steps that are not timed.
    more_steps: u64,
    info: Option<RunInfo>,
    steps: Vec<StepMetrics>,
}

impl Observer for Recorder<'_> {
    fn on_event(&mut self, event: TrainEvent<'_>) {
        if let TrainEvent::Begin(info) = event {
            self.info = Some(info.clone());
            let all = RunInfo { steps: info.steps.saturating_add(self.more_steps), ..info.clone() };
            return self.observer.on_event(TrainEvent::Begin(&all));
        }
        if let TrainEvent::Step(metrics) = event {
            self.steps.push(*metrics);
        }
        self.observer.on_event(event);
    }

    fn should_stop(&self) -> bool {
        self.observer.should_stop()
    }

    fn interrupt_flag(&self) -> Option<Arc<AtomicBool>> {
        self.observer.interrupt_flag()
    }
}
