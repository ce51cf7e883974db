//! What a valid graph is: for each op, which inputs it takes and what comes out. Every node passes through here once.

use bornite_ir::Value;

use crate::graph::node::{AxisSlice, Node, Op, Reduce};
use crate::{DType, Tensor};

/// Dtype and shape of `op` over `inputs`, or what is wrong.
pub(crate) fn infer(op: &Op, inputs: &[&Node]) -> Result<(DType, Vec<usize>), String> {
    if let [first, rest @ ..] = inputs
        && let Some(other) = rest.iter().find(|i| i.device != first.device)
    {
        let (a, b) = (first.device, other.device);
        return Err(format!("inputs are on {a} and {b}; make them on one device, or move one with to({a})"));
    }
    match (op, inputs) {
        (Op::Map(row), inputs) => {
            if inputs.len() != row.arity() {
                return Err(format!("takes {} inputs, given {}", row.arity(), inputs.len()));
            }
            let types: Vec<DType> = inputs.iter().map(|i| i.dtype).collect();
            let dtype = row.row().rule.result(&types).map_err(|expected| {
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
                return Err(format!("has no value over an axis of length 0, shape {:?}", x.shape));
            }
            let kept = (0..x.shape.len()).filter(|a| !axes.contains(a)).map(|a| x.shape[a]).collect();
            Ok((x.dtype, kept))
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
                    "shapes {:?} and {:?} do not fit; the last axis of the first must equal the last but one of the second",
                    a.shape, b.shape
                )),
            }
        }
        (Op::Reshape(to), [x]) => {
            let elements = to.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            if elements != Some(x.elements()) {
                return Err(format!("{:?} has {} elements, {to:?} has not", x.shape, x.elements()));
            }
            Ok((x.dtype, to.clone()))
        }
        (Op::Expand(to), [x]) => {
            let fits = x.shape.len() == to.len() && x.shape.iter().zip(to).all(|(&from, &to)| from == to || from == 1);
            if !fits {
                return Err(format!("{:?} does not repeat to {to:?}; only axes of length 1 do", x.shape));
            }
            Ok((x.dtype, to.clone()))
        }
        (Op::Permute(axes), [x]) => {
            let mut sorted = axes.clone();
            sorted.sort_unstable();
            if sorted != (0..x.shape.len()).collect::<Vec<_>>() {
                return Err(format!("{axes:?} is not an order of the {} axes of {:?}", x.shape.len(), x.shape));
            }
            Ok((x.dtype, axes.iter().map(|&a| x.shape[a]).collect()))
        }
        (Op::Slice(cuts), [x]) => {
            let inside = |(cut, &len): (&AxisSlice, &usize)| {
                let last = cut.start as i128 + cut.step as i128 * (cut.len as i128 - 1).max(0);
                cut.len == 0 || cut.step != 0 && cut.start < len && (0..len as i128).contains(&last)
            };
            if cuts.len() != x.shape.len() || !cuts.iter().zip(&x.shape).all(inside) {
                return Err(format!("{cuts:?} is not within shape {:?}", x.shape));
            }
            Ok((x.dtype, cuts.iter().map(|cut| cut.len).collect()))
        }
        (Op::Pad(cuts, shape, value), [x]) => {
            let lens: Vec<usize> = cuts.iter().map(|cut| cut.len).collect();
            if lens != x.shape || cuts.len() != shape.len() || value.scalar() != x.dtype {
                return Err(format!("{cuts:?} does not place shape {:?} in {shape:?}", x.shape));
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
                        "{}{:?} and {}{:?} do not fit along axis {axis}",
                        first.dtype, first.shape, other.dtype, other.shape
                    ));
                }
                let len = shape[*axis].checked_add(other.shape[*axis]);
                shape[*axis] = len.ok_or("more elements than memory can hold")?;
            }
            Ok((first.dtype, shape))
        }
        (Op::Gather(axis), [x, index]) => {
            along(*axis, x, index)?;
            Ok((x.dtype, index.shape.clone()))
        }
        (Op::ScatterAdd(axis), [x, index, values]) => {
            along(*axis, x, index)?;
            if values.shape != index.shape || values.dtype != x.dtype || x.dtype == DType::Bool {
                return Err(format!(
                    "values are {}{:?}; they must be {}{:?}, numbers and as many as the indices",
                    values.dtype, values.shape, x.dtype, index.shape
                ));
            }
            Ok((x.dtype, x.shape.clone()))
        }
        (Op::Cumsum(_), [x]) if x.dtype == DType::Bool => Err("expects numbers, found bool; cast first".into()),
        (Op::Cumsum(_), [x]) => Ok((x.dtype, x.shape.clone())),
        (Op::ArgReduce(_, axis), [x]) => {
            if x.shape[*axis] == 0 {
                return Err(format!("has no value over an axis of length 0, shape {:?}", x.shape));
            }
            let mut shape = x.shape.clone();
            shape.remove(*axis);
            Ok((DType::I64, shape))
        }
        (Op::ArgSort { .. }, [x]) => Ok((DType::I64, x.shape.clone())),
        (Op::Random(shape), [state]) => match (state.dtype, &state.shape[..]) {
            (DType::U64, [2]) => Ok((DType::U32, shape.clone())),
            _ => Err(format!("a seed and an offset are u64[2], found {}{:?}", state.dtype, state.shape)),
        },
        (Op::MultiOutput(multi_output), _) => multi_output.outputs.first().cloned().ok_or("computes nothing".into()),
        (Op::GetOutput(n), [multi_output]) => match &multi_output.op {
            Op::MultiOutput(multi_output) if *n < multi_output.outputs.len() => Ok(multi_output.outputs[*n].clone()),
            _ => Err(format!("there is no result {n}")),
        },
        (Op::Checkpoint(_), [result, ..]) => Ok((result.dtype, result.shape.clone())),
        (Op::Detach, [x]) => Ok((x.dtype, x.shape.clone())),
        // Leaves, and others with a wrong number of inputs.
        (Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_) | Op::Iota { .. }, inputs)
        | (Op::Cast(_) | Op::Reduce(..) | Op::Matmul | Op::Reshape(_) | Op::Expand(_) | Op::Permute(_), inputs)
        | (Op::Slice(_) | Op::Pad(..) | Op::Concat(_) | Op::Gather(_) | Op::ScatterAdd(_) | Op::Cumsum(_), inputs)
        | (Op::ArgReduce(..) | Op::ArgSort { .. } | Op::Random(_) | Op::GetOutput(_), inputs)
        | (Op::Checkpoint(_) | Op::Detach, inputs) => {
            Err(format!("{} does not take {} inputs", op.name(), inputs.len()))
        }
    }
}

