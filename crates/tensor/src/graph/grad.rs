//! Gradients, as graph rewriting: the derivative of every op, in one place.

use std::collections::{BTreeMap, HashMap, HashSet};

use bornite_ir::{Emit, Op as ScalarOp, Value};

use crate::graph::infer::{broadcast, constant};
use crate::graph::multi_output;
use crate::graph::node::{AxisSlice, Node, NodeId, Op, Reduce};
use crate::ops::pointwise::map;
use crate::{Axes, Error, SourceLocation, Tensor};

impl Tensor {
    /// The gradient of this one-element tensor by each of `wrt`, as more graph. A tensor that this one does not depend
    /// on has the gradient 0.
    #[track_caller]
    pub fn grad(&self, wrt: &[&Tensor]) -> Vec<Tensor> {
        let location = SourceLocation::here();
        match gradients(self, wrt, location) {
            Ok(gradients) => gradients,
            Err(error) => wrt.iter().map(|_| Tensor::from_error(error.clone(), location)).collect(),
        }
    }
}

fn gradients(loss: &Tensor, wrt: &[&Tensor], location: SourceLocation) -> Result<Vec<Tensor>, Error> {
    let node = loss.node()?;
    if node.elements() != 1 || !node.dtype.is_float() {
        let message = format!("a gradient is of one float, found {}{:?}", node.dtype, node.shape);
        return Err(Error::Op { op: "grad", message, location });
    }
    for tensor in wrt {
        let node = tensor.node()?;
        if !node.dtype.is_float() {
            let message = format!("a gradient is by floats, found {}{:?}", node.dtype, node.shape);
            return Err(Error::Op { op: "grad", message, location });
        }
    }
    let seed = loss.scalar_like(1.0, location).broadcast_to(&node.shape, location);
    vjp(loss, seed, wrt, location)
}

/// What a gradient by `output` becomes by each of `wrt`.
pub(crate) fn vjp(
    output: &Tensor,
    seed: Tensor,
    wrt: &[&Tensor],
    location: SourceLocation,
) -> Result<Vec<Tensor>, Error> {
    let between = between(output, wrt);
    let mut grads: HashMap<NodeId, Tensor> = HashMap::new();
    grads.insert(output.0.id, seed);
    for tensor in between.values().rev() {
        if let Op::MultiOutput(_) = tensor.0.op {
            for (input, contribution) in tensor.0.inputs.iter().zip(multi_output_backward(tensor, &grads)?) {
                collect(&mut grads, &between, input, contribution, tensor.0.location);
            }
            continue;
        }
        let Some(grad) = grads.get(&tensor.0.id).cloned() else { continue };
        if let (Op::Cast(_), [input]) = (&tensor.0.op, &tensor.0.inputs[..])
            && input.0.dtype.is_int()
            && between.contains_key(&input.0.id)
        {
            let message = format!("no gradient flows through {}; use detach to treat it as a constant", input.0.dtype);
            return Err(Error::Op { op: "cast", message, location: tensor.0.location });
        }
        for (input, contribution) in tensor.0.inputs.iter().zip(backward(tensor, &grad)?) {
            collect(&mut grads, &between, input, contribution, tensor.0.location);
        }
    }
    let zero = |t: &Tensor| t.scalar_like(0.0, location).broadcast_to(&t.0.shape, location);
    Ok(wrt.iter().map(|t| grads.get(&t.0.id).cloned().unwrap_or_else(|| zero(t))).collect())
}

/// Adds a part of an input's gradient to what is known of it.
fn collect(
    grads: &mut HashMap<NodeId, Tensor>,
    between: &BTreeMap<NodeId, Tensor>,
    input: &Tensor,
    contribution: Option<Tensor>,
    location: SourceLocation,
) {
    let Some(contribution) = contribution else { return };
    // A bool is a choice: its derivative is zero wherever it has one.
    if !input.0.dtype.is_float() || !between.contains_key(&input.0.id) {
        return;
    }
    let total = match grads.remove(&input.0.id) {
        Some(sum) => side_by_side(&sum, &contribution, location)
            .unwrap_or_else(|| map(ScalarOp::Add, &[&sum, &contribution], location)),
        None => contribution,
    };
    grads.insert(input.0.id, total);
}

