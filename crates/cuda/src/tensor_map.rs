//! Tensor maps: descriptions of strided tensors for the bulk copies of compute capability 9.0.

use std::sync::Arc;

use cudarc::driver::sys as cu;

use crate::context::invalid;
use crate::{Buffer, Device, Result};

/// Layout of a tensor of 16-bit floats with four axes, the last of which is contiguous, and of the
/// boxes that kernels copy to shared memory, with the 128-byte swizzle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TensorMapLayout {
    /// If set, elements are f16, else bf16.
    pub half: bool,
    /// Lengths of the axes.
    pub shape: [usize; 4],
    /// Strides of all axes but the last, in elements: multiples of 8.
    pub strides: [usize; 3],
    /// Lengths of a box, at most 256 each; the last is at most 64.
    pub box_shape: [u32; 4],
}

impl TensorMapLayout {
    /// Size of an encoded map in bytes: that of the kernel's parameter.
    pub const BYTES: usize = size_of::<cu::CUtensorMap>();

    /// Number of elements from the first to the last.
    fn extent(&self) -> usize {
        let axes = self.shape.iter().zip(self.strides.iter().chain([&1]));
        axes.map(|(&length, &stride)| length.saturating_sub(1).saturating_mul(stride)).sum::<usize>() + 1
    }

    /// Encodes a map of the tensor at a byte offset of a buffer, for use on the main stream.
    pub fn encode(&self, device: &Arc<Device>, buffer: &Buffer, offset: usize) -> Result<[u8; TensorMapLayout::BYTES]> {
        const CALL: &str = "cuTensorMapEncodeTiled";
        const ELEMENT_BYTES: usize = 2;
        device.bind()?;
        buffer.check_device("a tensor map", device)?;
        buffer.check_range("tensor map", offset, self.extent().saturating_mul(ELEMENT_BYTES))?;
        buffer.record_main_stream()?;
        // The driver's order: the contiguous axis first. The stride of an axis of length 1 is not
        // used, but must be valid.
        let reversed = |lengths: [usize; 4]| [3, 2, 1, 0].map(|axis| lengths[axis] as u64);
        let stride = |axis: usize| if self.shape[axis] == 1 { 16 } else { (self.strides[axis] * ELEMENT_BYTES) as u64 };
        let (shape, strides) = (reversed(self.shape), [2, 1, 0].map(stride));
        let box_shape = [3, 2, 1, 0].map(|axis| self.box_shape[axis]);
        if strides.iter().any(|stride| !stride.is_multiple_of(16))
            || !(buffer.address() + offset as u64).is_multiple_of(16)
        {
            return Err(invalid(CALL, format!("{self:?} at byte {offset} is not aligned to 16 bytes")));
        }
        let kind = match self.half {
            true => cu::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            false => cu::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        };
        let mut map = cu::CUtensorMap { opaque: [0; 16] };
        // SAFETY: all arrays have the length that the driver reads for four axes; the call writes
        // one map and does not access the tensor.
        let result = unsafe {
            (device.driver.cuTensorMapEncodeTiled)(
                &mut map,
                kind,
                4,
                (buffer.address() + offset as u64) as *mut _,
                shape.as_ptr(),
                strides.as_ptr(),
                box_shape.as_ptr(),
                [1; 4].as_ptr(),
                cu::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                cu::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                cu::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                cu::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        device.check(CALL, result)?;
        let mut bytes = [0; TensorMapLayout::BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(map.opaque) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_is_that_of_the_last_element() {
        let layout =
            TensorMapLayout { half: false, shape: [2, 3, 5, 64], strides: [2000, 64, 192], box_shape: [1, 1, 64, 64] };
        assert_eq!(layout.extent(), 2000 + 2 * 64 + 4 * 192 + 64);
        assert_eq!(TensorMapLayout::BYTES, 128);
    }
}
