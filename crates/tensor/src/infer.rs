//! What a valid graph is: for each op, which inputs it takes and what comes out. Every node passes through here once.

use crate::DType;
use crate::node::{Node, Op, Reduce};

/// Dtype and shape of `op` over `inputs`, or what is wrong.
pub(crate) fn infer(op: &Op, inputs: &[&Node]) -> Result<(DType, Vec<usize>), String> {
    if let [first, rest @ ..] = inputs
        && let Some(other) = rest.iter().find(|i| i.device != first.device)
    {
        let (a, b) = (first.device, other.device);
        return Err(format!("inputs are on {a} and {b}; make them on one device"));
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
            if *reduce == Reduce::Max && axes.iter().any(|&a| x.shape[a] == 0) {
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
        (Op::Detach, [x]) => Ok((x.dtype, x.shape.clone())),
        (op, inputs) => Err(format!("{} does not take {} inputs", op.name(), inputs.len())),
    }
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
