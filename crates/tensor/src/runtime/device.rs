//! Devices, their selection, and the lock that serializes plans on a device.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bornite_cuda::Pool;

use crate::{Error, Result};

/// Environment variable with the default device, in the form that [`Device`] parses.
pub const DEVICE_VARIABLE: &str = "BORNITE_DEVICE";

/// A device. Parses from and prints as `cpu[:N] | cuda[:N] | interpreter` (and parses `auto`).
/// `cuda` without a number is this thread's current GPU, `cuda:0` unless changed by
/// [`Device::set_current`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Device {
    /// Compiled code on the host. All `cpu:N` use the same cores; they are distinct devices so that
    /// multi-device code can be tested anywhere.
    Cpu(usize),
    /// An NVIDIA GPU.
    Cuda(usize),
    /// The checking interpreter: slow, and the reference for the other devices.
    Interpreter,
}

impl Device {
    /// The CPU.
    pub const fn cpu() -> Device {
        Device::Cpu(0)
    }

    /// Returns a GPU after checking that the driver, NVRTC and the device are available; the error
    /// names what is missing.
    #[track_caller]
    pub fn cuda(ordinal: usize) -> Result<Device> {
        bornite_cuda::Device::open(ordinal)?;
        bornite_cuda::nvrtc_version()?;
        Ok(Device::Cuda(ordinal))
    }

    /// The best available device: the GPU with the most memory and multiprocessors, else the CPU.
    pub fn auto() -> Device {
        Device::auto_with_reason().0
    }

    /// As [`Device::auto`]; if it is not a GPU, also returns the reason.
    pub fn auto_with_reason() -> (Device, Option<Error>) {
        let best = bornite_cuda::Device::best().map_err(Error::from);
        match best.and_then(|device| Device::cuda(device.info().ordinal)) {
            Ok(device) => (device, None),
            Err(reason) => (Device::cpu(), Some(reason)),
        }
    }

    /// The device that the user chose: `flag`, else `BORNITE_DEVICE`, else [`Device::auto`]. An
    /// invalid value is an error, which names the variable if the value came from there.
    #[track_caller]
    pub fn choose(flag: Option<&str>) -> Result<Device> {
        Device::choose_from(flag, std::env::var(DEVICE_VARIABLE).ok().as_deref())
    }

    fn choose_from(flag: Option<&str>, variable: Option<&str>) -> Result<Device> {
        if let Some(flag) = flag {
            return flag.parse();
        }
        match variable.filter(|value| !value.is_empty()) {
            None => Ok(Device::auto()),
            Some(value) => value.parse().map_err(|cause| Error::Setting {
                variable: DEVICE_VARIABLE,
                value: value.into(),
                cause: Box::new(cause),
            }),
        }
    }

    /// Sets this thread's current GPU, the one that `cuda` means.
    #[track_caller]
    pub fn set_current(ordinal: usize) -> Result<Device> {
        bornite_cuda::Device::set_current(ordinal)?;
        Device::cuda(ordinal)
    }

    /// This thread's current GPU, if it is available.
    #[track_caller]
    pub fn current() -> Result<Device> {
        Device::cuda(bornite_cuda::Device::current_ordinal())
    }

    /// Waits for all work submitted to the device.
    #[track_caller]
    pub fn synchronize(self) -> Result<()> {
        match self.gpu()? {
            Some(gpu) => Ok(gpu.synchronize()?),
            None => Ok(()),
        }
    }

