//! Conversion of tensors between dtypes and devices.

use std::sync::Arc;

use crate::graph::node::{Node, Op};
use crate::runtime::buffer::Buffer;
use crate::{DType, Device, Result, SourceLocation, Tensor};

/// Target of [`Tensor::to`]: a device or a dtype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A device.
    Device(Device),
    /// A dtype.
    DType(DType),
}

impl From<Device> for Target {
    fn from(device: Device) -> Target {
        Target::Device(device)
    }
}

impl From<DType> for Target {
    fn from(dtype: DType) -> Target {
        Target::DType(dtype)
    }
}

impl Tensor {
    /// Copies the tensor to a device or casts it to a dtype. A copy to another device runs
    /// immediately, through the host; gradients flow back through it and are copied immediately,
    /// too. Not possible in a traced function, where tensors have no values.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
    /// let far = x.to(Device::Cpu(1)).to(DType::F64);
    /// assert_eq!((far.device()?, far.dtype()?), (Device::Cpu(1), DType::F64));
    /// assert_eq!(far.square().sum(..).grad(&[&x])[0].to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn to(&self, target: impl Into<Target>) -> Tensor {
        match target.into() {
            Target::Device(device) => self.copied_to(device, SourceLocation::here()),
            Target::DType(dtype) => self.cast(dtype),
        }
    }

    pub(crate) fn copied_to(&self, device: Device, location: SourceLocation) -> Tensor {
        let copy = || -> Result<Tensor> {
            let node = self.node()?;
            if node.device == device {
                return Ok(self.clone());
            }
            let buffer = Buffer::from_words(device, self.words()?)?;
            // The input is retained for gradients; if none can flow, it may be freed.
            let differentiable = node.dtype.is_float() && !matches!(node.op, Op::Detach);
            let inputs = if differentiable { vec![self.clone()] } else { vec![] };
            let copy = Node::new(Op::Data, node.dtype, node.shape.clone(), device, inputs, location);
            copy.set_value(buffer);
            Ok(Tensor(Arc::new(copy)))
        };
        copy().unwrap_or_else(|error| Tensor::from_error(error, location))
    }
}
