//! Where tensors live and run.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, Result};

/// A device. Parses from and prints as `cpu[:N] | cuda[:N] | interpreter` (and parses `auto`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Device {
    /// Machine code on this machine's cores. All `cpu:N` run on the same cores; they are apart so that code for
    /// several devices can be tried anywhere.
    Cpu(usize),
    /// An NVIDIA GPU.
    Cuda(usize),
    /// The checking interpreter: slow, and the judge of the others.
    Interpreter,
}

impl Device {
    /// The CPU.
    pub const fn cpu() -> Device {
        Device::Cpu(0)
    }

    /// A GPU that is known to work: the driver, NVRTC and the device are there. Otherwise the error says what is missing.
    pub fn cuda(ordinal: usize) -> Result<Device> {
        bornite_cuda::Device::open(ordinal)?;
        bornite_cuda::nvrtc_version()?;
        Ok(Device::Cuda(ordinal))
    }

    /// The best device here: the first GPU if it can be used, else the CPU.
    pub fn auto() -> Device {
        Device::auto_or_why().0
    }

    /// As [`Device::auto`], and if that is not a GPU, why.
    pub fn auto_or_why() -> (Device, Option<Error>) {
        match Device::cuda(0) {
            Ok(device) => (device, None),
            Err(why) => (Device::cpu(), Some(why)),
        }
    }

    /// Waits for all work given to the device.
    pub fn synchronize(self) -> Result<()> {
        match self {
            Device::Cuda(ordinal) => Ok(bornite_cuda::Device::open(ordinal)?.synchronize()?),
            Device::Cpu(_) | Device::Interpreter => Ok(()),
        }
    }

    /// Held while work is given to the device: one plan at a time, so that storage can be moved between plans.
    pub(crate) fn lock(self) -> MutexGuard<'static, ()> {
        static LOCKS: Mutex<BTreeMap<Device, &'static Mutex<()>>> = Mutex::new(BTreeMap::new());
        let lock = {
            let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
            *locks.entry(self).or_insert_with(|| Box::leak(Box::default()))
        };
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Device> {
        let unknown = || Error::UnknownDevice(text.into());
        let (kind, number) = match text.split_once(':') {
            Some((kind, number)) => (kind, Some(number.parse::<usize>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        match (kind, number) {
            ("auto", None) => Ok(Device::auto()),
            ("interpreter", None) => Ok(Device::Interpreter),
            ("cpu", n) => Ok(Device::Cpu(n.unwrap_or(0))),
            ("cuda", n) => Device::cuda(n.unwrap_or(0)),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu(0) => write!(f, "cpu"),
            Device::Cpu(n) => write!(f, "cpu:{n}"),
            Device::Cuda(n) => write!(f, "cuda:{n}"),
            Device::Interpreter => write!(f, "interpreter"),
        }
    }
}
