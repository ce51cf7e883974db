//! The profiler: times of kernels and transfers with the source line that caused them, and memory
//! use.
//!
//! Disabled, it costs one relaxed load per launch. A [`scope`] records until it is dropped or asked
//! for its [`ProfileReport`]: a table, JSON, or a trace for Perfetto. `BORNITE_PROFILE=print` or
//! [`set_print`] prints a line per kernel instead.
//!
//! Code that launches work calls [`timed`] with a [`Clock`]: the wall clock for work on the host
//! ([`HostClock`]), driver events for a GPU (`bornite-cuda`). Events are read only when the report
//! is created, so the profiler does not wait for the GPU in between. Every registered [`Sink`]
//! receives the [`ProfileSpan`]; the sink of a scope is in `recorder.rs`.
//!
//! ```
//! use bornite_support::profile::{self, HostClock, Work, WorkKind};
//! let scope = profile::scope();
//! profile::timed(&HostClock("cpu"), || Work::new(WorkKind::Kernel, "square").bytes(8000), || std::hint::black_box(3 * 3));
//! let report = scope.finish();
//! assert_eq!(report.rows[0].name, "square");
//! assert_eq!(report.rows[0].calls, 1);
//! println!("{report}");
//! ```

mod chrome;
mod recorder;
mod report;
mod roofline;
mod span;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

pub use recorder::ProfileScope;
pub use report::{Compilation, FORMAT_VERSION, ProfileReport, ReportRow, TimedSpan};
pub use roofline::{Bound, Roofline};
pub use span::{Clock, ComputeUnit, HostClock, MemorySample, ProfileSpan, Stopwatch, Times, Work, WorkKind};

use crate::settings::{PROFILE_VARIABLE, parse_choice, read};

/// Receives everything that is profiled while it is registered.
pub trait Sink: Send + Sync {
    /// Work was submitted to a device. Its times may not be known yet: [`ProfileSpan::times`] waits
    /// for them.
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
/// The environment has not been read yet.
const UNREAD: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNREAD);
static SINKS: RwLock<Vec<(u64, Arc<dyn Sink>)>> = RwLock::new(Vec::new());

/// Returns true if a sink is registered.
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
    // An invalid value is reported by `check_environment`; here it counts as unset.
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

/// Fails if `BORNITE_PROFILE` has an invalid value.
pub fn check_environment() -> crate::Result<()> {
    print_from_environment().map(drop)
}

/// Calls `run` and, if a sink is registered, times it with `clock`. `describe` is called only in
/// that case.
#[inline]
pub fn timed<R>(clock: &dyn Clock, describe: impl FnOnce() -> Work, run: impl FnOnce() -> R) -> R {
    if !is_enabled() {
        return run();
    }
    timed_for_sinks(clock, describe(), run)
}

#[cold]
fn timed_for_sinks<R>(clock: &dyn Clock, work: Work, run: impl FnOnce() -> R) -> R {
    // If the device cannot be timed, the work still runs; its own error, if any, is the one to
    // report.
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

/// Records that a kernel was compiled, and the duration.
pub fn record_compilation(kernel: &str, arch: &str, duration_ms: f64) {
    if is_enabled() {
        let at_ms = now_ms() - duration_ms;
        let compilation = Compilation { kernel: kernel.into(), arch: arch.into(), at_ms, duration_ms };
        sinks().iter().for_each(|sink| sink.compilation(&compilation));
    }
}

/// Starts recording on all threads, until the scope is dropped.
pub fn scope() -> ProfileScope {
    ProfileScope::new()
}

/// Registers `sink` until the returned guard is dropped.
#[must_use = "the sink is unregistered when this is dropped"]
pub fn add_sink(sink: Arc<dyn Sink>) -> SinkGuard {
    static NEXT: Mutex<u64> = Mutex::new(0);
    let id = {
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        *next
    };
    is_enabled(); // reads the environment once, before this sink changes the state
    let mut sinks = SINKS.write().unwrap_or_else(PoisonError::into_inner);
    sinks.push((id, sink));
    STATE.store(ENABLED, Ordering::Relaxed);
    SinkGuard(id)
}

/// Unregisters its sink when dropped.
pub struct SinkGuard(u64);

impl Drop for SinkGuard {
    fn drop(&mut self) {
        let mut sinks = SINKS.write().unwrap_or_else(PoisonError::into_inner);
        let removed: Vec<_> = sinks.extract_if(.., |(id, _)| *id == self.0).collect();
        STATE.store(if sinks.is_empty() { 0 } else { ENABLED }, Ordering::Relaxed);
        drop(sinks);
        drop(removed); // without the lock: a sink may own spans of a device
    }
}

fn sinks() -> Vec<Arc<dyn Sink>> {
    SINKS.read().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, sink)| sink.clone()).collect()
}

