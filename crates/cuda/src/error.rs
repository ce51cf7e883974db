//! Everything that can go wrong here, each with what was asked, what was found and what to do.

use std::fmt::Write;

use crate::LaunchRecord;
use crate::pool::OutOfMemoryReport;

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the CUDA runtime.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A library is not on this machine, or cannot be loaded.
    #[error("{library} {problem} ({purpose}); looked for {}. {remedy}", .tried.join("; "))]
    MissingLibrary {
        /// File name people know it by.
        library: &'static str,
        /// `was not found` or `cannot be loaded`.
        problem: &'static str,
        /// What it is for.
        purpose: &'static str,
        /// How to get it.
        remedy: &'static str,
        /// Files that were tried, with the loader's message.
        tried: Vec<String>,
    },
    /// A library was found but lacks a function.
    #[error("{path} has no function {symbol}: it is too old. {remedy}")]
    OldLibrary {
        /// The library's path.
        path: String,
        /// What is missing.
        symbol: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A setting, a size or a cache on disk.
    #[error(transparent)]
    Support(#[from] bornite_support::Error),
    /// Machine code cannot be shown as text.
    #[error("{0}")]
    Disassembler(String),
    /// There is no such device.
    #[error("there is no cuda:{requested}; {}", available_devices(.available))]
    NoDevice {
        /// The ordinal asked for.
        requested: usize,
        /// Names of the devices that are there.
        available: Vec<String>,
    },
    /// The device is older than the code we make.
    #[error("{device} has compute capability {}.{}; 7.5 or newer is needed. Use 'cpu' instead", .found.0, .found.1)]
    OldDevice {
        /// The device.
        device: String,
        /// Its compute capability.
        found: (u32, u32),
    },
    /// The driver is older than what we call.
    #[error(
        "the NVIDIA driver{} supports CUDA {}.{} only; release 570 (CUDA 12.8) or newer is needed. \
         Update the driver, or use 'cpu' instead",
        .release.as_ref().map_or(String::new(), |release| format!(" {release}")), .found.0, .found.1
    )]
    OldDriver {
        /// The CUDA version that it supports.
        found: (u32, u32),
        /// Its own number, where that is known.
        release: Option<String>,
    },
    /// Something was asked of a device by a thread that captures a graph on it.
    #[error("{call} cannot be part of a CUDA graph: do it before the capture begins")]
    Capturing {
        /// What was asked.
        call: &'static str,
    },
    /// A launch that the device cannot do.
    #[error("kernel '{kernel}' cannot be launched: {reason}")]
    InvalidLaunch {
        /// The kernel.
        kernel: String,
        /// What was asked and what there is.
        reason: String,
    },
    /// A memory pool has nothing to give, after all that can be done.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemoryReport>),
    /// A block was given to a pool that is not handed out there.
    #[error("no block is handed out at {address:#x} for this handle: it was freed already, or is another pool's")]
    NotAllocated {
        /// The block's address.
        address: u64,
    },
    /// Something was written past the end of a block.
    #[error(
        "memory was written {offset} bytes past the end of a block of {bytes} bytes ({tag}, allocated at {allocated_at}): \
         a kernel that used it has an index out of range"
    )]
    Overrun {
        /// Who held the block.
        tag: String,
        /// The line that allocated it.
        allocated_at: String,
        /// Its size.
        bytes: u64,
        /// How far past its end the first changed byte lies.
        offset: u64,
    },
    /// The driver refused a call.
    #[error("{call} failed with {name}: {text}")]
    Driver {
        /// The function called.
        call: &'static str,
        /// The driver's number for the error.
        code: u32,
        /// The driver's name for the error.
        name: String,
        /// The driver's description.
        text: String,
    },
    /// An earlier kernel broke the device's context; nothing runs on it any more in this process.
    #[error(
        "{device} is unusable in this process since a failure: {cause}. {}. Restart the process; to find the launch \
         at fault, run it with BORNITE_SYNC=1 or under compute-sanitizer", last_launches(.launches)
    )]
    Poisoned {
        /// The device.
        device: String,
        /// The first error.
        cause: Box<Error>,
        /// What was launched before it was found, newest first.
        launches: Vec<LaunchRecord>,
    },
    /// NVRTC refused a kernel.
    #[error("failed to compile kernel '{kernel}' for {arch}:\n{log}\nsource:\n{}", numbered(.source_text))]
    Compile {
        /// The kernel's name.
        kernel: String,
        /// The architecture.
        arch: String,
        /// NVRTC's words.
        log: String,
        /// The program.
        source_text: String,
    },
    /// Bytes that the driver must not be given as machine code.
    #[error("the image cannot be loaded: {reason}. Use the complete file that `nvcc --cubin` wrote")]
    InvalidImage {
        /// The fault that was found in them.
        reason: String,
    },
}

fn available_devices(available: &[String]) -> String {
    match available {
        [] => "this machine has no CUDA device. Use 'cpu', or 'auto' for the best there is".into(),
        available => format!("this machine has {}", available.join(", ")),
    }
}

fn last_launches(launches: &[LaunchRecord]) -> String {
    match launches {
        [] => "Nothing was launched before".into(),
        launches => {
            let names: Vec<String> = launches.iter().map(LaunchRecord::to_string).collect();
            format!("The last launches, newest first: {}", names.join(", "))
        }
    }
}

fn numbered(source: &str) -> String {
    let mut out = String::new();
    for (n, line) in source.lines().enumerate() {
        let _ = writeln!(out, "{:4} | {line}", n + 1);
    }
    out
}
