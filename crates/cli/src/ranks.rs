//! Ranks of a training job: processes that a launcher started, or threads of this process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bornite::Device;
use bornite_collective::{Communicator, LauncherRank, thread_ranks};
use bornite_nn::ErrorKind;
use bornite_nn::train::{DataParallel, Observer, RunConfig, RunSummary, TrainEvent, run, run_data_parallel};

use crate::signals::{STOPPED, Signals};
use crate::train::TrainOptions;
use crate::{Failure, note, parse_device, with_causes};

/// Time in which other ranks report an error before this one ends the job.
const REPORT_TIME: Duration = Duration::from_millis(300);

/// The rank of this process, if a launcher started several.
fn launcher() -> Result<Option<LauncherRank>, Failure> {
    Ok(LauncherRank::from_environment()?.filter(|launcher| launcher.size > 1))
}

/// Longest time that ranks wait for each other.
fn timeout(config: &RunConfig) -> Duration {
    Duration::try_from_secs_f64(config.train.rank_timeout.unwrap_or(60.0)).unwrap_or(Duration::MAX)
}

/// File by which ranks find each other: beside the run's folder, which does not exist yet.
fn rendezvous_file(out: &Path) -> PathBuf {
    match out.file_name() {
        Some(name) => out.with_file_name(format!(".{}.rendezvous", name.to_string_lossy())),
        None => out.join(".rendezvous"),
    }
}

/// The device of a process: that of the settings, or the GPU of its local rank. A launcher may show
/// each process its own GPU only.
fn device_of(config: &RunConfig, local_rank: usize) -> Result<Device, Failure> {
    let text = config.train.device.as_deref().unwrap_or("auto");
    match parse_device(text)? {
        device if device.is_cuda() && ["auto", "cuda"].contains(&text) => {
            let count = bornite_cuda::device_count().unwrap_or(1).max(1);
            Ok(format!("cuda:{}", local_rank % count).parse()?)
        }
        device => Ok(device),
    }
}

/// Result of a run.
pub struct Trained {
    pub summary: RunSummary,
    /// The rank that reports to the user.
    pub is_first: bool,
}

/// Trains on this process, or with the other processes of the job. An error of a job of several
/// ends this process.
pub fn train(config: &RunConfig, options: &TrainOptions, observer: &mut dyn Observer) -> Result<Trained, Failure> {
    let Some(launcher) = launcher()? else {
        let device = parse_device(config.train.device.as_deref().unwrap_or("auto"))?;
        let summary = run(config, &options.out, device, options.resume, observer)?;
        return Ok(Trained { summary, is_first: true });
    };
    let ranks = DataParallel::new(launcher.connect(&rendezvous_file(&options.out), timeout(config))?)?;
    let trained = device_of(config, launcher.local_rank.unwrap_or_else(|| ranks.local_rank()))
        .and_then(|device| Ok(run_data_parallel(config, &options.out, device, options.resume, &ranks, observer)?));
    trained.map(|summary| Trained { summary, is_first: ranks.rank() == 0 }).or_else(|error| {
        if is_stopped(&error) {
            return Err(error);
        }
        let rank = ranks.rank();
        // The rank that failed reports it, and rank 0, where users look.
        if rank == 0 || !is_reported(&*error) {
            note(&format!("error: rank {rank} of {}: {}", ranks.size(), with_causes(&*error)));
        }
        std::thread::sleep(REPORT_TIME);
        ranks.terminate(exit_code(&*error).into())
    })
}

/// Trains on several devices of this process, with a thread for each.
pub fn train_on(
    devices: &[String],
    config: &RunConfig,
    options: &TrainOptions,
    signals: &Signals,
    observer: &mut dyn Observer,
) -> Result<Trained, Failure> {
    if let Some(LauncherRank { launcher, size, .. }) = launcher()? {
        return Err(
            format!("--devices in a job of {size} processes ({launcher}): each process takes one --device").into()
        );
    }
    let devices = devices.iter().map(|text| parse_device(text)).collect::<Result<Vec<_>, _>>()?;
    let train = |transport, device, observer: &mut dyn Observer| {
        let communicator = Communicator::new(transport);
        communicator.set_timeout(timeout(config));
        let ranks = DataParallel::new(communicator)?;
        run_data_parallel(config, &options.out, device, options.resume, &ranks, observer)
    };
    let mut ranks = thread_ranks(devices.len()).into_iter().zip(devices);
    let Some((transport, device)) = ranks.next() else { return Err("--devices lists no device".into()) };
    let results = std::thread::scope(|scope| {
        let others: Vec<_> = ranks
            .map(|(transport, device)| {
                let mut observer = Follower(signals.clone());
                scope.spawn(move || train(transport, device, &mut observer))
            })
            .collect();
        let mut results = vec![train(transport, device, observer)];
        results.extend(others.into_iter().filter_map(|other| other.join().ok()));
        results
    });
    // The error of the rank that failed, rather than of those that it was reported to.
    let (mut summary, mut failure) = (None, None);
    for result in results {
        match result {
            Ok(first) => summary = summary.or(Some(first)),
            Err(error) if failure.is_none() || !is_reported(&error) => failure = Some(error),
            Err(_) => {}
        }
    }
    match (failure, summary) {
        (None, Some(summary)) => Ok(Trained { summary, is_first: true }),
        (Some(error), _) => Err(error.into()),
        (None, None) => Err("a rank panicked".into()),
    }
}

/// Returns true if a signal, to any rank, stopped a run before there was anything to save.
pub fn is_stopped(error: &Failure) -> bool {
    matches!(error.downcast_ref().map(bornite_nn::Error::kind), Some(ErrorKind::Stopped))
}

/// Returns true if another rank has reported the error.
fn is_reported(error: &(dyn std::error::Error + 'static)) -> bool {
    let kind = error.downcast_ref().map(bornite_nn::Error::kind);
    matches!(kind, Some(ErrorKind::Ranks { reported_by: Some(_), .. }))
}

/// Exit code of a job that ends by an error: that of one that can be resumed if a rank is lost.
fn exit_code(error: &(dyn std::error::Error + 'static)) -> u8 {
    match error.downcast_ref().map(bornite_nn::Error::kind) {
        Some(ErrorKind::Ranks { is_rank_lost: true, .. }) => STOPPED,
        Some(ErrorKind::Config(_)) => 2,
        _ => 1,
    }
}

/// The observer of a rank that reports nothing.
struct Follower(Signals);

impl Observer for Follower {
    fn on_event(&mut self, _: TrainEvent<'_>) {}

    fn should_stop(&self) -> bool {
        self.0.stop.load(std::sync::atomic::Ordering::Relaxed)
    }
}
