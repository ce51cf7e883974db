//! Max and average pooling of images `[n, channels, height, width]`.
//!
//! Nothing allocates a copy of all windows: the decomposition combines one slice of the image per
//! element of the window, and its gradient reads, for each position, the windows that contain it.

mod cpu;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bornite_codegen::cpu::pool;
use bornite_ir::Value;

use super::{FusedOp, Implementation, InputInfo, Memory, MemoryMut, fused_at, unpack_inputs, unpack_outputs};
use crate::graph::checkpoint::with_gradient;
use crate::graph::node::{AxisSlice, Op};
use crate::{DType, Device, Element, Result, SourceLocation, Tensor};
use cpu::PoolFloat;

/// Function of the elements of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PoolKind {
    /// The maximum. The elements that are equal to it share the gradient.
    Max,
    /// The mean, of padding, too.
    Mean,
}

/// Sizes of a pooling; each pair is height and width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PoolGeometry {
    pub input: [usize; 2],
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    /// Rows or columns before and after the image: zeros for a mean, -∞ for a maximum.
    pub padding: [usize; 2],
    pub output: [usize; 2],
}

/// Pooling as a fused op.
#[derive(Clone, Copy)]
pub(crate) struct Pool {
    pub kind: PoolKind,
    pub geometry: PoolGeometry,
}

impl Pool {
    /// Builds the op for an image of the geometry.
    pub fn apply(self, x: &Tensor, location: SourceLocation) -> Tensor {
        fused_at(Arc::new(self), vec![x.clone()], location).remove(0)
    }

    fn run<T: PoolFloat + Element>(&self, inputs: &[Memory<'_>], outputs: &mut [MemoryMut<'_>]) -> Result<()> {
        let ([x], [y]) = (unpack_inputs(self.name(), inputs)?, unpack_outputs(self.name(), outputs)?);
        cpu::forward::<T>(self, x.slice()?, y.slice_mut()?, pool::num_threads());
        Ok(())
    }

    fn run_backward<T: PoolFloat + Element>(&self, inputs: &[Memory<'_>], outputs: &mut [MemoryMut<'_>]) -> Result<()> {
        let name = self.backward_name();
        let ([x, y, dy], [dx]) = (unpack_inputs(name, inputs)?, unpack_outputs(name, outputs)?);
        cpu::backward::<T>(self, x.slice()?, y.slice()?, dy.slice()?, dx.slice_mut()?, pool::num_threads());
        Ok(())
    }
}

impl FusedOp for Pool {
    fn name(&self) -> &'static str {
        match self.kind {
            PoolKind::Max => "max_pool2d",
            PoolKind::Mean => "avg_pool2d",
        }
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let [x] = inputs else { return vec![] };
        let (op, location) = (*self, SourceLocation::here());
        let gradient = move |x: &Tensor, y: &Tensor, dy: &Tensor| op.gradient(x, y, dy);
        vec![with_gradient(&self.windows_reduced(x), x, gradient, location)]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let op = *self;
        match runs_on_cpu(device, inputs)? {
            DType::F32 => Some(Implementation::infallible(move |i, o| op.run::<f32>(i, o))),
            _ => Some(Implementation::infallible(move |i, o| op.run::<f64>(i, o))),
        }
    }

    fn backward_implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let op = *self;
        match runs_on_cpu(device, inputs)? {
            DType::F32 => Some(Implementation::infallible(move |i, o| op.run_backward::<f32>(i, o))),
            _ => Some(Implementation::infallible(move |i, o| op.run_backward::<f64>(i, o))),
        }
    }

    fn backward_name(&self) -> &'static str {
        match self.kind {
            PoolKind::Max => "max_pool2d_backward",
            PoolKind::Mean => "avg_pool2d_backward",
        }
    }
}

