//! Interruption of CPU work by a flag that another thread or a signal handler sets.
//!
//! [`interruptible`] sets the flag of the current work. Work whose results the caller can discard
//! runs in [`discardable`]: once the flag is set, [`pool::parallel_for`](super::pool::parallel_for)
//! skips the tasks that have not begun.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Interrupt of the current thread's work.
#[derive(Clone)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    /// Set once the flag has been observed: skipped tasks stay skipped even if the flag is cleared.
    seen: Arc<AtomicBool>,
    /// True if tasks may be skipped.
    skips: bool,
}

thread_local! {
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

impl Interrupt {
    /// Returns the interrupt of this thread's work.
    pub fn current() -> Option<Interrupt> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Returns true once the flag has been set.
    pub fn is_requested(&self) -> bool {
        let requested = self.flag.load(Ordering::Relaxed) || self.seen.load(Ordering::Relaxed);
        if requested {
            self.seen.store(true, Ordering::Relaxed);
        }
        requested
    }

    /// Returns the interrupt if tasks of the current work may be skipped.
    pub(super) fn current_discardable() -> Option<Interrupt> {
        Interrupt::current().filter(|interrupt| interrupt.skips)
    }
}

/// Runs `work`, which can be interrupted by setting `flag`. Without a flag it cannot be
/// interrupted, regardless of the caller's flag.
pub fn interruptible<R>(flag: Option<Arc<AtomicBool>>, work: impl FnOnce() -> R) -> R {
    within(flag.map(|flag| Interrupt { flag, seen: Arc::default(), skips: false }), work)
}

/// Returns true if this thread's work should stop.
pub fn is_interrupted() -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(Interrupt::is_requested))
}

/// Runs `work`; if it is interrupted, remaining tasks are skipped. Returns `None` in that case: its
/// outputs are incomplete.
pub fn discardable<R>(work: impl FnOnce() -> R) -> Option<R> {
    let Some(interrupt) = Interrupt::current() else { return Some(work()) };
    if interrupt.is_requested() {
        return None;
    }
    let done = within(Some(Interrupt { skips: true, ..interrupt.clone() }), work);
    (!interrupt.is_requested()).then_some(done)
}

fn within<R>(interrupt: Option<Interrupt>, work: impl FnOnce() -> R) -> R {
    // Restores the previous interrupt, also if `work` panics.
    struct Scope(Option<Interrupt>);
    impl Drop for Scope {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _scope = Scope(CURRENT.replace(interrupt));
    work()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::cpu::pool::parallel_for;

    #[test]
    fn tasks_are_skipped_only_if_results_are_discarded() {
        for threads in [1, 2, 5] {
            let (flag, done) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
            let work = || {
                parallel_for(1000, threads, &|task| {
                    done.fetch_add(1, Ordering::Relaxed);
                    flag.store(task >= 10, Ordering::Relaxed);
                });
            };
            let outcome = interruptible(Some(flag.clone()), || discardable(work));
            assert_eq!(outcome, None);
            assert!(done.swap(0, Ordering::Relaxed) < 1000);
            // Neither restarted nor usable, although the last task may have cleared the flag.
            let again = interruptible(Some(flag.clone()), || {
                flag.store(true, Ordering::Relaxed);
                assert!(is_interrupted());
                flag.store(false, Ordering::Relaxed);
                discardable(work)
            });
            assert_eq!((again, done.load(Ordering::Relaxed)), (None, 0));
            // Work outside `discardable` is completed.
            flag.store(true, Ordering::Relaxed);
            interruptible(Some(flag.clone()), work);
            interruptible(Some(flag.clone()), || interruptible(None, || discardable(work))).unwrap();
            assert_eq!(done.load(Ordering::Relaxed), 2000);
            assert!(!is_interrupted());
        }
    }
}
