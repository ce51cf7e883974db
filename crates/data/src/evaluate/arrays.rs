//! Arrays during evaluation: element offsets, stores, and atomic updates in unspecified order.

use super::{ArrayContents, EvalError, EvalResult, EvalValue, Evaluator, Frame, Interval, half_ulp, wrap_int};
use crate::program::{ArrayId, AtomicOp, ProgramExpr, ScalarType};

impl ArrayContents {
    /// Adds the error bounds of atomic float sums: each addition may round by the magnitude of
    /// everything that is added.
    pub(super) fn apply_sum_bounds(&mut self) {
        for (n, (size, count)) in std::mem::take(&mut self.added).into_iter().enumerate() {
            if let EvalValue::Float(interval) = &mut self.cells[n]
                && count > 0
            {
                let half_ulp = half_ulp(self.scalars[n % self.scalars.len()]);
                interval.err += size * half_ulp * count as f64 * 1.01 + f64::MIN_POSITIVE;
            }
        }
    }
}

impl ArrayContents {
    /// True if every float has a finite error bound in its type: without one, any result would
    /// pass.
    pub(super) fn is_bounded(&self) -> bool {
        self.cells.iter().enumerate().all(|(n, cell)| match cell {
            EvalValue::Float(interval) => interval.to(self.scalars[n % self.scalars.len()]).err.is_finite(),
            _ => true,
        })
    }
}

impl<'p> Evaluator<'p, '_> {
    /// Offset of an element's first component in an array.
    pub(super) fn element_offset(
        &mut self,
        array: ArrayId,
        at: &'p [ProgramExpr],
        frame: &mut Frame,
    ) -> EvalResult<usize> {
        let mut offset = 0;
        for (n, index) in at.iter().enumerate() {
            let index = self.expr(index, frame)?.int();
            let extent = self.arrays[array.0 as usize].shape[n] as i64;
            if !(0..extent).contains(&index) {
                let name = &self.program.array(array).name;
                return Err(EvalError::Invalid(format!(
                    "index {index} is out of bounds of '{name}', which has extent {extent}"
                )));
            }
            offset = offset * extent as usize + index as usize;
        }
        Ok(offset * self.arrays[array.0 as usize].scalars.len())
    }

    pub(super) fn store(&mut self, array: ArrayId, offset: usize, value: EvalValue) -> EvalResult<()> {
        let contents = &mut self.arrays[array.0 as usize];
        let check = |scalar: ScalarType, value: EvalValue| match value {
            EvalValue::Float(interval) if !interval.mid.is_finite() => {
                Err(EvalError::Invalid("a value is not finite".into()))
            }
            EvalValue::Float(interval) if !interval.err.is_finite() => Err(EvalError::Undecided),
            EvalValue::Bool(None) => Err(EvalError::Undecided),
            EvalValue::Int(value) => Ok(EvalValue::Int(wrap_int(scalar, value))),
            value => Ok(value),
        };
        match value {
            EvalValue::Composite(parts) => {
                for (n, part) in parts.into_iter().enumerate() {
                    contents.cells[offset + n] = check(contents.scalars[n], part)?;
                }
            }
            value => contents.cells[offset] = check(contents.scalars[0], value)?,
        }
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        update: AtomicOp,
        array: ArrayId,
        offset: usize,
        value: EvalValue,
    ) -> EvalResult<()> {
        let contents = &mut self.arrays[array.0 as usize];
        let scalar = contents.scalars[0];
        let before = contents.cells[offset].clone();
        contents.cells[offset] = match (before, value) {
            (EvalValue::Float(before), EvalValue::Float(value)) => {
                if !value.mid.is_finite() || !value.err.is_finite() {
                    return Err(EvalError::Undecided);
                }
                if contents.added.is_empty() {
                    contents.added = vec![(0.0, 0); contents.cells.len()];
                }
                let (size, count) = &mut contents.added[offset];
                if *count == 0 {
                    *size = before.mid.abs();
                }
                *size += value.mid.abs();
                *count += 1;
                let mid = match update {
                    AtomicOp::Add => before.mid + value.mid,
                    AtomicOp::Sub => before.mid - value.mid,
                    _ => return Err(EvalError::Invalid("the atomic operation is not available for floats".into())),
                };
                EvalValue::Float(Interval { mid, err: before.err + value.err })
            }
            (before, value) => {
                let (a, b) = (before.int(), value.int());
                let unsigned = |x: i64| if scalar == ScalarType::U64 { x as u64 as i128 } else { x as i128 };
                EvalValue::Int(wrap_int(
                    scalar,
                    match update {
                        AtomicOp::Add => a.wrapping_add(b),
                        AtomicOp::Sub => a.wrapping_sub(b),
                        AtomicOp::Min => {
                            if unsigned(b) < unsigned(a) {
                                b
                            } else {
                                a
                            }
                        }
                        AtomicOp::Max => {
                            if unsigned(b) > unsigned(a) {
                                b
                            } else {
                                a
                            }
                        }
                        AtomicOp::And => a & b,
                        AtomicOp::Or => a | b,
                        AtomicOp::Xor => a ^ b,
                    },
                ))
            }
        };
        Ok(())
    }
}
