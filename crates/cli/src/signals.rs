//! Signal handling: the first signal lets a command save and exit with code 75, or ends it if there
//! is nothing to save.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bornite_support::progress;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::{flag, low_level};

use crate::{Failure, note};

/// Exit code of an interrupted command that can be resumed.
pub const STOPPED: u8 = 75;

/// Grace period of a command with nothing to save: some work, such as compilation, cannot be
/// interrupted.
const GRACE: Duration = Duration::from_millis(600);
const POLL: Duration = Duration::from_millis(20);

/// Flags shared with the signal handlers.
#[derive(Clone, Default)]
pub struct Signals {
    /// Set by a signal.
    pub stop: Arc<AtomicBool>,
    /// Set while an exit at once would lose work.
    pub unsaved: Arc<AtomicBool>,
}

impl Signals {
    /// Watches SIGINT, SIGTERM, SIGUSR1 and, unless it is ignored as under `nohup`, SIGHUP. A
    /// second SIGINT ends the process at once. `message` is printed if the process has to be ended
    /// while it is at work.
    pub fn watch(message: String) -> Result<Signals, Failure> {
        let (signals, interrupted) = (Signals::default(), Arc::new(AtomicBool::new(false)));
        // Registered first, so that only a second interrupt finds the flag set.
        flag::register_conditional_shutdown(SIGINT, 130, interrupted.clone())?;
        flag::register(SIGINT, interrupted)?;
        for signal in [SIGINT, SIGTERM, SIGUSR1].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP)) {
            flag::register(signal, signals.stop.clone())?;
        }
        let watched = signals.clone();
        let end = move || {
            let mut idle = Duration::ZERO;
            while idle < GRACE {
                std::thread::sleep(POLL);
                let stop = watched.stop.load(Ordering::Relaxed);
                if stop {
                    // A second SIGINT exits without clearing the terminal.
                    progress::close();
                }
                let safe = stop && !watched.unsaved.load(Ordering::Relaxed);
                // Restarts after a save: the remaining work is short.
                idle = if safe { idle + POLL } else { Duration::ZERO };
            }
            note(&message);
            // Without exit handlers: other threads are still running.
            low_level::exit(STOPPED.into());
        };
        // Without this thread the command still stops at its next check of the flag.
        let _ = std::thread::Builder::new().name("bornite-signals".into()).spawn(end);
        Ok(signals)
    }
}

/// Returns true if this process was started with the signal ignored; false if unknown.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
