//! Errors of settings, caches on disk and timers.

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of a setting, a cache on disk or a timer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// An environment variable has an invalid value.
    #[error("{variable}={value}: {reason}")]
    InvalidSetting {
        /// Name of the variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// Reason why it is invalid.
        reason: String,
    },
    /// A string is not a size in bytes.
    #[error("'{text}' is not a size: {reason}. Write a number and a unit, such as 512MB or 1.5 GiB")]
    InvalidSize {
        /// The string.
        text: String,
        /// Reason why it is invalid.
        reason: String,
    },
    /// A number is not a fraction between 0 and 1.
    #[error("{value} is not a fraction of the device's memory: it must lie between 0 and 1, such as 0.9")]
    InvalidFraction {
        /// The number.
        value: f64,
    },
    /// The cache on disk is disabled or cannot be accessed.
    #[error("kernel cache: {reason}")]
    CacheUnavailable {
        /// Reason.
        reason: String,
    },
    /// Work on a device could not be timed; the message is the device's.
    #[error("{0}")]
    TimingFailed(String),
}
