//! Devices: how many, what they are, and an open one with its context and its stream.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{self as cu, CUdevice_attribute as Attribute, CUresult};

use crate::api::Driver;
use crate::{Error, Result};

/// What a device is.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DeviceInfo {
    /// Number in `cuda:N`.
    pub ordinal: usize,
    /// The maker's name for it.
    pub name: String,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// All of its memory.
    pub memory_bytes: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Second-level cache.
    pub l2_bytes: u64,
    /// Threads a block may have.
    pub max_threads_per_block: u32,
    /// Threads a warp.
    pub warp_size: u32,
    /// Processor clock.
    pub clock_khz: u32,
    /// Memory clock.
    pub memory_clock_khz: u32,
    /// Memory bus width.
    pub memory_bus_bits: u32,
}

impl DeviceInfo {
    /// NVRTC's name for its architecture.
    pub fn arch(&self) -> String {
        let (major, minor) = self.compute_capability;
        format!("sm_{major}{minor}")
    }
}

/// An open device: the primary context, and one stream on which everything is ordered.
pub struct Device {
    pub(crate) driver: &'static Driver,
    pub(crate) context: cu::CUcontext,
    pub(crate) stream: cu::CUstream,
    /// Where a captured sequence is recorded. Not `stream`: another thread's free must not end up in a capture.
    capture_stream: cu::CUstream,
    info: DeviceInfo,
    /// The first error after which the context is lost.
    poison: Mutex<Option<Error>>,
}

// SAFETY: contexts and streams are driver handles, which the driver allows any thread to use once the context is
// current there; `bind` makes it so before every call.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Turns a driver result into ours.
pub(crate) fn check(driver: &Driver, call: &'static str, result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let words = |function: unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: the driver stores the address of a static string, or leaves null for a code it does not know.
        unsafe {
            function(result, &mut text);
            if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    };
    let (name, text) = (words(driver.cuGetErrorName), words(driver.cuGetErrorString));
    Err(Error::Driver { call, code: result as u32, name, text })
}

/// The driver, initialised.
fn driver() -> Result<&'static Driver> {
    static STARTED: OnceLock<()> = OnceLock::new();
    let driver = Driver::get()?;
    if STARTED.get().is_none() {
        // SAFETY: no preconditions.
        check(driver, "cuInit", unsafe { (driver.cuInit)(0) })?;
        let _ = STARTED.set(());
    }
    Ok(driver)
}

/// Highest CUDA version the driver supports, as (major, minor).
pub fn driver_version() -> Result<(u32, u32)> {
    let driver = Driver::get()?;
    let mut version = 0;
    // SAFETY: writes one integer.
    check(driver, "cuDriverGetVersion", unsafe { (driver.cuDriverGetVersion)(&mut version) })?;
    Ok((version as u32 / 1000, version as u32 % 1000 / 10))
}

/// How many CUDA devices this process may see.
pub fn device_count() -> Result<usize> {
    let mut count = 0;
    let counted = driver().and_then(|driver| {
        // SAFETY: writes one integer.
        check(driver, "cuDeviceGetCount", unsafe { (driver.cuDeviceGetCount)(&mut count) })
    });
    match counted {
        // Starting the driver fails this way where there is no device, or none is visible.
        Err(Error::Driver { code, .. }) if code == CUresult::CUDA_ERROR_NO_DEVICE as u32 => Ok(0),
        counted => counted.map(|()| count as usize),
    }
}

