//! Values of results that are delivered while a call computes others.

use crate::graph::node::Node;
use crate::runtime::element::Element;
use crate::{DType, Error, Result, SourceLocation};

/// Receiver of results: index and value.
pub(crate) type ReceiveResult<'a> = dyn FnMut(usize, HostValue) + 'a;

/// A copy of a tensor's elements in host memory, which can be read while its device computes.
#[derive(Clone, Debug)]
pub struct HostValue {
    dtype: DType,
    elements: usize,
    words: Vec<u64>,
}

impl HostValue {
    pub(super) fn new(like: &Node, words: Vec<u64>) -> HostValue {
        HostValue { dtype: like.dtype, elements: like.elements(), words }
    }

    /// Data type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The elements in row-major order. `T` must correspond to the dtype.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype != T::DTYPE {
            let message = format!("the value is {}, not {}", self.dtype, T::DTYPE);
            return Err(Error::Op { op: "to_vec", message, location: SourceLocation::here() });
        }
        T::unpack(&self.words, self.elements).ok_or(Error::OutOfMemory { bytes: 8 * self.words.len() })
    }
}