/// The sum of the gradients through two slices of one tensor, where the slices are neighbours along an axis: one after the
/// other instead of zeros around each and an addition. What is concatenated can be written into place by whatever computes it.
fn side_by_side(a: &Tensor, b: &Tensor, location: SourceLocation) -> Option<Tensor> {
    let (Op::Pad(of_a, shape, zero), Op::Pad(of_b, same, other)) = (&a.0.op, &b.0.op) else { return None };
    if shape != same || [zero, other].iter().any(|value| value.as_f64() != 0.0) {
        return None;
    }
    let mut differ = (0..shape.len()).filter(|&axis| of_a[axis] != of_b[axis]);
    let axis = differ.next().filter(|_| differ.next().is_none())?;
    let ((first, front), (second, back)) = match [(a, of_a[axis]), (b, of_b[axis])] {
        [a, b] if a.1.start < b.1.start => (a, b),
        [a, b] => (b, a),
    };
    let steady = [front, back].iter().all(|cut| cut.step == 1 && cut.len > 0);
    if !steady || front.start + front.len != back.start {
        return None;
    }
    // What was put together before is put together once.
    let pieces = |padded: &Tensor| match &padded.0.inputs[0].0 {
        inner if matches!(inner.op, Op::Concat(along) if along == axis) && !inner.has_value() => inner.inputs.clone(),
        _ => padded.0.inputs.clone(),
    };
    let joined = Tensor::build(Op::Concat(axis), [pieces(first), pieces(second)].concat(), location);
    let mut cuts = of_a.clone();
    cuts[axis] = AxisSlice { start: front.start, step: 1, len: front.len + back.len };
    if cuts.iter().zip(shape).all(|(cut, &length)| *cut == AxisSlice::full(length)) {
        return Some(joined);
    }
    Some(Tensor::build(Op::Pad(cuts, shape.clone(), *zero), vec![joined], location))
}

/// The gradients by all inputs of a joint node, from those by its parts.
fn multi_output_backward(tensor: &Tensor, grads: &HashMap<NodeId, Tensor>) -> Result<Vec<Option<Tensor>>, Error> {
    let Some((multi_output, inputs)) = multi_output::as_multi_output(&tensor.0) else { return Ok(vec![]) };
    let location = tensor.0.location;
    let parts = multi_output::outputs(tensor, location);
    let slopes: Vec<Option<Tensor>> = parts.iter().map(|part| grads.get(&part.0.id).cloned()).collect();
    if slopes.iter().all(Option::is_none) {
        return Ok(vec![]);
    }
    let own = multi_output.gradient.as_ref().and_then(|gradient| gradient(inputs, &parts, &slopes));
    match own {
        Some(own) => {
            let fits = own.len() == inputs.len()
                && own.iter().zip(inputs).all(|(slope, input)| match slope {
                    Some(slope) => matches!(slope.0.op, Op::Failed(_)) || slope.0.shape == input.0.shape,
                    None => true,
                });
            if !fits {
                let message = "its gradient gives other numbers or shapes of results than there are inputs";
                return Err(Error::Op { op: multi_output.name, message: message.into(), location });
            }
            Ok(vec![None; multi_output.decomposition_len()].into_iter().chain(own).collect())
        }
        // What the plain ops give; the op's own inputs are reached through them.
        None if multi_output.has_decomposition => Ok(slopes),
        None => {
            let message = "this kernel has no gradient; give it one, or use detach to treat its result as a constant";
            Err(Error::Op { op: multi_output.name, message: message.into(), location })
        }
    }
}

/// The nodes that `loss` depends on and that depend on one of `wrt`, by id.
fn between(loss: &Tensor, wrt: &[&Tensor]) -> BTreeMap<NodeId, Tensor> {
    let mut below = BTreeMap::new();
    let mut stack = vec![loss.clone()];
    while let Some(tensor) = stack.pop() {
        if below.contains_key(&tensor.0.id) {
            continue;
        }
        stack.extend(history(&tensor).iter().cloned());
        below.insert(tensor.0.id, tensor);
    }
    let mut reached: HashSet<NodeId> = wrt.iter().map(|t| t.0.id).collect();
    below.retain(|id, tensor| {
        let depends = reached.contains(id) || history(tensor).iter().any(|i| reached.contains(&i.0.id));
        if depends {
            reached.insert(*id);
        }
        depends
    });
    below
}

/// The inputs that gradients flow to. A checkpoint's result is computed again from the others.
fn history(tensor: &Tensor) -> &[Tensor] {
    match tensor.0.op {
        Op::Detach => &[],
        Op::Checkpoint(_) => &tensor.0.inputs[1..],
        _ => &tensor.0.inputs,
    }
}

