//! Settings that are on or off.

use std::sync::atomic::{AtomicU8, Ordering};

use super::{parse_choice, read};
use crate::Result;

/// A setting of the process that is on or off: as code sets it, else as an environment variable says when it is first asked.
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
/// Neither code nor the environment has been asked.
const UNREAD: u8 = 2;

impl Switch {
    /// A switch that a variable sets by one of two words.
    pub const fn new(variable: &'static str, choices: [(&'static str, bool); 2], default: bool) -> Switch {
        Switch { variable, choices, default, state: AtomicU8::new(UNREAD) }
    }

    /// Turns it on or off, whatever the environment says.
    pub fn set(&self, on: bool) {
        self.state.store(if on { ON } else { OFF }, Ordering::Relaxed);
    }

    /// Whether it is on; an error where the variable has another word.
    pub fn get(&self) -> Result<bool> {
        if self.state.load(Ordering::Relaxed) == UNREAD {
            let on = read(self.variable, self.default, |value| parse_choice(value, &self.choices))?;
            // A value that code has set meanwhile takes precedence.
            let _ =
                self.state.compare_exchange(UNREAD, if on { ON } else { OFF }, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(self.is_on())
    }

    /// Whether it is on, after a successful [`get`](Switch::get) or [`set`](Switch::set).
    #[inline]
    pub fn is_on(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ON
    }
}
