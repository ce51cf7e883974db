//! Custom kernels: kernel source files (`module`), a kernel and its launches as graph ops
//! (`kernel`, `launch`, `compiled`), their gradients (`gradient`), repeated launches (`prepared`),
//! tuning (`tune`) and performance analysis without a GPU (`analysis`).

pub(crate) mod analysis;
mod compiled;
mod gradient;
pub(crate) mod kernel;
pub(crate) mod launch;
pub(crate) mod module;
pub(crate) mod prepared;
pub(crate) mod tune;
