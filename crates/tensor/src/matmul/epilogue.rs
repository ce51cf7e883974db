//! Epilogue fusion for cuBLASLt: adding a bias, applying GELU, or multiplying by GELU's derivative
//! before the product is stored. The library can also sum columns for a bias gradient, but slower
//! than a generated kernel (docs/performance.md).
//!
//! Patterns are derived: a pattern is the graph that the op itself, or its gradient,
//! builds from placeholders, and it is matched node by node. So GELU has one definition, which
//! patterns cannot contradict. A fused 16-bit result is rounded once instead of after every op.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bornite_cuda::blas::Epilogue;
use bornite_ir::Op as ScalarOp;

use super::library::locate;
use super::strided::Strided;
use crate::fused::FusedOp;
use crate::fused::gelu::{Gelu, GeluOp};
use crate::graph::grad::vjp;
use crate::graph::node::{Node, NodeId, Op};
use crate::lower::{is_identity, look_through, strided_view};
use crate::{SourceLocation, Tensor};

/// Minimum number of output elements for which GELU is fused: for smaller outputs a separate kernel
/// is faster than the library's GELU epilogue.
const MIN_GELU_ELEMENTS: usize = 8 << 20;
/// Maximum number of nodes searched after a product; GELU and its gradient have fewer.
const MAX_SEARCHED_NODES: usize = 96;

/// An epilogue that a call can compute together with the product.
pub(super) struct FusedEpilogue {
    pub epilogue: Epilogue,
    /// Outputs: D, then the auxiliary matrix if it is stored.
    pub outputs: Vec<Tensor>,
    /// The bias: the tensor that holds it, and its offset in elements.
    pub bias: Option<(Tensor, usize)>,
    /// The auxiliary matrix, if it is read.
    pub aux: Option<Tensor>,
}

/// Readers of the nodes of a graph that is being planned.
pub(super) struct GraphReaders<'a> {
    roots: &'a HashSet<NodeId>,
    /// For each node or tensor in memory, the nodes that read it, including through views.
    readers: HashMap<NodeId, Vec<&'a Tensor>>,
}

