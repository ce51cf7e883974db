//! Time that a thread has waited for devices. The rest of a step's time is the host's own.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// Does what is waiting for a device, or, where the device is the host, its work. What is done within counts once.
pub fn waiting<R>(work: impl FnOnce() -> R) -> R {
    /// Ends the wait, also where `work` panics.
    struct Since(Instant);
    impl Drop for Since {
        fn drop(&mut self) {
            WAITS.set(false);
            WAITED.set(WAITED.get() + self.0.elapsed());
        }
    }
    if WAITS.replace(true) {
        return work();
    }
    let _since = Since(Instant::now());
    work()
}

/// Time that this thread has waited for devices since it began.
///
/// ```
/// use std::time::Duration;
/// let before = bornite_support::waited();
/// bornite_support::waiting(|| std::thread::sleep(Duration::from_millis(5)));
/// assert!(bornite_support::waited() - before >= Duration::from_millis(5));
/// ```
pub fn waited() -> Duration {
    WAITED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_within_waits_count_once_and_other_threads_not_at_all() {
        let (begun, pause) = (Instant::now(), || std::thread::sleep(Duration::from_millis(3)));
        waiting(|| {
            pause();
            waiting(pause);
            let other = std::thread::spawn(move || {
                waiting(pause);
                waited()
            });
            assert!(other.join().unwrap() >= Duration::from_millis(3));
        });
        assert!(waited() >= Duration::from_millis(9) && waited() <= begun.elapsed(), "{:?}", waited());
        let before = waited();
        pause();
        assert_eq!(waited(), before);
        let panicked = std::panic::catch_unwind(|| waiting(|| panic!("on purpose")));
        waiting(pause);
        assert!(panicked.is_err() && waited() > before);
    }
}
