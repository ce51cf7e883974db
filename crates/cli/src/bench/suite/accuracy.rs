//! Error of a row: its results beside those of the same operation in f64, on the same inputs and
//! device.

use bornite::{DType, Tensor, Var};
use bornite_bench::Accuracy;

use super::Results;

/// Limits past which a comparison would take longer than the measurement.
const MAX_ELEMENTS: usize = 1 << 24;
const MAX_FLOPS: u64 = 1 << 32;

/// Largest allowed error of results of a type, relative to the largest value.
fn threshold(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2e-2,
        DType::F16 => 2e-3,
        _ => 1e-4,
    }
}

/// Compares the first results of `run` with `op` in f64; `None` if there are none or they are too
/// large.
pub fn of(
    flops: Option<u64>,
    inputs: &[Var],
    op: &(dyn Fn(&[Var]) -> Results + Send + Sync),
    run: impl FnOnce() -> bornite::Result<Vec<Tensor>>,
    limit: Option<f64>,
) -> bornite::Result<Option<Accuracy>> {
    let elements = |tensors: &[Tensor]| -> bornite::Result<usize> {
        tensors.iter().map(|tensor| Ok(tensor.shape()?.iter().product::<usize>())).sum()
    };
    let tensors: Vec<Tensor> = inputs.iter().map(Var::get).collect();
    if elements(&tensors)? > MAX_ELEMENTS || flops.is_some_and(|flops| flops > MAX_FLOPS) {
        return Ok(None);
    }
    let wide = tensors.iter().map(|tensor| Var::new(&tensor.cast(DType::F64))).collect::<bornite::Result<Vec<_>>>()?;
    let reference = op(&wide).0;
    if reference.is_empty() || elements(&reference)? > MAX_ELEMENTS {
        return Ok(None);
    }
    let mut worst: Option<Accuracy> = None;
    for (found, reference) in run()?.iter().zip(&reference) {
        let limit = limit.unwrap_or(threshold(found.dtype()?));
        let values = |tensor: &Tensor| tensor.cast(DType::F64).to_vec::<f64>();
        let accuracy = Accuracy::of(&values(found)?, &values(reference)?, limit);
        let order = |accuracy: &Accuracy| accuracy.error.unwrap_or(f64::INFINITY);
        if worst.is_none_or(|worst| order(&accuracy) > order(&worst)) {
            worst = Some(accuracy);
        }
    }
    Ok(worst)
}
