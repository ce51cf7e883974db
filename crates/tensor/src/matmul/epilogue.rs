//! What cuBLASLt does to a product before it stores it: adds a bias, applies GELU or multiplies by its slope. It can sum
//! columns as well, for a bias's gradient, but slower than a kernel of ours does (docs/performance.md).
//!
//! Which nodes of a graph say so is asked of those who make graphs: a pattern is what the op itself, or its gradient, makes
//! of placeholders, and is compared node by node with what is there. So there is one definition of GELU, and a pattern
//! cannot mean something else. 16-bit results are rounded once here, where op by op they are rounded at each step.

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

/// Fewest elements of a result for which GELU is left to the library: its products with GELU are slower than plain ones by
/// more than a kernel for it takes where that is short.
const LARGE: usize = 8 << 20;
/// Nodes that are looked at behind a product: GELU and its gradient have fewer.
const REACH: usize = 96;

/// More than the product that one call can compute.
pub(super) struct FusedEpilogue {
    pub epilogue: Epilogue,
    /// What it computes: D, then the auxiliary matrix if it is stored.
    pub results: Vec<Tensor>,
    /// The bias that is added: the tensor in whose memory it is, and where, in elements.
    pub bias: Option<(Tensor, usize)>,
    /// The auxiliary matrix, where it is read.
    pub aux: Option<Tensor>,
}

/// A graph that is being planned.
pub(super) struct Graph<'a> {
    roots: &'a HashSet<NodeId>,
    /// For each node or tensor in memory, who reads it, perhaps through views.
    readers: HashMap<NodeId, Vec<&'a Tensor>>,
}

impl<'a> Graph<'a> {
    pub fn new(nodes: &'a BTreeMap<NodeId, Tensor>, roots: &'a HashSet<NodeId>) -> Graph<'a> {
        let mut readers: HashMap<NodeId, Vec<&Tensor>> = HashMap::new();
        for tensor in nodes.values().filter(|t| !t.0.has_value()) {
            let bases: BTreeSet<NodeId> = tensor.0.reads().iter().map(|input| look_through(input).0.0.id).collect();
            bases.into_iter().for_each(|base| readers.entry(base).or_default().push(tensor));
        }
        Graph { roots, readers }
    }

    /// The forms that a product can take, those that do most first.
    pub fn forms(&self, product: &Tensor) -> Vec<FusedEpilogue> {
        let mut forms = vec![];
        if let Some((sum, bias)) = self.biased(product) {
            if let Some((gelu, inner)) = self.gelu(sum) {
                let seen_elsewhere = |id: &NodeId| {
                    let outside = |t: &&Tensor| !inner.contains(&t.0.id) && t.0.id != gelu.0.id;
                    self.roots.contains(id) || self.readers(*id).iter().any(outside)
                };
                let kept = inner.iter().chain([&sum.0.id]).any(seen_elsewhere);
                let mut results = vec![gelu.clone()];
                results.extend(kept.then(|| sum.clone()));
                let epilogue = if kept { Epilogue::BiasGeluAux } else { Epilogue::BiasGelu };
                forms.push(FusedEpilogue { epilogue, results, bias: Some(bias.clone()), aux: None });
            }
            forms.push(FusedEpilogue {
                epilogue: Epilogue::Bias,
                results: vec![sum.clone()],
                bias: Some(bias),
                aux: None,
            });
        } else if let Some((slope, aux)) = self.gelu_slope(product) {
            forms.push(FusedEpilogue {
                epilogue: Epilogue::Dgelu,
                results: vec![slope.clone()],
                bias: None,
                aux: Some(aux),
            });
        }
        forms
    }

    fn readers(&self, id: NodeId) -> &[&'a Tensor] {
        self.readers.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The one node that reads another, if nobody else wants that.
    fn only_reader(&self, tensor: &Tensor) -> Option<&'a Tensor> {
        match self.readers(tensor.0.id) {
            [reader] if !self.roots.contains(&tensor.0.id) => Some(reader),
            _ => None,
        }
    }

    /// The sum of a product and a bias a column, and that bias.
    fn biased(&self, product: &Tensor) -> Option<(&'a Tensor, (Tensor, usize))> {
        let sum = self.only_reader(product)?;
        let (Op::Map(ScalarOp::Add), [a, b]) = (&sum.0.op, &sum.0.inputs[..]) else { return None };
        let columns = *product.0.shape.last()?;
        let bias = match (shows(a, product), shows(b, product)) {
            (true, false) => b,
            (false, true) => a,
            _ => return None,
        };
        let fits = |place: &Strided| {
            let [lead @ .., last] = &place.strides[..] else { return None };
            let repeated = place.shape.iter().zip(lead).all(|(&length, &stride)| length == 1 || stride == 0);
            let one_a_column = place.shape.last() == Some(&columns) && (*last == 1 || columns == 1);
            let offset = usize::try_from(place.offset).ok()?;
            (repeated && one_a_column && (offset * product.0.dtype.bytes()).is_multiple_of(16)).then_some(offset)
        };
        let (memory, offset, copied) = locate(bias, fits)?;
        (!copied).then_some((sum, (memory, offset)))
    }

    /// GELU of a large tensor of 16-bit floats, and the nodes between. In f32 the library's is too coarse.
    fn gelu(&self, x: &Tensor) -> Option<(&'a Tensor, BTreeSet<NodeId>)> {
        if x.0.dtype.bytes() != 2 || x.0.elements() < LARGE {
            return None;
        }
        self.find(x, |[hole, _]| GeluOp(Gelu::Tanh).decompose(std::slice::from_ref(hole)).pop(), |_, t| shows(t, x))
            .map(|(found, matched)| (found, matched.inner(&HashSet::from([x.0.id]), found)))
    }

    /// The gradient of GELU of which a product is the gradient by the result; and what GELU was of.
    fn gelu_slope(&self, product: &Tensor) -> Option<(&'a Tensor, Tensor)> {
        if product.0.dtype.bytes() != 2 || product.0.elements() < LARGE {
            return None;
        }
        let pattern = |[x, slope]: [&Tensor; 2]| {
            let gelu = GeluOp(Gelu::Tanh).decompose(std::slice::from_ref(x)).pop()?;
            vjp(&gelu, slope.clone(), &[x], SourceLocation::here()).ok()?.pop()
        };
        let fits = |hole: usize, t: &Tensor| hole == 0 || shows(t, product);
        let (found, matched) = self.find(product, |[x, slope]| pattern([x, slope]), fits)?;
        let x = matched.bound[0].clone()?;
        // It is read row after row: it must be a tensor of its own, not a view.
        let inner = matched.inner(&HashSet::from([product.0.id]), found);
        let private = inner.iter().chain([&product.0.id]).all(|id| {
            let outside = |t: &&Tensor| !inner.contains(&t.0.id) && t.0.id != found.0.id;
            !self.roots.contains(id) && !self.readers(*id).iter().any(outside)
        });
        (private && !x.0.op.is_view() && !x.0.op.is_constant()).then_some((found, x))
    }

    /// A node behind `start` that is what a pattern makes of two placeholders, which have a shape in which `start` is read;
    /// what they stand for must fit.
    fn find(
        &self,
        start: &Tensor,
        pattern: impl Fn([&Tensor; 2]) -> Option<Tensor>,
        fits: impl Fn(usize, &Tensor) -> bool,
    ) -> Option<(&'a Tensor, Matched)> {
        let read = self.readers(start.0.id).iter().flat_map(|reader| reader.0.reads());
        let shapes: BTreeSet<&[usize]> = read.filter(|input| shows(input, start)).map(|t| &t.0.shape[..]).collect();
        shapes.into_iter().find_map(|shape| {
            let Node { dtype, device, location: place, .. } = *start.0;
            let hole = || Tensor(Arc::new(Node::new(Op::Input, dtype, shape.to_vec(), device, vec![], place)));
            let holes = [hole(), hole()];
            self.behind(start, &pattern([&holes[0], &holes[1]])?, &holes, &fits)
        })
    }

    /// A node behind `start` that a pattern is of.
    fn behind(
        &self,
        start: &Tensor,
        pattern: &Tensor,
        holes: &[Tensor],
        fits: &dyn Fn(usize, &Tensor) -> bool,
    ) -> Option<(&'a Tensor, Matched)> {
        let mut queue = VecDeque::from([start.0.id]);
        let mut reached = HashSet::new();
        while let Some(id) = queue.pop_front() {
            for reader in self.readers(id).iter().copied().filter(|t| t.0.dtype.is_float()) {
                if reached.len() < REACH && reached.insert(reader.0.id) {
                    queue.push_back(reader.0.id);
                    if let Some(matched) = unify(pattern, reader, holes, fits) {
                        return Some((reader, matched));
                    }
                }
            }
        }
        None
    }
}

