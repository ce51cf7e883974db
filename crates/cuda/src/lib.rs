//! CUDA at run time: libraries found and opened when first needed, devices, memory, NVRTC, launches, graphs.
//!
//! Nothing of CUDA is needed to build, and a missing library is an [`Error`] that says how to get it, never a panic.
//! This crate must not know of tensors or models. `unsafe` is at home here: every block calls the driver or NVRTC
//! through a table of checked signatures (`api.rs`).
#![allow(unsafe_code)]

mod api;
mod device;
mod error;
mod graph;
mod launch;
mod library;
mod memory;
mod nvrtc;
pub mod pool;

pub use device::{Device, DeviceInfo, device_count, driver_version};
pub use error::{Error, Result};
pub use graph::Graph;
pub use launch::Function;
pub use library::{HIDE_VARIABLE, Library, PATH_VARIABLE};
pub use memory::Buffer;
pub use nvrtc::{Cubin, compile, nvrtc_version};
pub use pool::{Pool, parse_bytes};
