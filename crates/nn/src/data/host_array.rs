//! Arrays in host memory, the elements of samples.

use std::fmt;

use bornite::ops::Element;
use bornite::{DType, Device, Tensor};

use crate::error::located;
use crate::{Error, ErrorKind, Result};

/// An array in host memory: dtype, shape and elements in row-major order. Samples consist of these,
/// since threads that read data need no device.
///
/// ```
/// use bornite_nn::data::HostArray;
///
/// let array = HostArray::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// assert_eq!(array.shape(), [2, 2]);
/// assert_eq!(array.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), bornite_nn::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HostArray {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Size of an array in bytes; `None` if it exceeds the address space.
pub(super) fn byte_count(shape: &[usize], dtype: DType) -> Option<usize> {
    let elements = shape.iter().try_fold(1usize, |product, &len| product.checked_mul(len));
    // With an axis of length 0, the others may be of any length.
    let elements = if shape.contains(&0) { Some(0) } else { elements };
    elements?.checked_mul(dtype.bytes()).filter(|bytes| isize::try_from(*bytes).is_ok())
}

/// An empty vector with room for `bytes`.
pub(super) fn reserve(bytes: usize, purpose: &str) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    let out_of_memory = |_| ErrorKind::OutOfMemory { purpose: purpose.into(), bytes: bytes as u64 };
    buffer.try_reserve_exact(bytes).map_err(out_of_memory)?;
    Ok(buffer)
}

impl HostArray {
    /// Creates an array from its elements in row-major order.
    #[track_caller]
    pub fn from_slice<T: Element>(data: &[T], shape: &[usize]) -> Result<HostArray> {
        located(|| {
            let bytes = size_of_val(data);
            let words = T::pack(data)
                .ok_or_else(|| ErrorKind::OutOfMemory { purpose: "an array".into(), bytes: bytes as u64 })?;
            HostArray::from_bytes(bytemuck::cast_slice(&words)[..bytes].to_vec(), shape, T::DTYPE)
        })
    }

    /// Creates an array from the bytes of its elements in row-major order, in this machine's byte
    /// order; booleans are 0 or 1.
    #[track_caller]
    pub fn from_bytes(bytes: Vec<u8>, shape: &[usize], dtype: DType) -> Result<HostArray> {
        located(|| {
            if byte_count(shape, dtype) != Some(bytes.len()) {
                return Err(Error::data(format!(
                    "an array of {dtype} has {} bytes, which do not match shape {shape:?}",
                    bytes.len()
                )));
            }
            if let (DType::Bool, Some(other)) = (dtype, bytes.iter().find(|byte| **byte > 1)) {
                return Err(Error::data(format!("a boolean must be 0 or 1, found {other}")));
            }
            Ok(HostArray { dtype, shape: shape.to_vec(), bytes })
        })
    }

    /// Creates an array without axes, such as a class index.
    pub fn scalar<T: Element>(value: T) -> HostArray {
        // A single element always has a matching shape.
        let words = T::pack(&[value]).unwrap_or_default();
        let bytes = bytemuck::cast_slice(&words)[..size_of::<T>()].to_vec();
        HostArray { dtype: T::DTYPE, shape: vec![], bytes }
    }

    /// Copies a tensor to the host.
    #[track_caller]
    pub fn from_tensor(tensor: &Tensor) -> Result<HostArray> {
        located(|| {
            let bytes = tensor.to_bytes()?;
            Ok(HostArray { dtype: tensor.dtype()?, shape: tensor.shape()?.to_vec(), bytes })
        })
    }

    /// Returns the dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the bytes of the elements in row-major order, in this machine's byte order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the elements; `T` must be the dtype of the array.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        located(|| {
            if T::DTYPE != self.dtype {
                return Err(Error::data(format!("the array is {}, not {}", self.dtype, T::DTYPE)));
            }
            let bytes = self.bytes.len();
            let mut words = vec![0u64; bytes.div_ceil(8)];
            bytemuck::cast_slice_mut(&mut words)[..bytes].copy_from_slice(&self.bytes);
            let elements = T::unpack(&words, bytes / self.dtype.bytes());
            Ok(elements.ok_or_else(|| ErrorKind::OutOfMemory { purpose: "an array".into(), bytes: bytes as u64 })?)
        })
    }

    /// Copies the array to a device.
    #[track_caller]
    pub fn to_tensor(&self, device: Device) -> Tensor {
        Tensor::from_bytes(&self.bytes, &self.shape, self.dtype, device)
    }

    /// Copies the element or sub-array at an index of the first axis.
    pub(super) fn row(&self, index: usize) -> Option<HostArray> {
        let (&rows, shape) = self.shape.split_first()?;
        let size = self.bytes.len().checked_div(rows)?;
        let bytes = (index < rows).then(|| self.bytes[index * size..][..size].to_vec())?;
        Some(HostArray { dtype: self.dtype, shape: shape.to_vec(), bytes })
    }

    /// Stacks arrays of one dtype and shape along a new first axis; [`Err`] with the number of the
    /// first array that differs.
    pub(super) fn stack(arrays: &[&HostArray]) -> Result<std::result::Result<HostArray, usize>> {
        let Some(first) = arrays.first() else { return Ok(Err(0)) };
        if let Some(n) = arrays.iter().position(|array| (array.dtype, &array.shape) != (first.dtype, &first.shape)) {
            return Ok(Err(n));
        }
        let mut bytes = reserve(arrays.iter().map(|array| array.bytes.len()).sum(), "a batch")?;
        arrays.iter().for_each(|array| bytes.extend_from_slice(&array.bytes));
        let shape = [&[arrays.len()][..], &first.shape].concat();
        Ok(Ok(HostArray { dtype: first.dtype, shape, bytes }))
    }
}

impl fmt::Debug for HostArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}
