//! Multi-output ops: fused ops and custom kernels in the graph.
//!
//! A multi-output node has no value. Each of its outputs is a node ([`Op::GetOutput`]) that refers
//! to it and to an index. Such nodes are built by `fused.rs` and `kernels/compiled.rs`;
//! `schedule/steps.rs` launches each of them once.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bornite_ir::{Kernel, Value};

use crate::fused::{Fallibility, Routine};
use crate::graph::node::{Node, Op};
use crate::runtime::cuda_source::CudaSource;
use crate::{DType, SourceLocation, Tensor};

/// The code that computes the outputs.
#[derive(Clone)]
pub(crate) enum ImplementationKind {
    /// A kernel. The parameters that it reads are the inputs in order, those that it writes are the
    /// outputs. `checked` if it is not known to index within its views.
    Kernel { kernel: Arc<Kernel>, values: Vec<Vec<Value>>, checked: bool },
    /// Handwritten GPU kernels.
    Source(Arc<CudaSource>),
    /// A function on host memory. `in_place` holds (output, input) pairs that share memory: before
    /// the call the memory of the output holds the input.
    Routine { run: Routine, fallibility: Fallibility, in_place: Vec<(usize, usize)> },
}

/// Gradients of the inputs from inputs, outputs and gradients of the outputs (`None` is zero). The
/// last argument is true for inputs whose gradient is used.
pub(crate) type GradientFn =
    Arc<dyn Fn(&[Tensor], &[Tensor], &[Option<Tensor>], &[bool]) -> InputGradients + Send + Sync>;
/// One optional gradient per input; `None` if the gradients come from the decomposition.
pub(crate) type InputGradients = Option<Vec<Option<Tensor>>>;

/// An op with several outputs.
pub(crate) struct MultiOutput {
    pub name: &'static str,
    /// Dtype and shape of each output.
    pub outputs: Vec<(DType, Vec<usize>)>,
    /// If set, the node's first inputs are the outputs of the decomposition into plain ops.
    pub has_decomposition: bool,
    pub implementation: ImplementationKind,
    pub gradient: Option<GradientFn>,
    /// Nodes of the outputs that still exist, so that asking twice gives the same node.
    pub output_nodes: Mutex<Vec<Weak<Node>>>,
}

impl MultiOutput {
    pub fn new(
        name: &'static str,
        outputs: Vec<(DType, Vec<usize>)>,
        implementation: ImplementationKind,
    ) -> MultiOutput {
        let output_nodes = Mutex::new(outputs.iter().map(|_| Weak::new()).collect());
        MultiOutput { name, outputs, has_decomposition: false, implementation, gradient: None, output_nodes }
    }

    /// Number of the node's leading inputs that are outputs of the decomposition.
    pub fn decomposition_len(&self) -> usize {
        if self.has_decomposition { self.outputs.len() } else { 0 }
    }
}

/// The op of a multi-output node and its inputs, without those of the decomposition.
pub(crate) fn as_multi_output(node: &Node) -> Option<(&MultiOutput, &[Tensor])> {
    match &node.op {
        Op::MultiOutput(multi_output) => Some((multi_output, &node.inputs[multi_output.decomposition_len()..])),
        _ => None,
    }
}

/// The outputs of a multi-output node.
pub(crate) fn outputs(tensor: &Tensor, location: SourceLocation) -> Vec<Tensor> {
    let Op::MultiOutput(multi_output) = &tensor.0.op else { return vec![tensor.clone()] };
    let mut nodes = multi_output.output_nodes.lock().unwrap_or_else(PoisonError::into_inner);
    (nodes.iter_mut().enumerate())
        .map(|(n, existing)| match existing.upgrade() {
            Some(node) => Tensor(node),
            None => {
                let new = Tensor::build(Op::GetOutput(n), vec![tensor.clone()], location);
                *existing = Arc::downgrade(&new.0);
                new
            }
        })
        .collect()
}

impl std::fmt::Debug for MultiOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MultiOutput({})", self.name)
    }
}
