//! Cross-entropy of logits and class indices, per row.

mod cpu;

use bornite_codegen::cpu::pool;

use super::simd::supports_simd;
use super::softmax::{Softmax, SoftmaxOp};
use super::{FusedOp, Implementation, InputInfo, Memory, MemoryMut, unpack_inputs, unpack_outputs};
use crate::{DType, Device, Element, Error, Result, SourceLocation, Tensor};
use cpu::{Class, Width, cross_entropy};

/// Negative log-probability of a class, for each row of logits.
#[derive(Clone, Copy)]
pub(crate) struct CrossEntropy {
    /// Number of classes: the first logits of a row. The others are padding.
    pub classes: usize,
    pub location: SourceLocation,
}

impl CrossEntropy {
    /// Dtype of the targets, if the routines support these inputs.
    fn target_type(device: Device, inputs: &[InputInfo<'_>]) -> Option<DType> {
        let [logits, targets, rest @ ..] = inputs else { return None };
        let floats = [&[*logits], rest].concat();
        (matches!(targets.dtype, DType::I32 | DType::I64) && supports_simd(device, &floats)).then_some(targets.dtype)
    }

    /// Logits with padding replaced by -∞.
    fn masked(&self, logits: &Tensor) -> Tensor {
        let shape = &logits.0.shape;
        let column = Tensor::iota(shape, shape.len() - 1, DType::I32, logits.0.device, self.location);
        column.lt(self.classes as i64).select(logits, f64::NEG_INFINITY)
    }

    /// Targets that report an index out of range also in the padding: zeros, one per class, are
    /// looked up and added.
    fn checked(&self, targets: &Tensor) -> Tensor {
        let zeros = Tensor::zeros(&[self.classes], targets.0.dtype, targets.0.device);
        let index = targets.reshape_at(&[targets.0.elements()], self.location);
        targets + zeros.gather(0, &index).reshape_at(&targets.0.shape, self.location)
    }

    /// Runs the routine over rows; `scale` is the factor of the gradient of all rows.
    fn run<T: Class + Element + bytemuck::Pod + std::fmt::Display>(
        &self,
        logits: &[f32],
        targets: &[T],
        losses: &mut [f32],
        gradient: Option<&mut [f32]>,
        scale: f32,
    ) -> Result<()> {
        let width = Width { classes: self.classes, columns: logits.len() / targets.len().max(1) };
        cross_entropy(logits, targets, width, losses, gradient, scale, pool::num_threads()).map_err(|row| {
            let message = format!("index {} of row {row} is outside the {} classes", targets[row], self.classes);
            Error::Op { op: "cross_entropy", message, location: self.location }
        })
    }

    fn forward<T: Class + Element + bytemuck::Pod + std::fmt::Display>(
        &self,
        inputs: &[Memory<'_>],
        outputs: &mut [MemoryMut<'_>],
    ) -> Result<()> {
        let [logits, targets] = unpack_inputs("cross_entropy", inputs)?;
        let [losses] = unpack_outputs("cross_entropy", outputs)?;
        self.run::<T>(logits.slice()?, targets.slice()?, losses.slice_mut()?, None, 1.0)
    }

    fn backward<T: Class + Element + bytemuck::Pod + std::fmt::Display>(
        &self,
        inputs: &[Memory<'_>],
        outputs: &mut [MemoryMut<'_>],
    ) -> Result<()> {
        let [logits, targets, _losses, loss_gradients] = unpack_inputs("cross_entropy_backward", inputs)?;
        let [gradient] = unpack_outputs("cross_entropy_backward", outputs)?;
        let (logits, targets) = (logits.slice::<f32>()?, targets.slice::<T>()?);
        let (factors, gradient) = (loss_gradients.slice::<f32>()?, gradient.slice_mut::<f32>()?);
        let columns = logits.len() / targets.len().max(1);
        let mut losses = vec![0.0; targets.len()];
        // Runs of rows with equal factors: a single run if the loss is the mean over rows.
        let mut first = 0;
        while first < factors.len() {
            let factor = factors[first];
            let same = factors[first..].iter().take_while(|other| other.to_bits() == factor.to_bits()).count();
            let (rows, elements) = (first..first + same, first * columns..(first + same) * columns);
            let gradient = Some(&mut gradient[elements.clone()]);
            let losses = &mut losses[rows.clone()];
            self.run(&logits[elements], &targets[rows], losses, gradient, factor)?;
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
        let [logits, targets] = inputs else { return vec![] };
        let columns = logits.0.shape.last().copied().unwrap_or(0);
        let (logits, targets) = match self.classes < columns {
            true => (self.masked(logits), self.checked(targets)),
            false => (logits.clone(), targets.clone()),
        };
        let log_probabilities = SoftmaxOp(Softmax::Log).decompose(&[logits]).remove(0);
        vec![-log_probabilities.gather(-1, &targets.unsqueeze(-1)).squeeze(-1)]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let (op, target_type) = (*self, CrossEntropy::target_type(device, inputs)?);
        Some(Implementation::routine(move |inputs, outputs| match target_type {
            DType::I64 => op.forward::<i64>(inputs, outputs),
            _ => op.forward::<i32>(inputs, outputs),
        }))
    }

    fn backward_implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let (op, target_type) = (*self, CrossEntropy::target_type(device, inputs)?);
        Some(Implementation::routine(move |inputs, outputs| match target_type {
            DType::I64 => op.backward::<i64>(inputs, outputs),
            _ => op.backward::<i32>(inputs, outputs),
        }))
    }

    fn backward_name(&self) -> &'static str {
        "cross_entropy_backward"
    }
}