impl<'a> GraphReaders<'a> {
    pub fn new(nodes: &'a BTreeMap<NodeId, Tensor>, roots: &'a HashSet<NodeId>) -> GraphReaders<'a> {
        let mut readers: HashMap<NodeId, Vec<&Tensor>> = HashMap::new();
        for tensor in nodes.values().filter(|t| !t.0.has_value()) {
            let bases: BTreeSet<NodeId> = tensor.0.reads().iter().map(|input| look_through(input).0.0.id).collect();
            bases.into_iter().for_each(|base| readers.entry(base).or_default().push(tensor));
        }
        GraphReaders { roots, readers }
    }

    /// Epilogues that can be fused with a product, the largest first.
    pub fn epilogues(&self, product: &Tensor) -> Vec<FusedEpilogue> {
        let mut epilogues = vec![];
        if let Some((sum, bias)) = self.bias_add(product) {
            if let Some((gelu, inner)) = self.gelu(sum) {
                let is_used_elsewhere = |id: &NodeId| {
                    let outside = |t: &&Tensor| !inner.contains(&t.0.id) && t.0.id != gelu.0.id;
                    self.roots.contains(id) || self.readers(*id).iter().any(outside)
                };
                let needs_input = inner.iter().chain([&sum.0.id]).any(is_used_elsewhere);
                let mut outputs = vec![gelu.clone()];
                outputs.extend(needs_input.then(|| sum.clone()));
                let epilogue = if needs_input { Epilogue::BiasGeluAux } else { Epilogue::BiasGelu };
                epilogues.push(FusedEpilogue { epilogue, outputs, bias: Some(bias.clone()), aux: None });
            }
            epilogues.push(FusedEpilogue {
                epilogue: Epilogue::Bias,
                outputs: vec![sum.clone()],
                bias: Some(bias),
                aux: None,
            });
        } else if let Some((gradient, aux)) = self.gelu_gradient(product) {
            epilogues.push(FusedEpilogue {
                epilogue: Epilogue::Dgelu,
                outputs: vec![gradient.clone()],
                bias: None,
                aux: Some(aux),
            });
        }
        epilogues
    }

    fn readers(&self, id: NodeId) -> &[&'a Tensor] {
        self.readers.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The only reader of a node that is not a root.
    fn only_reader(&self, tensor: &Tensor) -> Option<&'a Tensor> {
        match self.readers(tensor.0.id) {
            [reader] if !self.roots.contains(&tensor.0.id) => Some(reader),
            _ => None,
        }
    }

    /// The sum of a product and a bias per column, and that bias.
    fn bias_add(&self, product: &Tensor) -> Option<(&'a Tensor, (Tensor, usize))> {
        let sum = self.only_reader(product)?;
        let (Op::Map(ScalarOp::Add), [a, b]) = (&sum.0.op, &sum.0.inputs[..]) else { return None };
        let columns = *product.0.shape.last()?;
        let bias = match (is_reshape_of(a, product), is_reshape_of(b, product)) {
            (true, false) => b,
            (false, true) => a,
            _ => return None,
        };
        let fits = |layout: &Strided| {
            let [lead @ .., last] = &layout.strides[..] else { return None };
            let is_broadcast = layout.shape.iter().zip(lead).all(|(&length, &stride)| length == 1 || stride == 0);
            let one_per_column = layout.shape.last() == Some(&columns) && (*last == 1 || columns == 1);
            let offset = usize::try_from(layout.offset).ok()?;
            (is_broadcast && one_per_column && (offset * product.0.dtype.bytes()).is_multiple_of(16)).then_some(offset)
        };
        let (memory, offset, copied) = locate(bias, fits)?;
        (!copied).then_some((sum, (memory, offset)))
    }

    /// GELU of a large 16-bit tensor, and the nodes in between. The library's f32 GELU is not
    /// accurate enough.
    fn gelu(&self, x: &Tensor) -> Option<(&'a Tensor, BTreeSet<NodeId>)> {
        if x.0.dtype.bytes() != 2 || x.0.elements() < MIN_GELU_ELEMENTS {
            return None;
        }
        self.find(
            x,
            |[placeholder, _]| GeluOp(Gelu::Tanh).decompose(std::slice::from_ref(placeholder)).pop(),
            |_, t| is_reshape_of(t, x),
        )
        .map(|(found, matched)| (found, matched.inner(&HashSet::from([x.0.id]), found)))
    }

    /// The gradient of GELU's input, if the product is the gradient of GELU's output; and GELU's
    /// input.
    fn gelu_gradient(&self, product: &Tensor) -> Option<(&'a Tensor, Tensor)> {
        if product.0.dtype.bytes() != 2 || product.0.elements() < MIN_GELU_ELEMENTS {
            return None;
        }
        let pattern = |[x, gradient]: [&Tensor; 2]| {
            let gelu = GeluOp(Gelu::Tanh).decompose(std::slice::from_ref(x)).pop()?;
            vjp(&gelu, gradient.clone(), &[x], SourceLocation::here()).ok()?.pop()
        };
        let fits = |placeholder: usize, t: &Tensor| placeholder == 0 || is_reshape_of(t, product);
        let (found, matched) = self.find(product, |[x, gradient]| pattern([x, gradient]), fits)?;
        let x = matched.bound[0].clone()?;
        // The library reads it as a contiguous matrix, so it must not be a view.
        let inner = matched.inner(&HashSet::from([product.0.id]), found);
        let is_private = inner.iter().chain([&product.0.id]).all(|id| {
            let outside = |t: &&Tensor| !inner.contains(&t.0.id) && t.0.id != found.0.id;
            !self.roots.contains(id) && !self.readers(*id).iter().any(outside)
        });
        (is_private && !x.0.op.is_view() && !x.0.op.is_constant()).then_some((found, x))
    }

    /// A node after `start` that matches the graph that `pattern` builds from two placeholders,
    /// which have a shape in which `start` is read. `fits` checks the tensors that the placeholders
    /// match.
    fn find(
        &self,
        start: &Tensor,
        pattern: impl Fn([&Tensor; 2]) -> Option<Tensor>,
        fits: impl Fn(usize, &Tensor) -> bool,
    ) -> Option<(&'a Tensor, PatternMatch)> {
        let read = self.readers(start.0.id).iter().flat_map(|reader| reader.0.reads());
        let shapes: BTreeSet<&[usize]> =
            read.filter(|input| is_reshape_of(input, start)).map(|t| &t.0.shape[..]).collect();
        shapes.into_iter().find_map(|shape| {
            let Node { dtype, device, location, .. } = *start.0;
            let placeholder =
                || Tensor(Arc::new(Node::new(Op::Input, dtype, shape.to_vec(), device, vec![], location)));
            let placeholders = [placeholder(), placeholder()];
            self.find_after(start, &pattern([&placeholders[0], &placeholders[1]])?, &placeholders, &fits)
        })
    }

    /// A node after `start` that matches a pattern.
    fn find_after(
        &self,
        start: &Tensor,
        pattern: &Tensor,
        placeholders: &[Tensor],
        fits: &dyn Fn(usize, &Tensor) -> bool,
    ) -> Option<(&'a Tensor, PatternMatch)> {
        let mut queue = VecDeque::from([start.0.id]);
        let mut reached = HashSet::new();
        while let Some(id) = queue.pop_front() {
            for reader in self.readers(id).iter().copied().filter(|t| t.0.dtype.is_float()) {
                if reached.len() < MAX_SEARCHED_NODES && reached.insert(reader.0.id) {
                    queue.push_back(reader.0.id);
                    if let Some(matched) = unify(pattern, reader, placeholders, fits) {
                        return Some((reader, matched));
                    }
                }
            }
        }
        None
    }
}

