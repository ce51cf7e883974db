//! Devices, memory, execution of plans, variables and traces.

pub(crate) mod arena;
pub(crate) mod buffer;
pub(crate) mod check;
pub(crate) mod cuda_source;
pub(crate) mod device;
pub(crate) mod element;
pub(crate) mod execute;
pub(crate) mod interrupt;
pub(crate) mod math;
pub(crate) mod observe;
pub(crate) mod resize;
pub(crate) mod scatter;
pub(crate) mod scratch;
pub(crate) mod single_flight;
pub(crate) mod status;
pub(crate) mod timing;
pub(crate) mod trace;
pub(crate) mod var;

pub use bornite_cuda::Library;
pub use bornite_support::parse_bytes;
pub use interrupt::interruptible;
