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
pub(crate) fn capturing(ordinal: usize) -> bool {
    CAPTURING.get() == Some(ordinal)
}

/// Remembers a kernel of the capture, for the graph's name in error reports.
pub(crate) fn note_kernel(name: &Arc<str>) {
    KERNELS.with_borrow_mut(|kernels| {
        if !kernels.contains(name) {
            kernels.push(name.clone());
        }
    });
}

/// Marks this thread as capturing until dropped, also by a panic.
pub(crate) struct Capturing {
    before: Option<usize>,
}

impl Capturing {
    pub fn begin(ordinal: usize) -> Capturing {
        KERNELS.take();
        Capturing { before: CAPTURING.replace(Some(ordinal)) }
    }

    /// The kernels noted so far.
    pub fn kernels(&self) -> Vec<Arc<str>> {
        KERNELS.take()
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        CAPTURING.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_this_threads_and_ends_with_its_guard() {
        assert!(!capturing(0));
        let capture = Capturing::begin(0);
        assert!(capturing(0) && !capturing(1));
        assert!(!std::thread::spawn(|| capturing(0)).join().unwrap());
        for name in ["a", "b", "a"] {
            note_kernel(&name.into());
        }
        assert_eq!(capture.kernels().len(), 2);
        drop(capture);
        assert!(!capturing(0));
        let _ = std::panic::catch_unwind(|| {
            let _capture = Capturing::begin(3);
            panic!("in a capture");
        });
        assert!(!capturing(3));
    }
}
