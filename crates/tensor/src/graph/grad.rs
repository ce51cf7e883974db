//! Reverse-mode differentiation as graph rewriting: the derivative of every op.

use std::collections::{BTreeMap, HashMap, HashSet};

use bornite_ir::{Emit, Op as ScalarOp, Value};

use crate::graph::infer::{broadcast, constant};
use crate::graph::multi_output::{self, ImplementationKind};
use crate::graph::node::{AxisSlice, Node, NodeId, Op, Reduce};
use crate::ops::pointwise::map;
use crate::{Axes, Error, SourceLocation, Tensor};

impl Tensor {
    /// The gradients of this one-element tensor with respect to each of `wrt`, as new nodes of the
    /// graph. The gradient is 0 for a tensor that this one does not depend on.
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
        let message = format!("expected a float tensor with one element, found {}{:?}", node.dtype, node.shape);
        return Err(Error::Op { op: "grad", message, location });
    }
    for tensor in wrt {
        let node = tensor.node()?;
        if !node.dtype.is_float() {
            let message = format!("only float tensors have a gradient, found {}{:?}", node.dtype, node.shape);
            return Err(Error::Op { op: "grad", message, location });
        }
    }
    let seed = loss.scalar_like(1.0, location).broadcast_to(&node.shape, location);
    vjp(loss, seed, wrt, location)
}

