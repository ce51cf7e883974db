//! Dialects and options of printed text.

use crate::cuda::MathMode;

/// For whom the text is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Cuda(MathMode),
    Cpp,
}

/// Options of the text.
#[derive(Clone, Copy)]
pub(crate) struct PrintOptions {
    pub dialect: Dialect,
    /// Whether indices are checked where they are used.
    pub checked: bool,
    /// Whether pointers are `__restrict__`: the caller promises that no two of them overlap.
    pub restrict: bool,
}