/// For each input of a node, the part of its gradient that comes through this node; `None` where it is always zero.
fn backward(tensor: &Tensor, grad: &Tensor) -> Result<Vec<Option<Tensor>>, Error> {
    let Node { op, inputs, location, .. } = &*tensor.0;
    let location = *location;
    Ok(match op {
        Op::Map(row) => {
            let args: Vec<&Tensor> = inputs.iter().collect();
            match row.derivative(&mut GraphEmitter { location }, &args, tensor, grad) {
                Some(parts) => parts,
                None => {
                    let message = "this op has no gradient; use detach to treat its result as a constant";
                    return Err(Error::Op { op: row.row().name, message: message.into(), location });
                }
            }
        }
        Op::Cast(_) => vec![Some(Tensor::build(Op::Cast(inputs[0].0.dtype), vec![grad.clone()], location))],
        Op::Reduce(reduce, axes) => {
            let x = &inputs[0];
            let mut kept = x.0.shape.clone();
            for &axis in axes {
                kept[axis] = 1;
            }
            let spread = |t: &Tensor| t.reshape_at(&kept, location).broadcast_to(&x.0.shape, location);
            let part = match reduce {
                Reduce::Sum => spread(grad),
                Reduce::Prod => product_slope(x, axes, &spread, grad, location),
                Reduce::Max | Reduce::Min => {
                    let largest = map(ScalarOp::Eq, &[x, &spread(tensor)], location);
                    let share = Tensor::build(Op::Cast(x.0.dtype), vec![largest], location);
                    let axes: Vec<isize> = axes.iter().map(|&a| a as isize).collect();
                    let ties = share.reduce(Reduce::Sum, Axes::List(axes), location);
                    let each = map(ScalarOp::Div, &[grad, &ties], location);
                    map(ScalarOp::Mul, &[&share, &spread(&each)], location)
                }
            };
            vec![Some(part)]
        }
        Op::Matmul => {
            let product = |a: &Tensor, b: &Tensor| Tensor::build(Op::Matmul, vec![a.clone(), b.clone()], location);
            let turned = |t: &Tensor| t.transpose_at(-1, -2, location);
            let (a, b) = (&inputs[0], &inputs[1]);
            // Of what was turned for the product, the gradient is computed as that lies in memory: it is turned back, and
            // wherever it is wanted it needs no copy.
            let by_a = if is_turned(a) { turned(&product(b, &turned(grad))) } else { product(grad, &turned(b)) };
            let by_b = if is_turned(b) { turned(&product(&turned(grad), a)) } else { product(&turned(a), grad) };
            vec![Some(by_a), Some(by_b)]
        }
        Op::Reshape(_) => vec![Some(grad.reshape_at(&inputs[0].0.shape, location))],
        Op::Expand(to) => {
            let from = &inputs[0].0.shape;
            let repeated: Vec<usize> = (0..to.len()).filter(|&a| from[a] != to[a]).collect();
            let sum = grad.sum_of_scattered(&repeated, location).unwrap_or_else(|| {
                grad.reduce(Reduce::Sum, Axes::List(repeated.iter().map(|&a| a as isize).collect()), location)
            });
            vec![Some(sum.reshape_at(from, location))]
        }
        Op::Permute(axes) => {
            let mut inverse = vec![0; axes.len()];
            for (n, &axis) in axes.iter().enumerate() {
                inverse[axis] = n;
            }
            vec![Some(Tensor::build(Op::Permute(inverse), vec![grad.clone()], location))]
        }
        Op::Slice(cuts) => {
            let zero = Value::from_f64(inputs[0].0.dtype, 0.0);
            let op = Op::Pad(cuts.clone(), inputs[0].0.shape.clone(), zero);
            vec![Some(Tensor::build(op, vec![grad.clone()], location))]
        }
        Op::Pad(cuts, ..) => vec![Some(Tensor::build(Op::Slice(cuts.clone()), vec![grad.clone()], location))],
        Op::Concat(axis) => {
            let mut start = 0;
            (inputs.iter())
                .map(|input| {
                    let mut cuts: Vec<AxisSlice> = input.0.shape.iter().map(|&len| AxisSlice::full(len)).collect();
                    cuts[*axis].start = if cuts[*axis].len == 0 { 0 } else { start };
                    start += cuts[*axis].len;
                    Some(Tensor::build(Op::Slice(cuts), vec![grad.clone()], location))
                })
                .collect()
        }
        Op::Gather(axis) => {
            let (x, index) = (&inputs[0], &inputs[1]);
            let zeros = x.scalar_like(0.0, location).broadcast_to(&x.0.shape, location);
            let parts = vec![zeros, index.clone(), grad.clone()];
            vec![Some(Tensor::build(Op::ScatterAdd(*axis), parts, location)), None]
        }
        Op::ScatterAdd(axis) => {
            let picked = Tensor::build(Op::Gather(*axis), vec![grad.clone(), inputs[1].clone()], location);
            vec![Some(grad.clone()), None, Some(picked)]
        }
        Op::Cumsum(axis) => {
            let flipped = grad.flip_at(*axis, location);
            let sums = Tensor::build(Op::Cumsum(*axis), vec![flipped], location);
            vec![Some(sums.flip_at(*axis, location))]
        }
        // Places and random words do not move with their inputs.
        Op::ArgReduce(..) | Op::ArgSort { .. } | Op::Random(_) => vec![None; inputs.len()],
        Op::Checkpoint(again) => {
            let (result, doubles) = again.run(&inputs[1..], location)?;
            let by: Vec<&Tensor> = doubles.iter().filter(|double| double.0.dtype.is_float()).collect();
            let mut parts = vjp(&result, grad.clone(), &by, location)?.into_iter();
            let of = |double: &Tensor| if double.0.dtype.is_float() { parts.next() } else { None };
            [None].into_iter().chain(doubles.iter().map(of)).collect()
        }
        // Its gradient is collected with those of the other parts.
        Op::MultiOutput(_) | Op::GetOutput(_) => vec![],
        Op::Detach => vec![None],
        // A copy from another device (see `transfer.rs`): its gradient is copied back.
        Op::Data if !inputs.is_empty() => vec![Some(grad.copied_to(inputs[0].0.device, location))],
        Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_) | Op::Iota { .. } => vec![],
    })
}

