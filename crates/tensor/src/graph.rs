//! The lazy graph: nodes and their ops, shape and dtype inference, gradients. Nothing here runs or
//! knows memory layouts and kernels: see `schedule/` and `lower/`.

pub(crate) mod axes;
pub(crate) mod checkpoint;
pub(crate) mod grad;
pub(crate) mod infer;
pub(crate) mod multi_output;
pub(crate) mod node;
pub(crate) mod promote;
pub(crate) mod tensor;
