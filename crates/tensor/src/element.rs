//! Rust types that can be elements of tensors.

use crate::DType;

/// A Rust type for an element type, and its packing into the 64-bit words of buffers.
pub trait Element: Copy + Send + Sync + 'static {
    /// The element type.
    const DTYPE: DType;
    /// Packs a slice into words.
    fn pack(data: &[Self]) -> Vec<u64>;
    /// Unpacks the first `len` elements.
    fn unpack(words: &[u64], len: usize) -> Vec<Self>;
}

macro_rules! element {
    ($($t:ty = $dtype:ident),+) => { $(
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            fn pack(data: &[$t]) -> Vec<u64> {
                let mut words = vec![0; size_of_val(data).div_ceil(8)];
                bytemuck::cast_slice_mut::<u64, $t>(&mut words)[..data.len()].copy_from_slice(data);
                words
            }
            fn unpack(words: &[u64], len: usize) -> Vec<$t> {
                bytemuck::cast_slice::<u64, $t>(words)[..len].to_vec()
            }
        }
    )+ };
}

element!(f32 = F32, f64 = F64, i32 = I32, i64 = I64);

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn pack(data: &[bool]) -> Vec<u64> {
        let mut words = vec![0; data.len().div_ceil(8)];
        for (byte, &value) in bytemuck::cast_slice_mut::<u64, u8>(&mut words).iter_mut().zip(data) {
            *byte = value as u8;
        }
        words
    }

    fn unpack(words: &[u64], len: usize) -> Vec<bool> {
        bytemuck::cast_slice::<u64, u8>(words)[..len].iter().map(|&byte| byte != 0).collect()
    }
}
