//! CUDA at run time: libraries found and opened when first needed, devices, memory, NVRTC, launches, graphs,
//! a cache of compiled kernels on disk, a tuner, a profiler, and the settings of all of them.
//!
//! Nothing of CUDA is needed to build, and a missing library is an [`Error`] that says how to get it, never a panic.
//! This crate must not know of tensors or models. `unsafe` is at home here: every block calls the driver or NVRTC
//! through a table of checked signatures (`api.rs`), but for two that ask libc who the user is and where a
//! library lies.
#![allow(unsafe_code)]

mod api;
pub mod cache;
mod device;
mod error;
mod graph;
mod launch;
mod library;
pub mod log;
mod memory;
mod nvrtc;
pub mod pool;
pub mod profile;
pub mod settings;
pub mod tune;

pub use cache::{Cache, compile_cached};
pub use device::{Device, DeviceInfo, device_count, driver_version};
pub use error::{Error, Result};
pub use graph::Graph;
pub use launch::{Function, Pointer};
pub use library::{HIDE_VARIABLE, Library, PATH_VARIABLE};
pub use memory::Buffer;
pub(crate) use nvrtc::nvrtc_build;
pub use nvrtc::{Cubin, EXACT_OPTIONS, compile, compile_ptx, compile_with, nvrtc_version};
pub use pool::{Pool, parse_bytes};
