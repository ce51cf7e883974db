//! Log messages: [`tracing`](https://docs.rs/tracing) events with the target `bornite`, which a
//! program routes with a subscriber of its choice. In a program without a subscriber they are
//! written to stderr, up to the level set by `BORNITE_LOG` or [`set_level`]: `error`, `warn` (the
//! default), `info`, `debug`.
//!
//! ```
//! use bornite_support::log::{self, LogLevel};
//! log::set_level(LogLevel::Info);
//! bornite_support::log!(Info, "compiled {} kernels", 3);
//! assert!(!log::enabled(LogLevel::Debug));
//! ```

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use tracing::subscriber::NoSubscriber;

use crate::Result;
use crate::settings::{LOG_VARIABLE, parse_choice, read};

/// Severity of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Something failed.
    Error = 1,
    /// Something works, but not as intended.
    Warn = 2,
    /// Slow operations and changes of files.
    Info = 3,
    /// Everything.
    Debug = 4,
}

impl LogLevel {
    pub(crate) const NAMES: [(&str, LogLevel); 4] =
        [("error", LogLevel::Error), ("warn", LogLevel::Warn), ("info", LogLevel::Info), ("debug", LogLevel::Debug)];

    fn name(self) -> &'static str {
        LogLevel::NAMES[self as usize - 1].0
    }
}

/// Current level; 0 until the environment is read.
static LEVEL: AtomicU8 = AtomicU8::new(0);

/// Reads `BORNITE_LOG`. Without this call an invalid value counts as unset.
pub fn init() -> Result<LogLevel> {
    let level = read(LOG_VARIABLE, LogLevel::Warn, |value| parse_choice(value, &LogLevel::NAMES))?;
    set_level(level);
    Ok(level)
}

/// Sets the maximum level of messages, overriding the environment.
pub fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Returns true if messages of this level are written.
#[inline]
pub fn enabled(level: LogLevel) -> bool {
    match LEVEL.load(Ordering::Relaxed) {
        0 => level <= init_level(),
        max_level => level as u8 <= max_level,
    }
}

#[cold]
fn init_level() -> LogLevel {
    init().unwrap_or_else(|_| {
        set_level(LogLevel::Warn);
        LogLevel::Warn
    })
}

/// Writes a line to stderr. [`crate::log!`] checks [`enabled`] first.
pub fn write(level: LogLevel, args: fmt::Arguments<'_>) {
    crate::progress::print_line(&format!("bornite {}: {args}", level.name()));
}

/// Returns true if the program has a `tracing` subscriber, which then decides what happens to
/// messages.
pub fn has_subscriber() -> bool {
    // The subscriber of this thread, or of the whole program.
    let is_some = |dispatch: &tracing::Dispatch| !dispatch.is::<NoSubscriber>();
    tracing::dispatcher::has_been_set() && tracing::dispatcher::get_default(is_some)
}

/// Logs a message: a [`LogLevel`](crate::log::LogLevel) by its name, then as in `format!`.
#[macro_export]
macro_rules! log {
    ($level:ident, $($args:tt)+) => {
        if $crate::log::has_subscriber() {
            $crate::log_event!($level, $($args)+);
        } else if $crate::log::enabled($crate::log::LogLevel::$level) {
            $crate::log::write($crate::log::LogLevel::$level, ::std::format_args!($($args)+));
        }
    };
}

/// A message as an event of `tracing`.
#[doc(hidden)]
#[macro_export]
macro_rules! log_event {
    (Error, $($args:tt)+) => { $crate::tracing::error!(target: "bornite", $($args)+) };
    (Warn, $($args:tt)+) => { $crate::tracing::warn!(target: "bornite", $($args)+) };
    (Info, $($args:tt)+) => { $crate::tracing::info!(target: "bornite", $($args)+) };
    (Debug, $($args:tt)+) => { $crate::tracing::debug!(target: "bornite", $($args)+) };
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Collects messages with their level and target.
    #[derive(Clone, Default)]
    struct Collect(Arc<Mutex<Vec<String>>>);

    struct Message(String);

    impl Visit for Message {
        fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
            self.0 = format!("{value:?}");
        }
    }

    impl Subscriber for Collect {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::INFO
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut message = Message(String::new());
            event.record(&mut message);
            let metadata = event.metadata();
            self.0.lock().unwrap().push(format!("{} {}: {}", metadata.level(), metadata.target(), message.0));
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_subscriber_gets_the_messages_that_it_wants() {
        let collected = Collect::default();
        tracing::subscriber::with_default(collected.clone(), || {
            let count = 3;
            crate::log!(Info, "compiled {count} kernels");
            crate::log!(Warn, "the cache is {}", "full");
            crate::log!(Debug, "not wanted");
        });
        let messages = collected.0.lock().unwrap();
        assert_eq!(*messages, ["INFO bornite: compiled 3 kernels", "WARN bornite: the cache is full"]);
    }
}
