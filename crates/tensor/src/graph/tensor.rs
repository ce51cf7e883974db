//! The tensor handle: creation, shape and dtype, reading values.

use std::sync::Arc;

use bornite_ir::Value;

use crate::graph::infer::infer;
use crate::graph::node::{Node, Op};
use crate::runtime::buffer::Buffer;
use crate::runtime::element::zero_words;
use crate::schedule::{realize, value_of};
use crate::{DType, Device, Element, Error, Result, SourceLocation};

/// A lazily computed array. Cloning copies the handle, not the elements.
#[derive(Clone)]
pub struct Tensor(pub(crate) Arc<Node>);

impl Tensor {
    /// A tensor from its elements in row-major order.
    #[track_caller]
    pub fn from_slice<T: Element>(data: &[T], shape: &[usize], device: Device) -> Tensor {
        let location = SourceLocation::here();
        let elements = match elements_of(shape, T::DTYPE) {
            Ok(elements) => elements,
            Err(message) => return Tensor::failed_at("from_slice", message, location),
        };
        if elements != data.len() {
            let message = format!("element count {} does not match shape {shape:?}, which has {elements}", data.len());
            return Tensor::failed_at("from_slice", message, location);
        }
        let words = T::pack(data).ok_or(Error::OutOfMemory { bytes: size_of_val(data) });
        let buffer = words.and_then(|words| Buffer::from_words(device, words));
        Tensor::leaf(buffer, T::DTYPE, shape, device, location)
    }

    /// A tensor from the bytes of its elements in row-major order, in this machine's byte order;
    /// booleans are 0 or 1.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_bytes(&1.5f32.to_ne_bytes(), &[1], DType::F32, Device::cpu());
    /// assert_eq!(x.to_vec::<f32>()?, [1.5]);
    /// assert_eq!(x.to_bytes()?, 1.5f32.to_ne_bytes());
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn from_bytes(bytes: &[u8], shape: &[usize], dtype: DType, device: Device) -> Tensor {
        let location = SourceLocation::here();
        let fits = elements_of(shape, dtype).and_then(|elements| match elements * dtype.bytes() {
            expected if expected == bytes.len() => Ok(()),
            expected => Err(format!("got {} bytes but shape {shape:?} of {dtype} has {expected}", bytes.len())),
        });
        if let Err(message) = fits {
            return Tensor::failed_at("from_bytes", message, location);
        }
        if let (DType::Bool, Some(other)) = (dtype, bytes.iter().find(|byte| **byte > 1)) {
            return Tensor::failed_at("from_bytes", format!("a boolean must be 0 or 1, found {other}"), location);
        }
        let words = zero_words(bytes.len().div_ceil(8)).ok_or(Error::OutOfMemory { bytes: bytes.len() });
        let buffer = words.and_then(|mut words| {
            bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
            Buffer::from_words(device, words)
        });
        Tensor::leaf(buffer, dtype, shape, device, location)
    }

    fn leaf(buffer: Result<Buffer>, dtype: DType, shape: &[usize], device: Device, location: SourceLocation) -> Tensor {
        match buffer {
            Ok(buffer) => {
                let node = Node::new(Op::Data, dtype, shape.to_vec(), device, vec![], location);
                node.set_value(buffer);
                Tensor(Arc::new(node))
            }
            Err(error) => Tensor::from_error(error, location),
        }
    }

    /// A tensor filled with one value.
    #[track_caller]
    pub fn full(value: f64, shape: &[usize], dtype: DType, device: Device) -> Tensor {
        let location = SourceLocation::here();
        match elements_of(shape, dtype) {
            Ok(_) => {
                let op = Op::Full(Value::from_f64(dtype, value));
                Tensor(Arc::new(Node::new(op, dtype, shape.to_vec(), device, vec![], location)))
            }
            Err(message) => Tensor::failed_at("full", message, location),
        }
    }

    /// A tensor of zeros.
    #[track_caller]
    pub fn zeros(shape: &[usize], dtype: DType, device: Device) -> Tensor {
        Tensor::full(0.0, shape, dtype, device)
    }

    /// A tensor of ones.
    #[track_caller]
    pub fn ones(shape: &[usize], dtype: DType, device: Device) -> Tensor {
        Tensor::full(1.0, shape, dtype, device)
    }

    /// The shape, or the error of a failed tensor.
    #[track_caller]
    pub fn shape(&self) -> Result<&[usize]> {
        Ok(&self.node()?.shape)
    }

    /// Number of axes.
    #[track_caller]
    pub fn rank(&self) -> Result<usize> {
        Ok(self.node()?.shape.len())
    }

    /// Number of elements.
    #[track_caller]
    pub fn elements(&self) -> Result<usize> {
        Ok(self.node()?.elements())
    }

    /// Total size of the elements in bytes.
    #[track_caller]
    pub fn bytes(&self) -> Result<usize> {
        Ok(self.node()?.bytes())
    }

    /// The shape as an array; an error if the rank is not `N`.
    #[track_caller]
    pub fn dims<const N: usize>(&self) -> Result<[usize; N]> {
        let location = SourceLocation::here();
        let shape = self.shape()?;
        <[usize; N]>::try_from(shape).map_err(|_| Error::Op {
            op: "dims",
            message: format!("expected {N} axes, found shape {shape:?}"),
            location,
        })
    }

    /// The dtype, or the error of a failed tensor.
    #[track_caller]
    pub fn dtype(&self) -> Result<DType> {
        Ok(self.node()?.dtype)
    }

