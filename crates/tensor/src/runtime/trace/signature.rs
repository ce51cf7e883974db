//! What arguments must be for a trace to be used again, and in what way others differ.

use std::fmt;

use crate::graph::axes::resolve_axis;
use crate::graph::node::{Node, Op};
use crate::graph::tensor::elements_of;
use crate::{DType, Device, Error, Result, SourceLocation, Tensor};

/// What a tensor is but for its elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorSpec {
    /// Type of the elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Vec<usize>,
    /// Where the elements are.
    pub device: Device,
}

impl TensorSpec {
    /// A tensor of this dtype and shape on a device.
    pub fn new(dtype: DType, shape: &[usize], device: Device) -> TensorSpec {
        TensorSpec { dtype, shape: shape.to_vec(), device }
    }

    /// What a tensor is, or the error that made it.
    #[track_caller]
    pub fn of(tensor: &Tensor) -> Result<TensorSpec> {
        tensor.node().map(|node| TensorSpec { dtype: node.dtype, shape: node.shape.clone(), device: node.device })
    }

    /// A node that stands for such a tensor in a function under trace.
    pub(super) fn placeholder(&self, at: SourceLocation) -> Result<Node> {
        elements_of(&self.shape, self.dtype).map_err(|what| Error::Op { op: "trace", message: what, location: at })?;
        Ok(Node::new(Op::Input, self.dtype, self.shape.clone(), self.device, vec![], at))
    }

    /// In what way this differs from what was there before.
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

/// In what way arguments differ from those of the trace that is nearest to them, in words.
pub(super) fn difference<'a>(specs: &[TensorSpec], kept: impl Iterator<Item = &'a [TensorSpec]>) -> String {
    let differences = |before: &[TensorSpec]| -> Vec<String> {
        let each = specs.iter().zip(before).enumerate().flat_map(|(n, (now, then))| {
            now.differences(then).into_iter().map(move |what| format!("argument {n} {what}"))
        });
        let number = (specs.len() != before.len()).then(|| format!("{} arguments, were {}", specs.len(), before.len()));
        number.into_iter().chain(each).collect()
    };
    kept.map(differences).min_by_key(Vec::len).unwrap_or_default().join("; ")
}

/// A length that is known at each call only, and is at most a bound.
pub(super) struct BoundedLength {
    pub bound: usize,
    /// Where it is found: arguments, each with an axis.
    pub arguments: Vec<(usize, isize)>,
    /// Results that are cut to it, each with an axis.
    pub results: Vec<(usize, isize)>,
}

impl BoundedLength {
    /// The length in a call with these arguments, which become those that the trace is made for: as long as the bound.
    /// Also returns the device that it is for.
    pub fn take(&self, specs: &mut [TensorSpec], at: SourceLocation) -> Result<(usize, Device)> {
        let BoundedLength { bound, arguments, .. } = self;
        let fail = |what: String| Err(Error::Op { op: "trace", message: what, location: at });
        let mut found: Option<(usize, Device, usize)> = None;
        let given = specs.len();
        for &(argument, axis) in arguments {
            let Some(spec) = specs.get_mut(argument) else {
                return fail(format!("a length is that of argument {argument}, the call has {given} arguments"));
            };
            let axis = match resolve_axis(axis, spec.shape.len()) {
                Ok(axis) => axis,
                Err(what) => return fail(format!("a length is that of argument {argument}: {what}")),
            };
            let length = std::mem::replace(&mut spec.shape[axis], *bound);
            if length > *bound {
                return fail(format!(
                    "argument {argument} has length {length} along axis {axis}, which is bounded by {bound}; split it, \
                     or raise the bound"
                ));
            }
            match found {
                Some((other, _, first)) if other != length => {
                    return fail(format!(
                        "arguments {first} and {argument} share a length, but have {other} and {length} (axis {axis})"
                    ));
                }
                _ => found = Some((length, spec.device, argument)),
            }
        }
        match found {
            Some((length, device, _)) => Ok((length, device)),
            None => fail(format!("a length bounded by {bound} is that of no argument; name one")),
        }
    }
}
