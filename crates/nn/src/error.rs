//! What can go wrong: few kinds, each message complete.

/// An error of this crate.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that cannot be.
    #[error("{0}")]
    Config(String),
    /// Something with tensors.
    #[error(transparent)]
    Tensor(#[from] bornite::Error),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