/// Dtype of the inputs, if the routines support it on the device.
fn runs_on_cpu(device: Device, inputs: &[InputInfo<'_>]) -> Option<DType> {
    let dtype = inputs.first()?.dtype;
    (matches!(device, Device::Cpu(_)) && matches!(dtype, DType::F32 | DType::F64)).then_some(dtype)
}

/// Decompositions.
impl Pool {
    /// Elements of a window.
    fn window(&self) -> usize {
        self.geometry.kernel.iter().product()
    }

    /// Elements of the padded image, one per window, that are element `tap` of the windows.
    fn patch(&self, shape: &[usize], tap: usize) -> Vec<AxisSlice> {
        let PoolGeometry { kernel: [_, columns], stride, output, .. } = self.geometry;
        let slice = |axis: usize, start: usize| AxisSlice { start, step: stride[axis] as isize, len: output[axis] };
        vec![AxisSlice::full(shape[0]), AxisSlice::full(shape[1]), slice(0, tap / columns), slice(1, tap % columns)]
    }

    /// The image with its padding.
    #[track_caller]
    fn padded(&self, x: &Tensor) -> Tensor {
        let [down, across] = self.geometry.padding;
        let value = match self.kind {
            PoolKind::Max => f64::NEG_INFINITY,
            PoolKind::Mean => 0.0,
        };
        if down + across == 0 { x.clone() } else { x.pad(&[(0, 0), (0, 0), (down, down), (across, across)], value) }
    }

    #[track_caller]
    fn windows_reduced(&self, x: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        let (x, original_dtype) = match self.kind {
            PoolKind::Max => (x.clone(), x.0.dtype),
            PoolKind::Mean => x.widen(),
        };
        let image = self.padded(&x);
        let patch = |tap| Tensor::build(Op::Slice(self.patch(&x.0.shape, tap)), vec![image.clone()], location);
        let reduced = (1..self.window()).fold(patch(0), |reduced, tap| match self.kind {
            PoolKind::Max => reduced.maximum(patch(tap)),
            PoolKind::Mean => reduced + patch(tap),
        });
        match self.kind {
            PoolKind::Max => reduced,
            PoolKind::Mean => (reduced / self.window() as f64).narrow_to(original_dtype),
        }
    }

    /// The gradient of the image: for each element, the sum over the windows that contain it.
    #[track_caller]
    fn gradient(&self, x: &Tensor, y: &Tensor, dy: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        let failed = [x, y, dy].into_iter().find(|t| t.node().is_err());
        if let Some(failed) = failed {
            return failed.clone();
        }
        let (dy, original_dtype) = dy.widen();
        let image = self.padded(x);
        let (shape, padded) = (&x.0.shape, &image.0.shape);
        // Values of the windows at the positions of element `tap` in each, `fill` elsewhere.
        let spread = |windows: &Tensor, tap: usize, fill: f64| {
            let fill = Value::from_f64(windows.0.dtype, fill);
            Tensor::build(Op::Pad(self.patch(shape, tap), padded.clone(), fill), vec![windows.clone()], location)
        };
        let taps = || 0..self.window();
        let sum = |term: &dyn Fn(usize) -> Tensor| taps().skip(1).fold(term(0), |sum, tap| sum + term(tap));
        let total = match self.kind {
            PoolKind::Mean => {
                let each = dy / self.window() as f64;
                sum(&|tap| spread(&each, tap, 0.0))
            }
            PoolKind::Max => {
                let is_max = |image: &Tensor, y: &Tensor| image.equal(y).cast(dy.0.dtype);
                let patch = |tap| Tensor::build(Op::Slice(self.patch(shape, tap)), vec![image.clone()], location);
                let ties = sum(&|tap| is_max(&patch(tap), y));
                let each = &dy / ties;
                // No element is equal to NaN.
                sum(&|tap| is_max(&image, &spread(y, tap, f64::NAN)) * spread(&each, tap, 0.0))
            }
        };
        let PoolGeometry { padding, input, .. } = self.geometry;
        let inner = |axis: usize| AxisSlice { start: padding[axis], step: 1, len: input[axis] };
        let inner = vec![AxisSlice::full(shape[0]), AxisSlice::full(shape[1]), inner(0), inner(1)];
        Tensor::build(Op::Slice(inner), vec![total], location).narrow_to(original_dtype)
    }
}
