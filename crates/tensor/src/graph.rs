//! The lazy graph: nodes and their ops, shapes and dtypes of results, gradients. Nothing here runs, and nothing here knows how a value
//! lies in memory or which kernel computes it.

pub(crate) mod axes;
pub(crate) mod checkpoint;
pub(crate) mod grad;
pub(crate) mod infer;
pub(crate) mod multi_output;
pub(crate) mod node;
pub(crate) mod promote;
pub(crate) mod tensor;
