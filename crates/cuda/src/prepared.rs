//! Prepared launches: parameters are packed once, each can be changed by its index, and launching
//! does not allocate.

use std::ffi::c_void;
use std::sync::Arc;

use crate::{Buffer, Error, KernelFunction, LaunchConfig, Result, Stream};

/// Packed parameters of a kernel, each aligned to 16 bytes, the maximum alignment of a parameter.
struct PackedParams {
    /// In units of 16 bytes for alignment. Accessed through `addresses` only.
    _memory: Vec<u128>,
    /// Offset and size of each parameter.
    slots: Vec<(usize, usize)>,
    /// Address of each parameter, as the driver needs them. They point into `_memory`, which never
    /// grows.
    addresses: Box<[*mut c_void]>,
}

impl PackedParams {
    /// Allocates zeroed memory for parameters of these sizes.
    fn new(sizes: impl Iterator<Item = usize>) -> PackedParams {
        let (mut slots, mut end) = (vec![], 0);
        for bytes in sizes {
            slots.push((end, bytes));
            end += bytes.next_multiple_of(16);
        }
        let mut memory = vec![0u128; end / 16];
        let base = memory.as_mut_ptr().cast::<u8>();
        let addresses = slots.iter().map(|(offset, _)| base.wrapping_add(*offset).cast()).collect();
        PackedParams { _memory: memory, slots, addresses }
    }

    /// Sets a parameter; fails if its size differs.
    fn set(&mut self, slot: usize, bytes: &[u8]) -> std::result::Result<(), String> {
        match self.slots.get(slot) {
            Some(&(_, length)) if length == bytes.len() => {
                // SAFETY: the slot lies inside the memory, which is plain integers and has `length`
                // bytes for it.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.addresses[slot].cast(), length) };
                Ok(())
            }
            Some((_, length)) => Err(format!("parameter {slot} has {length} bytes, but the value has {}", bytes.len())),
            None => Err(format!("parameter {slot} does not exist: the kernel has {}", self.slots.len())),
        }
    }
}

/// A launch with its parameters.
pub struct PreparedFunction {
    function: Arc<KernelFunction>,
    config: LaunchConfig,
    packed: PackedParams,
    /// Buffers of the pointer parameters.
    buffers: Vec<Arc<Buffer>>,
    /// True if all buffers belong to the main stream, so that a launch there records nothing.
    all_on_main_stream: bool,
}

// SAFETY: the addresses point into memory that this value owns; firing reads it, and changes take
// `&mut self`.
unsafe impl Send for PreparedFunction {}

impl KernelFunction {
    /// Prepares a launch: a buffer and a byte offset for each pointer, then the values. All
    /// validation is done here.
    pub fn prepare(
        self: &Arc<KernelFunction>,
        config: LaunchConfig,
        pointers: &[(Arc<Buffer>, usize)],
        values: &[&[u8]],
    ) -> Result<PreparedFunction> {
        self.device().bind()?;
        self.check_parameters(pointers.len(), values.iter().map(|value| value.len()))?;
        self.prepare_config(&config)?;
        let (count, value_bytes) = self.parameters();
        let packed = PackedParams::new(std::iter::repeat_n(8, count).chain(value_bytes.iter().copied()));
        let buffers = pointers.iter().map(|(buffer, _)| buffer.clone()).collect();
        let mut prepared =
            PreparedFunction { function: self.clone(), config, packed, buffers, all_on_main_stream: true };
        for (slot, (buffer, offset)) in pointers.iter().enumerate() {
            prepared.set_pointer(slot, buffer, *offset)?;
        }
        for (n, value) in values.iter().enumerate() {
            prepared.set_value(n, value)?;
        }
        Ok(prepared)
    }
}

impl PreparedFunction {
    /// Returns the kernel.
    pub fn function(&self) -> &Arc<KernelFunction> {
        &self.function
    }

    /// Returns the launch configuration.
    pub fn config(&self) -> &LaunchConfig {
        &self.config
    }

    /// Changes the launch configuration.
    pub fn set_config(&mut self, config: LaunchConfig) -> Result<()> {
        self.function.device().bind()?;
        self.function.prepare_config(&config)?;
        self.config = config;
        Ok(())
    }

