//! Custom kernels: as an operation of the graph, from CUDA C++ or Python source, and launched by themselves.

pub(crate) mod custom;
pub(crate) mod module;
pub(crate) mod recorded;
pub(crate) mod runner;
