//! Device memory: allocated and freed in stream order, copied both ways.

use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUresult};

use crate::{Device, Error, Result};

/// An allocation on a device, freed when dropped, after the work that uses it.
pub struct Buffer {
    device: Arc<Device>,
    address: CUdeviceptr,
    bytes: usize,
}

impl Buffer {
    /// Allocates `bytes` bytes, not initialised.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Buffer> {
        device.bind()?;
        let mut address = 0;
        // The driver refuses empty allocations; 16 bytes keep an address to pass.
        // SAFETY: writes one address.
        let result = unsafe { (device.driver.cuMemAllocAsync)(&mut address, bytes.max(16), device.stream) };
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let (free_bytes, total_bytes) = device.memory_bytes()?;
            let name = format!("cuda:{} ({})", device.info().ordinal, device.info().name);
            return Err(Error::OutOfMemory { device: name, asked_bytes: bytes as u64, free_bytes, total_bytes });
        }
        device.check("cuMemAllocAsync", result)?;
        Ok(Buffer { device: device.clone(), address, bytes })
    }

    /// The device it is on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Copies from the host; returns when `data` may be reused. Lengths must agree.
    pub fn upload(&self, data: &[u8]) -> Result<()> {
        self.fits("upload", data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        let driver = self.device.driver;
        // SAFETY: `data` is readable and the allocation writable for `data.len()` bytes; both live until the
        // synchronisation below.
        let result = unsafe {
            (driver.cuMemcpyHtoDAsync_v2)(self.address, data.as_ptr().cast(), data.len(), self.device.stream)
        };
        self.device.check("cuMemcpyHtoDAsync", result)?;
        self.device.synchronize()
    }

    /// Copies to the host after all work before. Lengths must agree.
    pub fn download(&self, data: &mut [u8]) -> Result<()> {
        self.fits("download", data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        let driver = self.device.driver;
        // SAFETY: as in `upload`, with the directions exchanged.
        let result = unsafe {
            (driver.cuMemcpyDtoHAsync_v2)(data.as_mut_ptr().cast(), self.address, data.len(), self.device.stream)
        };
        self.device.check("cuMemcpyDtoHAsync", result)?;
        self.device.synchronize()
    }

    /// Copies another buffer of the same size on the same device into this one, in stream order.
    pub fn copy_from(&self, source: &Buffer) -> Result<()> {
        self.fits("copy", source.bytes)?;
        if self.bytes == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: both allocations hold `bytes` bytes; the copy is ordered before any later free of either.
        let result = unsafe {
            (self.device.driver.cuMemcpyDtoDAsync_v2)(
                self.address,
                source.address,
                self.bytes,
                self.device.work_stream(),
            )
        };
        self.device.check("cuMemcpyDtoDAsync", result)
    }

    fn fits(&self, call: &'static str, bytes: usize) -> Result<()> {
        if bytes == self.bytes {
            return Ok(());
        }
        let text = format!("{bytes} bytes given, the buffer has {}", self.bytes);
        Err(Error::Driver { call, code: 1, name: "CUDA_ERROR_INVALID_VALUE".into(), text })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // A lost context has freed everything already; any other failure surfaces at the next call.
        if self.device.bind().is_ok() {
            // SAFETY: the address came from `cuMemAllocAsync` on this stream and is freed once, in stream order after
            // every use.
            let result = unsafe { (self.device.driver.cuMemFreeAsync)(self.address, self.device.stream) };
            let _ = self.device.check("cuMemFreeAsync", result);
        }
    }
}
