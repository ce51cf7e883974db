//! GPUs of the machine and their properties, without opening one.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use cudarc::driver::sys::{self as cu, CUdevice_attribute as Attribute, CUresult};

use crate::api::Driver;
use crate::context::check;
use crate::{Error, Result};

/// Minimum compute capability.
pub(crate) const MIN_CAPABILITY: (u32, u32) = (7, 5);
/// Minimum CUDA version of the driver (release 570).
pub(crate) const MIN_CUDA_VERSION: (u32, u32) = (12, 8);

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DeviceInfo {
    /// Number in `cuda:N`.
    pub ordinal: usize,
    /// Product name.
    pub name: String,
    /// PCI bus id, such as `0000:3b:00.0`.
    pub pci_bus: String,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// Total memory.
    pub memory_bytes: u64,
    /// Free memory; known only for an open device ([`crate::Device::describe`]).
    pub free_memory_bytes: Option<u64>,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Size of the L2 cache.
    pub l2_bytes: u64,
    /// Maximum threads per block.
    pub max_threads_per_block: u32,
    /// Maximum threads per block along each axis.
    pub max_block_dim: [u32; 3],
    /// Maximum blocks per grid along each axis.
    pub max_grid_dim: [u32; 3],
    /// Maximum resident threads per multiprocessor.
    pub max_threads_per_multiprocessor: u32,
    /// Maximum resident blocks per multiprocessor.
    pub max_blocks_per_multiprocessor: u32,
    /// Threads per warp.
    pub warp_size: u32,
    /// Shared memory per block without opt-in.
    pub shared_bytes_per_block: u32,
    /// Shared memory per block with opt-in.
    pub max_shared_bytes_per_block: u32,
    /// Shared memory per multiprocessor.
    pub shared_bytes_per_multiprocessor: u32,
    /// Shared memory per block that the driver reserves.
    pub reserved_shared_bytes_per_block: u32,
    /// 32-bit registers per block.
    pub registers_per_block: u32,
    /// 32-bit registers per multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Clock of the multiprocessors in kHz.
    pub clock_khz: u32,
    /// Memory clock in kHz.
    pub memory_clock_khz: u32,
    /// Memory bus width in bits.
    pub memory_bus_bits: u32,
    /// Number of asynchronous copy engines.
    pub copy_engines: u32,
    /// True if cooperative launches are supported.
    pub cooperative_launch: bool,
    /// True if thread block clusters are supported.
    pub clusters: bool,
    /// True if ECC is enabled.
    pub ecc: bool,
}

impl DeviceInfo {
    /// Returns the architecture, such as `sm_90`.
    pub fn arch(&self) -> String {
        let (major, minor) = self.compute_capability;
        format!("sm_{major}{minor}")
    }

    /// Returns the name in messages.
    pub fn label(&self) -> String {
        format!("cuda:{} ({})", self.ordinal, self.name)
    }

    /// Fails if the device is older than the supported architectures.
    pub fn check_supported(&self) -> Result<()> {
        if self.compute_capability >= MIN_CAPABILITY {
            return Ok(());
        }
        Err(Error::OldDevice { device: self.label(), found: self.compute_capability })
    }