/// Vector-Jacobian product: the gradients with respect to each of `wrt`, given the gradient `seed`
/// of `output`.
pub(crate) fn vjp(
    output: &Tensor,
    seed: Tensor,
    wrt: &[&Tensor],
    location: SourceLocation,
) -> Result<Vec<Tensor>, Error> {
    let between = nodes_between(output, wrt);
    let mut grads: HashMap<NodeId, Tensor> = HashMap::new();
    grads.insert(output.0.id, seed);
    for tensor in between.values().rev() {
        if let Op::MultiOutput(_) = tensor.0.op {
            for (input, contribution) in tensor.0.inputs.iter().zip(multi_output_backward(tensor, &grads, &between)?) {
                accumulate(&mut grads, &between, input, contribution, tensor.0.location);
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
            accumulate(&mut grads, &between, input, contribution, tensor.0.location);
        }
    }
    let zero = |t: &Tensor| t.scalar_like(0.0, location).broadcast_to(&t.0.shape, location);
    Ok(wrt.iter().map(|t| grads.get(&t.0.id).cloned().unwrap_or_else(|| zero(t))).collect())
}

/// Adds a contribution to the gradient of an input.
fn accumulate(
    grads: &mut HashMap<NodeId, Tensor>,
    between: &BTreeMap<NodeId, Tensor>,
    input: &Tensor,
    contribution: Option<Tensor>,
    location: SourceLocation,
) {
    let Some(contribution) = contribution else { return };
    // Bools and integers have no gradient.
    if !input.0.dtype.is_float() || !between.contains_key(&input.0.id) {
        return;
    }
    let total = match grads.remove(&input.0.id) {
        Some(sum) => concat_adjacent(&sum, &contribution, location)
            .unwrap_or_else(|| map(ScalarOp::Add, &[&sum, &contribution], location)),
        None => contribution,
    };
    grads.insert(input.0.id, total);
}

/// The sum of the gradients through two slices of one tensor that are adjacent along an axis, as a
/// concatenation instead of two zero-padded tensors and an addition. The scheduler lets the
/// producers write into the concatenation directly.
fn concat_adjacent(a: &Tensor, b: &Tensor, location: SourceLocation) -> Option<Tensor> {
    let (Op::Pad(a_slices, shape, zero), Op::Pad(b_slices, same, other)) = (&a.0.op, &b.0.op) else { return None };
    if shape != same || [zero, other].iter().any(|value| value.as_f64() != 0.0) {
        return None;
    }
    let mut differ = (0..shape.len()).filter(|&axis| a_slices[axis] != b_slices[axis]);
    let axis = differ.next().filter(|_| differ.next().is_none())?;
    let ((first, front), (second, back)) = match [(a, a_slices[axis]), (b, b_slices[axis])] {
        [a, b] if a.1.start < b.1.start => (a, b),
        [a, b] => (b, a),
    };
    let contiguous = [front, back].iter().all(|slice| slice.step == 1 && slice.len > 0);
    if !contiguous || front.start + front.len != back.start {
        return None;
    }
    // Flattens a concatenation of concatenations.
    let pieces = |padded: &Tensor| match &padded.0.inputs[0].0 {
        inner if matches!(inner.op, Op::Concat(along) if along == axis) && !inner.has_value() => inner.inputs.clone(),
        _ => padded.0.inputs.clone(),
    };
    let concatenated = Tensor::build(Op::Concat(axis), [pieces(first), pieces(second)].concat(), location);
    let mut slices = a_slices.clone();
    slices[axis] = AxisSlice { start: front.start, step: 1, len: front.len + back.len };
    if slices.iter().zip(shape).all(|(slice, &length)| *slice == AxisSlice::full(length)) {
        return Some(concatenated);
    }
    Some(Tensor::build(Op::Pad(slices, shape.clone(), *zero), vec![concatenated], location))
}

/// The gradients of all inputs of a multi-output node, from those of its outputs.
fn multi_output_backward(
    tensor: &Tensor,
    grads: &HashMap<NodeId, Tensor>,
    between: &BTreeMap<NodeId, Tensor>,
) -> Result<Vec<Option<Tensor>>, Error> {
    let Some((multi_output, inputs)) = multi_output::as_multi_output(&tensor.0) else { return Ok(vec![]) };
    let location = tensor.0.location;
    let outputs = multi_output::outputs(tensor, location);
    let output_grads: Vec<Option<Tensor>> = outputs.iter().map(|output| grads.get(&output.0.id).cloned()).collect();
    if output_grads.iter().all(Option::is_none) {
        return Ok(vec![]);
    }
    let used: Vec<bool> =
        inputs.iter().map(|input| input.0.dtype.is_float() && between.contains_key(&input.0.id)).collect();
    let input_grads =
        multi_output.gradient.as_ref().and_then(|gradient| gradient(inputs, &outputs, &output_grads, &used));
    let name = match &multi_output.implementation {
        ImplementationKind::Kernel { kernel, .. } => &kernel.name[..],
        ImplementationKind::Source(_) | ImplementationKind::Routine { .. } => multi_output.name,
    };
    let message = match input_grads {
        Some(grads) if grads.len() != inputs.len() => {
            format!(
                "the gradient function of '{name}' returned a list of length {}, expected {}",
                grads.len(),
                inputs.len()
            )
        }
        Some(grads) => {
            let shape = |grad: &Tensor| grad.node().ok().map(|node| node.shape.clone());
            let wrong = grads.iter().zip(inputs).enumerate().find_map(|(n, (grad, input))| {
                let shape = shape(grad.as_ref()?).filter(|shape| *shape != input.0.shape)?;
                Some((n, shape, &input.0.shape))
            });
            let Some((n, found, expected)) = wrong else {
                return Ok(vec![None; multi_output.decomposition_len()].into_iter().chain(grads).collect());
            };
            format!("the gradient function of '{name}' returned shape {found:?} for input {n} of shape {expected:?}")
        }
        // The gradients of the decomposition, through which the inputs are reached.
        None if multi_output.has_decomposition => return Ok(output_grads),
        None => format!(
            "'{name}' is not differentiable; set a gradient with CustomKernel::gradient, or use detach to treat its output as a \
             constant"
        ),
    };
    Err(Error::Op { op: multi_output.name, message, location })
}

/// The nodes that `loss` depends on and that depend on one of `wrt`, by id.
fn nodes_between(loss: &Tensor, wrt: &[&Tensor]) -> BTreeMap<NodeId, Tensor> {
    let mut below = BTreeMap::new();
    let mut stack = vec![loss.clone()];
    while let Some(tensor) = stack.pop() {
        if below.contains_key(&tensor.0.id) {
            continue;
        }
        stack.extend(gradient_inputs(&tensor).iter().cloned());
        below.insert(tensor.0.id, tensor);
    }
    let mut reached: HashSet<NodeId> = wrt.iter().map(|t| t.0.id).collect();
    below.retain(|id, tensor| {
        let depends = reached.contains(id) || gradient_inputs(tensor).iter().any(|i| reached.contains(&i.0.id));
        if depends {
            reached.insert(*id);
        }
        depends
    });
    below
}

/// The inputs that gradients flow to. The first input of a checkpoint is its output, which is
/// recomputed from the others.
fn gradient_inputs(tensor: &Tensor) -> &[Tensor] {
    match tensor.0.op {
        Op::Detach => &[],
        Op::Checkpoint(_) => &tensor.0.inputs[1..],
        Op::After => &tensor.0.inputs[..1],
        _ => &tensor.0.inputs,
    }
}

/// For each input of a node, the contribution to its gradient through this node; `None` where it is
/// always zero.
fn backward(tensor: &Tensor, grad: &Tensor) -> Result<Vec<Option<Tensor>>, Error> {
    let Node { op, inputs, location, .. } = &*tensor.0;
    let location = *location;
    Ok(match op {
        Op::Map(row) => {
            let args: Vec<&Tensor> = inputs.iter().collect();
            match row.derivative(&mut GraphEmitter { location }, &args, tensor, grad) {
                Some(gradients) => gradients,
                None => {
                    let message = "not differentiable; use detach to treat its result as a constant";
                    return Err(Error::Op { op: row.row().name, message: message.into(), location });
                }
            }
        }
        Op::Cast(_) => vec![Some(Tensor::build(Op::Cast(inputs[0].0.dtype), vec![grad.clone()], location))],
        Op::Reduce(reduce, axes) => {
            let x = &inputs[0];
            let mut reduced = x.0.shape.clone();
            for &axis in axes {
                reduced[axis] = 1;
            }
            let expand = |t: &Tensor| t.reshape_at(&reduced, location).broadcast_to(&x.0.shape, location);
            let contribution = match reduce {
                Reduce::Sum => expand(grad),
                Reduce::Prod => prod_gradient(x, axes, &expand, grad, location),
                Reduce::Max | Reduce::Min => {
                    let is_extremum = map(ScalarOp::Eq, &[x, &expand(tensor)], location);
                    let share = Tensor::build(Op::Cast(x.0.dtype), vec![is_extremum], location);
                    let axes: Vec<isize> = axes.iter().map(|&a| a as isize).collect();
                    let ties = share.reduce(Reduce::Sum, Axes::List(axes), location);
                    let each = map(ScalarOp::Div, &[grad, &ties], location);
                    map(ScalarOp::Mul, &[&share, &expand(&each)], location)
                }
            };
            vec![Some(contribution)]
        }
        Op::Matmul => {
            let product = |a: &Tensor, b: &Tensor| Tensor::build(Op::Matmul, vec![a.clone(), b.clone()], location);
            let transposed = |t: &Tensor| t.transpose_at(-1, -2, location);
            let (a, b) = (&inputs[0], &inputs[1]);
            // The gradient of a transposed operand is computed in the layout of the operand's
            // input, then transposed: that saves a copy where it is used.
            let by_a = if is_transposed(a) {
                transposed(&product(b, &transposed(grad)))
            } else {
                product(grad, &transposed(b))
            };
            let by_b = if is_transposed(b) {
                transposed(&product(&transposed(grad), a))
            } else {
                product(&transposed(a), grad)
            };
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
        Op::Slice(slices) => {
            let zero = Value::from_f64(inputs[0].0.dtype, 0.0);
            let op = Op::Pad(slices.clone(), inputs[0].0.shape.clone(), zero);
            vec![Some(Tensor::build(op, vec![grad.clone()], location))]
        }
        Op::Pad(slices, ..) => vec![Some(Tensor::build(Op::Slice(slices.clone()), vec![grad.clone()], location))],
        Op::Concat(axis) => {
            let mut start = 0;
            (inputs.iter())
                .map(|input| {
                    let mut slices: Vec<AxisSlice> = input.0.shape.iter().map(|&len| AxisSlice::full(len)).collect();
                    slices[*axis].start = if slices[*axis].len == 0 { 0 } else { start };
                    start += slices[*axis].len;
                    Some(Tensor::build(Op::Slice(slices), vec![grad.clone()], location))
                })
                .collect()
        }
        Op::Gather(axis) => {
            let (x, index) = (&inputs[0], &inputs[1]);
            let zeros = x.scalar_like(0.0, location).broadcast_to(&x.0.shape, location);
            let scattered = vec![zeros, index.clone(), grad.clone()];
            vec![Some(Tensor::build(Op::ScatterAdd(*axis), scattered, location)), None]
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
        // Indices and random words have no gradient.
        Op::ArgReduce(..) | Op::ArgSort { .. } | Op::Random(_) => vec![None; inputs.len()],
        Op::Checkpoint(gradient) => gradient.of_inputs(inputs, grad, location)?,
        // Handled by `multi_output_backward`, for all outputs at once.
        Op::MultiOutput(_) | Op::GetOutput(_) => vec![],
        Op::Detach => vec![None],
        Op::After => vec![Some(grad.clone()), None],
        // A copy from another device (see `transfer.rs`): its gradient is copied back.
        Op::Data if !inputs.is_empty() => vec![Some(grad.copied_to(inputs[0].0.device, location))],
        Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_) | Op::Iota { .. } => vec![],
    })
}

/// True if a tensor is a view of another one with its last two axes swapped.
fn is_transposed(tensor: &Tensor) -> bool {
    let Op::Permute(axes) = &tensor.0.op else { return false };
    let [lead @ .., rows, columns] = &axes[..] else { return false };
    let last = axes.len() - 1;
    lead.iter().enumerate().all(|(n, &axis)| n == axis) && (*rows, *columns) == (last, last - 1)
}

/// The gradient of a product with respect to each factor: the product of the others, correct also
/// where factors are 0.
fn prod_gradient(
    x: &Tensor,
    axes: &[usize],
    expand: &dyn Fn(&Tensor) -> Tensor,
    grad: &Tensor,
    location: SourceLocation,
) -> Tensor {
    let axes: Vec<isize> = axes.iter().map(|&a| a as isize).collect();
    let number = |t: &Tensor, value: f64| t.scalar_like(value, location);
    let is_zero = map(ScalarOp::Eq, &[x, &number(x, 0.0)], location);
    let safe = map(ScalarOp::Select, &[&is_zero, &number(x, 1.0), x], location);
    let zeros = Tensor::build(Op::Cast(x.0.dtype), vec![is_zero.clone()], location);
    let zeros = expand(&zeros.reduce(Reduce::Sum, Axes::List(axes.clone()), location));
    let rest = expand(&safe.reduce(Reduce::Prod, Axes::List(axes), location));
    let none = map(ScalarOp::Eq, &[&zeros, &number(x, 0.0)], location);
    let only = map(ScalarOp::And, &[&is_zero, &map(ScalarOp::Eq, &[&zeros, &number(x, 1.0)], location)], location);
    let others = map(ScalarOp::Select, &[&only, &rest, &number(x, 0.0)], location);
    let derivative = map(ScalarOp::Select, &[&none, &map(ScalarOp::Div, &[&rest, &safe], location), &others], location);
    map(ScalarOp::Mul, &[&expand(grad), &derivative], location)
}

/// [`Emit`] that adds graph nodes, for the derivatives and formulas of the op table.
pub(crate) struct GraphEmitter {
    pub location: SourceLocation,
}

impl Emit for GraphEmitter {
    type V = Tensor;

    fn op(&mut self, op: ScalarOp, args: &[&Tensor]) -> Tensor {
        // Skips a multiplication by 1, which the derivative of a sum produces: it would be a copy
        // before an op that reads memory.
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
