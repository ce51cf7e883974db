//! Everything that can go wrong here, each with what was asked, what was found and what to do.

use std::fmt::Write;

use crate::pool::Shortage;

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the CUDA runtime.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A library is not on this machine.
    #[error("{library} was not found ({purpose}); looked for {}. {remedy}", .tried.join(", "))]
    MissingLibrary {
        /// File name people know it by.
        library: &'static str,
        /// What it is for.
        purpose: &'static str,
        /// How to get it.
        remedy: &'static str,
        /// Where it was looked for.
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
    /// A setting has a value that cannot be used.
    #[error("{variable}={value}: {what}")]
    Setting {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        what: String,
    },
    /// There is no such device.
    #[error("there is no cuda:{asked}; {}", found_devices(.found))]
    NoDevice {
        /// The ordinal asked for.
        asked: usize,
        /// Names of the devices that are there.
        found: Vec<String>,
    },
    /// The device is older than the code we make.
    #[error("{device} has compute capability {}.{}; 7.5 or newer is needed. Use 'cpu' instead", .found.0, .found.1)]
    OldDevice {
        /// The device.
        device: String,
        /// Its compute capability.
        found: (u32, u32),
    },
    /// The device has not enough free memory.
    #[error(
        "out of GPU memory on {device}: {asked_bytes} bytes asked, {free_bytes} of {total_bytes} free. \
         Use smaller batches or drop tensors you no longer need"
    )]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes asked for.
        asked_bytes: u64,
        /// Bytes free.
        free_bytes: u64,
        /// Bytes in all.
        total_bytes: u64,
    },
    /// A memory pool has nothing to give, after all that can be done.
    #[error("{0}")]
    Exhausted(Box<Shortage>),
    /// A block was given to a pool that is not handed out there.
    #[error("no block is handed out at {address:#x} for this handle: it was freed already, or is another pool's")]
    NotAllocated {
        /// The block's address.
        address: u64,
    },
    /// Something was written past the end of a block.
    #[error(
        "memory was written {offset} bytes past the end of a block of {bytes} bytes ({tag}, allocated at {asked_at}): \
         a kernel that used it has an index out of range"
    )]
    Overrun {
        /// Who held the block.
        tag: String,
        /// The line that allocated it.
        asked_at: String,
        /// Its size.
        bytes: u64,
        /// How far past its end the first changed byte lies.
        offset: u64,
    },
    /// A text is not a size.
    #[error("'{text}' is not a size: {what}. Write a number and a unit, such as 512MB or 1.5 GiB")]
    BadSize {
        /// The text.
        text: String,
        /// What is wrong with it.
        what: String,
    },
    /// A number is not a share of a whole.
    #[error("{given} is not a fraction of the device's memory: it must lie between 0 and 1, such as 0.9")]
    BadFraction {
        /// The number.
        given: f64,
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
    #[error("{device} is unusable in this process since an earlier failure: {cause}. Restart the process")]
    Poisoned {
        /// The device.
        device: String,
        /// The first error.
        cause: Box<Error>,
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
    /// The kernel cache was to be listed or cleared, and cannot be.
    #[error("the kernel cache: {reason}")]
    NoCache {
        /// Why not.
        reason: String,
    },
}

fn found_devices(found: &[String]) -> String {
    match found {
        [] => "this machine has no CUDA device. Use 'cpu', or 'auto' for the best there is".into(),
        found => format!("this machine has {}", found.join(", ")),
    }
}

fn numbered(source: &str) -> String {
    let mut out = String::new();
    for (n, line) in source.lines().enumerate() {
        let _ = writeln!(out, "{:4} | {line}", n + 1);
    }
    out
}
