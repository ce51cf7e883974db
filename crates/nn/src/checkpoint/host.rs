//! Conversion between tensors and the bytes of files: row-major, little-endian, bools as 0 and 1.

use std::io::{self, Read};

use bornite::{
    DType, Device, Tensor,
    ops::{bf16, f16},
};
use sha2::{Digest, Sha256};

use crate::{Error, Result};

const _: () =
    assert!(cfg!(target_endian = "little"), "files are little-endian; a big-endian host would have to swap bytes");

/// Bytes that are read or written at once while they are hashed: fits into a core's cache.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Evaluates `$body` with `$t` as the Rust type of a dtype, or `$bool` for bool.
macro_rules! with_type {
    ($dtype:expr, $t:ident => $body:expr, $bool:expr) => {{
        macro_rules! each {
            ($of:ty) => {{
                type $t = $of;
                $body
            }};
        }
        match $dtype {
            DType::Bool => $bool,
            DType::I8 => each!(i8),
            DType::I16 => each!(i16),
            DType::I32 => each!(i32),
            DType::I64 => each!(i64),
            DType::U8 => each!(u8),
            DType::U16 => each!(u16),
            DType::U32 => each!(u32),
            DType::U64 => each!(u64),
            DType::F16 => each!(f16),
            DType::BF16 => each!(bf16),
            DType::F32 => each!(f32),
            DType::F64 => each!(f64),
        }
    }};
}

/// Passes a tensor's bytes to `take`; computes the tensor and copies it to the host if needed.
pub(crate) fn with_bytes<R>(name: &str, tensor: &Tensor, take: impl FnOnce(&[u8]) -> R) -> Result<R> {
    let dtype = tensor.dtype().map_err(Error::tensor(name))?;
    with_type!(
        dtype,
        T => {
            let elements = tensor.to_vec::<T>().map_err(Error::tensor(name))?;
            Ok(take(bytemuck::cast_slice(&elements)))
        },
        {
            let elements = tensor.to_vec::<bool>().map_err(Error::tensor(name))?;
            Ok(take(&elements.into_iter().map(u8::from).collect::<Vec<u8>>()))
        }
    )
}

/// Buffer that tensors are read into, one after the other; grows to the largest.
#[derive(Default)]
pub(crate) struct Scratch(Vec<u64>);

impl Scratch {
    /// Reads `bytes` bytes from the position of `file`, and hashes them if `hash` is set, while
    /// they are in the cache.
    pub fn fill(&mut self, file: &mut impl Read, bytes: usize, mut hash: Option<&mut Sha256>) -> io::Result<()> {
        let words = bytes.div_ceil(8);
        if words > self.0.len() {
            let more = words - self.0.len();
            self.0.try_reserve_exact(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.0.resize(words, 0);
        }
        let memory = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut self.0)[..bytes];
        for chunk in memory.chunks_mut(CHUNK_BYTES) {
            file.read_exact(chunk)?;
            if let Some(hash) = &mut hash {
                hash.update(&*chunk);
            }
        }
        Ok(())
    }

    /// Creates a tensor from the buffer; `Err(None)` if a byte of a bool is neither 0 nor 1.
    pub fn tensor(
        &self,
        dtype: DType,
        shape: &[usize],
        device: Device,
    ) -> std::result::Result<Tensor, Option<bornite::Error>> {
        let elements: usize = shape.iter().product();
        let tensor = with_type!(
            dtype,
            T => Tensor::from_slice(&bytemuck::cast_slice::<u64, T>(&self.0)[..elements], shape, device),
            {
                let bytes = &bytemuck::cast_slice::<u64, u8>(&self.0)[..elements];
                if bytes.iter().any(|&byte| byte > 1) {
                    return Err(None);
                }
                let bools: Vec<bool> = bytes.iter().map(|&byte| byte == 1).collect();
                Tensor::from_slice(&bools, shape, device)
            }
        );
        match tensor.shape() {
            Ok(_) => Ok(tensor),
            Err(error) => Err(Some(error)),
        }
    }
}

/// Returns a SHA-256 in hexadecimal digits.
pub(crate) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the SHA-256 of some bytes in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(bytes);
    hex(hash)
}