/// True if a tensor has the elements of another in the same order.
fn is_reshape_of(tensor: &Tensor, base: &Tensor) -> bool {
    let (found, views) = look_through(tensor);
    let same = tensor.0.elements() == base.0.elements();
    found.0.id == base.0.id && same && strided_view(found, &views).is_some_and(|layout| is_identity(&layout))
}

/// A match of a pattern.
struct PatternMatch {
    /// Tensors that the placeholders match.
    bound: Vec<Option<Tensor>>,
    /// The matched nodes, including views, with the nodes that each reads, looking through views.
    nodes: BTreeMap<NodeId, Vec<NodeId>>,
}

impl PatternMatch {
    /// The matched nodes that depend on `on`, except the last.
    fn inner(&self, on: &HashSet<NodeId>, last: &Tensor) -> BTreeSet<NodeId> {
        let mut inner = BTreeSet::new();
        for (id, reads) in &self.nodes {
            if *id != last.0.id && reads.iter().any(|read| on.contains(read) || inner.contains(read)) {
                inner.insert(*id);
            }
        }
        inner
    }
}

/// Matches a pattern with a graph; placeholders match any tensor of their dtype and shape that
/// `fits` accepts.
fn unify(
    pattern: &Tensor,
    found: &Tensor,
    placeholders: &[Tensor],
    fits: &dyn Fn(usize, &Tensor) -> bool,
) -> Option<PatternMatch> {
    let mut matched = PatternMatch { bound: vec![None; placeholders.len()], nodes: BTreeMap::new() };
    let mut same: HashMap<NodeId, NodeId> = HashMap::new();
    let mut stack = vec![(pattern, found)];
    while let Some((pattern, found)) = stack.pop() {
        if let Some(id) = same.insert(pattern.0.id, found.0.id) {
            if id != found.0.id {
                return None;
            }
            continue;
        }
        if let Some(placeholder) = placeholders.iter().position(|placeholder| placeholder.0.id == pattern.0.id) {
            if (pattern.0.dtype, &pattern.0.shape) != (found.0.dtype, &found.0.shape) || !fits(placeholder, found) {
                return None;
            }
            matched.bound[placeholder] = Some(found.clone());
            continue;
        }
        let (a, b) = (&*pattern.0, &*found.0);
        if (a.dtype, &a.shape, a.inputs.len()) != (b.dtype, &b.shape, b.inputs.len()) || !same_op(&a.op, &b.op) {
            return None;
        }
        let reads = b.inputs.iter().map(|input| look_through(input).0.0.id).collect();
        matched.nodes.insert(b.id, reads);
        stack.extend(a.inputs.iter().zip(&b.inputs));
    }
    Some(matched)
}

/// True if two ops are equal. Only ops that occur in patterns are compared.
fn same_op(a: &Op, b: &Op) -> bool {
    match (a, b) {
        (Op::Map(a), Op::Map(b)) => a == b,
        (Op::Cast(a), Op::Cast(b)) => a == b,
        (Op::Full(a), Op::Full(b)) => a == b,
        (Op::Reshape(a), Op::Reshape(b)) | (Op::Expand(a), Op::Expand(b)) | (Op::Permute(a), Op::Permute(b)) => a == b,
        (Op::Reduce(a, over), Op::Reduce(b, same)) => a == b && over == same,
        _ => false,
    }
}

#[cfg(test)]
#[path = "epilogue_tests.rs"]
mod tests;
