//! Rust types that can be elements of tensors.

use crate::DType;

/// A Rust type that corresponds to a dtype. Sealed: the implementations are in this module.
pub trait Element: Packed {
    /// The dtype.
    const DTYPE: DType;
}

/// Conversion to and from the 64-bit words of buffers. `None` means out of memory.
pub trait Packed: Copy + Send + Sync + 'static {
    /// Packs a slice into words.
    fn pack(data: &[Self]) -> Option<Vec<u64>>;
    /// Unpacks the first `len` elements.
    fn unpack(words: &[u64], len: usize) -> Option<Vec<Self>>;
}

/// Allocates `len` zeros; `None` if out of memory.
pub(crate) fn zero_words(len: usize) -> Option<Vec<u64>> {
    let mut words = Vec::new();
    words.try_reserve_exact(len).ok()?;
    words.resize(len, 0);
    Some(words)
}

fn try_collect<T: Copy>(items: impl ExactSizeIterator<Item = T>) -> Option<Vec<T>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(items.len()).ok()?;
    copy.extend(items);
    Some(copy)
}

macro_rules! element {
    ($($t:ty = $dtype:ident),+) => { $(
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
        }

        impl Packed for $t {
            fn pack(data: &[$t]) -> Option<Vec<u64>> {
                let mut words = zero_words(size_of_val(data).div_ceil(8))?;
                bytemuck::cast_slice_mut::<u64, $t>(&mut words)[..data.len()].copy_from_slice(data);
                Some(words)
            }
            fn unpack(words: &[u64], len: usize) -> Option<Vec<$t>> {
                try_collect(bytemuck::cast_slice::<u64, $t>(words)[..len].iter().copied())
            }
        }
    )+ };
}

element!(i8 = I8, i16 = I16, i32 = I32, i64 = I64, u8 = U8, u16 = U16, u32 = U32, u64 = U64);
element!(half::f16 = F16, half::bf16 = BF16, f32 = F32, f64 = F64);

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}

impl Packed for bool {
    fn pack(data: &[bool]) -> Option<Vec<u64>> {
        let mut words = zero_words(data.len().div_ceil(8))?;
        for (byte, &value) in bytemuck::cast_slice_mut::<u64, u8>(&mut words).iter_mut().zip(data) {
            *byte = value as u8;
        }
        Some(words)
    }

    fn unpack(words: &[u64], len: usize) -> Option<Vec<bool>> {
        try_collect(bytemuck::cast_slice::<u64, u8>(words)[..len].iter().map(|&byte| byte != 0))
    }
}
