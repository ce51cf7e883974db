//! Memory of a tensor, on whichever device: a range of an allocation, shared by handle.
//!
//! Plans cut one allocation into many parts, so whoever uses memory of the host borrows it by `with_host_slices.rs`, which hands out
//! the parts of one allocation side by side.

mod host_slices;

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bornite_support::profile::Kind;

use crate::runtime::element::zero_words;
use crate::runtime::timing::transfer;
use crate::{Device, Error, Result};

pub(crate) use host_slices::{HostSlice, with_host_slices};

/// A handle on memory. Who may write it is decided by plans; a tensor's value is never written while it is visible.
#[derive(Clone)]
pub(crate) struct Buffer {
    allocation: Allocation,
    /// Where it begins, in bytes; a multiple of 8.
    offset: usize,
    /// A multiple of 8, too.
    bytes: usize,
}

#[derive(Clone)]
enum Allocation {
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

impl Drop for HostMemory {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Buffer {
    /// Memory for `bytes` bytes.
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

    /// Memory that holds `words`.
    pub fn from_words(device: Device, words: Vec<u64>) -> Result<Buffer> {
        if !device.is_cuda() {
            return Ok(Buffer::host(HostMemory::new(device, words)));
        }
        let buffer = Buffer::new(device, words.len() * 8)?;
        if let Allocation::Cuda(memory) = &buffer.allocation {
            let bytes = bytemuck::cast_slice(&words);
            transfer(Kind::Upload, memory, bytes.len(), || memory.upload(bytes))?;
        }
        Ok(buffer)
    }

    fn host(memory: HostMemory) -> Buffer {
        Buffer { bytes: memory.bytes, allocation: Allocation::Host(Arc::new(memory)), offset: 0 }
    }

    fn cuda(memory: bornite_cuda::Buffer) -> Buffer {
        Buffer { bytes: memory.bytes(), allocation: Allocation::Cuda(Arc::new(memory)), offset: 0 }
    }

    /// The part of at least `bytes` bytes from `offset` on, which must be a multiple of 8. `None` if it is not within.
    pub fn part(&self, offset: usize, bytes: usize) -> Option<Buffer> {
        let bytes = bytes.checked_next_multiple_of(8)?;
        let within = offset.is_multiple_of(8) && offset.checked_add(bytes)? <= self.bytes;
        within.then(|| Buffer { allocation: self.allocation.clone(), offset: self.offset + offset, bytes })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The allocation on a GPU and where in it this begins.
    pub fn pointer(&self) -> Option<bornite_cuda::Pointer<'_>> {
        match &self.allocation {
            Allocation::Host(_) => None,
            Allocation::Cuda(memory) => Some((memory, self.offset)),
        }
    }

    /// The same as an argument of a CUDA graph.
    pub fn argument(&self) -> Option<bornite_cuda::Argument<'_>> {
        let (buffer, offset) = self.pointer()?;
        Some(bornite_cuda::Argument { buffer, offset, bytes: self.bytes })
    }

    /// The words of the allocation that it covers.
    fn words(&self) -> Range<usize> {
        self.offset / 8..(self.offset + self.bytes) / 8
    }

    /// The contents, after all work on them.
    pub fn to_words(&self) -> Result<Vec<u64>> {
        let mut words = zero_words(self.bytes / 8).ok_or(Error::OutOfMemory { bytes: self.bytes })?;
        match &self.allocation {
            Allocation::Host(memory) => {
                let memory = memory.words.read().unwrap_or_else(PoisonError::into_inner);
                words.copy_from_slice(&memory[self.words()]);
            }
            Allocation::Cuda(memory) => {
                let bytes = bytemuck::cast_slice_mut(&mut words);
                transfer(Kind::Download, memory, bytes.len(), || memory.download_part(self.offset, bytes))?;
            }
        }
        Ok(words)
    }

    /// Copies all of `source`, of the same size on the same device, in the order of the device's work. The two are the same
    /// memory or do not overlap.
    pub fn copy_from(&self, source: &Buffer) -> Result<()> {
        if self.is(source) {
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
                transfer(Kind::Copy, to, self.bytes, || to.copy_part_from(at, from, begins, self.bytes))?
            }
            _ => {}
        }
        Ok(())
    }

    /// A new buffer with the same contents.
    pub fn duplicate(&self, device: Device) -> Result<Buffer> {
        let copy = Buffer::new(device, self.bytes)?;
        copy.copy_from(self)?;
        Ok(copy)
    }

    /// A handle that keeps memory of a GPU alive: all of the allocation.
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

    /// True if both are handles on the same memory.
    pub fn is(&self, other: &Buffer) -> bool {
        self.shares_allocation(other) && (self.offset, self.bytes) == (other.offset, other.bytes)
    }

    /// True if a byte belongs to both.
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
    fn parts_are_ranges_of_their_allocation() {
        let all = counted(10);
        let part = all.part(16, 20).unwrap();
        assert_eq!((part.bytes(), part.to_words().unwrap()), (24, vec![2, 3, 4]));
        let inner = part.part(8, 16).unwrap();
        assert_eq!(inner.to_words().unwrap(), [3, 4]);
        for (offset, bytes) in [(4, 8), (80, 8), (0, 81), (8, usize::MAX), (usize::MAX - 7, 8)] {
            assert!(all.part(offset, bytes).is_none(), "{bytes} from {offset}");
        }
        assert!(all.part(80, 0).is_some());
        assert!(inner.is(&all.part(24, 16).unwrap()) && !inner.is(&all.part(24, 8).unwrap()) && !part.is(&all));
        assert!(part.overlaps(&inner) && part.overlaps(&all) && !inner.overlaps(&all.part(40, 8).unwrap()));
        assert!(!inner.overlaps(&counted(10)));
    }

    #[test]
    fn copies_of_parts_leave_the_rest_alone() {
        let (all, other) = (counted(8), counted(20));
        all.part(8, 16).unwrap().copy_from(&other.part(80, 16).unwrap()).unwrap();
        assert_eq!(all.to_words().unwrap(), [0, 10, 11, 3, 4, 5, 6, 7]);
        // Within one allocation, and onto itself.
        all.part(40, 16).unwrap().copy_from(&all.part(8, 16).unwrap()).unwrap();
        all.part(0, 8).unwrap().copy_from(&all.part(0, 8).unwrap()).unwrap();
        assert_eq!(all.to_words().unwrap(), [0, 10, 11, 3, 4, 10, 11, 7]);
        let copy = all.part(8, 8).unwrap().duplicate(Device::cpu()).unwrap();
        assert_eq!((copy.bytes(), copy.to_words().unwrap()), (8, vec![10]));
        assert!(!copy.overlaps(&all));
    }
}
