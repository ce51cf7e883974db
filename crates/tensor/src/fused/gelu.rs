//! GELU: the tanh approximation and the exact form by the error function.

mod cpu;

use std::sync::Arc;

use bornite_codegen::cpu::pool;

use super::simd::supports_simd;
use super::{FusedOp, Implementation, InputInfo, fused_at, unpack_inputs, unpack_outputs};
use crate::{Device, SourceLocation, Tensor};
pub(crate) use cpu::Gelu;
use cpu::{gelu, gelu_backward};

impl Tensor {
    /// Tanh approximation of GELU: ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).
    #[track_caller]
    pub fn gelu(&self) -> Tensor {
        self.apply_gelu(Gelu::Tanh, "gelu", SourceLocation::here())
    }

    /// Exact GELU, x · Φ(x), by the error function.
    #[track_caller]
    pub fn gelu_erf(&self) -> Tensor {
        self.apply_gelu(Gelu::Erf, "gelu_erf", SourceLocation::here())
    }

    fn apply_gelu(&self, kind: Gelu, name: &'static str, location: SourceLocation) -> Tensor {
        match self.check_float(name, location) {
            Ok(()) => fused_at(Arc::new(GeluOp(kind)), vec![self.clone()], location).remove(0),
            Err(failed) => failed,
        }
    }
}

/// GELU, approximate or exact.
pub(crate) struct GeluOp(pub Gelu);

impl FusedOp for GeluOp {
    fn name(&self) -> &'static str {
        match self.0 {
            Gelu::Tanh => "gelu",
            Gelu::Erf => "gelu_erf",
        }
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let [x] = inputs else { return vec![] };
        vec![x.apply_formula(self.name(), x.0.location)]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let (kind, name) = (self.0, self.name());
        supports_simd(device, inputs).then(|| {
            Implementation::infallible(move |inputs, outputs| {
                let ([x], [y]) = (unpack_inputs(name, inputs)?, unpack_outputs(name, outputs)?);
                gelu(kind, x.slice()?, y.slice_mut()?, pool::num_threads());
                Ok(())
            })
        })
    }

    fn backward_implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let (kind, name) = (self.0, self.backward_name());
        supports_simd(device, inputs).then(|| {
            Implementation::infallible(move |inputs, outputs| {
                let ([x, _y, dy], [dx]) = (unpack_inputs(name, inputs)?, unpack_outputs(name, outputs)?);
                gelu_backward(kind, x.slice()?, dy.slice()?, dx.slice_mut()?, pool::num_threads());
                Ok(())
            })
        })
    }

    fn backward_name(&self) -> &'static str {
        "gelu_backward"
    }
}
