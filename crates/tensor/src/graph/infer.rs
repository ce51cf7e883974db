//! Validation and shape inference: for each op, the inputs that it accepts and the dtype and shape
//! of its output. Every node is checked here once.

use bornite_ir::Value;

use crate::graph::node::{AxisSlice, Node, Op, Reduce};
use crate::{DType, Tensor};

/// Dtype and shape of `op` over `inputs`, or an error message.
pub(crate) fn infer(op: &Op, inputs: &[&Node]) -> Result<(DType, Vec<usize>), String> {
    if let [first, rest @ ..] = inputs
        && let Some(other) = rest.iter().find(|i| i.device != first.device)
    {
        let (a, b) = (first.device, other.device);
        return Err(format!("inputs are on {a} and {b}; make them on one device, or move one with to({a})"));
    }
    match (op, inputs) {
        (Op::Map(op), inputs) => {
            if inputs.len() != op.arity() {
                return Err(format!("the number of inputs is {}, expected {}", inputs.len(), op.arity()));
            }
            let types: Vec<DType> = inputs.iter().map(|i| i.dtype).collect();
            let dtype = op.row().rule.result(&types).map_err(|expected| {
                let found: Vec<String> = types.iter().map(DType::to_string).collect();
                format!("expects {expected}, found {}", found.join(" and "))
            })?;
            Ok((dtype, inputs[0].shape.clone()))
        }
        (Op::Cast(to), [x]) => Ok((*to, x.shape.clone())),
        (Op::Reduce(reduce, axes), [x]) => {
            if x.dtype == DType::Bool {
                return Err("expects numbers, found bool; cast first".into());
            }
            if matches!(reduce, Reduce::Max | Reduce::Min) && axes.iter().any(|&a| x.shape[a] == 0) {
                return Err(format!("cannot reduce an axis of length 0, shape {:?}", x.shape));
            }
            let shape = (0..x.shape.len()).filter(|a| !axes.contains(a)).map(|a| x.shape[a]).collect();
            Ok((x.dtype, shape))
        }
        (Op::Matmul, [a, b]) => {
            if a.dtype != b.dtype || a.dtype == DType::Bool {
                return Err(format!("expects numbers of one dtype, found {} and {}", a.dtype, b.dtype));
            }
            match (a.shape.as_slice(), b.shape.as_slice()) {
                ([batch_a @ .., m, k], [batch_b @ .., k2, n]) if k == k2 && batch_a == batch_b => {
                    Ok((a.dtype, [batch_a, &[*m, *n]].concat()))
                }
                _ => Err(format!(
                    "shapes {:?} and {:?} do not match; the last axis of the first must be as long as the second-to-last axis of the second",
                    a.shape, b.shape
                )),
            }
        }
        (Op::Reshape(to), [x]) => {
            let elements = to.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            if elements != Some(x.elements()) {
                return Err(format!("cannot reshape {:?} of {} elements to {to:?}", x.shape, x.elements()));
            }
            Ok((x.dtype, to.clone()))
        }
        (Op::Expand(to), [x]) => {
            let fits = x.shape.len() == to.len() && x.shape.iter().zip(to).all(|(&from, &to)| from == to || from == 1);
            if !fits {
                return Err(format!("cannot expand {:?} to {to:?}; only axes of length 1 can be repeated", x.shape));
            }
            Ok((x.dtype, to.clone()))
        }
        (Op::Permute(axes), [x]) => {
            let mut sorted = axes.clone();
            sorted.sort_unstable();
            if sorted != (0..x.shape.len()).collect::<Vec<_>>() {
                return Err(format!("{axes:?} is not a permutation of the {} axes of {:?}", x.shape.len(), x.shape));
            }
            Ok((x.dtype, axes.iter().map(|&a| x.shape[a]).collect()))
        }
        (Op::Slice(slices), [x]) => {
            let in_range = |(slice, &len): (&AxisSlice, &usize)| {
                let last = slice.start as i128 + slice.step as i128 * (slice.len as i128 - 1).max(0);
                slice.len == 0 || slice.step != 0 && slice.start < len && (0..len as i128).contains(&last)
            };
            if slices.len() != x.shape.len() || !slices.iter().zip(&x.shape).all(in_range) {
                return Err(format!("{slices:?} is out of range for shape {:?}", x.shape));
            }
            Ok((x.dtype, slices.iter().map(|slice| slice.len).collect()))
        }
        (Op::Pad(slices, shape, value), [x]) => {
            let lens: Vec<usize> = slices.iter().map(|slice| slice.len).collect();
            if lens != x.shape || slices.len() != shape.len() || value.scalar() != x.dtype {
                return Err(format!("{slices:?} does not map shape {:?} into {shape:?}", x.shape));
            }
            Ok((x.dtype, shape.clone()))
        }
        (Op::Concat(axis), [first, rest @ ..]) => {
            let mut shape = first.shape.clone();
            for other in rest {
                let fits = other.dtype == first.dtype
                    && other.shape.len() == shape.len()
                    && (0..shape.len()).all(|a| a == *axis || other.shape[a] == shape[a]);
                if !fits {
                    return Err(format!(
                        "cannot concatenate {}{:?} and {}{:?} along axis {axis}",
                        first.dtype, first.shape, other.dtype, other.shape
                    ));
                }
                let len = shape[*axis].checked_add(other.shape[*axis]);
                shape[*axis] = len.ok_or("more elements than memory can hold")?;
            }
            Ok((first.dtype, shape))
        }
        (Op::Gather(axis), [x, index]) => {
            check_index(*axis, x, index)?;
            Ok((x.dtype, index.shape.clone()))
        }
        (Op::ScatterAdd(axis), [x, index, values]) => {
            check_index(*axis, x, index)?;
            if values.shape != index.shape || values.dtype != x.dtype || x.dtype == DType::Bool {
                return Err(format!(
                    "values are {}{:?}; expected {}{:?}, numbers of the shape of the indices",
                    values.dtype, values.shape, x.dtype, index.shape
                ));
            }
            Ok((x.dtype, x.shape.clone()))
        }
        (Op::Cumsum(_), [x]) if x.dtype == DType::Bool => Err("expects numbers, found bool; cast first".into()),
        (Op::Cumsum(_), [x]) => Ok((x.dtype, x.shape.clone())),
        (Op::ArgReduce(_, axis), [x]) => {
            if x.shape[*axis] == 0 {
                return Err(format!("cannot reduce an axis of length 0, shape {:?}", x.shape));
            }
            let mut shape = x.shape.clone();
            shape.remove(*axis);
            Ok((DType::I64, shape))
        }
        (Op::ArgSort { .. }, [x]) => Ok((DType::I64, x.shape.clone())),
        (Op::Random(shape), [state]) => match (state.dtype, &state.shape[..]) {
            (DType::U64, [2]) => Ok((DType::U32, shape.clone())),
            _ => Err(format!("the state (seed and offset) must be u64[2], found {}{:?}", state.dtype, state.shape)),
        },
        (Op::MultiOutput(multi_output), _) => multi_output.outputs.first().cloned().ok_or("has no outputs".into()),
        (Op::GetOutput(n), [multi_output]) => match &multi_output.op {
            Op::MultiOutput(multi_output) if *n < multi_output.outputs.len() => Ok(multi_output.outputs[*n].clone()),
            _ => Err(format!("has no output {n}")),
        },
        (Op::Checkpoint(_), [result, ..]) => Ok((result.dtype, result.shape.clone())),
        (Op::Detach, [x]) | (Op::After, [x, _]) => Ok((x.dtype, x.shape.clone())),
        // Leaves, and ops with a wrong number of inputs.
        (Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_) | Op::Iota { .. }, inputs)
        | (Op::Cast(_) | Op::Reduce(..) | Op::Matmul | Op::Reshape(_) | Op::Expand(_) | Op::Permute(_), inputs)
        | (Op::Slice(_) | Op::Pad(..) | Op::Concat(_) | Op::Gather(_) | Op::ScatterAdd(_) | Op::Cumsum(_), inputs)
        | (Op::ArgReduce(..) | Op::ArgSort { .. } | Op::Random(_) | Op::GetOutput(_), inputs)
        | (Op::Checkpoint(_) | Op::Detach | Op::After, inputs) => {
            Err(format!("{} does not take {} inputs", op.name(), inputs.len()))
        }
    }
}

