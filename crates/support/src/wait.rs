//! Time that a thread spends waiting for devices. The rest of a step's time is host overhead.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static TOTAL_WAIT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static IS_WAITING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, which waits for a device or is the work of the host as a device, and adds its time
/// to [`device_wait_time`]. Nested calls count once.
pub fn time_device_wait<R>(work: impl FnOnce() -> R) -> R {
    /// Ends the wait, also if `work` panics.
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

/// Total time that this thread has waited for devices.
///
/// ```
/// use std::time::Duration;
/// let before = bornite_support::device_wait_time();
/// bornite_support::time_device_wait(|| std::thread::sleep(Duration::from_millis(5)));
/// assert!(bornite_support::device_wait_time() - before >= Duration::from_millis(5));
/// ```
pub fn device_wait_time() -> Duration {
    TOTAL_WAIT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_waits_count_once_and_other_threads_do_not_count() {
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