    /// Queries the properties of a device without opening it.
    pub fn query(ordinal: usize) -> Result<DeviceInfo> {
        use Attribute::*;
        let (driver, device) = handle(ordinal)?;
        let mut memory_bytes = 0;
        // SAFETY: the buffers have the specified length, and the driver terminates the strings.
        let (name, pci_bus) = unsafe {
            check(driver, "cuDeviceTotalMem", (driver.cuDeviceTotalMem_v2)(&mut memory_bytes, device))?;
            (
                text(driver, "cuDeviceGetName", |to, length| (driver.cuDeviceGetName)(to, length, device))?,
                text(driver, "cuDeviceGetPCIBusId", |to, length| (driver.cuDeviceGetPCIBusId)(to, length, device))?,
            )
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
            pci_bus,
            compute_capability: (
                get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            memory_bytes: memory_bytes as u64,
            free_memory_bytes: None,
            multiprocessors: get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            l2_bytes: get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as u64,
            max_threads_per_block: get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            max_block_dim: [
                get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ],
            max_grid_dim: [
                get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            max_threads_per_multiprocessor: get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            max_blocks_per_multiprocessor: get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?,
            warp_size: get(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
            shared_bytes_per_block: get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            max_shared_bytes_per_block: get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            shared_bytes_per_multiprocessor: get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            reserved_shared_bytes_per_block: get(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)?,
            registers_per_block: get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)?,
            registers_per_multiprocessor: get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
            clock_khz: get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            memory_clock_khz: get(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
            memory_bus_bits: get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
            copy_engines: get(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)?,
            cooperative_launch: get(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0,
            clusters: get(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)? != 0,
            ecc: get(CU_DEVICE_ATTRIBUTE_ECC_ENABLED)? != 0,
        })
    }

    /// Queries all devices that are visible to this process.
    pub fn all() -> Result<Vec<DeviceInfo>> {
        (0..device_count()?).map(DeviceInfo::query).collect()
    }
}

/// Reads a string from the driver.
fn text(driver: &Driver, call: &'static str, get: impl FnOnce(*mut c_char, c_int) -> CUresult) -> Result<String> {
    let mut buffer = [0 as c_char; 256];
    check(driver, call, get(buffer.as_mut_ptr(), buffer.len() as c_int))?;
    // SAFETY: the driver terminates what it writes, and the buffer was zero before.
    Ok(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned())
}

/// Returns the best device: most memory times multiprocessors; the first of equals. Unsupported
/// devices do not count; if there are only those, the error says so.
pub(crate) fn best_of(infos: &[DeviceInfo]) -> Result<usize> {
    let score = |info: &DeviceInfo| u128::from(info.memory_bytes) * u128::from(info.multiprocessors);
    let usable = infos.iter().filter(|info| info.check_supported().is_ok());
    let best = usable.max_by_key(|info| (score(info), std::cmp::Reverse(info.ordinal)));
    match (best, infos.first()) {
        (Some(info), _) => Ok(info.ordinal),
        (None, Some(old)) => old.check_supported().and(Err(Error::NoDevice { requested: 0, available: vec![] })),
        (None, None) => Err(Error::NoDevice { requested: 0, available: vec![] }),
    }
}

/// Returns the driver, initialized.
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

/// Returns the highest CUDA version that the driver supports, as (major, minor).
pub fn driver_version() -> Result<(u32, u32)> {
    let driver = Driver::get()?;
    let mut version = 0;
    // SAFETY: writes one integer.
    check(driver, "cuDriverGetVersion", unsafe { (driver.cuDriverGetVersion)(&mut version) })?;
    Ok((version as u32 / 1000, version as u32 % 1000 / 10))
}

/// Returns the driver's release, such as `570.86.15`, if the kernel module reports it.
pub fn driver_release() -> Option<String> {
    parse_release(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

/// Finds the release in the kernel module's version file.
fn parse_release(version_file: &str) -> Option<String> {
    let line = version_file.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_release = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(is_release).map(str::to_owned)
}

/// Fails if the driver is too old, by the CUDA version that it reports.
pub(crate) fn check_driver_version(found: (u32, u32), release: Option<String>) -> Result<()> {
    if found >= MIN_CUDA_VERSION { Ok(()) } else { Err(Error::OldDriver { found, release }) }
}

/// Returns the number of CUDA devices that are visible to this process.
pub fn device_count() -> Result<usize> {
    let mut count = 0;
    let counted = driver().and_then(|driver| {
        // SAFETY: writes one integer.
        check(driver, "cuDeviceGetCount", unsafe { (driver.cuDeviceGetCount)(&mut count) })
    });
    match counted {
        // Initialization fails with this code if there is no device, or none is visible.
        Err(Error::Driver { code, .. }) if code == CUresult::CUDA_ERROR_NO_DEVICE as u32 => Ok(0),
        counted => counted.map(|()| count as usize),
    }
}

pub(crate) fn handle(ordinal: usize) -> Result<(&'static Driver, cu::CUdevice)> {
    let count = device_count()?;
    if ordinal >= count {
        let found = (0..count).map(|n| DeviceInfo::query(n).map(|info| info.label()));
        return Err(Error::NoDevice { requested: ordinal, available: found.collect::<Result<_>>()? });
    }
    let driver = driver()?;
    let mut device = 0;
    // SAFETY: writes one handle; the ordinal is in range.
    check(driver, "cuDeviceGet", unsafe { (driver.cuDeviceGet)(&mut device, ordinal as c_int) })?;
    Ok((driver, device))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Properties of an H200.
    pub(crate) fn h200(ordinal: usize) -> DeviceInfo {
        DeviceInfo {
            ordinal,
            name: "NVIDIA H200".into(),
            pci_bus: "0000:3b:00.0".into(),
            compute_capability: (9, 0),
            memory_bytes: 150_110_011_392,
            free_memory_bytes: None,
            multiprocessors: 132,
            l2_bytes: 60 << 20,
            max_threads_per_block: 1024,
            max_block_dim: [1024, 1024, 64],
            max_grid_dim: [i32::MAX as u32, 65535, 65535],
            max_threads_per_multiprocessor: 2048,
            max_blocks_per_multiprocessor: 32,
            warp_size: 32,
            shared_bytes_per_block: 48 << 10,
            max_shared_bytes_per_block: 227 << 10,
            shared_bytes_per_multiprocessor: 228 << 10,
            reserved_shared_bytes_per_block: 1 << 10,
            registers_per_block: 65536,
            registers_per_multiprocessor: 65536,
            clock_khz: 1_980_000,
            memory_clock_khz: 3_201_000,
            memory_bus_bits: 6144,
            copy_engines: 3,
            cooperative_launch: true,
            clusters: true,
            ecc: true,
        }
    }

    /// Properties of a consumer card two generations older.
    pub(crate) fn rtx3060(ordinal: usize) -> DeviceInfo {
        DeviceInfo {
            name: "NVIDIA GeForce RTX 3060".into(),
            compute_capability: (8, 6),
            memory_bytes: 12 << 30,
            multiprocessors: 28,
            l2_bytes: 3 << 20,
            max_threads_per_multiprocessor: 1536,
            max_blocks_per_multiprocessor: 16,
            max_shared_bytes_per_block: 99 << 10,
            shared_bytes_per_multiprocessor: 100 << 10,
            clusters: false,
            ..h200(ordinal)
        }
    }

    fn old(ordinal: usize) -> DeviceInfo {
        DeviceInfo { name: "Tesla P100".into(), compute_capability: (6, 0), ..h200(ordinal) }
    }

    #[test]
    fn the_best_device_has_most_memory_times_multiprocessors() {
        let more_memory = DeviceInfo { memory_bytes: 60 << 30, ..rtx3060(1) };
        for (infos, best) in [
            (vec![rtx3060(0), h200(1)], 1),
            (vec![h200(0), rtx3060(1), h200(2)], 0),
            (vec![rtx3060(0), more_memory], 1),
            (vec![old(0), rtx3060(1)], 1),
            (vec![rtx3060(3)], 3),
        ] {
            assert_eq!(best_of(&infos).unwrap(), best, "{infos:?}");
        }
    }

    #[test]
    fn unsupported_and_missing_devices_give_different_errors() {
        let error = best_of(&[old(0), old(1)]).unwrap_err();
        assert!(matches!(&error, Error::OldDevice { found: (6, 0), .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("cuda:0 (Tesla P100)") && text.contains("6.0") && text.contains("7.5"), "{text}");
        assert!(!error.is_no_gpu() && error.cpu_fallback_notice().starts_with("NVIDIA GPU not usable;"));
        let error = best_of(&[]).unwrap_err();
        assert!(error.to_string().contains("no CUDA device"), "{error}");
        assert_eq!(error.cpu_fallback_notice(), "No NVIDIA GPU found; using the CPU (details: bornite doctor).");
    }

    #[test]
    fn the_error_of_an_old_driver_names_found_and_required_versions() {
        check_driver_version((12, 8), None).unwrap();
        check_driver_version((13, 0), None).unwrap();
        let text = check_driver_version((12, 4), Some("550.54.14".into())).unwrap_err().to_string();
        for part in ["550.54.14", "CUDA 12.4", "570", "CUDA 12.8"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = check_driver_version((11, 8), None).unwrap_err().to_string();
        assert!(text.contains("CUDA 11.8") && text.contains("570"), "{text}");
    }

    #[test]
    fn the_release_is_parsed_for_open_and_closed_kernel_modules() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\nGCC";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@x)\n";
        assert_eq!(parse_release(closed).as_deref(), Some("550.54.14"));
        assert_eq!(parse_release(open).as_deref(), Some("580.95.05"));
        assert_eq!(parse_release("something else 1.2"), None);
    }
}
