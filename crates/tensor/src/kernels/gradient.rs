//! Gradients of custom kernels by their adjoint kernels (`bornite_ir::adjoint`), which are launched
//! like the kernels themselves, so that they are differentiable in turn.

use std::sync::Arc;

use bornite_ir::adjoint::{AdjointArray, AdjointError, AdjointOptions, AdjointRequest, AdjointRole, adjoint};
use bornite_ir::{Access, Op as ScalarOp, ParamId, Value};

use crate::graph::multi_output::GradientFn;
use crate::graph::node::Reduce;
use crate::kernels::compiled::CompiledKernel;
use crate::kernels::module::{Module, lowered_ir};
use crate::ops::pointwise::map;

use crate::{Axes, Error, Result, SourceLocation, Tensor};

/// An adjoint kernel, specialized for a launch.
pub(super) struct AdjointKernel {
    compiled: Arc<CompiledKernel>,
    arrays: Vec<AdjointArray>,
}

/// A launch that is differentiated when its gradient is asked for.
#[derive(Clone)]
pub(super) struct DifferentiableLaunch {
    pub compiled: Arc<CompiledKernel>,
    pub values: Vec<Vec<Value>>,
    pub options: AdjointOptions,
    /// The source, for messages.
    pub module: Option<Module>,
    pub location: SourceLocation,
}

impl DifferentiableLaunch {
    pub fn gradient_fn(self) -> GradientFn {
        Arc::new(move |inputs, _, output_gradients, used| {
            let found = self.gradients(inputs, output_gradients, used);
            Some(found.unwrap_or_else(|error| {
                let failed = |used: &bool| used.then(|| Tensor::from_error(error.clone(), self.location));
                used.iter().map(failed).collect()
            }))
        })
    }

    fn gradients(
        &self,
        inputs: &[Tensor],
        output_gradients: &[Option<Tensor>],
        used: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let params = &self.compiled.lowered.kernel.params;
        let wanted: Vec<ParamId> = (0u32..).zip(used).filter(|(_, used)| **used).map(|(n, _)| ParamId(n)).collect();
        let adjoint = self.adjoint_kernel(wanted)?;
        let zeros =
            |like: &Tensor, shape: &[usize]| like.scalar_like(0.0, self.location).broadcast_to(shape, self.location);
        // Gradients of the written arrays, in the order of views.
        let mut of_outputs = output_gradients.iter();
        let after: Vec<Option<Tensor>> = (params.iter().zip(inputs))
            .map(|(param, input)| {
                let found = param.access.writes().then(|| of_outputs.next().cloned().flatten())?;
                Some(found.unwrap_or_else(|| zeros(input, &input.0.shape)))
            })
            .collect();
        let mut arrays = vec![];
        for array in &adjoint.arrays {
            let n = array.param.0 as usize;
            let input = &inputs[n];
            arrays.push(match array.role {
                AdjointRole::Original => input.clone(),
                AdjointRole::OutputGradient => after[n].clone().unwrap_or_else(|| zeros(input, &input.0.shape)),
                AdjointRole::Gradient { copies } => {
                    let copies = (copies > 1).then_some(copies as usize);
                    zeros(input, &copies.into_iter().chain(input.0.shape.iter().copied()).collect::<Vec<_>>())
                }
            });
        }
        let launch = DifferentiableLaunch { compiled: adjoint.compiled.clone(), module: None, ..self.clone() };
        let results =
            adjoint.compiled.results(arrays, self.values.clone(), Some(launch.gradient_fn()), self.location)?;
        let written = adjoint.compiled.lowered.kernel.params.iter().zip(&adjoint.arrays);
        let written = written.filter(|(param, _)| param.access.writes()).map(|(_, array)| array).zip(results);
        let mut gradients: Vec<Option<Tensor>> =
            after.into_iter().zip(used).map(|(gradient, used)| gradient.filter(|_| *used)).collect();
        for (array, result) in written {
            let n = array.param.0 as usize;
            let sum = match array.role {
                _ if !used[n] => continue,
                AdjointRole::Original => continue,
                AdjointRole::OutputGradient => {
                    gradients[n] = Some(result);
                    continue;
                }
                AdjointRole::Gradient { copies: 2.. } => result.reduce(Reduce::Sum, Axes::List(vec![0]), self.location),
                AdjointRole::Gradient { .. } => result,
            };
            // What passes through an array that the kernel may write but does not.
            gradients[n] = Some(match gradients[n].take() {
                Some(after) => map(ScalarOp::Add, &[&after, &sum], self.location),
                None => sum,
            });
        }
        Ok(gradients)
    }

    /// The adjoint kernel with respect to these arrays, which is kept for later launches.
    fn adjoint_kernel(&self, with_respect_to: Vec<ParamId>) -> Result<Arc<AdjointKernel>> {
        let key = (with_respect_to, self.options);
        if let Some(found) = self.compiled.adjoint(&key) {
            return Ok(found);
        }
        let request = AdjointRequest { with_respect_to: key.0.clone(), options: self.options };
        let found = adjoint(&self.compiled.lowered.kernel, &request).map_err(|error| self.error(&error))?;
        let reads = found.kernel.params.iter().map(|param| param.access.reads()).collect();
        debug_assert!(found.kernel.params.iter().all(|param| param.access != Access::Write));
        let compiled = Arc::new(CompiledKernel::new(lowered_ir(&found.kernel), reads)?);
        let kept = Arc::new(AdjointKernel { compiled, arrays: found.arrays });
        self.compiled.keep_adjoint(key, kept.clone());
        Ok(kept)
    }

    fn error(&self, error: &AdjointError) -> Error {
        let AdjointError { kernel, message, remedy, line } = error;
        let line = line.and_then(|line| self.compiled.lowered.source_line_of(line));
        let source = line.and_then(|line| self.module.as_ref()?.source_line(line));
        let (at, text) = match source {
            Some((file, number, text)) => {
                (format!(" at {file}:{number}"), format!("\n  {number} | {}\n", text.trim_end()))
            }
            None => (String::new(), "; ".into()),
        };
        let remedy = if remedy.is_empty() { String::new() } else { format!("{remedy}, ") };
        let message = format!(
            "'{kernel}' is not differentiable{at}: {message}{text}{remedy}set a gradient with CustomKernel::gradient, \
             or use detach to treat its output as a constant"
        );
        Error::Op { op: "kernel", message, location: self.location }
    }
}
