//! Dialects and options of generated source.

use crate::cuda::MathMode;

/// Dialect of generated source.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Cuda(MathMode),
    Cpp,
}

/// Options of generated source.
#[derive(Clone, Copy)]
pub(crate) struct PrintOptions {
    pub dialect: Dialect,
    /// If set, indices are bounds-checked.
    pub checked: bool,
    /// If set, pointers are `__restrict__`: the caller guarantees that no two of them overlap.
    pub restrict: bool,
}
