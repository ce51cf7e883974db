//! Custom kernels: files of kernels (`module`), a kernel and its launches as operations of the graph (`kernel`, `launch`,
//! `compiled`), repeated launches (`prepared`) and the choice between kernels (`tune`).

mod compiled;
pub(crate) mod kernel;
pub(crate) mod launch;
pub(crate) mod module;
pub(crate) mod prepared;
pub(crate) mod tune;
