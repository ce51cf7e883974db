//! Signatures of arguments: dtypes, shapes and devices, and how two signatures differ.

use std::fmt;

use crate::graph::axes::resolve_axis;
use crate::graph::node::{Node, Op};
use crate::graph::tensor::elements_of;
use crate::{DType, Device, Error, Result, SourceLocation, Tensor};

/// Dtype, shape and device of a tensor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorSpec {
    /// Dtype of the elements.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// Device.
    pub device: Device,
}

impl TensorSpec {
    /// A tensor of this dtype and shape on a device.
    pub fn new(dtype: DType, shape: &[usize], device: Device) -> TensorSpec {
        TensorSpec { dtype, shape: shape.to_vec(), device }
    }

    /// The specification of a tensor; an error if the tensor is a failed one.
    #[track_caller]
    pub fn of(tensor: &Tensor) -> Result<TensorSpec> {
        tensor.node().map(|node| TensorSpec { dtype: node.dtype, shape: node.shape.clone(), device: node.device })
    }

    /// A placeholder node for such a tensor in a traced function.
    pub(super) fn placeholder(&self, at: SourceLocation) -> Result<Node> {
        elements_of(&self.shape, self.dtype).map_err(|what| Error::Op { op: "trace", message: what, location: at })?;
        Ok(Node::new(Op::Input, self.dtype, self.shape.clone(), self.device, vec![], at))
    }

    /// Differences from an earlier specification, as text.
    fn differences(&self, before: &TensorSpec) -> Vec<String> {
        let mut found = vec![];
        if self.dtype != before.dtype {
            found.push(format!("is {}, was {}", self.dtype, before.dtype));
        }
        if self.shape.len() != before.shape.len() {
            found.push(format!("has shape {:?}, had {:?}", self.shape, before.shape));
        } else {
            for (axis, (now, then)) in self.shape.iter().zip(&before.shape).enumerate().filter(|(_, (a, b))| a != b) {
                found.push(format!("has length {now} along axis {axis}, had {then}"));
            }
        }
        if self.device != before.device {
            found.push(format!("is on {}, was on {}", self.device, before.device));
        }
        found
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} on {}", self.dtype, self.shape, self.device)
    }
}

/// Differences of arguments from the most similar cached signature, as text.
pub(super) fn difference<'a>(specs: &[TensorSpec], cached: impl Iterator<Item = &'a [TensorSpec]>) -> String {
    let differences = |before: &[TensorSpec]| -> Vec<String> {
        let each = specs.iter().zip(before).enumerate().flat_map(|(n, (now, then))| {
            now.differences(then).into_iter().map(move |what| format!("argument {n} {what}"))
        });
        let number = (specs.len() != before.len())
            .then(|| format!("number of arguments is {}, was {}", specs.len(), before.len()));
        number.into_iter().chain(each).collect()
    };
    cached.map(differences).min_by_key(Vec::len).unwrap_or_default().join("; ")
}

/// A dynamic length of at most a bound.
pub(super) struct BoundedLength {
    pub bound: usize,
    /// (argument, axis) pairs that have this length.
    pub arguments: Vec<(usize, isize)>,
    /// (result, axis) pairs that are truncated to it.
    pub results: Vec<(usize, isize)>,
}

impl BoundedLength {
    /// Returns the length in a call with these arguments, and the device of the argument. Sets the
    /// length in `specs` to the bound.
    pub fn resolve(&self, specs: &mut [TensorSpec], at: SourceLocation) -> Result<(usize, Device)> {
        let BoundedLength { bound, arguments, .. } = self;
        let fail = |what: String| Err(Error::Op { op: "trace", message: what, location: at });
        let mut found: Option<(usize, Device, usize)> = None;
        let count = specs.len();
        for &(argument, axis) in arguments {
            let Some(spec) = specs.get_mut(argument) else {
                return fail(format!("argument {argument} is bounded, but the number of arguments is {count}"));
            };
            let axis = match resolve_axis(axis, spec.shape.len()) {
                Ok(axis) => axis,
                Err(what) => return fail(format!("bounded axis of argument {argument}: {what}")),
            };
            let length = std::mem::replace(&mut spec.shape[axis], *bound);
            if length > *bound {
                return fail(format!(
                    "argument {argument} has length {length} along axis {axis}, which exceeds the bound {bound}; split it, \
                     or raise the bound"
                ));
            }
            match found {
                Some((other, _, first)) if other != length => {
                    return fail(format!(
                        "arguments {first} and {argument} share a bounded length, but have {other} and {length} (axis {axis})"
                    ));
                }
                _ => found = Some((length, spec.device, argument)),
            }
        }
        match found {
            Some((length, device, _)) => Ok((length, device)),
            None => fail(format!("the length bounded by {bound} has no argument; specify at least one")),
        }
    }
}