impl DeviceInfo {
    /// Describes a device without opening it.
    pub fn of(ordinal: usize) -> Result<DeviceInfo> {
        let (driver, device) = handle(ordinal)?;
        let mut name = [0 as c_char; 256];
        let mut memory_bytes = 0;
        // SAFETY: the buffer is as long as said, and terminated by the driver.
        let name = unsafe {
            check(driver, "cuDeviceGetName", (driver.cuDeviceGetName)(name.as_mut_ptr(), name.len() as c_int, device))?;
            check(driver, "cuDeviceTotalMem", (driver.cuDeviceTotalMem_v2)(&mut memory_bytes, device))?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        let get = |attribute: Attribute| {
            let mut value = 0;
            // SAFETY: writes one integer.
            let result = unsafe { (driver.cuDeviceGetAttribute)(&mut value, attribute, device) };
            check(driver, "cuDeviceGetAttribute", result).map(|()| value as u32)
        };
        Ok(DeviceInfo {
            ordinal,
            name,
            compute_capability: (
                get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            memory_bytes: memory_bytes as u64,
            multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            l2_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as u64,
            max_threads_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            warp_size: get(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
            clock_khz: get(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            memory_clock_khz: get(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
            memory_bus_bits: get(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
        })
    }
}

fn handle(ordinal: usize) -> Result<(&'static Driver, cu::CUdevice)> {
    let count = device_count()?;
    if ordinal >= count {
        let found = (0..count).map(|n| DeviceInfo::of(n).map(|i| format!("cuda:{n} ({})", i.name)));
        return Err(Error::NoDevice { asked: ordinal, found: found.collect::<Result<_>>()? });
    }
    let driver = driver()?;
    let mut device = 0;
    // SAFETY: writes one handle; the ordinal is in range.
    check(driver, "cuDeviceGet", unsafe { (driver.cuDeviceGet)(&mut device, ordinal as c_int) })?;
    Ok((driver, device))
}

impl Device {
    /// The device `cuda:ordinal`, opened on first use and kept open.
    pub fn open(ordinal: usize) -> Result<Arc<Device>> {
        static OPEN: Mutex<BTreeMap<usize, Arc<Device>>> = Mutex::new(BTreeMap::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = open.get(&ordinal) {
            return Ok(device.clone());
        }
        let device = Arc::new(Device::create(ordinal)?);
        open.insert(ordinal, device.clone());
        Ok(device)
    }

    fn create(ordinal: usize) -> Result<Device> {
        let (driver, handle) = handle(ordinal)?;
        let info = DeviceInfo::of(ordinal)?;
        if info.compute_capability < (7, 5) {
            let device = format!("cuda:{ordinal} ({})", info.name);
            return Err(Error::OldDevice { device, found: info.compute_capability });
        }
        let (mut context, mut stream, mut capture_stream, mut pool) = (null_mut(), null_mut(), null_mut(), null_mut());
        let mut keep = u64::MAX;
        // SAFETY: each call writes one handle and takes those before it; the threshold is a 64-bit value as the
        // attribute wants. The stream is created in the context just made current.
        unsafe {
            check(driver, "cuDevicePrimaryCtxRetain", (driver.cuDevicePrimaryCtxRetain)(&mut context, handle))?;
            check(driver, "cuCtxSetCurrent", (driver.cuCtxSetCurrent)(context))?;
            let flags = cu::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
            check(driver, "cuStreamCreate", (driver.cuStreamCreate)(&mut stream, flags))?;
            check(driver, "cuStreamCreate", (driver.cuStreamCreate)(&mut capture_stream, flags))?;
            // Freed memory stays with the process: giving it back at every synchronisation costs milliseconds.
            check(driver, "cuDeviceGetDefaultMemPool", (driver.cuDeviceGetDefaultMemPool)(&mut pool, handle))?;
            let attribute = cu::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            let result = (driver.cuMemPoolSetAttribute)(pool, attribute, (&raw mut keep).cast());
            check(driver, "cuMemPoolSetAttribute", result)?;
        }
        Ok(Device { driver, context, stream, capture_stream, info, poison: Mutex::new(None) })
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Free and total memory.
    pub fn memory_bytes(&self) -> Result<(u64, u64)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        self.check("cuMemGetInfo", unsafe { (self.driver.cuMemGetInfo_v2)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Waits until all work given to the device is done, and reports what went wrong in it.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the stream lives as long as the device.
        self.check("cuStreamSynchronize", unsafe { (self.driver.cuStreamSynchronize)(self.stream) })
    }

    /// The stream for launches and device-to-device copies of this thread: the capture's while it captures.
    pub(crate) fn work_stream(&self) -> cu::CUstream {
        if CAPTURING.get() == Some(self.info.ordinal) { self.capture_stream } else { self.stream }
    }

    /// Runs `work` with this thread's launches and copies going to the capture stream.
    pub(crate) fn while_capturing<R>(&self, work: impl FnOnce(cu::CUstream) -> R) -> R {
        let before = CAPTURING.replace(Some(self.info.ordinal));
        let result = work(self.capture_stream);
        CAPTURING.set(before);
        result
    }

    /// Makes the device's context current on this thread; refuses if the context is lost.
    pub(crate) fn bind(&self) -> Result<()> {
        if let Some(cause) = &*self.poison.lock().unwrap_or_else(PoisonError::into_inner) {
            let device = format!("cuda:{} ({})", self.info.ordinal, self.info.name);
            return Err(Error::Poisoned { device, cause: Box::new(cause.clone()) });
        }
        // SAFETY: the context is retained for the life of the process.
        check(self.driver, "cuCtxSetCurrent", unsafe { (self.driver.cuCtxSetCurrent)(self.context) })
    }

    /// Turns a driver result into ours and remembers errors that no later call can recover from.
    pub(crate) fn check(&self, call: &'static str, result: CUresult) -> Result<()> {
        let result = check(self.driver, call, result);
        if let Err(error @ Error::Driver { code, .. }) = &result
            && STICKY.iter().any(|&sticky| sticky as u32 == *code)
        {
            self.poison.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error.clone());
        }
        result
    }
}

thread_local! {
    /// The ordinal of the device this thread captures on.
    static CAPTURING: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Errors after which the driver refuses every further call in the context.
const STICKY: [CUresult; 9] = [
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
];
