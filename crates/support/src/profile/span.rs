//! Profiled work: description, device and times.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

use super::now_ms;
use crate::Result;

/// Kind of work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// A kernel.
    Kernel,
    /// A launch of a complete CUDA graph.
    Graph,
    /// Copy from the host to a device.
    Upload,
    /// Copy from a device to the host.
    Download,
    /// Copy within a device.
    Copy,
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkKind::Kernel => "kernel",
            WorkKind::Graph => "graph",
            WorkKind::Upload => "upload",
            WorkKind::Download => "download",
            WorkKind::Copy => "copy",
        })
    }
}

/// Unit that executes the floating-point operations of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeUnit {
    /// Scalar or SIMD units.
    #[default]
    Cores,
    /// Tensor cores with 16-bit inputs.
    TensorCores,
    /// Tensor cores with f32 inputs, rounded to TF32.
    TensorCoresTf32,
}

/// Description of work on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Kind.
    pub kind: WorkKind,
    /// Name of the kernel, or of the copied data.
    pub name: String,
    /// Minimum memory traffic in bytes: each buffer once for reading, once for writing.
    pub bytes: Option<u64>,
    /// Floating-point operations.
    pub flops: Option<u64>,
    /// Unit that executes them.
    pub unit: ComputeUnit,
    /// Source location in the user's program.
    pub location: Option<String>,
}

impl Work {
    /// Creates a description with a kind and a name.
    pub fn new(kind: WorkKind, name: impl Into<String>) -> Work {
        Work { kind, name: name.into(), bytes: None, flops: None, unit: ComputeUnit::Cores, location: None }
    }

    /// Sets the bytes read and written.
    pub fn bytes(self, bytes: u64) -> Work {
        Work { bytes: Some(bytes), ..self }
    }

    /// Sets the number of floating-point operations.
    pub fn flops(self, flops: u64) -> Work {
        Work { flops: Some(flops), ..self }
    }

    /// Sets the unit that executes the floating-point operations.
    pub fn unit(self, unit: ComputeUnit) -> Work {
        Work { unit, ..self }
    }

    /// Sets the source location.
    pub fn location(self, location: impl fmt::Display) -> Work {
        Work { location: Some(location.to_string()), ..self }
    }
}

/// Start and duration of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// Start, on the axis of [`now_ms`].
    pub start_ms: f64,
    /// Duration in milliseconds.
    pub duration_ms: f64,
}

/// A measurement in progress.
pub trait Stopwatch: Send {
    /// Ends the measurement, in stream order.
    fn stop(&mut self) -> Result<()>;

    /// Waits for the work and returns its times.
    fn times(&mut self) -> Result<Times>;
}

/// Starts time measurements on one device.
pub trait Clock {
    /// The device's name, such as `cuda:0`.
    fn device(&self) -> String;

    /// Starts a measurement; `None` where none is possible, such as during stream capture.
    fn start(&self) -> Result<Option<Box<dyn Stopwatch>>>;

    /// Memory use of the device, if it is time for another sample.
    fn memory(&self) -> Option<MemorySample> {
        None
    }
}

/// Memory use of a device at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemorySample {
    /// The device.
    pub device: String,
    /// Time of the sample, on the axis of [`now_ms`].
    pub at_ms: f64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes reserved by a pool, used or not.
    pub reserved_bytes: Option<u64>,
}

/// Work submitted to a device, with its time measurement.
pub struct ProfileSpan {
    /// The device.
    pub device: String,
    /// The work.
    pub work: Work,
    state: Mutex<State>,
}

enum State {
    Pending(Box<dyn Stopwatch>),
    Done(Result<Times>),
}

impl ProfileSpan {
    pub(super) fn new(device: String, work: Work, stopwatch: Box<dyn Stopwatch>) -> ProfileSpan {
        ProfileSpan { device, work, state: Mutex::new(State::Pending(stopwatch)) }
    }

    /// Returns the times; the first call waits for the work.
    pub fn times(&self) -> Result<Times> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let times = match &mut *state {
            State::Done(times) => return times.clone(),
            State::Pending(stopwatch) => stopwatch.times(),
        };
        *state = State::Done(times.clone()); // drops the stopwatch, which returns its events
        times
    }
}

/// Wall clock, for devices whose work is finished when the call returns.
#[derive(Clone, Copy, Debug)]
pub struct HostClock<'a>(pub &'a str);

struct HostStopwatch {
    start_ms: f64,
    started: Instant,
    duration_ms: f64,
}

impl Clock for HostClock<'_> {
    fn device(&self) -> String {
        self.0.into()
    }

    fn start(&self) -> Result<Option<Box<dyn Stopwatch>>> {
        Ok(Some(Box::new(HostStopwatch { start_ms: now_ms(), started: Instant::now(), duration_ms: 0.0 })))
    }

    fn memory(&self) -> Option<MemorySample> {
        static NEXT: Mutex<f64> = Mutex::new(0.0);
        let at_ms = now_ms();
        {
            // Reading /proc takes microseconds; one sample per millisecond is enough.
            let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
            if at_ms < *next {
                return None;
            }
            *next = at_ms + 1.0;
        }
        let text = std::fs::read_to_string("/proc/self/statm").ok()?;
        let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
        let used_bytes = pages * rustix::param::page_size() as u64;
        Some(MemorySample { device: self.device(), at_ms, used_bytes, reserved_bytes: None })
    }
}

impl Stopwatch for HostStopwatch {
    fn stop(&mut self) -> Result<()> {
        self.duration_ms = self.started.elapsed().as_secs_f64() * 1e3;
        Ok(())
    }

    fn times(&mut self) -> Result<Times> {
        Ok(Times { start_ms: self.start_ms, duration_ms: self.duration_ms })
    }
}
