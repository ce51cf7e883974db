//! Memory of a tensor, on whichever device: a number of 64-bit words, shared by handle.

use std::any::Any;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bornite_cuda::profile::Kind;

use crate::element::zero_words;
use crate::timing::transfer;
use crate::{Device, Error, Result};

/// A handle on memory. Who may write it is decided by plans; a tensor's value is never written while it is visible.
#[derive(Clone)]
pub(crate) enum Buffer {
    Host(Arc<HostMemory>),
    Cuda(Arc<bornite_cuda::Buffer>),
}

/// Words of the host, counted as memory of a device while they are there.
pub(crate) struct HostMemory {
    words: RwLock<Vec<u64>>,
    bytes: usize,
    held: &'static AtomicUsize,
}

impl HostMemory {
    fn new(device: Device, words: Vec<u64>) -> HostMemory {
        let (bytes, held) = (words.len() * 8, device.held());
        held.fetch_add(bytes, Ordering::Relaxed);
        HostMemory { words: RwLock::new(words), bytes, held }
    }
}

impl Deref for HostMemory {
    type Target = RwLock<Vec<u64>>;

    fn deref(&self) -> &RwLock<Vec<u64>> {
        &self.words
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Buffer {
    /// Memory for `bytes` bytes.
    pub fn new(device: Device, bytes: usize) -> Result<Buffer> {
        let words = bytes.div_ceil(8);
        match device {
            Device::Cpu(_) | Device::Interpreter => {
                let memory = zero_words(words).ok_or(Error::OutOfMemory { bytes })?;
                Ok(Buffer::Host(Arc::new(HostMemory::new(device, memory))))
            }
            Device::Cuda(ordinal) => {
                let device = bornite_cuda::Device::open(ordinal)?;
                Ok(Buffer::Cuda(Arc::new(bornite_cuda::Buffer::new(&device, words * 8)?)))
            }
        }
    }

    /// Memory that holds `words`.
    pub fn from_words(device: Device, words: Vec<u64>) -> Result<Buffer> {
        match device {
            Device::Cpu(_) | Device::Interpreter => Ok(Buffer::Host(Arc::new(HostMemory::new(device, words)))),
            Device::Cuda(_) => {
                let buffer = Buffer::new(device, words.len() * 8)?;
                if let Buffer::Cuda(memory) = &buffer {
                    let bytes = bytemuck::cast_slice(&words);
                    transfer(Kind::Upload, memory, || memory.upload(bytes))?;
                }
                Ok(buffer)
            }
        }
    }

    /// The contents, after all work on them.
    pub fn to_words(&self) -> Result<Vec<u64>> {
        match self {
            Buffer::Host(memory) => {
                let memory = memory.read().unwrap_or_else(PoisonError::into_inner);
                let mut words = zero_words(memory.len()).ok_or(Error::OutOfMemory { bytes: memory.len() * 8 })?;
                words.copy_from_slice(&memory);
                Ok(words)
            }
            Buffer::Cuda(memory) => {
                let mut words = zero_words(memory.bytes() / 8).ok_or(Error::OutOfMemory { bytes: memory.bytes() })?;
                let bytes = bytemuck::cast_slice_mut(&mut words);
                transfer(Kind::Download, memory, || memory.download(bytes))?;
                Ok(words)
            }
        }
    }

    /// Copies all of `source`, of the same size on the same device, in the order of the device's work.
    pub fn copy_from(&self, source: &Buffer) -> Result<()> {
        match (self, source) {
            (Buffer::Host(to), Buffer::Host(from)) if !Arc::ptr_eq(to, from) => {
                let from = from.read().unwrap_or_else(PoisonError::into_inner);
                to.write().unwrap_or_else(PoisonError::into_inner).copy_from_slice(&from);
            }
            (Buffer::Cuda(to), Buffer::Cuda(from)) => transfer(Kind::Copy, to, || to.copy_from(from))?,
            _ => {}
        }
        Ok(())
    }

    /// A new buffer with the same contents.
    pub fn duplicate(&self, device: Device) -> Result<Buffer> {
        let bytes = match self {
            Buffer::Host(memory) => memory.read().unwrap_or_else(PoisonError::into_inner).len() * 8,
            Buffer::Cuda(memory) => memory.bytes(),
        };
        let copy = Buffer::new(device, bytes)?;
        copy.copy_from(self)?;
        Ok(copy)
    }

    /// A handle that keeps memory of a GPU alive.
    pub fn kept(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        match self {
            Buffer::Host(_) => None,
            Buffer::Cuda(memory) => Some(memory.clone()),
        }
    }

    /// True if both are handles on the same memory.
    pub fn is(&self, other: &Buffer) -> bool {
        match (self, other) {
            (Buffer::Host(a), Buffer::Host(b)) => Arc::ptr_eq(a, b),
            (Buffer::Cuda(a), Buffer::Cuda(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}
