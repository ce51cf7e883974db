//! Interruption of a computation by another thread or a signal handler.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bornite_codegen::cpu;

/// Runs `work`; once `flag` is set, computations of this thread fail with
/// [`Error::Interrupted`](crate::Error::Interrupted) without side effects: on a CPU within a
/// kernel, on a GPU between compilations of kernels. A call of a [`Trace`](crate::trace::Trace)
/// that has begun to overwrite variables is completed. With `None`, `work` cannot be interrupted,
/// even if the caller can.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// use bornite::{DType, Device, Error, Tensor, runtime::interruptible};
/// # fn main() -> bornite::Result<()> {
/// let flag = Arc::new(AtomicBool::new(false));
/// let sum = || Tensor::ones(&[1000], DType::F32, Device::cpu()).sum(..).item();
/// assert_eq!(interruptible(Some(flag.clone()), sum)?, 1000.0);
/// flag.store(true, Ordering::Relaxed); // as a handler of Ctrl-C would
/// assert!(matches!(interruptible(Some(flag.clone()), sum), Err(Error::Interrupted)));
/// # Ok(())
/// # }
/// ```
pub fn interruptible<R>(flag: Option<Arc<AtomicBool>>, work: impl FnOnce() -> R) -> R {
    cpu::interruptible(flag, work)
}
