//! Code generation from kernels: CUDA C++, C++ for a CPU, machine code for the host CPU, and text in the style of NVIDIA Warp's
//! generated code.
//!
//! This crate must not know how anything is launched on a GPU. [`cuda::print`] gives text that any NVRTC compiles with
//! no include path; [`cpp::print`] gives the same kernel as a loop for any C++ compiler; [`cpu::compile`] gives code that
//! runs in this process. All read the tables of operations of `bornite-ir`.

pub mod cpp;
pub mod cpu;
pub mod cuda;
mod text;
mod warp_style;

pub use warp_style::{WarpSource, warp_style};