/// Prints a line per kernel or transfer to stderr, such as `matmul_f32: 0.150 ms`.
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

/// Turns printing of the time of every kernel and transfer to stderr on or off. Each line waits for
/// the GPU.
pub fn set_print(on: bool) {
    static PRINTING: Mutex<Option<SinkGuard>> = Mutex::new(None);
    is_enabled(); // reads the environment, which may call this function, before the lock is held
    let before = {
        let mut printing = PRINTING.lock().unwrap_or_else(PoisonError::into_inner);
        if printing.is_some() == on {
            return;
        }
        std::mem::replace(&mut *printing, on.then(|| add_sink(Arc::new(Print))))
    };
    drop(before);
}

/// Milliseconds since the first call in this process; the time axis of the profiler.
pub fn now_ms() -> f64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    EPOCH.get_or_init(Instant::now).elapsed().as_secs_f64() * 1e3
}

/// Description of a device in reports.
pub struct DeviceSummary {
    /// Its name in spans, such as `cuda:0`.
    pub device: String,
    /// Its model name.
    pub name: String,
    /// Its properties as JSON.
    pub info: serde_json::Value,
    /// Peak memory bandwidth and arithmetic throughput.
    pub roofline: Roofline,
    /// Statistics of its memory pool, if that was used.
    pub pool: Option<serde_json::Value>,
}

/// Function that lists the machine's GPUs, for reports.
static DEVICES: OnceLock<fn() -> Vec<DeviceSummary>> = OnceLock::new();

/// Registers the function that lists the machine's GPUs for reports. Later calls have no effect.
pub fn set_device_lister(list: fn() -> Vec<DeviceSummary>) {
    let _ = DEVICES.set(list);
}

fn devices() -> Vec<DeviceSummary> {
    DEVICES.get().map_or_else(Vec::new, |list| list())
}

/// Returns the statistics of a memory pool while that exists.
type PoolStatsFn = dyn Fn() -> Option<serde_json::Value> + Send + Sync;

/// Further pools to include in reports, by device name.
static REGISTERED_POOLS: RwLock<Vec<(String, Box<PoolStatsFn>)>> = RwLock::new(Vec::new());

/// Includes the statistics of a memory pool in reports until `stats` returns `None`. Pools of GPUs
/// are included anyway.
pub fn register_pool(device: impl Into<String>, stats: impl Fn() -> Option<serde_json::Value> + Send + Sync + 'static) {
    let mut pools = REGISTERED_POOLS.write().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|(_, stats)| stats().is_some());
    pools.push((device.into(), Box::new(stats)));
}

/// Statistics of all pools: those of GPUs and the registered ones.
fn pool_stats(devices: &[DeviceSummary]) -> BTreeMap<String, serde_json::Value> {
    let pools = REGISTERED_POOLS.read().unwrap_or_else(PoisonError::into_inner);
    let watched = pools.iter().filter_map(|(device, stats)| Some((device.clone(), stats()?)));
    let gpus = devices.iter().filter_map(|gpu| Some((gpu.device.clone(), gpu.pool.clone()?)));
    watched.chain(gpus).collect()
}
