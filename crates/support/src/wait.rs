//! Time that a thread has waited for devices. The rest of a step's time is the host's own.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static TOTAL_WAIT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static IS_WAITING: Cell<bool> = const { Cell::new(false) };
}

/// Does what is waiting for a device, or, where the device is the host, its work. What is done within counts once.
pub fn time_device_wait<R>(work: impl FnOnce() -> R) -> R {
    /// Ends the wait, also where `work` panics.
    struct WaitGuard(Instant);
    impl Drop for WaitGuard {
        fn drop(&mut self) {
            IS_WAITING.set(false);
            TOTAL_WAIT.set(TOTAL_WAIT.get() + self.0.elapsed());
        }
    }
    if IS_WAITING.replace(true) {
        return work();
    }
    let _since = WaitGuard(Instant::now());
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
pub fn device_wait_time() -> Duration {
    TOTAL_WAIT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_within_waits_count_once_and_other_threads_not_at_all() {
        let (begun, pause) = (Instant::now(), || std::thread::sleep(Duration::from_millis(3)));
        time_device_wait(|| {
            pause();
            time_device_wait(pause);
            let other = std::thread::spawn(move || {
                time_device_wait(pause);
                device_wait_time()
            });
            assert!(other.join().unwrap() >= Duration::from_millis(3));
        });
        assert!(
            device_wait_time() >= Duration::from_millis(9) && device_wait_time() <= begun.elapsed(),
            "{:?}",
            device_wait_time()
        );
        let before = device_wait_time();
        pause();
        assert_eq!(device_wait_time(), before);
        let panicked = std::panic::catch_unwind(|| time_device_wait(|| panic!("on purpose")));
        time_device_wait(pause);
        assert!(panicked.is_err() && device_wait_time() > before);
    }
}
