//! Interruption of work on the CPU by a flag that another thread or a signal handler sets.
//!
//! [`interruptible`] names the flag. Work whose results the caller can throw away runs in [`discardable`]: once the flag is set,
//! the threads of [`pool::parallel_for`](super::pool::share) skip the parts that they have not begun.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The interrupt of a thread.
#[derive(Clone)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    /// Set when the flag was first seen set: skipped parts stay skipped, whatever happens to the flag.
    seen: Arc<AtomicBool>,
    /// Whether parts may be skipped.
    skips: bool,
}

thread_local! {
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

impl Interrupt {
    /// The interrupt that this thread's work is subject to.
    pub fn current() -> Option<Interrupt> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// True once the flag was set.
    pub fn is_requested(&self) -> bool {
        let requested = self.flag.load(Ordering::Relaxed) || self.seen.load(Ordering::Relaxed);
        if requested {
            self.seen.store(true, Ordering::Relaxed);
        }
        requested
    }

    /// The interrupt for which parts of the current work may be skipped.
    pub(super) fn current_discardable() -> Option<Interrupt> {
        Interrupt::current().filter(|interrupt| interrupt.skips)
    }
}

/// Runs `work`, which can be interrupted by setting `flag`; without a flag it cannot, whatever the caller's flag is.
pub fn interruptible<R>(flag: Option<Arc<AtomicBool>>, work: impl FnOnce() -> R) -> R {
    within(flag.map(|flag| Interrupt { flag, seen: Arc::default(), skips: false }), work)
}

/// True if this thread's work should end.
pub fn is_interrupted() -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(Interrupt::is_requested))
}

/// Runs `work`, of which parts are skipped if it is interrupted; `None` if it was: then nothing that it wrote can be used.
pub fn discardable<R>(work: impl FnOnce() -> R) -> Option<R> {
    let Some(interrupt) = Interrupt::current() else { return Some(work()) };
    if interrupt.is_requested() {
        return None;
    }
    let done = within(Some(Interrupt { skips: true, ..interrupt.clone() }), work);
    (!interrupt.is_requested()).then_some(done)
}

fn within<R>(interrupt: Option<Interrupt>, work: impl FnOnce() -> R) -> R {
    // Ends the scope also if `work` panics.
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
    fn parts_are_skipped_only_where_results_are_discarded() {
        for threads in [1, 2, 5] {
            let (flag, done) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
            let work = || {
                parallel_for(1000, threads, &|part| {
                    done.fetch_add(1, Ordering::Relaxed);
                    flag.store(part >= 10, Ordering::Relaxed);
                });
            };
            let outcome = interruptible(Some(flag.clone()), || discardable(work));
            assert_eq!(outcome, None);
            assert!(done.swap(0, Ordering::Relaxed) < 1000);
            // Neither begun again nor usable, although the last part may have cleared the flag.
            let again = interruptible(Some(flag.clone()), || {
                flag.store(true, Ordering::Relaxed);
                assert!(is_interrupted());
                flag.store(false, Ordering::Relaxed);
                discardable(work)
            });
            assert_eq!((again, done.load(Ordering::Relaxed)), (None, 0));
            // Work that must be finished is.
            flag.store(true, Ordering::Relaxed);
            interruptible(Some(flag.clone()), work);
            interruptible(Some(flag.clone()), || interruptible(None, || discardable(work))).unwrap();
            assert_eq!(done.load(Ordering::Relaxed), 2000);
            assert!(!is_interrupted());
        }
    }
}
