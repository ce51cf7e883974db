//! Writers of kernels: CUDA C++ text, and machine code for the host CPU.
//!
//! This crate must not know how anything is launched on a GPU. [`cuda::print`] gives text that any NVRTC compiles with
//! no include path; [`cpu::compile`] gives code that runs in this process. Both read the op table of `bornite-ir`.

pub mod cpu;
pub mod cuda;
