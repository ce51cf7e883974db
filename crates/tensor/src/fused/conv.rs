//! Convolution, and the two ops that its gradients consist of.
//!
//! With the same sizes, `Conv` computes an image from an image and a kernel, `InputGradient` the
//! input's gradient from the output's gradient and the kernel (this is also transposed
//! convolution), and `WeightGradient` the kernel's gradient from the input and the output's
//! gradient. Each is linear in both inputs, and the gradients of each are the other two.

mod cpu;
mod direct;
mod geometry;
mod weight_gradient;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bornite_codegen::cpu::pool;
use bornite_ir::Value;

pub(crate) use geometry::{Geometry, spatial};

use super::{FusedOp, Implementation, InputInfo, Memory, MemoryMut, fused_at, unpack_inputs, unpack_outputs};
use crate::graph::node::{AxisSlice, Op};
use crate::{DType, Device, Result, SourceLocation, Tensor};
use cpu::ConvFloat;

/// One of the three ops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConvKind {
    /// `[x, weight]` or `[x, weight, bias]` to the output.
    Conv,
    /// `[dy, weight]` to the gradient of the input.
    InputGradient,
    /// `[x, dy]` to the gradient of the kernel.
    WeightGradient,
}

/// A convolution, or one of its gradients.
#[derive(Clone, Copy)]
pub(crate) struct Convolve {
    pub kind: ConvKind,
    pub geometry: Geometry,
}

impl Convolve {
    /// Builds the op; the inputs have the shapes of the geometry.
    pub fn apply(self, inputs: Vec<Tensor>, location: SourceLocation) -> Tensor {
        fused_at(Arc::new(self), inputs, location).remove(0)
    }

    fn with(&self, kind: ConvKind, inputs: [&Tensor; 2]) -> Tensor {
        let location = SourceLocation::here();
        Convolve { kind, ..*self }.apply(inputs.map(Tensor::clone).to_vec(), location)
    }
}

impl FusedOp for Convolve {
    fn name(&self) -> &'static str {
        match self.kind {
            ConvKind::Conv => "conv",
            ConvKind::InputGradient => "conv_input_gradient",
            ConvKind::WeightGradient => "conv_weight_gradient",
        }
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let output = match (self.kind, inputs) {
            (ConvKind::Conv, [x, weight]) => self.geometry.conv(x, weight),
            (ConvKind::Conv, [x, weight, bias]) => {
                let shape = [&[bias.0.shape.iter().product()], &vec![1; self.geometry.rank][..]].concat();
                self.geometry.conv(x, weight) + bias.reshape(&shape)
            }
            (ConvKind::InputGradient, [dy, weight]) => self.geometry.scatter(dy, weight),
            (ConvKind::WeightGradient, [x, dy]) => self.geometry.correlate(x, dy),
            _ => return vec![],
        };
        vec![output]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        if !matches!(device, Device::Cpu(_)) || self.geometry.multiplications() == 0 {
            return None;
        }
        let op = *self;
        let all = |dtype| inputs.iter().all(|input| input.dtype == dtype);
        match () {
            () if all(DType::F32) => Some(Implementation::infallible(move |i, o| op.run::<f32>(i, o))),
            () if all(DType::F64) => Some(Implementation::infallible(move |i, o| op.run::<f64>(i, o))),
            () => None,
        }
    }

    #[track_caller]
    fn gradients(&self, inputs: &[Tensor], gradient: &Tensor) -> Option<Vec<Option<Tensor>>> {
        use ConvKind::{Conv, InputGradient, WeightGradient};
        let [a, b, bias @ ..] = inputs else { return None };
        let (first, second) = match self.kind {
            Conv => (self.with(InputGradient, [gradient, b]), self.with(WeightGradient, [a, gradient])),
            InputGradient => (self.with(Conv, [gradient, b]), self.with(WeightGradient, [gradient, a])),
            WeightGradient => (self.with(InputGradient, [b, gradient]), self.with(Conv, [a, gradient])),
        };
        let axes: Vec<isize> = std::iter::once(0).chain(2..2 + self.geometry.rank as isize).collect();
        let bias = bias.iter().map(|_| gradient.sum(crate::Axes::List(axes.clone())));
        Some([first, second].into_iter().chain(bias).map(Some).collect())
    }
}

impl Convolve {
    fn run<T: ConvFloat + crate::Element>(&self, inputs: &[Memory<'_>], outputs: &mut [MemoryMut<'_>]) -> Result<()> {
        let (name, threads) = (self.name(), pool::num_threads());
        let [out] = unpack_outputs(name, outputs)?;
        let out: &mut [T] = out.slice_mut()?;
        let (a, b, bias) = match inputs {
            [a, b, bias] => (a, b, Some(bias.slice()?)),
            _ => {
                let [a, b] = unpack_inputs(name, inputs)?;
                (a, b, None)
            }
        };
        let (a, b) = (a.slice()?, b.slice()?);
        match self.kind {
            ConvKind::Conv => cpu::forward(&self.geometry, a, b, bias, out, threads),
            ConvKind::InputGradient => cpu::input_gradient(&self.geometry, a, b, out, threads),
            ConvKind::WeightGradient => weight_gradient::weight_gradient(&self.geometry, a, b, out, threads),
        }
        Ok(())
    }
}

