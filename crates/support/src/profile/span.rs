//! Records of the profiler: work, the device it ran on, and when.

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
    /// A whole captured graph.
    Graph,
    /// From the host to a device.
    Upload,
    /// From a device to the host.
    Download,
    /// Within a device.
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

/// A piece of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Kind.
    pub kind: WorkKind,
    /// The kernel's name, or what is copied.
    pub name: String,
    /// Bytes that have to move: each buffer once for reading, once for writing.
    pub bytes: Option<u64>,
    /// Floating-point operations.
    pub flops: Option<u64>,
    /// The line of the user's program it comes from.
    pub location: Option<String>,
}

impl Work {
    /// Work of a kind, under a name.
    pub fn new(kind: WorkKind, name: impl Into<String>) -> Work {
        Work { kind, name: name.into(), bytes: None, flops: None, location: None }
    }

    /// With the bytes that move.
    pub fn bytes(self, bytes: u64) -> Work {
        Work { bytes: Some(bytes), ..self }
    }

    /// With the operations done.
    pub fn flops(self, flops: u64) -> Work {
        Work { flops: Some(flops), ..self }
    }

    /// With the line of the program.
    pub fn location(self, location: impl fmt::Display) -> Work {
        Work { location: Some(location.to_string()), ..self }
    }
}

/// When work ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// Its begin, as [`now_ms`] counts.
    pub start_ms: f64,
    /// Duration.
    pub duration_ms: f64,
}

/// A measurement under way.
pub trait Stopwatch: Send {
    /// Ends it, in the order of the device's work.
    fn stop(&mut self) -> Result<()>;

    /// The times, once the work is done; waits for it.
    fn times(&mut self) -> Result<Times>;
}

/// Clock of one device's work.
pub trait Clock {
    /// The device's name, such as `cuda:0`.
    fn device(&self) -> String;

    /// Begins a measurement; `None` where none is possible now, as during a capture.
    fn start(&self) -> Result<Option<Box<dyn Stopwatch>>>;

    /// Memory use of the device, if it is time to sample it again.
    fn memory(&self) -> Option<MemorySample> {
        None
    }
}

/// Memory use of a device at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemorySample {
    /// The device.
    pub device: String,
    /// When, as [`now_ms`] counts.
    pub at_ms: f64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that a pool holds, used or not.
    pub reserved_bytes: Option<u64>,
}

/// Work that was given to a device, with its measurement.
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

    /// When it ran; waits for it the first time.
    pub fn times(&self) -> Result<Times> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let times = match &mut *state {
            State::Done(times) => return times.clone(),
            State::Pending(stopwatch) => stopwatch.times(),
        };
        *state = State::Done(times.clone()); // drops the lap, which gives its events back
        times
    }
}

/// The wall clock, for devices whose work is done when the call returns.
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
            // Reading /proc costs microseconds; once a millisecond is enough for a picture.
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
