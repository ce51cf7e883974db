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
pub enum Kind {
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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Kernel => "kernel",
            Kind::Graph => "graph",
            Kind::Upload => "upload",
            Kind::Download => "download",
            Kind::Copy => "copy",
        })
    }
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Kind.
    pub kind: Kind,
    /// The kernel's name, or what is copied.
    pub name: String,
    /// Bytes that have to move: each buffer once for reading, once for writing.
    pub bytes: Option<u64>,
    /// Floating-point operations.
    pub flops: Option<u64>,
    /// The line of the user's program it comes from.
    pub place: Option<String>,
}

impl Work {
    /// Work of a kind, under a name.
    pub fn new(kind: Kind, name: impl Into<String>) -> Work {
        Work { kind, name: name.into(), bytes: None, flops: None, place: None }
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
    pub fn place(self, place: impl fmt::Display) -> Work {
        Work { place: Some(place.to_string()), ..self }
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
pub trait Lap: Send {
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
    fn start(&self) -> Result<Option<Box<dyn Lap>>>;

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
pub struct Span {
    /// The device.
    pub device: String,
    /// The work.
    pub work: Work,
    state: Mutex<State>,
}

enum State {
    Pending(Box<dyn Lap>),
    Done(Result<Times>),
}

impl Span {
    pub(super) fn new(device: String, work: Work, lap: Box<dyn Lap>) -> Span {
        Span { device, work, state: Mutex::new(State::Pending(lap)) }
    }

    /// When it ran; waits for it the first time.
    pub fn times(&self) -> Result<Times> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let times = match &mut *state {
            State::Done(times) => return times.clone(),
            State::Pending(lap) => lap.times(),
        };
        *state = State::Done(times.clone()); // drops the lap, which gives its events back
        times
    }
}

/// The wall clock, for devices whose work is done when the call returns.
#[derive(Clone, Copy, Debug)]
pub struct HostClock<'a>(pub &'a str);

struct HostLap {
    start_ms: f64,
    begun: Instant,
    duration_ms: f64,
}

impl Clock for HostClock<'_> {
    fn device(&self) -> String {
        self.0.into()
    }

    fn start(&self) -> Result<Option<Box<dyn Lap>>> {
        Ok(Some(Box::new(HostLap { start_ms: now_ms(), begun: Instant::now(), duration_ms: 0.0 })))
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

impl Lap for HostLap {
    fn stop(&mut self) -> Result<()> {
        self.duration_ms = self.begun.elapsed().as_secs_f64() * 1e3;
        Ok(())
    }

    fn times(&mut self) -> Result<Times> {
        Ok(Times { start_ms: self.start_ms, duration_ms: self.duration_ms })
    }
}