    /// Bytes that tensors, variables and scratch memory currently hold on the device; on a GPU, as
    /// rounded by the pool. Dropping the last handle of a tensor frees its bytes immediately.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let device = Device::Cpu(3);
    /// let x = Tensor::from_slice(&[1.0f32; 1000], &[1000], device);
    /// assert_eq!(device.allocated_bytes()?, 4000);
    /// drop(x);
    /// assert_eq!(device.allocated_bytes()?, 0);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn allocated_bytes(self) -> Result<usize> {
        match self.gpu()? {
            Some(gpu) => Ok(gpu.pool().stats().allocated as usize),
            None => Ok(self.host_allocated().load(Ordering::Relaxed)),
        }
    }

    /// The memory pool of a GPU: statistics, snapshots, limits, its cache, callbacks and debug
    /// mode. Other devices have no pool, which is an error.
    ///
    /// ```
    /// use bornite::{Device, runtime::parse_bytes};
    /// # fn main() -> bornite::Result<()> {
    /// if let Ok(device) = Device::cuda(0) {
    ///     let pool = device.pool()?;
    ///     pool.set_fraction(0.9)?; // of the GPU's memory
    ///     pool.set_cache_limit(Some(parse_bytes("2GB")?))?; // freed memory kept for reuse
    ///     println!("{} bytes in use, {} at most", pool.stats().allocated, pool.stats().peak_allocated);
    ///     pool.empty_cache()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn pool(self) -> Result<Arc<Pool>> {
        match self.gpu()? {
            Some(gpu) => Ok(gpu.pool().clone()),
            None => Err(Error::NoPool(self)),
        }
    }

    /// True if it is an NVIDIA GPU.
    pub const fn is_cuda(self) -> bool {
        matches!(self, Device::Cuda(_))
    }

    /// CUDA ordinal, if it is an NVIDIA GPU.
    pub const fn cuda_ordinal(self) -> Option<usize> {
        match self {
            Device::Cuda(ordinal) => Some(ordinal),
            Device::Cpu(_) | Device::Interpreter => None,
        }
    }

    /// Kind and ordinal; different for every device.
    pub(crate) const fn key(self) -> [u64; 2] {
        match self {
            Device::Cpu(n) => [0, n as u64],
            Device::Cuda(n) => [1, n as u64],
            Device::Interpreter => [2, 0],
        }
    }

    /// The open GPU, if it is one.
    pub(crate) fn gpu(self) -> Result<Option<Arc<bornite_cuda::Device>>> {
        Ok(self.cuda_ordinal().map(bornite_cuda::Device::open).transpose()?)
    }

    /// Bytes of host memory allocated for this device.
    pub(crate) fn host_allocated(self) -> &'static AtomicUsize {
        &self.shared().host_allocated
    }

    /// Locks the device until the guard is dropped. The lock protects
    ///
    /// - the order of launches: plans do not interleave, and they share the library's workspace;
    /// - storage that is overwritten (variables, results and scratch memory of traces): its address
    ///   is looked up under the lock and used before the lock is released;
    /// - the status words that report out-of-range indices, from the first launch to the check;
    /// - measurements, which other launches would disturb.
    ///
    /// Planning, lowering and compiling happen before, without the lock; debug builds check that no
    /// plan is made under it. The lock order, outermost first: the tuner's measurement lock, a
    /// trace (`Mutex<Compiled>`), devices in their own order, a kernel that another thread compiles
    /// ([`single_flight`](crate::runtime::single_flight)), then all others, under which nothing is
    /// locked: caches, versions of a variable, the value of a node.
    pub(crate) fn lock(self) -> DeviceGuard {
        locked::add(self);
        DeviceGuard { device: self, _guard: self.shared().plans.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Panics in debug builds if this thread holds the lock of a device.
    pub(crate) fn assert_unlocked() {
        locked::assert_none();
    }

    fn shared(self) -> &'static Shared {
        // Used several times per launch.
        static CPU: Shared = Shared { plans: Mutex::new(()), host_allocated: AtomicUsize::new(0) };
        if self == Device::cpu() {
            return &CPU;
        }
        static ALL: Mutex<BTreeMap<Device, &'static Shared>> = Mutex::new(BTreeMap::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(self).or_insert_with(|| Box::leak(Box::default()))
    }
}

/// Guard of a device's lock: see [`Device::lock`].
#[must_use = "the device is unlocked when the guard is dropped"]
pub(crate) struct DeviceGuard {
    device: Device,
    _guard: MutexGuard<'static, ()>,
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        locked::remove(self.device);
    }
}

/// The devices that this thread has locked, in debug builds.
#[cfg(debug_assertions)]
mod locked {
    use std::cell::RefCell;

    use super::Device;

    thread_local! {
        static LOCKED: RefCell<Vec<Device>> = const { RefCell::new(vec![]) };
    }

    pub fn add(device: Device) {
        LOCKED.with_borrow_mut(|locked| {
            let in_order = locked.iter().all(|before| *before < device);
            assert!(in_order, "{device} is locked after {locked:?}; devices must be locked once, in ascending order");
            locked.push(device);
        });
    }

    pub fn remove(device: Device) {
        LOCKED.with_borrow_mut(|locked| locked.retain(|other| *other != device));
    }

    pub fn assert_none() {
        LOCKED.with_borrow(|locked| assert!(locked.is_empty(), "a plan is made while {locked:?} is locked"));
    }
}

#[cfg(not(debug_assertions))]
mod locked {
    use super::Device;

    pub fn add(_: Device) {}
    pub fn remove(_: Device) {}
    pub fn assert_none() {}
}

/// Process-wide state of a device.
#[derive(Default)]
struct Shared {
    plans: Mutex<()>,
    host_allocated: AtomicUsize,
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
            ("cuda", None) => Device::current(),
            ("cuda", Some(n)) => Device::cuda(n),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_overrides_the_variable_and_errors_name_an_invalid_variable() {
        let cpu = Device::cpu();
        assert_eq!(Device::choose_from(Some("interpreter"), Some("nonsense")).unwrap(), Device::Interpreter);
        assert_eq!(Device::choose_from(None, Some("cpu:3")).unwrap(), Device::Cpu(3));
        assert_eq!(Device::choose_from(Some("cpu"), None).unwrap(), cpu);
        for auto in [None, Some(""), Some("auto")] {
            assert_eq!(Device::choose_from(None, auto).unwrap(), Device::auto());
        }
        for value in ["gpu", "cpu:x", "cuda:-1", "cuda:99", "CUDA:0"] {
            let error = Device::choose_from(None, Some(value)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("BORNITE_DEVICE={value}: ")), "{error}");
            let error = Device::choose_from(Some(value), None).unwrap_err().to_string();
            assert!(!error.contains("BORNITE_DEVICE="), "{error}");
        }
    }
}
