//! Device memory: blocks of the device's pool, freed in stream order; copies to and from the host
//! and between devices.

use std::sync::Arc;

use crate::capture::is_capturing;
use crate::context::invalid;
use crate::pool::{DriverBacking, PoolBlock, Tag};
use crate::{Device, Event, Result, Stream};

/// An allocation on a device. When dropped, it is freed after the work that uses it.
pub struct Buffer {
    device: Arc<Device>,
    /// `None` once freed.
    block: Option<PoolBlock>,
    address: u64,
    bytes: usize,
}

impl Buffer {
    /// Allocates `bytes` uninitialized bytes for work on the device's main stream. Not during
    /// stream capture.
    #[track_caller]
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Buffer> {
        Buffer::allocate(device, DriverBacking::MAIN, bytes, Tag::default())
    }

    /// Like [`Buffer::new`], with a tag that error reports and snapshots show
    /// ([`crate::Pool::tag`]).
    #[track_caller]
    pub fn with_tag(device: &Arc<Device>, bytes: usize, tag: Tag) -> Result<Buffer> {
        Buffer::allocate(device, DriverBacking::MAIN, bytes, tag)
    }

    /// Allocates for work on another stream, which may use the memory immediately; other streams
    /// must wait for it first.
    #[track_caller]
    pub fn on_stream(stream: &Stream, bytes: usize) -> Result<Buffer> {
        Buffer::allocate(stream.device(), stream.id(), bytes, Tag::default())
    }

    #[track_caller]
    fn allocate(device: &Arc<Device>, stream: crate::pool::StreamId, bytes: usize, tag: Tag) -> Result<Buffer> {
        device.context.check_alive()?;
        device.check_not_capturing("an allocation")?;
        device.take_deferred_error()?;
        let block = device.pool().alloc(bytes as u64, stream, tag)?;
        Ok(Buffer { device: device.clone(), address: block.address(), block: Some(block), bytes })
    }

    /// Allocates a buffer and uploads `data` on the copy stream while the main stream continues;
    /// later work on the main stream waits for the upload.
    #[track_caller]
    pub fn prefetch(device: &Arc<Device>, data: &[u8]) -> Result<Buffer> {
        let up = Stream::h2d(device);
        let buffer = Buffer::on_stream(&up, data.len())?;
        buffer.upload_on(&up, data)?;
        let main = Stream::main(device);
        buffer.record_stream(&main)?;
        main.wait_for(&up)?;
        Ok(buffer)
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns its device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the id of the stream that it was allocated for.
    pub fn stream(&self) -> crate::pool::StreamId {
        self.block.map_or(DriverBacking::MAIN, |block| block.stream())
    }

    /// Records that work on another stream of the device uses the buffer: its memory is not reused
    /// before that work is done. Like PyTorch's `Tensor.record_stream`.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        // A pool identifies streams by id, and ids of another device are other streams.
        self.check_device("a stream", stream.device())?;
        match &self.block {
            Some(block) if block.stream() != stream.id() => self.device.pool().record_stream(block, stream.id()),
            _ => Ok(()),
        }
    }

    /// Like [`Buffer::record_stream`] for the device's main stream.
    #[inline]
    pub(crate) fn record_main_stream(&self) -> Result<()> {
        match &self.block {
            Some(block) if block.stream() != DriverBacking::MAIN => {
                self.device.pool().record_stream(block, DriverBacking::MAIN)
            }
            _ => Ok(()),
        }
    }

    /// Frees the memory now and returns an error that a drop could only defer to a later call.
    pub fn free(mut self) -> Result<()> {
        self.block.take().map_or(Ok(()), |block| self.device.free(block))
    }

    /// Checks that the buffer is on `device`.
    pub(crate) fn check_device(&self, what: &str, device: &Arc<Device>) -> Result<()> {
        if Arc::ptr_eq(&self.device, device) {
            return Ok(());
        }
        let (ours, theirs) = (self.device.info().label(), device.info().label());
        Err(invalid(
            "buffer",
            format!("a buffer on {ours} cannot be used with {what} of {theirs}; copy it there first"),
        ))
    }

    /// Makes a stream wait for the stream that the buffer was allocated for, and records the
    /// stream.
    pub(crate) fn acquire_on(&self, stream: &Stream) -> Result<()> {
        self.check_device("a stream", stream.device())?;
        if self.stream() == stream.id() {
            return Ok(());
        }
        let event = Event::untimed(&self.device)?;
        event.record_raw(self.device.pooled_stream(self.stream())?.handle)?;
        stream.wait(&event)?;
        self.record_stream(stream)
    }

    /// Copies from the host in the order of the main stream; returns when `data` may be reused,
    /// possibly before it is on the device. The lengths must be equal.
    pub fn upload(&self, data: &[u8]) -> Result<()> {
        self.upload_on(&Stream::main(&self.device), data)
    }

