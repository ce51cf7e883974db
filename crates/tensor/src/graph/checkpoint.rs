//! Gradient checkpointing: intermediate values are recomputed in the backward pass instead of saved
//! for it.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::graph::node::{Node, NodeId, Op};
use crate::{Error, SourceLocation, Tensor};

/// A function that the backward pass runs again.
#[derive(Clone)]
pub(crate) struct Recompute(Arc<dyn Fn(&[Tensor]) -> Tensor + Send + Sync>);

impl fmt::Debug for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recompute")
    }
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
    Tensor::build(Op::Checkpoint(Recompute(Arc::new(f))), all, location)
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

impl Recompute {
    /// Runs the function again, once `grad` is computed: the new output, and the aliases of the
    /// inputs that it depends on.
    pub fn run(
        &self,
        inputs: &[Tensor],
        grad: &Tensor,
        location: SourceLocation,
    ) -> Result<(Tensor, Vec<Tensor>), Error> {
        // New nodes for the inputs, so that their gradient is through this function only; not
        // detached, so that higher-order gradients work. Computed earlier, in the kernel that
        // computed the output for instance, the intermediate values would be saved after all.
        let alias = |input: &Tensor| Tensor::build(Op::After, vec![input.clone(), grad.clone()], location);
        let aliases: Vec<Tensor> = inputs.iter().map(alias).collect();
        let output = (self.0)(&aliases);
        output.node()?;
        Ok((output, aliases))
    }
}
