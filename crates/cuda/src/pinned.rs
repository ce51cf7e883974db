//! Pinned host memory and asynchronous copies.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys::{self as cu, CUresult};

use crate::context::invalid;
use crate::{Buffer, Device, Event, Result, Stream};

/// Page-locked host memory. Allocation is slow, and freeing waits for all work of the device: reuse
/// it.
pub struct PinnedBuffer {
    device: Arc<Device>,
    base: *mut c_void,
    bytes: usize,
}

// SAFETY: plain memory, owned by this value alone.
unsafe impl Send for PinnedBuffer {}
// SAFETY: as above.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Allocates `bytes` zeroed bytes.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<PinnedBuffer> {
        device.bind()?;
        device.check_not_capturing("an allocation")?;
        let mut base = null_mut();
        let flags = cu::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: writes one address. The driver rejects empty allocations, so at least one byte is
        // requested.
        let result = unsafe { (device.driver.cuMemHostAlloc)(&mut base, bytes.max(1), flags) };
        device.check("cuMemHostAlloc", result)?;
        // SAFETY: the driver allocated `bytes` bytes, which nothing else uses.
        unsafe { base.cast::<u8>().write_bytes(0, bytes) };
        Ok(PinnedBuffer { device: device.clone(), base, bytes })
    }

    /// Allocates a copy of `data`.
    pub fn from_bytes(device: &Arc<Device>, data: &[u8]) -> Result<PinnedBuffer> {
        let mut pinned = PinnedBuffer::new(device, data.len())?;
        pinned.copy_from_slice(data);
        Ok(pinned)
    }
}

impl Deref for PinnedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation has `bytes` initialized bytes; a copy that writes them owns this
        // value meanwhile.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.bytes) }
    }
}

impl DerefMut for PinnedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; a copy that reads them owns this value meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast(), self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: from `cuMemHostAlloc`, freed once, with no copy under way: that would own
            // this value.
            let result = unsafe { (self.device.driver.cuMemFreeHost)(self.base) };
            self.device.defer_error(self.device.check("cuMemFreeHost", result));
        }
    }
}

/// An asynchronous copy. Holds its host memory until it is done.
pub struct Transfer<T> {
    held: Option<T>,
    begin: Event,
    end: Event,
}

impl<T> Transfer<T> {
    /// Returns true if it is done.
    pub fn is_done(&self) -> Result<bool> {
        self.end.is_done()
    }

    /// Makes later work on `stream` wait for the copy.
    pub fn order_before(&self, stream: &Stream) -> Result<()> {
        stream.wait(&self.end)
    }

    /// Waits until it is done; returns the host memory and the time on the device in milliseconds.
    pub fn finish(mut self) -> Result<(T, f64)> {
        self.end.synchronize()?;
        let ms = self.end.ms_since(&self.begin)?;
        match self.held.take() {
            Some(held) => Ok((held, ms)),
            None => Err(invalid("finish", "the copy is already finished".into())),
        }
    }
}

impl<T> Drop for Transfer<T> {
    fn drop(&mut self) {
        if self.held.is_some() {
            // The copy engine must not access pinned memory after it is freed. On a lost device it
            // does not.
            let _ = self.end.synchronize();
        }
    }
}

impl Stream {
    /// Starts a copy of pinned memory to a buffer of the same size. The stream first waits for the
    /// buffer's; streams that use the buffer can wait with [`Transfer::order_before`].
    pub fn upload(&self, from: PinnedBuffer, to: &Buffer) -> Result<Transfer<PinnedBuffer>> {
        to.check_len("upload", from.len())?;
        let (base, bytes, address) = (from.base, from.bytes, to.address());
        self.transfer(from, &[to], "cuMemcpyHtoDAsync", bytes, |stream| {
            // SAFETY: the pinned memory is held by the transfer until the copy is done; the buffer
            // is as long, and is freed in this stream's order.
            unsafe { (self.device().driver.cuMemcpyHtoDAsync_v2)(address, base, bytes, stream) }
        })
    }

    /// Starts a copy of a buffer to pinned memory of the same size. The stream first waits for the
    /// buffer's.
    pub fn download(&self, from: &Buffer, to: PinnedBuffer) -> Result<Transfer<PinnedBuffer>> {
        from.check_len("download", to.len())?;
        let (base, bytes, address) = (to.base, to.bytes, from.address());
        self.transfer(to, &[from], "cuMemcpyDtoHAsync", bytes, |stream| {
            // SAFETY: as in `upload`, with the directions exchanged.
            unsafe { (self.device().driver.cuMemcpyDtoHAsync_v2)(base, address, bytes, stream) }
        })
    }

    /// Starts a copy of a buffer to another of the same size on this stream's device. The stream
    /// first waits for the streams of both.
    pub fn copy(&self, from: &Buffer, to: &Buffer) -> Result<Transfer<()>> {
        to.check_len("copy", from.bytes())?;
        if !Arc::ptr_eq(from.device(), self.device()) {
            return Err(invalid("copy", "the source is on another device; use Buffer::copy_from".into()));
        }
        let bytes = from.bytes();
        self.transfer((), &[from, to], "cuMemcpyDtoDAsync", bytes, |stream| {
            // SAFETY: both buffers have `bytes` bytes, and are freed in this stream's order.
            unsafe { (self.device().driver.cuMemcpyDtoDAsync_v2)(to.address(), from.address(), bytes, stream) }
        })
    }

    fn transfer<T>(
        &self,
        held: T,
        buffers: &[&Buffer],
        call: &'static str,
        bytes: usize,
        start: impl FnOnce(cu::CUstream) -> CUresult,
    ) -> Result<Transfer<T>> {
        let device = self.device();
        if buffers.iter().any(|buffer| !Arc::ptr_eq(buffer.device(), device)) {
            return Err(invalid(call, "the buffer and the stream are on different devices".into()));
        }
        device.check_not_capturing("a copy")?;
        for buffer in buffers {
            buffer.acquire_on(self)?;
        }
        let (begin, end) = (Event::timed(device)?, Event::timed(device)?);
        begin.record(self)?;
        if bytes > 0 {
            device.check(call, start(self.raw()))?;
        }
        // If this fails, the end of the copy is not known: wait for it here.
        if let Err(error) = end.record(self) {
            let _ = self.synchronize();
            return Err(error);
        }
        Ok(Transfer { held: Some(held), begin, end })
    }
}