/// Whether a tensor shows all of another, element by element.
fn shows(tensor: &Tensor, base: &Tensor) -> bool {
    let (found, views) = look_through(tensor);
    let same = tensor.0.elements() == base.0.elements();
    found.0.id == base.0.id && same && strided_view(found, &views).is_some_and(|place| is_identity(&place))
}

/// What a pattern was found to stand for.
struct Matched {
    /// What the placeholders are.
    bound: Vec<Option<Tensor>>,
    /// The nodes of the pattern, views among them, with what each reads behind views.
    nodes: BTreeMap<NodeId, Vec<NodeId>>,
}

impl Matched {
    /// The nodes that depend on some others, without the last.
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

/// Whether a pattern is the same graph as what was found, with placeholders for what `fits`.
fn unify(pattern: &Tensor, found: &Tensor, holes: &[Tensor], fits: &dyn Fn(usize, &Tensor) -> bool) -> Option<Matched> {
    let mut matched = Matched { bound: vec![None; holes.len()], nodes: BTreeMap::new() };
    let mut same: HashMap<NodeId, NodeId> = HashMap::new();
    let mut stack = vec![(pattern, found)];
    while let Some((pattern, found)) = stack.pop() {
        if let Some(id) = same.insert(pattern.0.id, found.0.id) {
            if id != found.0.id {
                return None;
            }
            continue;
        }
        if let Some(hole) = holes.iter().position(|hole| hole.0.id == pattern.0.id) {
            if (pattern.0.dtype, &pattern.0.shape) != (found.0.dtype, &found.0.shape) || !fits(hole, found) {
                return None;
            }
            matched.bound[hole] = Some(found.clone());
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

/// Whether two ops that patterns are made of are one.
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
