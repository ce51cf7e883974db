//! Errors of the CUDA runtime. Each message says what was requested, what was found and what to do.

use std::fmt::Write;

use crate::library::NOT_FOUND;
use crate::pool::OutOfMemoryReport;
use crate::{LaunchRecord, Library};

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the CUDA runtime.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A library is not installed, or cannot be loaded.
    #[error("{library} {problem} ({purpose}); looked for {}. {remedy}", .tried.join("; "))]
    MissingLibrary {
        /// Its usual file name.
        library: &'static str,
        /// `was not found` or `cannot be loaded`.
        problem: &'static str,
        /// Its purpose.
        purpose: &'static str,
        /// Installation instructions.
        remedy: &'static str,
        /// Files that were tried, with the loader's message.
        tried: Vec<String>,
    },
    /// A library lacks a function.
    #[error("{path} has no function {symbol}: it is too old. {remedy}")]
    OldLibrary {
        /// The library's path.
        path: String,
        /// Name of the missing function.
        symbol: &'static str,
        /// Installation instructions.
        remedy: &'static str,
    },
    /// An invalid setting or size, or an error of a cache on disk.
    #[error(transparent)]
    Support(#[from] bornite_support::Error),
    /// Machine code cannot be disassembled.
    #[error("{0}")]
    Disassembler(String),
    /// There is no such device.
    #[error("there is no cuda:{requested}; {}", available_devices(.available))]
    NoDevice {
        /// The requested ordinal.
        requested: usize,
        /// Names of the available devices.
        available: Vec<String>,
    },
    /// The device is older than the supported architectures.
    #[error("{device} has compute capability {}.{}; 7.5 or newer is required. Use 'cpu' instead", .found.0, .found.1)]
    OldDevice {
        /// The device.
        device: String,
        /// Its compute capability.
        found: (u32, u32),
    },
    /// The driver is older than the supported versions.
    #[error(
        "the NVIDIA driver{} supports CUDA {}.{} only; release 570 (CUDA 12.8) or newer is required. \
         Update the driver, or use 'cpu' instead",
        .release.as_ref().map_or(String::new(), |release| format!(" {release}")), .found.0, .found.1
    )]
    OldDriver {
        /// Highest CUDA version that it supports.
        found: (u32, u32),
        /// Its release number, if known.
        release: Option<String>,
    },
    /// An operation is not possible while this thread is capturing a graph.
    #[error("{call} is not possible during the capture of a CUDA graph; do it before the capture begins")]
    Capturing {
        /// Name of the operation.
        call: &'static str,
    },
    /// The launch configuration or the parameters are invalid.
    #[error("kernel '{kernel}' cannot be launched: {reason}")]
    InvalidLaunch {
        /// The kernel.
        kernel: String,
        /// The requested and the possible values.
        reason: String,
    },
    /// A memory pool is out of memory.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemoryReport>),
    /// A block is not allocated in this pool.
    #[error("the block at {address:#x} is not allocated: it was already freed, or belongs to another pool")]
    NotAllocated {
        /// The block's address.
        address: u64,
    },
    /// Memory was written past the end of a block.
    #[error(
        "memory was written {offset} bytes past the end of a block of {bytes} bytes ({tag}, allocated at {allocated_at}): \
         a kernel that used it has an index out of range"
    )]
    Overrun {
        /// Tag of the block.
        tag: String,
        /// Source location of the allocation.
        allocated_at: String,
        /// Size of the block in bytes.
        bytes: u64,
        /// Offset of the first changed byte from the end of the block.
        offset: u64,
    },
    /// A call of the driver or a library failed.
    #[error("{call} failed with {name}: {text}")]
    Driver {
        /// Name of the function.
        call: &'static str,
        /// Error code.
        code: u32,
        /// Name of the error.
        name: String,
        /// Description of the error.
        text: String,
    },
    /// A sticky error has made the device's context unusable in this process.
    #[error(
        "{device} is unusable in this process since a failure: {cause}. {}. Restart the process; to find the failing \
         launch, run it with BORNITE_SYNC=1 or under compute-sanitizer", last_launches(.launches)
    )]
    Poisoned {
        /// The device.
        device: String,
        /// The first error.
        cause: Box<Error>,
        /// Launches before the error was found, newest first.
        launches: Vec<LaunchRecord>,
    },
    /// NVRTC rejected a kernel.
    #[error("failed to compile kernel '{kernel}' for {arch}:\n{log}\nsource:\n{}", numbered(.source_text))]
    Compile {
        /// The kernel's name.
        kernel: String,
        /// The architecture.
        arch: String,
        /// Log of NVRTC.
        log: String,
        /// Source code.
        source_text: String,
    },
    /// An image is not valid machine code.
    #[error("the image cannot be loaded: {reason}. Use the complete file that `nvcc --cubin` wrote")]
    InvalidImage {
        /// Reason.
        reason: String,
    },
}

impl Error {
    /// Returns true if this machine has no NVIDIA GPU: the driver library is not installed, or it
    /// reports no device. False for a GPU that is there but cannot be used.
    pub fn is_no_gpu(&self) -> bool {
        match self {
            Error::MissingLibrary { library, problem, .. } => {
                *library == Library::Cuda.file_name() && *problem == NOT_FOUND
            }
            Error::NoDevice { available, .. } => available.is_empty(),
            _ => false,
        }
    }

    /// Returns a short notice for a program that falls back to the CPU because of this error. The
    /// complete message is for `bornite doctor`.
    pub fn cpu_fallback_notice(&self) -> &'static str {
        if self.is_no_gpu() {
            "No NVIDIA GPU found; using the CPU (details: bornite doctor)."
        } else {
            "NVIDIA GPU not usable; using the CPU (details: bornite doctor)."
        }
    }
}

fn available_devices(available: &[String]) -> String {
    match available {
        [] => "this machine has no CUDA device. Use 'cpu', or 'auto' for the best available device".into(),
        available => format!("this machine has {}", available.join(", ")),
    }
}

fn last_launches(launches: &[LaunchRecord]) -> String {
    match launches {
        [] => "There were no launches before it".into(),
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
