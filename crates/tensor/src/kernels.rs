//! Custom kernels: kernel source files (`module`), a kernel and its launches as graph ops
//! (`kernel`, `launch`, `compiled`), their gradients (`gradient`), repeated launches (`prepared`)
//! and tuning (`tune`).

mod compiled;
mod gradient;
pub(crate) mod kernel;
pub(crate) mod launch;
pub(crate) mod module;
pub(crate) mod prepared;
pub(crate) mod tune;
