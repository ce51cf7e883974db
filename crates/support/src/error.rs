//! Errors of settings, caches on disk and clocks.

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of reason CPU and GPU share.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A setting has a value that cannot be used.
    #[error("{variable}={value}: {reason}")]
    InvalidSetting {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// Reason.
        reason: String,
    },
    /// A text is not a size.
    #[error("'{text}' is not a size: {reason}. Write a number and a unit, such as 512MB or 1.5 GiB")]
    InvalidSize {
        /// The text.
        text: String,
        /// Reason.
        reason: String,
    },
    /// A number is not a share of a whole.
    #[error("{value} is not a fraction of the device's memory: it must lie between 0 and 1, such as 0.9")]
    InvalidFraction {
        /// The number.
        value: f64,
    },
    /// The kernel cache was to be listed or cleared, and cannot be.
    #[error("the kernel cache: {reason}")]
    CacheUnavailable {
        /// Why not.
        reason: String,
    },
    /// Work could not be timed, in the words of the device.
    #[error("{0}")]
    TimingFailed(String),
}
