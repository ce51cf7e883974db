//! Stream capture of this thread: its launches and copies are captured, and it must not allocate
//! meanwhile.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

thread_local! {
    /// Ordinal of the device that this thread is capturing on.
    static CAPTURING: Cell<Option<usize>> = const { Cell::new(None) };
    /// Distinct kernels of the capture.
    static KERNELS: RefCell<Vec<Arc<str>>> = const { RefCell::new(Vec::new()) };
}

/// Returns true if this thread is capturing on the device.
pub(crate) fn is_capturing(ordinal: usize) -> bool {
    CAPTURING.get() == Some(ordinal)
}

/// Records a kernel of the capture, for the graph's name in error reports.
pub(crate) fn record_kernel(name: &Arc<str>) {
    KERNELS.with_borrow_mut(|kernels| {
        if !kernels.contains(name) {
            kernels.push(name.clone());
        }
    });
}

/// Marks this thread as capturing until dropped.
pub(crate) struct CaptureGuard {
    before: Option<usize>,
}

impl CaptureGuard {
    pub fn begin(ordinal: usize) -> CaptureGuard {
        KERNELS.take();
        CaptureGuard { before: CAPTURING.replace(Some(ordinal)) }
    }

    /// Returns the kernels recorded so far.
    pub fn kernels(&self) -> Vec<Arc<str>> {
        KERNELS.take()
    }
}

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        CAPTURING.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_per_thread_and_ends_with_its_guard() {
        assert!(!is_capturing(0));
        let capture = CaptureGuard::begin(0);
        assert!(is_capturing(0) && !is_capturing(1));
        assert!(!std::thread::spawn(|| is_capturing(0)).join().unwrap());
        for name in ["a", "b", "a"] {
            record_kernel(&name.into());
        }
        assert_eq!(capture.kernels().len(), 2);
        drop(capture);
        assert!(!is_capturing(0));
        let _ = std::panic::catch_unwind(|| {
            let _capture = CaptureGuard::begin(3);
            panic!("in a capture");
        });
        assert!(!is_capturing(3));
    }
}
