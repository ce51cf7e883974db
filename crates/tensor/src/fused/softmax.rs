//! Softmax and log-softmax. The fused op works along the last axis; other axes use plain ops.

mod cpu;

use std::sync::Arc;

use bornite_codegen::cpu::pool;

use super::simd::{columns, supports_simd};
use super::{FusedOp, Implementation, InputInfo, fused_at, unpack_inputs, unpack_outputs};
use crate::{Device, SourceLocation, Tensor};
pub(crate) use cpu::Softmax;
pub(super) use cpu::{dot, exp_and_sum, exp_sum};
use cpu::{softmax, softmax_backward};

impl Tensor {
    /// Softmax along an axis, computed without overflow.
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Tensor {
        let (x, original_dtype) = self.widen();
        if self.is_last(axis) {
            return x.softmax_last_axis(Softmax::Plain, SourceLocation::here()).narrow_to(original_dtype);
        }
        let exp = x.minus_max(axis).exp();
        (&exp / exp.sum_keepdim(axis)).narrow_to(original_dtype)
    }

    /// The logarithm of [`Tensor::softmax`].
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Tensor {
        let (x, original_dtype) = self.widen();
        if self.is_last(axis) {
            return x.softmax_last_axis(Softmax::Log, SourceLocation::here()).narrow_to(original_dtype);
        }
        let shifted = x.minus_max(axis);
        (&shifted - shifted.exp().sum_keepdim(axis).log()).narrow_to(original_dtype)
    }

    /// True if `axis` is the last axis.
    fn is_last(&self, axis: isize) -> bool {
        let rank = self.node().map_or(0, |node| node.shape.len());
        rank > 0 && (axis == -1 || axis == rank as isize - 1)
    }

    fn softmax_last_axis(&self, kind: Softmax, location: SourceLocation) -> Tensor {
        fused_at(Arc::new(SoftmaxOp(kind)), vec![self.clone()], location).remove(0)
    }

    /// x minus its maximum along an axis. The shift cancels in the callers, so it carries no
    /// gradient.
    #[track_caller]
    pub(crate) fn minus_max(&self, axis: isize) -> Tensor {
        // An empty axis has no maximum and needs none.
        if self.reduced_count(&axis.into()) == 0.0 { self.clone() } else { self - self.max_keepdim(axis).detach() }
    }
}

/// Softmax or log-softmax along the last axis.
pub(crate) struct SoftmaxOp(pub Softmax);

impl FusedOp for SoftmaxOp {
    fn name(&self) -> &'static str {
        match self.0 {
            Softmax::Plain => "softmax",
            Softmax::Log => "log_softmax",
        }
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let [x] = inputs else { return vec![] };
        let shifted = x.minus_max(-1);
        vec![match self.0 {
            Softmax::Plain => {
                let exp = shifted.exp();
                &exp / exp.sum_keepdim(-1)
            }
            Softmax::Log => &shifted - shifted.exp().sum_keepdim(-1).log(),
        }]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let [x] = inputs else { return None };
        let (kind, name, columns) = (self.0, self.name(), columns(x));
        supports_simd(device, inputs).then(|| {
            Implementation::infallible(move |inputs, outputs| {
                let ([x], [y]) = (unpack_inputs(name, inputs)?, unpack_outputs(name, outputs)?);
                softmax(kind, x.slice()?, columns, y.slice_mut()?, pool::num_threads());
                Ok(())
            })
        })
    }

    fn backward_implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let [x, _y, _dy] = inputs else { return None };
        let (kind, name, columns) = (self.0, self.backward_name(), columns(x));
        supports_simd(device, inputs).then(|| {
            Implementation::infallible(move |inputs, outputs| {
                let ([_x, y, dy], [dx]) = (unpack_inputs(name, inputs)?, unpack_outputs(name, outputs)?);
                softmax_backward(kind, y.slice()?, dy.slice()?, columns, dx.slice_mut()?, pool::num_threads());
                Ok(())
            })
        })
    }

    fn backward_name(&self) -> &'static str {
        "softmax_backward"
    }
}
