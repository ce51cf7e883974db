//! Results that are computed together: what fused ops and kernels of one's own are to the graph.
//!
//! A joint node has no value. Its results are parts, nodes that name it and a number. `fused.rs` and `custom.rs` make
//! joints, `schedule.rs` gives each one launch.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bornite_ir::{Kernel, Value};

use crate::fused::{Fails, Routine};
use crate::graph::node::{Node, Op};
use crate::runtime::source::Source;
use crate::{DType, SourceLocation, Tensor};

/// What computes the results.
#[derive(Clone)]
pub(crate) enum How {
    /// A kernel. Its read parameters are the inputs in order, its written ones the results. Where it is not known to
    /// index within its views it is checked.
    Kernel { kernel: Arc<Kernel>, values: Vec<Vec<Value>>, checked: bool },
    /// Kernels written by hand, on a GPU.
    Source(Arc<Source>),
    /// A function on memory of the host. Some results take the place of inputs, which it finds in their memory: pairs of
    /// the numbers of both.
    Routine(Routine, Fails, Vec<(usize, usize)>),
}

/// The gradients by the inputs, from inputs, results and the gradients by the results (`None`: zero).
pub(crate) type Gradient = Arc<dyn Fn(&[Tensor], &[Tensor], &[Option<Tensor>]) -> Slopes + Send + Sync>;
/// One gradient an input, where there is one; `None` if plain ops should give them.
pub(crate) type Slopes = Option<Vec<Option<Tensor>>>;

/// Several results computed together.
pub(crate) struct Joint {
    pub name: &'static str,
    /// Dtype and shape of each result.
    pub results: Vec<(DType, Vec<usize>)>,
    /// Whether the node's first inputs are the results by plain ops.
    pub decomposed: bool,
    pub how: How,
    pub gradient: Option<Gradient>,
    /// The parts made so far: asked for again, a part that is still there is the same.
    pub parts: Mutex<Vec<Weak<Node>>>,
}

impl Joint {
    pub fn new(name: &'static str, results: Vec<(DType, Vec<usize>)>, how: How) -> Joint {
        let parts = Mutex::new(results.iter().map(|_| Weak::new()).collect());
        Joint { name, results, decomposed: false, how, gradient: None, parts }
    }

    /// How many of the node's inputs are results by plain ops.
    pub fn meanings(&self) -> usize {
        if self.decomposed { self.results.len() } else { 0 }
    }
}

/// A joint's node and what it is.
pub(crate) fn of(node: &Node) -> Option<(&Joint, &[Tensor])> {
    match &node.op {
        Op::Joint(joint) => Some((joint, &node.inputs[joint.meanings()..])),
        _ => None,
    }
}

/// The results of a joint node.
pub(crate) fn parts(tensor: &Tensor, location: SourceLocation) -> Vec<Tensor> {
    let Op::Joint(joint) = &tensor.0.op else { return vec![tensor.clone()] };
    let mut made = joint.parts.lock().unwrap_or_else(PoisonError::into_inner);
    (made.iter_mut().enumerate())
        .map(|(n, part)| match part.upgrade() {
            Some(node) => Tensor(node),
            None => {
                let new = Tensor::build(Op::Part(n), vec![tensor.clone()], location);
                *part = Arc::downgrade(&new.0);
                new
            }
        })
        .collect()
}

impl std::fmt::Debug for Joint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Joint({})", self.name)
    }
}
