//! The profiler: how long kernels and transfers take, on which line of the program, and what memory does meanwhile.
//!
//! Off, it costs one relaxed load a launch. A [`scope`] records until it is dropped or asked for its [`ProfileReport`]: a
//! table, JSON, a trace for Perfetto. `BORNITE_PROFILE=print` or [`set_print`] writes a line a kernel instead.
//!
//! Whoever launches work calls [`timed`] with a [`Clock`]: the wall clock for work of the host ([`HostClock`]), events
//! for a GPU (`bornite-cuda`), read only when the report is made, so that the GPU is never waited for in between. Every
//! [`Sink`] that listens is given the [`ProfileSpan`]; the scope's is `recorder.rs`, tests bring their own.
//!
//! ```
//! use bornite_support::profile::{self, HostClock, Kind, Work};
//! let scope = profile::scope();
//! profile::timed(&HostClock("cpu"), || Work::new(Kind::Kernel, "square").bytes(8000), || std::hint::black_box(3 * 3));
//! let report = scope.finish();
//! assert_eq!(report.rows[0].name, "square");
//! assert_eq!(report.rows[0].calls, 1);
//! println!("{report}");
//! ```

mod chrome;
mod recorder;
mod report;
mod span;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

pub use recorder::ProfileScope;
pub use report::{Compilation, FORMAT_VERSION, ProfileReport, ReportRow, Roofline, TimedSpan};
pub use span::{Clock, HostClock, MemorySample, ProfileSpan, Stopwatch, Times, Work, WorkKind};

use crate::settings::{PROFILE_VARIABLE, parse_choice, read};

/// Is told of everything while it listens.
pub trait Sink: Send + Sync {
    /// Work was given to a device. Its times may not be known yet: [`ProfileSpan::times`] waits for them.
    fn span(&self, span: &Arc<ProfileSpan>);

    /// A kernel was compiled.
    fn compilation(&self, compilation: &Compilation) {
        let _ = compilation;
    }

    /// Memory use of a device.
    fn memory(&self, sample: &MemorySample) {
        let _ = sample;
    }
}

const ENABLED: u8 = 1;
/// The environment has not been asked yet.
const UNREAD: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNREAD);
static SINKS: RwLock<Vec<(u64, Arc<dyn Sink>)>> = RwLock::new(Vec::new());

/// Whether anybody listens.
#[inline]
pub fn is_enabled() -> bool {
    match STATE.load(Ordering::Relaxed) {
        0 => false,
        ENABLED => true,
        _ => read_environment(),
    }
}

#[cold]
fn read_environment() -> bool {
    // A bad value is told by `check_environment`; here it counts as none.
    let print = print_from_environment().unwrap_or(false);
    let _ = STATE.compare_exchange(UNREAD, 0, Ordering::Relaxed, Ordering::Relaxed);
    if print {
        set_print(true);
    }
    !sinks().is_empty()
}

fn print_from_environment() -> crate::Result<bool> {
    read(PROFILE_VARIABLE, false, |value| parse_choice(value, &[("off", false), ("print", true)]))
}

/// Fails where `BORNITE_PROFILE` cannot be read.
pub fn check_environment() -> crate::Result<()> {
    print_from_environment().map(drop)
}

/// Runs `run` and, while anybody listens, has it timed by `clock`. `describe` is called only then.
#[inline]
pub fn timed<R>(clock: &dyn Clock, describe: impl FnOnce() -> Work, run: impl FnOnce() -> R) -> R {
    if !is_enabled() {
        return run();
    }
    timed_for_sinks(clock, describe(), run)
}

#[cold]
fn timed_for_sinks<R>(clock: &dyn Clock, work: Work, run: impl FnOnce() -> R) -> R {
    // Where the device cannot be timed, the work goes on untimed; its own error, if any, is the one to see.
    let Ok(Some(mut stopwatch)) = clock.start() else { return run() };
    let result = run();
    if stopwatch.stop().is_ok() {
        let span = Arc::new(ProfileSpan::new(clock.device(), work, stopwatch));
        for sink in sinks() {
            sink.span(&span);
        }
        if let Some(sample) = clock.memory() {
            sinks().iter().for_each(|sink| sink.memory(&sample));
        }
    }
    result
}

/// Tells that a kernel was compiled, and how long that took.
pub fn record_compilation(kernel: &str, arch: &str, duration_ms: f64) {
    if is_enabled() {
        let at_ms = now_ms() - duration_ms;
        let compilation = Compilation { kernel: kernel.into(), arch: arch.into(), at_ms, duration_ms };
        sinks().iter().for_each(|sink| sink.compilation(&compilation));
    }
}

/// Records everything, on all threads, until the scope is dropped.
pub fn scope() -> ProfileScope {
    ProfileScope::new()
}

