//! Which capture this thread is in: its launches and copies go there, and it may not allocate meanwhile.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

thread_local! {
    /// The ordinal of the device this thread captures on.
    static CAPTURING: Cell<Option<usize>> = const { Cell::new(None) };
    /// Kernels that the capture holds, each once.
    static KERNELS: RefCell<Vec<Arc<str>>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread captures on the device.
pub(crate) fn is_capturing(ordinal: usize) -> bool {
    CAPTURING.get() == Some(ordinal)
}

/// Remembers a kernel of the capture, for the graph's name in error reports.
pub(crate) fn record_kernel(name: &Arc<str>) {
    KERNELS.with_borrow_mut(|kernels| {
        if !kernels.contains(name) {
            kernels.push(name.clone());
        }
    });
}

/// Marks this thread as capturing until dropped, also by a panic.
pub(crate) struct CaptureGuard {
    before: Option<usize>,
}

impl CaptureGuard {
    pub fn begin(ordinal: usize) -> CaptureGuard {
        KERNELS.take();
        CaptureGuard { before: CAPTURING.replace(Some(ordinal)) }
    }

    /// The kernels noted so far.
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
    fn a_capture_is_this_threads_and_ends_with_its_guard() {
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