    /// The device, or the error of a failed tensor.
    #[track_caller]
    pub fn device(&self) -> Result<Device> {
        Ok(self.node()?.device)
    }

    /// Computes the value now, if it is not computed yet.
    #[track_caller]
    pub fn realize(&self) -> Result<()> {
        realize(std::slice::from_ref(self))
    }

    /// The elements in row-major order. `T` must be the tensor's dtype: nothing is converted
    /// implicitly.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let location = SourceLocation::here();
        let node = self.node()?;
        if node.dtype != T::DTYPE {
            let message = format!("the tensor is {}, not {}; use cast", node.dtype, T::DTYPE);
            return Err(Error::Op { op: "to_vec", message, location });
        }
        T::unpack(&self.words()?, node.elements()).ok_or(Error::OutOfMemory { bytes: node.bytes() })
    }

    /// The bytes of the elements in row-major order, in this machine's byte order: see
    /// [`Tensor::from_bytes`].
    #[track_caller]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (node, words) = (self.node()?, self.words()?);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(node.bytes()).map_err(|_| Error::OutOfMemory { bytes: node.bytes() })?;
        bytes.extend_from_slice(&bytemuck::cast_slice(&words)[..node.bytes()]);
        Ok(bytes)
    }

    /// The element of a one-element tensor, as f64.
    #[track_caller]
    pub fn item(&self) -> Result<f64> {
        let location = SourceLocation::here();
        let node = self.node()?;
        if node.elements() != 1 {
            let message = format!("expected one element, found shape {:?}", node.shape);
            return Err(Error::Op { op: "item", message, location });
        }
        let word = self.words()?.first().copied().unwrap_or_default();
        // The element is in the lowest bytes; the others are padding.
        let byte = node.dtype == DType::Bool;
        Ok(Value::from_bits(node.dtype, if byte { word & 0xff } else { word }).as_f64())
    }

    /// The packed elements, computed if necessary.
    pub(crate) fn words(&self) -> Result<Vec<u64>> {
        self.realize()?;
        let node = self.node()?;
        // The lock prevents a trace from overwriting the storage between lookup and read.
        let _running = node.device.lock();
        let words = value_of(self)?.to_words()?;
        crate::runtime::observe::observe_read(self, &words);
        Ok(words)
    }

    /// The node, or the error of a failed tensor.
    pub(crate) fn node(&self) -> Result<&Node> {
        match &self.0.op {
            Op::Failed(error) => Err(error.clone()),
            _ => Ok(&self.0),
        }
    }

    /// Applies `op`: a new node, or a failed tensor if the inputs are invalid or one of them has
    /// failed.
    pub(crate) fn build(op: Op, inputs: Vec<Tensor>, location: SourceLocation) -> Tensor {
        if let Some(failed) = inputs.iter().find(|t| matches!(t.0.op, Op::Failed(_))) {
            return failed.clone();
        }
        let nodes: Vec<&Node> = inputs.iter().map(|t| &*t.0).collect();
        let device = nodes.first().map_or(Device::cpu(), |n| n.device);
        let inferred = infer(&op, &nodes).and_then(|(dtype, shape)| elements_of(&shape, dtype).map(|_| (dtype, shape)));
        match inferred {
            Ok((dtype, shape)) => Tensor(Arc::new(Node::new(op, dtype, shape, device, inputs, location))),
            Err(message) => Tensor::failed_at(op.name(), message, location),
        }
    }

    /// A failed tensor: reading it, or anything computed from it, returns the error. For functions
    /// that return tensors and got invalid arguments.
    ///
    /// ```
    /// let x = bornite::Tensor::failed("lookup", "there is no row 'b'; there are 'a' and 'c'");
    /// assert!((x + 1.0).item().unwrap_err().to_string().starts_with("lookup: there is no row 'b'"));
    /// ```
    #[track_caller]
    pub fn failed(op: &'static str, message: impl Into<String>) -> Tensor {
        Tensor::failed_at(op, message.into(), SourceLocation::here())
    }

    /// As [`Tensor::failed`], at another location.
    pub(crate) fn failed_at(op: &'static str, message: String, location: SourceLocation) -> Tensor {
        Tensor::from_error(Error::Op { op, message, location }, location)
    }

    /// A failed tensor with this error.
    pub(crate) fn from_error(error: Error, location: SourceLocation) -> Tensor {
        Tensor(Arc::new(Node::new(Op::Failed(error), DType::F32, vec![], Device::cpu(), vec![], location)))
    }
}

/// A failed tensor with this error: see [`Tensor::failed`].
///
/// ```
/// use bornite::{Error, Tensor};
/// let x = Tensor::from(Error::op("load", "there is no file 'x'"));
/// assert!((x + 1.0).item().unwrap_err().to_string().starts_with("load: there is no file 'x'"));
/// ```
impl From<Error> for Tensor {
    #[track_caller]
    fn from(error: Error) -> Tensor {
        Tensor::from_error(error, SourceLocation::here())
    }
}

/// Number of elements of a shape, or an error message if they exceed the address space.
pub(crate) fn elements_of(shape: &[usize], dtype: DType) -> std::result::Result<usize, String> {
    // Strides are products of lengths even if there are no elements, so an axis of length 0 counts
    // as 1.
    let largest = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
    match largest.and_then(|n| n.checked_mul(dtype.bytes())) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(shape.iter().product()),
        _ => Err(format!("shape {shape:?} has more elements than memory can hold")),
    }
}