/// Decompositions: matrix products over patches (im2col), which are slices of the padded image.
impl Geometry {
    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Elements of the padded image that element `tap` of the kernel is applied to.
    fn patch(&self, tap: usize) -> Vec<AxisSlice> {
        let [_, height, width] = self.kernel;
        let at = [tap / (height * width), tap / width % height, tap % width];
        let slice = |axis: usize| AxisSlice {
            start: at[axis] * self.dilation[axis],
            step: self.stride[axis] as isize,
            len: self.output[axis],
        };
        (3 - self.rank..3).map(slice).collect()
    }

    /// Length of each axis of the padded image, as far as the kernel reads it.
    fn padded(&self, axis: usize) -> usize {
        let last = self.output[axis].saturating_sub(1) * self.stride[axis];
        let reach = last + (self.kernel[axis] - 1) * self.dilation[axis] + 1;
        reach.max(self.input[axis] + self.padding[axis])
    }

    /// The patches of an image: `[n, groups, channels · taps, positions]`.
    #[track_caller]
    fn patches(&self, x: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        let axes = 3 - self.rank..3;
        let padding =
            |axis: usize| (self.padding[axis], self.padded(axis).saturating_sub(self.input[axis] + self.padding[axis]));
        let padding: Vec<(usize, usize)> = [(0, 0); 2].into_iter().chain(axes.map(padding)).collect();
        let image = if padding.iter().all(|pad| *pad == (0, 0)) { x.clone() } else { x.pad(&padding, 0.0) };
        let whole = [AxisSlice::full(self.batch), AxisSlice::full(self.groups * self.channels)];
        let patch =
            |tap| Tensor::build(Op::Slice([&whole[..], &self.patch(tap)].concat()), vec![image.clone()], location);
        let patches: Vec<Tensor> = (0..self.taps()).map(patch).collect();
        let stacked = Tensor::stack(&patches.iter().collect::<Vec<_>>(), 2);
        stacked.reshape(&[self.batch, self.groups, self.channels * self.taps(), self.output.iter().product()])
    }

    #[track_caller]
    fn conv(&self, x: &Tensor, weight: &Tensor) -> Tensor {
        let weight = weight.reshape(&[self.groups, self.out_channels, self.channels * self.taps()]);
        weight.matmul(&self.patches(x)).reshape(&self.output_shape())
    }

    /// The gradient of the input: a matrix product whose columns are added to the patches of the
    /// image (col2im).
    #[track_caller]
    fn scatter(&self, dy: &Tensor, weight: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        let weight = weight.reshape(&[self.groups, self.out_channels, self.channels * self.taps()]).transpose(1, 2);
        let positions = self.output.iter().product();
        let product = weight.matmul(&dy.reshape(&[self.batch, self.groups, self.out_channels, positions]));
        let axes = 3 - self.rank..3;
        let channels = self.groups * self.channels;
        let shape = [&[self.batch, channels, self.taps()], &self.output[axes.clone()]].concat();
        // The sum over the kernel is computed in f32 for 16-bit floats.
        let (product, original_dtype) = product.reshape(&shape).widen();
        if product.node().is_err() {
            return product;
        }
        let zero = Value::from_f64(product.0.dtype, 0.0);
        let padded =
            [&[self.batch, channels], &axes.clone().map(|axis| self.padded(axis)).collect::<Vec<_>>()[..]].concat();
        let whole = [AxisSlice::full(self.batch), AxisSlice::full(channels)];
        let part = |tap: usize| {
            let part = product.slice(2, tap as isize..tap as isize + 1).squeeze(2);
            let targets = [&whole[..], &self.patch(tap)].concat();
            Tensor::build(Op::Pad(targets, padded.clone(), zero), vec![part], location)
        };
        let total = (1..self.taps()).fold(part(0), |total, tap| total + part(tap));
        let inner = axes.map(|axis| AxisSlice { start: self.padding[axis], step: 1, len: self.input[axis] });
        let inner = whole.into_iter().chain(inner).collect();
        Tensor::build(Op::Slice(inner), vec![total], location).narrow_to(original_dtype)
    }

    /// The gradient of the kernel.
    #[track_caller]
    fn correlate(&self, x: &Tensor, dy: &Tensor) -> Tensor {
        let positions = self.output.iter().product();
        let dy = dy.reshape(&[self.batch, self.groups, self.out_channels, positions]);
        let (products, original_dtype) = dy.matmul(&self.patches(x).transpose(2, 3)).widen();
        products.sum(0).narrow_to(original_dtype).reshape(&self.weight_shape())
    }
}
