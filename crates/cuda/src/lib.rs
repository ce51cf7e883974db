//! CUDA at run time: libraries opened on first use, devices, memory, NVRTC, launches, graphs,
//! matrix products by cuBLASLt, a cache of compiled kernels on disk.
//!
//! CUDA is not needed to build, and a missing library is an [`Error`] that says how to install it,
//! never a panic. This crate must not know of tensors or models. It contains most of the `unsafe`
//! code: every block calls the driver, NVRTC or cuBLASLt through a table of checked signatures
//! (`api.rs`), except one that asks libc for the path of a library.
#![allow(unsafe_code)]

mod advice;
mod api;
pub mod blas;
mod buffer;
pub mod cache;
mod capture;
mod clock;
mod context;
mod cubin;
mod device;
mod disassemble;
mod error;
mod graph;
mod info;
mod launch;
mod launch_config;
mod library;
mod nvrtc;
mod occupancy;
mod peak_rates;
mod pinned;
pub mod pool;
mod prepared;
mod ptxas_bugs;
mod registry;
mod staging;
mod stream;
mod tensor_map;

pub use advice::{LaunchAdvice, LaunchWorkload, advise};
pub use buffer::Buffer;
pub use cache::{Cache, compile_cached};
pub use clock::{DeviceClock, DeviceTimer, platform};
pub use context::{LaunchRecord, is_sync, set_sync};
pub use cubin::Cubin;
pub use device::Device;
pub use disassemble::Disassembler;
pub use error::{Error, Result};
pub use graph::{Graph, GraphArgument, GraphUpdate};
pub use info::{DeviceInfo, device_count, driver_release, driver_version};
pub use launch::{DevicePointer, KernelFunction};
pub use launch_config::LaunchConfig;
pub use library::Library;
pub(crate) use nvrtc::nvrtc_build_id;
pub use nvrtc::{EXACT_OPTIONS, compile, compile_ptx, compile_ptx_with, compile_with, compile_with_log, nvrtc_version};
pub use occupancy::{KernelResources, Limiter, MultiprocessorLimits, Occupancy, occupancy};
pub use peak_rates::roofline;
pub use pinned::{PinnedBuffer, Transfer};
pub use pool::Pool;
pub use prepared::PreparedFunction;
pub use registry::{LoadedKernel, loaded_kernels};
pub use stream::{Event, Stream};
pub use tensor_map::TensorMapLayout;
