//! Boolean settings.

use std::sync::atomic::{AtomicU8, Ordering};

use super::{parse_choice, read};
use crate::Result;

/// A boolean setting of the process: set in code, else read from an environment variable on first
/// use.
///
/// ```
/// use bornite_support::settings::Switch;
/// static CHECKS: Switch = Switch::new("BORNITE_TEST_CHECKS", [("off", false), ("nan", true)], false);
/// assert!(!CHECKS.get()?);
/// CHECKS.set(true);
/// assert!(CHECKS.get()?);
/// # Ok::<(), bornite_support::Error>(())
/// ```
pub struct Switch {
    variable: &'static str,
    choices: [(&'static str, bool); 2],
    default: bool,
    state: AtomicU8,
}

const OFF: u8 = 0;
const ON: u8 = 1;
/// Neither set in code nor read from the environment yet.
const UNREAD: u8 = 2;

impl Switch {
    /// Creates a setting that a variable sets by one of two choices.
    pub const fn new(variable: &'static str, choices: [(&'static str, bool); 2], default: bool) -> Switch {
        Switch { variable, choices, default, state: AtomicU8::new(UNREAD) }
    }

    /// Turns it on or off, overriding the environment.
    pub fn set(&self, on: bool) {
        self.state.store(if on { ON } else { OFF }, Ordering::Relaxed);
    }

    /// Returns true if it is on; fails if the variable has another value.
    pub fn get(&self) -> Result<bool> {
        if self.state.load(Ordering::Relaxed) == UNREAD {
            let on = read(self.variable, self.default, |value| parse_choice(value, &self.choices))?;
            // A value that was set in code in the meantime takes precedence.
            let _ =
                self.state.compare_exchange(UNREAD, if on { ON } else { OFF }, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(self.is_on())
    }

    /// Returns true if it is on. Valid after a successful [`get`](Switch::get) or
    /// [`set`](Switch::set).
    #[inline]
    pub fn is_on(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ON
    }
}