/// Checks that an index tensor has the shape of the indexed tensor except along one axis.
fn check_index(axis: usize, x: &Node, index: &Node) -> Result<(), String> {
    if !index.dtype.is_int() {
        return Err(format!("indices must be integers, found {}", index.dtype));
    }
    let fits = index.shape.len() == x.shape.len()
        && axis < x.shape.len()
        && (0..x.shape.len()).all(|a| a == axis || x.shape[a] == index.shape[a]);
    if fits && x.shape[axis] == 0 && index.elements() > 0 {
        return Err(format!(
            "axis {axis} of {:?} has length 0, so no index is valid; indices have shape {:?}",
            x.shape, index.shape
        ));
    }
    if fits {
        return Ok(());
    }
    Err(format!("indices of shape {:?} do not match shape {:?}; only axis {axis} may differ", index.shape, x.shape))
}

/// The shape that both broadcast to (aligned at the last axis), or an error message.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |n| shape[n]);
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            (x, y) => Err(format!("shapes {a:?} and {b:?} do not broadcast: {x} against {y}")),
        })
        .collect()
}

/// Extents of a reduction over adjacent axes: product of the lengths before, in and after them.
pub(crate) fn reduction_extents(node: &Node) -> Option<(usize, usize, usize)> {
    let Op::Reduce(_, axes) = &node.op else { return None };
    let shape = &node.inputs[0].0.shape;
    let reduced: Vec<usize> = axes.iter().copied().filter(|&axis| shape[axis] != 1).collect();
    let (Some(&first), Some(&last)) = (reduced.first(), reduced.last()) else {
        return Some((shape.iter().product(), 1, 1));
    };
    // Axes of length 1 in between do not count.
    let adjacent = (first..=last).all(|axis| shape[axis] == 1 || reduced.contains(&axis));
    let product = |range: &[usize]| range.iter().product();
    adjacent.then(|| (product(&shape[..first]), product(&shape[first..=last]), product(&shape[last + 1..])))
}

/// The value of every element, if the tensor is a constant or a view of one.
pub(crate) fn constant(tensor: &Tensor) -> Option<Value> {
    let mut node = &*tensor.0;
    while node.op.is_view() {
        node = &node.inputs[0].0;
    }
    if let Op::Full(value) = node.op { Some(value) } else { None }
}