/// True if a tensor shows another one with its last two axes exchanged.
fn is_turned(tensor: &Tensor) -> bool {
    let Op::Permute(axes) = &tensor.0.op else { return false };
    let [lead @ .., rows, columns] = &axes[..] else { return false };
    let last = axes.len() - 1;
    lead.iter().enumerate().all(|(n, &axis)| n == axis) && (*rows, *columns) == (last, last - 1)
}

/// The gradient of a product by each factor: the product of the others, right also where factors are 0.
fn product_slope(
    x: &Tensor,
    axes: &[usize],
    spread: &dyn Fn(&Tensor) -> Tensor,
    grad: &Tensor,
    location: SourceLocation,
) -> Tensor {
    let axes: Vec<isize> = axes.iter().map(|&a| a as isize).collect();
    let number = |t: &Tensor, value: f64| t.scalar_like(value, location);
    let is_zero = map(ScalarOp::Eq, &[x, &number(x, 0.0)], location);
    let safe = map(ScalarOp::Select, &[&is_zero, &number(x, 1.0), x], location);
    let zeros = Tensor::build(Op::Cast(x.0.dtype), vec![is_zero.clone()], location);
    let zeros = spread(&zeros.reduce(Reduce::Sum, Axes::List(axes.clone()), location));
    let rest = spread(&safe.reduce(Reduce::Prod, Axes::List(axes), location));
    let none = map(ScalarOp::Eq, &[&zeros, &number(x, 0.0)], location);
    let only = map(ScalarOp::And, &[&is_zero, &map(ScalarOp::Eq, &[&zeros, &number(x, 1.0)], location)], location);
    let others = map(ScalarOp::Select, &[&only, &rest, &number(x, 0.0)], location);
    let slope = map(ScalarOp::Select, &[&none, &map(ScalarOp::Div, &[&rest, &safe], location), &others], location);
    map(ScalarOp::Mul, &[&spread(grad), &slope], location)
}

/// [`Emit`] by adding nodes: what lets the op table's derivatives make graph.
pub(crate) struct GraphEmitter {
    pub location: SourceLocation,
}

impl Emit for GraphEmitter {
    type V = Tensor;

    fn op(&mut self, op: ScalarOp, args: &[&Tensor]) -> Tensor {
        // The slope by a sum is 1: times that, a slope would be copied before an op that reads memory.
        if let (ScalarOp::Mul, [a, b]) = (op, args) {
            let pairs = [(a, b), (b, a)].into_iter();
            let mut same = pairs.filter(|(one, other)| is_one(one) && one.0.dtype == other.0.dtype);
            let fits = |(one, other): &(&&Tensor, &&Tensor)| {
                broadcast(&one.0.shape, &other.0.shape).is_ok_and(|shape| shape == other.0.shape)
            };
            if let Some((_, other)) = same.find(fits) {
                return (*other).clone();
            }
        }
        map(op, args, self.location)
    }

    fn constant_like(&mut self, like: &Tensor, value: f64) -> Tensor {
        like.scalar_like(value, self.location)
    }
}

/// True if all elements are known to be 1.
fn is_one(tensor: &Tensor) -> bool {
    constant(tensor).is_some_and(|value| value.scalar().is_float() && value.as_f64() == 1.0)
}