    /// Like [`Buffer::upload`], on another stream, which first waits for the buffer's.
    pub fn upload_on(&self, stream: &Stream, data: &[u8]) -> Result<()> {
        self.check_len("upload", data.len())?;
        self.device.check_not_capturing("an upload")?;
        if data.is_empty() {
            return Ok(());
        }
        self.acquire_on(stream)?;
        // SAFETY: the block is as long as `data`, and is reused only after this stream's work.
        unsafe { self.device.staging(stream.raw(), false).upload(&self.device, stream.raw(), self.address, data) }
    }

    /// Copies to the host after all earlier work on the main stream. The lengths must be equal.
    pub fn download(&self, data: &mut [u8]) -> Result<()> {
        self.download_on(&Stream::main(&self.device), data)?;
        self.device.take_deferred_error()
    }

    /// Like [`Buffer::download`], from a byte offset on; `data` determines the number of bytes.
    pub fn download_range(&self, offset: usize, data: &mut [u8]) -> Result<()> {
        self.check_range("download", offset, data.len())?;
        self.download_from(&Stream::main(&self.device), offset, data)?;
        self.device.take_deferred_error()
    }

    /// Like [`Buffer::download`], on another stream, which first waits for the buffer's.
    pub fn download_on(&self, stream: &Stream, data: &mut [u8]) -> Result<()> {
        self.check_len("download", data.len())?;
        self.download_from(stream, 0, data)
    }

    /// Downloads bytes that the caller has checked to be within the buffer.
    fn download_from(&self, stream: &Stream, offset: usize, data: &mut [u8]) -> Result<()> {
        self.device.check_not_capturing("a download")?;
        if data.is_empty() {
            return Ok(());
        }
        self.acquire_on(stream)?;
        let address = self.address + offset as u64;
        // SAFETY: the block holds the bytes from there on, and is alive.
        unsafe { self.device.staging(stream.raw(), true).download(&self.device, stream.raw(), address, data) }
    }

    /// Copies another buffer of the same size into this one, in stream order. Between devices it
    /// uses a peer copy if possible, else it goes through the host.
    pub fn copy_from(&self, source: &Buffer) -> Result<()> {
        self.check_len("copy", source.bytes)?;
        if self.bytes > 0 && !Arc::ptr_eq(&self.device, &source.device) {
            return self.copy_from_peer(source);
        }
        self.copy_range_from(0, source, 0, self.bytes)
    }

    /// Copies a byte range of a buffer of the same device into this one, in stream order. The two
    /// ranges must not overlap.
    pub fn copy_range_from(&self, offset: usize, source: &Buffer, from: usize, bytes: usize) -> Result<()> {
        self.check_range("copy", offset, bytes)?;
        source.check_range("copy", from, bytes)?;
        if !Arc::ptr_eq(&self.device, &source.device) {
            return Err(invalid(
                "copy",
                "a range cannot be copied between two devices; copy the complete buffer".into(),
            ));
        }
        if bytes == 0 {
            return Ok(());
        }
        for buffer in [self, source] {
            if is_capturing(self.device.info().ordinal) {
                buffer.record_main_stream()?;
            } else {
                buffer.acquire_on(&Stream::main(&self.device))?;
            }
        }
        self.device.bind()?;
        let (driver, stream) = (self.device.driver, self.device.work_stream());
        let (to, from) = (self.address + offset as u64, source.address + from as u64);
        // SAFETY: both allocations hold the bytes from there on; the copy is ordered before any
        // later free of either.
        let result = unsafe { (driver.cuMemcpyDtoDAsync_v2)(to, from, bytes, stream) };
        self.device.check("cuMemcpyDtoDAsync", result)
    }

    fn copy_from_peer(&self, source: &Buffer) -> Result<()> {
        self.device.check_not_capturing("a copy from another device")?;
        source.device.check_not_capturing("a copy to another device")?;
        let (main, theirs) = (Stream::main(&self.device), Stream::main(&source.device));
        self.acquire_on(&main)?;
        source.acquire_on(&theirs)?;
        main.wait_for(&theirs)?;
        self.device.bind()?;
        let (to, from) = (self.device.context.handle, source.device.context.handle);
        // SAFETY: both allocations hold `bytes` bytes of the contexts named; the copy comes after
        // all work on the source, and the source's stream waits for it below, before any later
        // free.
        let result = unsafe {
            (self.device.driver.cuMemcpyPeerAsync)(self.address, to, source.address, from, self.bytes, main.raw())
        };
        self.device.check("cuMemcpyPeerAsync", result)?;
        theirs.wait_for(&main)
    }

    pub(crate) fn check_len(&self, call: &'static str, bytes: usize) -> Result<()> {
        if bytes == self.bytes {
            return Ok(());
        }
        Err(invalid(call, format!("the data has {bytes} bytes, but the buffer {}", self.bytes)))
    }

    pub(crate) fn check_range(&self, call: &'static str, offset: usize, bytes: usize) -> Result<()> {
        if offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        Err(invalid(call, format!("{bytes} bytes at offset {offset} exceed the buffer of {} bytes", self.bytes)))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.device.defer_error(self.device.free(block));
        }
    }
}
