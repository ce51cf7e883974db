//! Functions with a gradient of their own: gradient checkpointing, which recomputes intermediate
//! values in the backward pass instead of saving them, and gradients by a formula.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::graph::grad::vjp;
use crate::graph::node::{Node, NodeId, Op};
use crate::{Error, SourceLocation, Tensor};

/// Computes the gradient of a function.
#[derive(Clone)]
pub(crate) enum CheckpointGradient {
    /// By running the function again.
    Recompute(Arc<dyn Fn(&[Tensor]) -> Tensor + Send + Sync>),
    /// From its only input, its output and the gradient of the output.
    Formula(GradientFormula),
}

/// The gradient of a function's input from input, output and gradient of the output.
type GradientFormula = Arc<dyn Fn(&Tensor, &Tensor, &Tensor) -> Tensor + Send + Sync>;

impl fmt::Debug for CheckpointGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CheckpointGradient::Recompute(_) => "Recompute",
            CheckpointGradient::Formula(_) => "Formula",
        })
    }
}

/// The output of a function of one input, with a gradient that `gradient` computes from input,
/// output and the gradient of the output.
pub(crate) fn with_gradient(
    output: &Tensor,
    input: &Tensor,
    gradient: impl Fn(&Tensor, &Tensor, &Tensor) -> Tensor + Send + Sync + 'static,
    location: SourceLocation,
) -> Tensor {
    let formula = CheckpointGradient::Formula(Arc::new(gradient));
    Tensor::build(Op::Checkpoint(formula), vec![output.clone(), input.clone()], location)
}

/// Gradient checkpointing: `f(inputs)`, whose gradient runs `f` again instead of saving
/// intermediate values, which takes less memory and more time. Gradients flow to `inputs` only: a
/// float tensor that `f` uses and that is not an input is an error.
///
/// ```
/// use bornite::{Device, Tensor, ops::checkpoint};
/// # fn main() -> bornite::Result<()> {
/// let x = Tensor::from_slice(&[0.5f64, 2.0], &[2], Device::cpu());
/// let loss = checkpoint(&[&x], |t| (t[0].sin() * &t[0]).exp()).sum(..);
/// let plain = (x.sin() * &x).exp().sum(..);
/// assert_eq!(loss.grad(&[&x])[0].to_vec::<f64>()?, plain.grad(&[&x])[0].to_vec::<f64>()?);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn checkpoint(inputs: &[&Tensor], f: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'static) -> Tensor {
    let location = SourceLocation::here();
    let inputs: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    let start = NodeId::upcoming();
    let output = f(&inputs);
    if let Some(captured) = captured(&output, &inputs, start) {
        let Node { dtype, shape, .. } = &*captured.0;
        let message = format!(
            "the function captures a tensor {dtype}{shape:?}, which would get no gradient; pass it as an input"
        );
        return Tensor::failed_at("checkpoint", message, location);
    }
    let all = [&[output][..], &inputs].concat();
    Tensor::build(Op::Checkpoint(CheckpointGradient::Recompute(Arc::new(f))), all, location)
}

/// A float tensor that existed before the function ran and that the output depends on other than
/// through the inputs.
fn captured(output: &Tensor, inputs: &[Tensor], start: NodeId) -> Option<Tensor> {
    let mut seen: HashSet<NodeId> = inputs.iter().map(|input| input.0.id).collect();
    let mut stack = vec![output.clone()];
    while let Some(tensor) = stack.pop() {
        let node = &tensor.0;
        if !seen.insert(node.id) {
            continue;
        }
        // Inside a trace the first read of a variable creates its node.
        let old = node.id < start || matches!(node.op, Op::Var | Op::Input | Op::Output);
        let constant = matches!(node.op, Op::Full(_) | Op::Iota { .. });
        if old && node.dtype.is_float() && !constant {
            return Some(tensor);
        }
        if !old {
            stack.extend(node.inputs.iter().cloned());
        }
    }
    None
}

impl CheckpointGradient {
    /// The gradients of the inputs from that of the output; `inputs` begins with the output.
    pub fn of_inputs(
        &self,
        inputs: &[Tensor],
        grad: &Tensor,
        location: SourceLocation,
    ) -> Result<Vec<Option<Tensor>>, Error> {
        match (self, inputs) {
            (CheckpointGradient::Formula(formula), [output, input]) => {
                Ok(vec![None, Some(location.in_scope(|| formula(input, output, grad)))])
            }
            (CheckpointGradient::Recompute(function), [_, inputs @ ..]) => {
                // New nodes for the inputs, so that their gradient is through this function only; not
                // detached, so that higher-order gradients work. Computed earlier, in the kernel that
                // computed the output for instance, the intermediate values would be saved after all.
                let alias = |input: &Tensor| Tensor::build(Op::After, vec![input.clone(), grad.clone()], location);
                let aliases: Vec<Tensor> = inputs.iter().map(alias).collect();
                let output = function(&aliases);
                output.node()?;
                let wrt: Vec<&Tensor> = aliases.iter().filter(|alias| alias.0.dtype.is_float()).collect();
                let mut gradients = vjp(&output, grad.clone(), &wrt, location)?.into_iter();
                let of = |alias: &Tensor| if alias.0.dtype.is_float() { gradients.next() } else { None };
                Ok([None].into_iter().chain(aliases.iter().map(of)).collect())
            }
            _ => Ok(vec![]),
        }
    }
}
