//! The CUDA context of an open device: made current before each call; stores recent launches for
//! error reports.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self as cu, CUresult};

use crate::api::Driver;
use crate::{DeviceInfo, Error, Result};
use bornite_support::settings::{SYNC_VARIABLE, Switch};

/// Converts a driver result.
pub(crate) fn check(driver: &Driver, call: &'static str, result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(driver_error(driver, call, result)) }
}

#[cold]
fn driver_error(driver: &Driver, call: &'static str, result: CUresult) -> Error {
    let describe = |function: unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: the driver stores the address of a static string, or leaves null for a code it
        // does not know.
        unsafe {
            function(result, &mut text);
            if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    };
    let (name, text) = (describe(driver.cuGetErrorName), describe(driver.cuGetErrorString));
    Error::Driver { call, code: result as u32, name, text }
}

/// Creates an error in the driver's form, for an invalid argument.
pub(crate) fn invalid(call: &'static str, text: String) -> Error {
    Error::Driver { call, code: 1, name: "CUDA_ERROR_INVALID_VALUE".into(), text }
}

static SYNC: Switch = Switch::new(SYNC_VARIABLE, [("0", false), ("1", true)], false);

/// Makes every launch on all devices synchronous, or not any more: slow, but an error is returned
/// by the launch that caused it. Takes precedence over `BORNITE_SYNC`.
///
/// ```
/// bornite_cuda::set_sync(true);
/// assert!(bornite_cuda::is_sync().unwrap());
/// ```
pub fn set_sync(on: bool) {
    SYNC.set(on);
}

/// Returns true if launches are synchronous; fails if `BORNITE_SYNC` has an invalid value.
pub fn is_sync() -> Result<bool> {
    Ok(SYNC.get()?)
}

/// Like [`is_sync`], after a device was opened.
#[inline]
pub(crate) fn is_launch_blocking() -> bool {
    SYNC.is_on()
}

/// State shared by a device's handles and the pool's backing, so that a fatal error found by one is
/// reported by all.
pub(crate) struct Context {
    pub driver: &'static Driver,
    pub handle: cu::CUcontext,
    pub info: DeviceInfo,
    lost: AtomicBool,
    /// Error that every call returns once the context is lost.
    poison: Mutex<Option<Error>>,
    launches: Mutex<LaunchLog>,
}

// SAFETY: a context is a driver handle, which the driver allows any thread to use once it is
// current there; `bind` makes it so before every call.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub fn new(driver: &'static Driver, handle: cu::CUcontext, info: DeviceInfo) -> Context {
        let (lost, poison, launches) = Default::default();
        Context { driver, handle, info, lost, poison, launches }
    }

    /// Makes the context current on this thread; fails if it is lost.
    pub fn bind(&self) -> Result<()> {
        self.check_alive()?;
        // SAFETY: the context is retained for the life of the process.
        check(self.driver, "cuCtxSetCurrent", unsafe { (self.driver.cuCtxSetCurrent)(self.handle) })
    }

    /// Fails if the context is lost.
    pub fn check_alive(&self) -> Result<()> {
        if !self.lost.load(Ordering::Acquire) {
            return Ok(());
        }
        let poison = self.poison.lock().unwrap_or_else(PoisonError::into_inner);
        poison.clone().map_or(Ok(()), Err)
    }

    /// Converts a driver result. A sticky error is returned with the last launches, now and at
    /// every later call.
    pub fn check(&self, call: &'static str, result: CUresult) -> Result<()> {
        if result == CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        let cause = driver_error(self.driver, call, result);
        if !STICKY.contains(&result) {
            return Err(cause);
        }
        let launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner).latest();
        let mut poison = self.poison.lock().unwrap_or_else(PoisonError::into_inner);
        let error =
            poison.get_or_insert(Error::Poisoned { device: self.info.label(), cause: Box::new(cause), launches });
        self.lost.store(true, Ordering::Release);
        Err(error.clone())
    }

    /// Records a launch, so that an error found later can name it.
    pub fn record_launch(&self, name: &Arc<str>, grid: [u32; 3], block: [u32; 3]) {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner).push(name, grid, block);
    }

    /// Total number of recorded launches, including overwritten ones.
    pub fn launch_count(&self) -> u64 {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner).count as u64
    }

    /// Returns the last launches, newest first.
    pub fn launches(&self) -> Vec<LaunchRecord> {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner).latest()
    }
}

