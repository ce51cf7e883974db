//! NaN check: computes one operation at a time and checks each result for NaN and infinity.

use bornite_support::settings::{CHECK_VARIABLE, Switch};

use crate::ops::display::values;
use crate::schedule::{nodes_to_compute, realize_unchecked};
use crate::{Error, Result, Tensor};

static MODE: Switch = Switch::new(CHECK_VARIABLE, [("off", false), ("nan", true)], false);

/// If set, a read fails with the name and source location of the first operation that produces a
/// NaN or an infinity from inputs without one. Same as `BORNITE_CHECK=nan`, which it overrides.
/// This is slow: every operation is computed separately and read back. Traces and commits are not
/// checked.
///
/// ```
/// use bornite::{Device, Tensor, settings::check_nan};
/// check_nan(true);
/// let x = Tensor::from_slice(&[1.0f32, 0.0], &[2], Device::cpu());
/// let error = (x.log() * 2.0).sum(..).item().unwrap_err().to_string();
/// assert!(error.starts_with("log: produced -inf at [1]"), "{error}");
/// ```
pub fn check_nan(on: bool) {
    MODE.set(on);
}

pub(crate) fn enabled() -> Result<bool> {
    Ok(MODE.get()?)
}

/// Computes `tensors` node by node, in order of id.
pub(crate) fn realize(tensors: &[Tensor]) -> Result<()> {
    let missing: Vec<Tensor> = tensors.iter().filter(|t| !t.0.has_value()).cloned().collect();
    for tensor in nodes_to_compute(&missing)?.into_values() {
        realize_unchecked(std::slice::from_ref(&tensor))?;
        examine(&tensor)?;
    }
    Ok(())
}

/// Fails if the node has a NaN and no input does, or an infinity and every input is finite.
fn examine(tensor: &Tensor) -> Result<()> {
    let node = tensor.node()?;
    // Constants are intended; the values of a view were checked at its input.
    if !node.dtype.is_float() || node.op.is_constant() || node.op.is_view() {
        return Ok(());
    }
    let found = values(tensor)?;
    let first_new = |bad: fn(f64) -> bool| -> Result<Option<usize>> {
        let Some(at) = found.iter().position(|v| bad(v.as_f64())) else { return Ok(None) };
        for input in node.reads().iter().filter(|input| input.0.dtype.is_float()) {
            realize_unchecked(std::slice::from_ref(input))?;
            if values(input)?.iter().any(|v| bad(v.as_f64())) {
                return Ok(None);
            }
        }
        Ok(Some(at))
    };
    let bad = match first_new(f64::is_nan)? {
        None => first_new(|v| !v.is_finite())?,
        at => at,
    };
    let Some(mut at) = bad else { return Ok(()) };
    let value = found[at].as_f64();
    let mut index = vec![0; node.shape.len()];
    for axis in (0..index.len()).rev() {
        (index[axis], at) = (at % node.shape[axis], at / node.shape[axis]);
    }
    let what =
        format!("produced {value} at {index:?} of {}{:?} from inputs without such values", node.dtype, node.shape);
    Err(Error::Op { op: node.name(), message: what, location: node.location })
}
