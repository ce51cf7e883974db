//! A few words on stderr, as many as `BORNITE_LOG` or [`set_level`] ask for: `error`, `warn` (the default), `info`, `debug`.
//!
//! Own and tiny: one atomic load where nothing is told, no dependency, no logger to install.
//!
//! ```
//! use bornite_cuda::log::{self, Level};
//! log::set_level(Level::Info);
//! bornite_cuda::log!(Info, "compiled {} kernels", 3);
//! assert!(!log::enabled(Level::Debug));
//! ```

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::Result;
use crate::settings::{LOG_VARIABLE, choose, read};

/// How much something matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Something failed.
    Error = 1,
    /// Something works, but not as it should.
    Warn = 2,
    /// What takes long or changes files.
    Info = 3,
    /// Everything.
    Debug = 4,
}

impl Level {
    pub(crate) const NAMES: [(&str, Level); 4] =
        [("error", Level::Error), ("warn", Level::Warn), ("info", Level::Info), ("debug", Level::Debug)];

    fn name(self) -> &'static str {
        Level::NAMES[self as usize - 1].0
    }
}

/// 0: the environment was not read yet.
static LEVEL: AtomicU8 = AtomicU8::new(0);

/// Reads `BORNITE_LOG`. Without this call a value that cannot be read counts as none.
pub fn init() -> Result<Level> {
    let level = read(LOG_VARIABLE, Level::Warn, |value| choose(value, &Level::NAMES))?;
    set_level(level);
    Ok(level)
}

/// Has things told up to this level, whatever the environment says.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Whether things of this level are told.
#[inline]
pub fn enabled(level: Level) -> bool {
    match LEVEL.load(Ordering::Relaxed) {
        0 => level <= first_level(),
        told => level as u8 <= told,
    }
}

#[cold]
fn first_level() -> Level {
    init().unwrap_or_else(|_| {
        set_level(Level::Warn);
        Level::Warn
    })
}

/// Writes a line to stderr; [`crate::log!`] asks [`enabled`] first.
pub fn write(level: Level, words: fmt::Arguments<'_>) {
    // One call, so that lines of several threads do not mix. A closed stderr is nobody's error.
    let _ = std::io::stderr().write_all(format!("bornite {}: {words}\n", level.name()).as_bytes());
}

/// Tells something: a [`Level`](crate::log::Level) by its name, then as in `format!`.
#[macro_export]
macro_rules! log {
    ($level:ident, $($words:tt)+) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::write($crate::log::Level::$level, ::std::format_args!($($words)+));
        }
    };
}