/// An index tensor must have the shape of what it picks from, but for one axis.
fn along(axis: usize, x: &Node, index: &Node) -> Result<(), String> {
    if !index.dtype.is_int() {
        return Err(format!("indices are integers, found {}", index.dtype));
    }
    let fits = index.shape.len() == x.shape.len()
        && axis < x.shape.len()
        && (0..x.shape.len()).all(|a| a == axis || x.shape[a] == index.shape[a]);
    if fits && x.shape[axis] == 0 && index.elements() > 0 {
        return Err(format!("no index is within axis {axis} of {:?}, given {:?}", x.shape, index.shape));
    }
    if fits {
        return Ok(());
    }
    Err(format!("indices {:?} do not fit {:?}: only axis {axis} may differ", index.shape, x.shape))
}

/// The shape both broadcast to (aligned at the last axis), or what is wrong.
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

/// Extents of a reduction whose axes are adjacent: elements before them, in them, after them.
pub(crate) fn reduction_extents(node: &Node) -> Option<(usize, usize, usize)> {
    let Op::Reduce(_, axes) = &node.op else { return None };
    let shape = &node.inputs[0].0.shape;
    let real: Vec<usize> = axes.iter().copied().filter(|&axis| shape[axis] != 1).collect();
    let (Some(&first), Some(&last)) = (real.first(), real.last()) else {
        return Some((shape.iter().product(), 1, 1));
    };
    // Axes of length 1 between are no gap.
    let inside = (first..=last).all(|axis| shape[axis] == 1 || real.contains(&axis));
    let product = |range: &[usize]| range.iter().product();
    inside.then(|| (product(&shape[..first]), product(&shape[first..=last]), product(&shape[last + 1..])))
}

/// The value of all elements, if the tensor is a constant or a view of one.
pub(crate) fn constant(tensor: &Tensor) -> Option<Value> {
    let mut node = &*tensor.0;
    while node.op.is_view() {
        node = &node.inputs[0].0;
    }
    if let Op::Full(value) = node.op { Some(value) } else { None }
}
