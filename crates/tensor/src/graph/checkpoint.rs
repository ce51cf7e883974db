//! Checkpoints: what is computed again for the gradient rather than kept for it.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::graph::node::{Node, NodeId, Op};
use crate::{Error, SourceLocation, Tensor};

/// A function that a gradient runs again.
#[derive(Clone)]
pub(crate) struct Recompute(Arc<dyn Fn(&[Tensor]) -> Tensor + Send + Sync>);

impl fmt::Debug for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Again")
    }
}

/// `f(inputs)`, whose gradient computes `f` again instead of keeping what it computed on the way: less memory for more time.
/// Gradients flow to `inputs` only, so a float tensor that `f` uses and that is not among them is an error.
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
    let given: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    let start = NodeId::upcoming();
    let result = f(&given);
    if let Some(captured) = captured(&result, &given, start) {
        let Node { dtype, shape, .. } = &*captured.0;
        let message =
            format!("the function uses {dtype}{shape:?}, which is not among its inputs; pass it, or lose its gradient");
        return Tensor::failed_at("checkpoint", message, location);
    }
    let all = [&[result][..], &given].concat();
    Tensor::build(Op::Checkpoint(Recompute(Arc::new(f))), all, location)
}

/// A float tensor that was there before the function ran, and that its result depends on other than through its inputs.
fn captured(result: &Tensor, inputs: &[Tensor], start: NodeId) -> Option<Tensor> {
    let mut seen: HashSet<NodeId> = inputs.iter().map(|input| input.0.id).collect();
    let mut stack = vec![result.clone()];
    while let Some(tensor) = stack.pop() {
        let node = &tensor.0;
        if !seen.insert(node.id) {
            continue;
        }
        // Inside a trace a variable's first read makes its node only now.
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
    /// Runs the function on the inputs once more: the new result, and what stands for the inputs in it.
    pub fn run(&self, inputs: &[Tensor], location: SourceLocation) -> Result<(Tensor, Vec<Tensor>), Error> {
        // Nodes of their own, so that a gradient by them is through this function only; not detached, so that gradients
        // of gradients flow on.
        let mut doubles = vec![];
        for input in inputs {
            let shape = input.node()?.shape.clone();
            doubles.push(Tensor::build(Op::Reshape(shape), vec![input.clone()], location));
        }
        let result = (self.0)(&doubles);
        result.node()?;
        Ok((result, doubles))
    }
}