    /// Changes a pointer parameter, counted from 0.
    pub fn set_pointer(&mut self, slot: usize, buffer: &Arc<Buffer>, offset: usize) -> Result<()> {
        let address = self.function.address(buffer, offset)?;
        let Some(held) = self.buffers.get_mut(slot) else {
            return Err(
                self.invalid_launch(format!("pointer {slot} does not exist: the kernel has {}", self.buffers.len()))
            );
        };
        *held = buffer.clone();
        self.packed.set(slot, &address.to_ne_bytes()).map_err(|reason| self.invalid_launch(reason))?;
        let main = crate::pool::DriverBacking::MAIN;
        self.all_on_main_stream = self.buffers.iter().all(|buffer| buffer.stream() == main);
        Ok(())
    }

    /// Changes a value parameter, counted from 0 after the pointers.
    pub fn set_value(&mut self, number: usize, bytes: &[u8]) -> Result<()> {
        self.packed.set(self.buffers.len() + number, bytes).map_err(|reason| self.invalid_launch(reason))
    }

    fn invalid_launch(&self, reason: String) -> Error {
        Error::InvalidLaunch { kernel: self.function.name().into(), reason }
    }

    /// Launches on the main stream, or into this thread's capture.
    ///
    /// # Safety
    /// Same as [`KernelFunction::launch`].
    pub unsafe fn launch(&self) -> Result<()> {
        self.function.device().bind()?;
        if !self.all_on_main_stream {
            self.buffers.iter().try_for_each(|buffer| buffer.record_main_stream())?;
        }
        // SAFETY: there is one address per parameter, of the sizes that the kernel was loaded with;
        // the driver only reads them. The caller guarantees the rest.
        unsafe { self.function.launch_raw(&self.config, None, self.packed.addresses.as_ptr().cast_mut()) }
    }

    /// Launches on another stream. The caller orders streams.
    ///
    /// # Safety
    /// Same as [`KernelFunction::launch`].
    pub unsafe fn launch_on(&self, stream: &Stream) -> Result<()> {
        self.function.device().bind()?;
        self.buffers.iter().try_for_each(|buffer| buffer.record_stream(stream))?;
        // SAFETY: as in `launch`.
        unsafe { self.function.launch_raw(&self.config, Some(stream.raw()), self.packed.addresses.as_ptr().cast_mut()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(packed: &PackedParams, slot: usize) -> Vec<u8> {
        let bytes = packed.slots[slot].1;
        // SAFETY: the address points to a slot of `bytes` bytes.
        unsafe { std::slice::from_raw_parts(packed.addresses[slot].cast::<u8>(), bytes) }.to_vec()
    }

    #[test]
    fn parameters_are_aligned_and_do_not_overlap() {
        let sizes = [8, 8, 4, 1, 12, 24, 16, 2];
        let mut packed = PackedParams::new(sizes.into_iter());
        let value = |slot: usize, round: u8| vec![round.wrapping_mul(31).wrapping_add(slot as u8); sizes[slot]];
        for (slot, &bytes) in sizes.iter().enumerate() {
            assert_eq!(packed.addresses[slot].addr() % 16, 0);
            assert_eq!(read(&packed, slot), vec![0; bytes]);
        }
        for round in 1..50 {
            let changed = usize::from(round) % sizes.len();
            for slot in 0..sizes.len() {
                packed.set(slot, &value(slot, 0)).unwrap();
            }
            packed.set(changed, &value(changed, round)).unwrap();
            for slot in 0..sizes.len() {
                let expected = if slot == changed { value(slot, round) } else { value(slot, 0) };
                assert_eq!(read(&packed, slot), expected, "slot {slot} after changing {changed}");
            }
        }
        let moved = packed;
        assert_eq!(read(&moved, 3).len(), 1);
    }

    #[test]
    fn invalid_sizes_and_indices_are_rejected() {
        let mut packed = PackedParams::new([8, 4].into_iter());
        assert!(packed.set(1, &[0; 8]).unwrap_err().contains("has 4 bytes, but the value has 8"));
        assert!(packed.set(2, &[0; 4]).unwrap_err().contains("parameter 2 does not exist"));
        let none = PackedParams::new(std::iter::empty());
        assert!(none.addresses.is_empty());
    }
}
