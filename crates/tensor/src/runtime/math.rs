//! Which functions kernels of tensors compute with on a GPU: CUDA's own, or those that give the CPU's bits.

use bornite_support::settings::{MATH_VARIABLE, Switch};

use crate::Result;

static EXACT: Switch = Switch::new(MATH_VARIABLE, [("native", false), ("exact", true)], false);

/// Whether kernels of tensors compute exponentials, logarithms and the like on a GPU as the CPU does, to the bit. Off (the
/// default), they use CUDA's functions, which are faster and within a few units in the last place too (`docs/ops.md` has
/// the bounds). As `BORNITE_MATH=exact`, over which this wins. It is for what is computed after it; sums on a GPU are made in
/// another order in any case.
pub fn set_exact_math(on: bool) {
    EXACT.set(on);
}

/// Whether kernels of tensors compute these functions on a GPU as the CPU does; an error where `BORNITE_MATH` cannot be
/// read.
#[track_caller]
pub fn is_exact_math() -> Result<bool> {
    Ok(EXACT.get()?)
}