/// Has `sink` told of everything until the guard is dropped.
#[must_use = "the sink listens as long as this lives"]
pub fn add_sink(sink: Arc<dyn Sink>) -> SinkGuard {
    static NEXT: Mutex<u64> = Mutex::new(0);
    let id = {
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        *next
    };
    is_enabled(); // asks the environment once, before this sink changes the state
    let mut sinks = SINKS.write().unwrap_or_else(PoisonError::into_inner);
    sinks.push((id, sink));
    STATE.store(ENABLED, Ordering::Relaxed);
    SinkGuard(id)
}

/// Keeps a sink listening.
pub struct SinkGuard(u64);

impl Drop for SinkGuard {
    fn drop(&mut self) {
        let mut sinks = SINKS.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = sinks.extract_if(.., |(id, _)| *id == self.0).collect();
        STATE.store(if sinks.is_empty() { 0 } else { ENABLED }, Ordering::Relaxed);
        drop(sinks);
        drop(gone); // without the lock: a sink may own spans of a device
    }
}

fn sinks() -> Vec<Arc<dyn Sink>> {
    SINKS.read().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, sink)| sink.clone()).collect()
}

/// Writes a line a kernel or transfer to stderr, such as `matmul_f32: 0.150 ms`.
struct Print;

impl Sink for Print {
    fn span(&self, span: &Arc<ProfileSpan>) {
        let time = match span.times() {
            Ok(times) => format!("{:.3} ms", times.duration_ms),
            Err(error) => format!("not timed: {error}"),
        };
        let location = span.work.location.as_ref().map_or(String::new(), |location| format!("  {location}"));
        crate::progress::print_line(&format!("{}: {time}  {}{location}", span.work.name, span.device));
    }
}

/// Has the time of every kernel and transfer printed to stderr from now on, or not any more. The GPU is waited for
/// each time.
pub fn set_print(on: bool) {
    static PRINTING: Mutex<Option<SinkGuard>> = Mutex::new(None);
    is_enabled(); // asks the environment, which may come back here, before the lock is held
    let before = {
        let mut printing = PRINTING.lock().unwrap_or_else(PoisonError::into_inner);
        if printing.is_some() == on {
            return;
        }
        std::mem::replace(&mut *printing, on.then(|| add_sink(Arc::new(Print))))
    };
    drop(before);
}

/// Milliseconds since the process first asked: the axis of all times here.
pub fn now_ms() -> f64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    EPOCH.get_or_init(Instant::now).elapsed().as_secs_f64() * 1e3
}

/// A device in reports.
pub struct DeviceSummary {
    /// Its name in spans, such as `cuda:0`.
    pub device: String,
    /// Its model name.
    pub name: String,
    /// Its data as JSON.
    pub info: serde_json::Value,
    /// The best that it can do.
    pub roofline: Roofline,
    /// Counts of its memory pool, once that was used.
    pub pool: Option<serde_json::Value>,
}

/// Lists the devices of a machine that spans can name, for reports.
static DEVICES: OnceLock<fn() -> Vec<DeviceSummary>> = OnceLock::new();

/// Has reports ask `list` for the machine's GPUs. The first call decides.
pub fn set_device_lister(list: fn() -> Vec<DeviceSummary>) {
    let _ = DEVICES.set(list);
}

fn devices() -> Vec<DeviceSummary> {
    DEVICES.get().map_or_else(Vec::new, |list| list())
}

/// The counts of a memory pool, as long as that lives.
type PoolStatsFn = dyn Fn() -> Option<serde_json::Value> + Send + Sync;

/// Further pools whose counts belong into reports, by a name.
static REGISTERED_POOLS: RwLock<Vec<(String, Box<PoolStatsFn>)>> = RwLock::new(Vec::new());

/// Has the counts of a memory pool in reports, until they are `None`. Those of GPUs are there anyway.
pub fn register_pool(device: impl Into<String>, stats: impl Fn() -> Option<serde_json::Value> + Send + Sync + 'static) {
    let mut pools = REGISTERED_POOLS.write().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|(_, stats)| stats().is_some());
    pools.push((device.into(), Box::new(stats)));
}

/// The counts of all pools: those of GPUs, and those that are watched.
fn pool_stats(devices: &[DeviceSummary]) -> BTreeMap<String, serde_json::Value> {
    let pools = REGISTERED_POOLS.read().unwrap_or_else(PoisonError::into_inner);
    let watched = pools.iter().filter_map(|(device, stats)| Some((device.clone(), stats()?)));
    let gpus = devices.iter().filter_map(|gpu| Some((gpu.device.clone(), gpu.pool.clone()?)));
    watched.chain(gpus).collect()
}
