//! Cross-entropy of logits and class indices, per row.

mod cpu;

use bornite_codegen::cpu::pool;

use super::simd::supports_simd;
use super::softmax::{Softmax, SoftmaxOp};
use super::{FusedOp, Implementation, InputInfo, Memory, MemoryMut, unpack_inputs, unpack_outputs};
use crate::{DType, Device, Element, Error, Result, SourceLocation, Tensor};
use cpu::{Class, cross_entropy};

/// Negative log-probability of a class, for each row of logits.
pub(crate) struct CrossEntropy(pub SourceLocation);

impl CrossEntropy {
    /// Dtype of the classes, if the routines support these inputs.
    fn class_type(device: Device, inputs: &[InputInfo<'_>]) -> Option<DType> {
        let [logits, classes, rest @ ..] = inputs else { return None };
        let floats = [&[*logits], rest].concat();
        (matches!(classes.dtype, DType::I32 | DType::I64) && supports_simd(device, &floats)).then_some(classes.dtype)
    }

    /// Runs the routine over rows; `scale` is the factor of the gradient of all rows.
    fn run<T: Class + Element + bytemuck::Pod + std::fmt::Display>(
        location: SourceLocation,
        logits: &[f32],
        classes: &[T],
        losses: &mut [f32],
        gradient: Option<&mut [f32]>,
        scale: f32,
    ) -> Result<()> {
        let columns = logits.len() / classes.len().max(1);
        cross_entropy(logits, classes, columns, losses, gradient, scale, pool::num_threads()).map_err(|row| {
            let message = format!("index {} of row {row} is outside the {columns} classes", classes[row]);
            Error::Op { op: "cross_entropy", message, location }
        })
    }

    fn forward<T: Class + Element + bytemuck::Pod + std::fmt::Display>(
        location: SourceLocation,
        inputs: &[Memory<'_>],
        outputs: &mut [MemoryMut<'_>],
    ) -> Result<()> {
        let [logits, classes] = unpack_inputs("cross_entropy", inputs)?;
        let [losses] = unpack_outputs("cross_entropy", outputs)?;
        CrossEntropy::run::<T>(location, logits.slice()?, classes.slice()?, losses.slice_mut()?, None, 1.0)
    }

    fn backward<T: Class + Element + bytemuck::Pod + std::fmt::Display>(
        location: SourceLocation,
        inputs: &[Memory<'_>],
        outputs: &mut [MemoryMut<'_>],
    ) -> Result<()> {
        let [logits, classes, _losses, loss_gradients] = unpack_inputs("cross_entropy_backward", inputs)?;
        let [gradient] = unpack_outputs("cross_entropy_backward", outputs)?;
        let (logits, classes) = (logits.slice::<f32>()?, classes.slice::<T>()?);
        let (factors, gradient) = (loss_gradients.slice::<f32>()?, gradient.slice_mut::<f32>()?);
        let columns = logits.len() / classes.len().max(1);
        let mut losses = vec![0.0; classes.len()];
        // Runs of rows with equal factors: a single run if the loss is the mean over rows.
        let mut first = 0;
        while first < factors.len() {
            let factor = factors[first];
            let same = factors[first..].iter().take_while(|other| other.to_bits() == factor.to_bits()).count();
            let (rows, elements) = (first..first + same, first * columns..(first + same) * columns);
            let gradient = Some(&mut gradient[elements.clone()]);
            let losses = &mut losses[rows.clone()];
            CrossEntropy::run(location, &logits[elements], &classes[rows], losses, gradient, factor)?;
            first += same;
        }
        Ok(())
    }
}

impl FusedOp for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let [logits, classes] = inputs else { return vec![] };
        let picked = SoftmaxOp(Softmax::Log).decompose(std::slice::from_ref(logits)).remove(0);
        vec![-picked.gather(-1, &classes.unsqueeze(-1)).squeeze(-1)]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let (location, class_type) = (self.0, CrossEntropy::class_type(device, inputs)?);
        Some(Implementation::routine(move |inputs, outputs| match class_type {
            DType::I64 => CrossEntropy::forward::<i64>(location, inputs, outputs),
            _ => CrossEntropy::forward::<i32>(location, inputs, outputs),
        }))
    }

    fn backward_implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let (location, class_type) = (self.0, CrossEntropy::class_type(device, inputs)?);
        Some(Implementation::routine(move |inputs, outputs| match class_type {
            DType::I64 => CrossEntropy::backward::<i64>(location, inputs, outputs),
            _ => CrossEntropy::backward::<i32>(location, inputs, outputs),
        }))
    }

    fn backward_name(&self) -> &'static str {
        "cross_entropy_backward"
    }
}
