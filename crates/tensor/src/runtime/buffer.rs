//! Memory of a tensor on any device: a byte range of a reference-counted allocation.
//!
//! Plans split one allocation into many buffers. Code that accesses host memory borrows several
//! buffers at once through `host_slices.rs`.

mod host_slices;

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bornite_support::profile::WorkKind;

use crate::runtime::element::zero_words;
use crate::runtime::timing::transfer;
use crate::{Device, Error, Result};

pub(crate) use host_slices::{HostSlice, with_host_slices};

/// A handle to a byte range of an allocation. Plans decide which buffers are written; a tensor's
/// value is never written while a tensor refers to it.
#[derive(Clone)]
pub(crate) struct Buffer {
    allocation: Allocation,
    /// Offset in bytes; a multiple of 8.
    offset: usize,
    /// Size in bytes; a multiple of 8.
    bytes: usize,
}

#[derive(Clone)]
enum Allocation {
    Host(Arc<HostMemory>),
    Cuda(Arc<bornite_cuda::Buffer>),
}

/// Host memory, counted in the statistics of its device.
pub(crate) struct HostMemory {
    words: RwLock<Vec<u64>>,
    bytes: usize,
    allocated: &'static AtomicUsize,
}

impl HostMemory {
    fn new(device: Device, words: Vec<u64>) -> HostMemory {
        let (bytes, allocated) = (words.len() * 8, device.host_allocated());
        allocated.fetch_add(bytes, Ordering::Relaxed);
        HostMemory { words: RwLock::new(words), bytes, allocated }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        self.allocated.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Buffer {
    /// Allocates `bytes` bytes.
    pub fn new(device: Device, bytes: usize) -> Result<Buffer> {
        let words = bytes.div_ceil(8);
        match device.gpu()? {
            Some(gpu) => Ok(Buffer::cuda(bornite_cuda::Buffer::new(&gpu, words * 8)?)),
            None => {
                let memory = zero_words(words).ok_or(Error::OutOfMemory { bytes })?;
                Ok(Buffer::host(HostMemory::new(device, memory)))
            }
        }
    }

    /// Allocates memory that holds `words`.
    pub fn from_words(device: Device, words: Vec<u64>) -> Result<Buffer> {
        if !device.is_cuda() {
            return Ok(Buffer::host(HostMemory::new(device, words)));
        }
        let buffer = Buffer::new(device, words.len() * 8)?;
        if let Allocation::Cuda(memory) = &buffer.allocation {
            let bytes = bytemuck::cast_slice(&words);
            transfer(WorkKind::Upload, memory, bytes.len(), || memory.upload(bytes))?;
        }
        Ok(buffer)
    }

    fn host(memory: HostMemory) -> Buffer {
        Buffer { bytes: memory.bytes, allocation: Allocation::Host(Arc::new(memory)), offset: 0 }
    }

    fn cuda(memory: bornite_cuda::Buffer) -> Buffer {
        Buffer { bytes: memory.bytes(), allocation: Allocation::Cuda(Arc::new(memory)), offset: 0 }
    }

    /// The range of `bytes` bytes, rounded up to a multiple of 8, at `offset`, which must be a
    /// multiple of 8. `None` if it is out of bounds.
    pub fn slice(&self, offset: usize, bytes: usize) -> Option<Buffer> {
        let bytes = bytes.checked_next_multiple_of(8)?;
        let in_bounds = offset.is_multiple_of(8) && offset.checked_add(bytes)? <= self.bytes;
        in_bounds.then(|| Buffer { allocation: self.allocation.clone(), offset: self.offset + offset, bytes })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// GPU allocation and offset in bytes; `None` on the host.
    pub fn pointer(&self) -> Option<bornite_cuda::DevicePointer<'_>> {
        match &self.allocation {
            Allocation::Host(_) => None,
            Allocation::Cuda(memory) => Some((memory, self.offset)),
        }
    }

    /// The buffer as an argument of a CUDA graph; `None` on the host.
    pub fn argument(&self) -> Option<bornite_cuda::GraphArgument<'_>> {
        let (buffer, offset) = self.pointer()?;
        Some(bornite_cuda::GraphArgument { buffer, offset, bytes: self.bytes })
    }

    /// Range of words of the allocation.
    fn words(&self) -> Range<usize> {
        self.offset / 8..(self.offset + self.bytes) / 8
    }

    /// Returns the contents, after all pending work of the device.
    pub fn to_words(&self) -> Result<Vec<u64>> {
        let mut words = zero_words(self.bytes / 8).ok_or(Error::OutOfMemory { bytes: self.bytes })?;
        match &self.allocation {
            Allocation::Host(memory) => {
                let memory = memory.words.read().unwrap_or_else(PoisonError::into_inner);
                words.copy_from_slice(&memory[self.words()]);
            }
            Allocation::Cuda(memory) => {
                let bytes = bytemuck::cast_slice_mut(&mut words);
                transfer(WorkKind::Download, memory, bytes.len(), || memory.download_range(self.offset, bytes))?;
            }
        }
        Ok(words)
    }

    /// Copies `source`, of the same size on the same device, in stream order. The two must be the
    /// same memory or not overlap.
    pub fn copy_from(&self, source: &Buffer) -> Result<()> {
        if self.is_same(source) {
            return Ok(());
        }
        match (&self.allocation, &source.allocation) {
            (Allocation::Host(to), Allocation::Host(from)) if Arc::ptr_eq(to, from) => {
                let mut words = to.words.write().unwrap_or_else(PoisonError::into_inner);
                words.copy_within(source.words(), self.words().start);
            }
            (Allocation::Host(to), Allocation::Host(from)) => {
                let from = from.words.read().unwrap_or_else(PoisonError::into_inner);
                let mut to = to.words.write().unwrap_or_else(PoisonError::into_inner);
                to[self.words()].copy_from_slice(&from[source.words()]);
            }
            (Allocation::Cuda(to), Allocation::Cuda(from)) => {
                let (at, begins) = (self.offset, source.offset);
                transfer(WorkKind::Copy, to, self.bytes, || to.copy_range_from(at, from, begins, self.bytes))?
            }
            _ => {}
        }
        Ok(())
    }

    /// Allocates a copy.
    pub fn duplicate(&self, device: Device) -> Result<Buffer> {
        let copy = Buffer::new(device, self.bytes)?;
        copy.copy_from(self)?;
        Ok(copy)
    }

    /// A handle that keeps the GPU allocation alive; `None` on the host.
    pub fn keep_alive(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        match &self.allocation {
            Allocation::Host(_) => None,
            Allocation::Cuda(memory) => Some(memory.clone()),
        }
    }

    fn shares_allocation(&self, other: &Buffer) -> bool {
        match (&self.allocation, &other.allocation) {
            (Allocation::Host(a), Allocation::Host(b)) => Arc::ptr_eq(a, b),
            (Allocation::Cuda(a), Allocation::Cuda(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// True if both refer to the same byte range.
    pub fn is_same(&self, other: &Buffer) -> bool {
        self.shares_allocation(other) && (self.offset, self.bytes) == (other.offset, other.bytes)
    }

    /// True if the byte ranges intersect.
    pub fn overlaps(&self, other: &Buffer) -> bool {
        let (a, b) = (self.words(), other.words());
        self.shares_allocation(other) && a.start.max(b.start) < a.end.min(b.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(words: usize) -> Buffer {
        Buffer::from_words(Device::cpu(), (0..words as u64).collect()).unwrap()
    }

    #[test]
    fn slices_are_ranges_of_their_allocation() {
        let all = counted(10);
        let slice = all.slice(16, 20).unwrap();
        assert_eq!((slice.bytes(), slice.to_words().unwrap()), (24, vec![2, 3, 4]));
        let inner = slice.slice(8, 16).unwrap();
        assert_eq!(inner.to_words().unwrap(), [3, 4]);
        for (offset, bytes) in [(4, 8), (80, 8), (0, 81), (8, usize::MAX), (usize::MAX - 7, 8)] {
            assert!(all.slice(offset, bytes).is_none(), "{bytes} from {offset}");
        }
        assert!(all.slice(80, 0).is_some());
        assert!(
            inner.is_same(&all.slice(24, 16).unwrap())
                && !inner.is_same(&all.slice(24, 8).unwrap())
                && !slice.is_same(&all)
        );
        assert!(slice.overlaps(&inner) && slice.overlaps(&all) && !inner.overlaps(&all.slice(40, 8).unwrap()));
        assert!(!inner.overlaps(&counted(10)));
    }

    #[test]
    fn copies_of_slices_leave_other_words_unchanged() {
        let (all, other) = (counted(8), counted(20));
        all.slice(8, 16).unwrap().copy_from(&other.slice(80, 16).unwrap()).unwrap();
        assert_eq!(all.to_words().unwrap(), [0, 10, 11, 3, 4, 5, 6, 7]);
        // Within one allocation, and onto itself.
        all.slice(40, 16).unwrap().copy_from(&all.slice(8, 16).unwrap()).unwrap();
        all.slice(0, 8).unwrap().copy_from(&all.slice(0, 8).unwrap()).unwrap();
        assert_eq!(all.to_words().unwrap(), [0, 10, 11, 3, 4, 10, 11, 7]);
        let copy = all.slice(8, 8).unwrap().duplicate(Device::cpu()).unwrap();
        assert_eq!((copy.bytes(), copy.to_words().unwrap()), (8, vec![10]));
        assert!(!copy.overlaps(&all));
    }
}