/// A launch in error reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaunchRecord {
    /// Name of the kernel or graph.
    pub name: Arc<str>,
    /// Grid size in blocks; zeros for a graph.
    pub grid: [u32; 3],
    /// Threads per block; zeros for a graph.
    pub block: [u32; 3],
}

impl fmt::Display for LaunchRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if self.block[0] == 0 {
            return Ok(());
        }
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        write!(f, " (grid {gx}x{gy}x{gz}, block {bx}x{by}x{bz})")
    }
}

/// Number of launches that are stored.
const MAX_LOGGED: usize = 16;

/// Ring buffer of the last launches; recording one does not allocate.
#[derive(Default)]
struct LaunchLog {
    ring: [Option<LaunchRecord>; MAX_LOGGED],
    count: usize,
}

impl LaunchLog {
    fn push(&mut self, name: &Arc<str>, grid: [u32; 3], block: [u32; 3]) {
        let entry = &mut self.ring[self.count % MAX_LOGGED];
        self.count = self.count.wrapping_add(1);
        match entry {
            // A repeated kernel does not even change a reference count.
            Some(entry) if Arc::ptr_eq(&entry.name, name) => (entry.grid, entry.block) = (grid, block),
            entry => *entry = Some(LaunchRecord { name: name.clone(), grid, block }),
        }
    }

    /// Returns the launches, newest first.
    fn latest(&self) -> Vec<LaunchRecord> {
        let newest = self.count + MAX_LOGGED;
        (1..=MAX_LOGGED).filter_map(|back| self.ring[(newest - back) % MAX_LOGGED].clone()).collect()
    }
}

/// Sticky errors, after which the driver rejects every further call in the context.
const STICKY: [CUresult; 10] = [
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_newest_launches_in_order() {
        let mut log = LaunchLog::default();
        assert_eq!(log.latest(), []);
        let name: Arc<str> = "add".into();
        for n in 0..3 {
            log.push(&name, [n, 1, 1], [32, 1, 1]);
        }
        let grids: Vec<u32> = log.latest().iter().map(|launch| launch.grid[0]).collect();
        assert_eq!(grids, [2, 1, 0]);
        for n in 0..1000 {
            log.push(&format!("kernel{n}").into(), [n, 1, 1], [32, 1, 1]);
        }
        let latest = log.latest();
        let grids: Vec<u32> = latest.iter().map(|launch| launch.grid[0]).collect();
        assert_eq!(grids, (984..1000).rev().collect::<Vec<u32>>());
        assert_eq!(latest[0].to_string(), "kernel999 (grid 999x1x1, block 32x1x1)");
    }

    #[test]
    fn a_lost_device_names_the_last_launches() {
        let cause = Error::Driver {
            call: "cuStreamSynchronize",
            code: 700,
            name: "CUDA_ERROR_ILLEGAL_ADDRESS".into(),
            text: "an illegal memory access was encountered".into(),
        };
        let launches = vec![
            LaunchRecord { name: "out_of_bounds".into(), grid: [4, 1, 1], block: [128, 1, 1] },
            LaunchRecord { name: "graph of 2 nodes: a, b".into(), grid: [0; 3], block: [0; 3] },
        ];
        let error = Error::Poisoned { device: "cuda:0 (H200)".into(), cause: Box::new(cause), launches };
        let text = error.to_string();
        for part in [
            "cuda:0 (H200)",
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "out_of_bounds (grid 4x1x1, block 128x1x1), graph of 2 nodes: a, b",
            "Restart the process",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
