//! Softmax and its logarithm along the last axis.

mod cpu;

use std::sync::Arc;

use bornite_codegen::cpu::pool;

use super::simd::{columns, supports_simd};
use super::{FusedOp, Implementation, InputInfo, fused_at, unpack_inputs, unpack_outputs};
use crate::{Device, SourceLocation, Tensor};
pub(crate) use cpu::Softmax;
pub(super) use cpu::{dot, powers, sum_of_powers};
use cpu::{softmax, softmax_backward};

impl Tensor {
    /// exp(x) over its sum along an axis, computed without overflow.
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Tensor {
        let (x, narrow) = self.widen();
        if self.is_last(axis) {
            return x.rows_softmax(Softmax::Plain, SourceLocation::here()).narrow_to(narrow);
        }
        let powers = x.minus_max(axis).exp();
        (&powers / powers.sum_keepdim(axis)).narrow_to(narrow)
    }

    /// The logarithm of [`Tensor::softmax`].
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Tensor {
        let (x, narrow) = self.widen();
        if self.is_last(axis) {
            return x.rows_softmax(Softmax::Log, SourceLocation::here()).narrow_to(narrow);
        }
        let centred = x.minus_max(axis);
        (&centred - centred.exp().sum_keepdim(axis).log()).narrow_to(narrow)
    }

    /// True if an axis is the last of some.
    fn is_last(&self, axis: isize) -> bool {
        let rank = self.node().map_or(0, |node| node.shape.len());
        rank > 0 && (axis == -1 || axis == rank as isize - 1)
    }

    fn rows_softmax(&self, kind: Softmax, location: SourceLocation) -> Tensor {
        fused_at(Arc::new(SoftmaxOp(kind)), vec![self.clone()], location).remove(0)
    }

    /// x minus its largest element along an axis. The shift cancels in what uses this, so it carries no gradient.
    #[track_caller]
    pub(crate) fn minus_max(&self, axis: isize) -> Tensor {
        // Nothing has no largest element, and needs none.
        if self.count(&axis.into()) == 0.0 { self.clone() } else { self - self.max_keepdim(axis).detach() }
    }
}

/// Softmax or its logarithm along the last axis.
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
        let centred = x.minus_max(-1);
        vec![match self.0 {
            Softmax::Plain => {
                let powers = centred.exp();
                &powers / powers.sum_keepdim(-1)
            }
            Softmax::Log => &centred - centred.exp().sum_keepdim(-1).log(),
        }]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let [x] = inputs else { return None };
        let (kind, name, columns) = (self.0, self.name(), columns(x));
        supports_simd(device, inputs).then(|| {
            Implementation::infallible(move |inputs, outputs| {
                let ([x], [y]) = (unpack_inputs(name, inputs)?, unpack_outputs(name, outputs)?);
                softmax(kind, x.slice()?, columns, y.slice_mut()?, pool::threads());
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
                softmax_backward(kind, y.slice()?, dy.slice()?, columns, dx.slice_mut()?, pool::threads());
                Ok(())
            })
        })
    }

    fn backward_name(&self) -> &'static str {
        "softmax_backward"
    }
}
