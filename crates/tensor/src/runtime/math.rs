//! Math functions of generated kernels on a GPU: CUDA's, or those that match the CPU bit for bit.

use bornite_support::settings::{MATH_VARIABLE, Switch};

use crate::Result;

static EXACT: Switch = Switch::new(MATH_VARIABLE, [("native", false), ("exact", true)], false);

/// If set, generated kernels compute exp, log and similar functions on a GPU with the same bits as
/// on the CPU. By default they use CUDA's functions, which are faster and accurate to a few ulp
/// (bounds in `docs/ops.md`). Same as `BORNITE_MATH=exact`, which it overrides. Applies to later
/// computations. The order of sums on a GPU differs from the CPU in any case.
pub fn set_exact_math(on: bool) {
    EXACT.set(on);
}

/// Returns true if exact math is set; see [`set_exact_math`]. An invalid `BORNITE_MATH` is an
/// error.
#[track_caller]
pub fn is_exact_math() -> Result<bool> {
    Ok(EXACT.get()?)
}
