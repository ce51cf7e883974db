//! Which functions kernels of tensors compute with on a GPU: CUDA's own, or those that give the CPU's bits.

use std::sync::atomic::{AtomicU8, Ordering};

use bornite_support::settings::{self, MATH_VARIABLE};

use crate::Result;

const UNKNOWN: u8 = 0;
const NATIVE: u8 = 1;
const EXACT: u8 = 2;
static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether kernels of tensors compute exponentials, logarithms and the like on a GPU as the CPU does, to the bit. Off (the
/// default), they use CUDA's functions, which are faster and within a few units in the last place too (`docs/ops.md` has
/// the bounds). As `BORNITE_MATH=exact`, over which this wins. It is for what is computed after it; sums on a GPU are made in
/// another order in any case.
pub fn set_exact_math(on: bool) {
    MODE.store(if on { EXACT } else { NATIVE }, Ordering::Relaxed);
}

/// Whether kernels of tensors compute these functions on a GPU as the CPU does; an error where `BORNITE_MATH` cannot be
/// read.
pub fn is_exact_math() -> Result<bool> {
    is_native().map(|native| !native)
}

pub(crate) fn is_native() -> Result<bool> {
    if MODE.load(Ordering::Relaxed) == UNKNOWN {
        let mode = settings::read(MATH_VARIABLE, NATIVE, |value| match value {
            "native" => Ok(NATIVE),
            "exact" => Ok(EXACT),
            _ => Err("use native or exact".into()),
        })?;
        // Code that spoke meanwhile wins.
        let _ = MODE.compare_exchange(UNKNOWN, mode, Ordering::Relaxed, Ordering::Relaxed);
    }
    Ok(MODE.load(Ordering::Relaxed) == NATIVE)
}
