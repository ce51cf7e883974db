//! Arrays during evaluation: element offsets, stores, and atomic updates in unspecified order.

use super::{Ball, Contents, Done, Frame, Machine, Stop, Value, unit, wrapped};
use crate::program::{Array, Expr, Scalar, Update};

impl Contents {
    /// Adds the error bounds of atomic float sums: each addition may round by the magnitude of
    /// everything that is added.
    pub(super) fn apply_sum_bounds(&mut self) {
        for (n, (size, count)) in std::mem::take(&mut self.added).into_iter().enumerate() {
            if let Value::Float(ball) = &mut self.cells[n]
                && count > 0
            {
                let unit = unit(self.scalars[n % self.scalars.len()]);
                ball.err += size * unit * count as f64 * 1.01 + f64::MIN_POSITIVE;
            }
        }
    }
}

impl Contents {
    /// True if every float has a finite error bound in its type: without one, any result would
    /// pass.
    pub(super) fn is_bounded(&self) -> bool {
        self.cells.iter().enumerate().all(|(n, cell)| match cell {
            Value::Float(ball) => ball.to(self.scalars[n % self.scalars.len()]).err.is_finite(),
            _ => true,
        })
    }
}

impl<'p> Machine<'p, '_> {
    /// Offset of an element's first component in an array.
    pub(super) fn element_offset(&mut self, array: Array, at: &'p [Expr], frame: &mut Frame) -> Done<usize> {
        let mut offset = 0;
        for (n, index) in at.iter().enumerate() {
            let index = self.expr(index, frame)?.int();
            let extent = self.arrays[array.0 as usize].shape[n] as i64;
            if !(0..extent).contains(&index) {
                let name = &self.program.array(array).name;
                return Err(Stop::Invalid(format!("index {index} is out of bounds of '{name}', which has extent {extent}")));
            }
            offset = offset * extent as usize + index as usize;
        }
        Ok(offset * self.arrays[array.0 as usize].scalars.len())
    }

    pub(super) fn store(&mut self, array: Array, offset: usize, value: Value) -> Done<()> {
        let contents = &mut self.arrays[array.0 as usize];
        let check = |scalar: Scalar, value: Value| match value {
            Value::Float(ball) if !ball.mid.is_finite() => Err(Stop::Invalid("a value is not finite".into())),
            Value::Float(ball) if !ball.err.is_finite() => Err(Stop::Undecided),
            Value::Bool(None) => Err(Stop::Undecided),
            Value::Int(value) => Ok(Value::Int(wrapped(scalar, value))),
            value => Ok(value),
        };
        match value {
            Value::Many(parts) => {
                for (n, part) in parts.into_iter().enumerate() {
                    contents.cells[offset + n] = check(contents.scalars[n], part)?;
                }
            }
            value => contents.cells[offset] = check(contents.scalars[0], value)?,
        }
        Ok(())
    }

    pub(super) fn atomic(&mut self, update: Update, array: Array, offset: usize, value: Value) -> Done<()> {
        let contents = &mut self.arrays[array.0 as usize];
        let scalar = contents.scalars[0];
        let before = contents.cells[offset].clone();
        contents.cells[offset] = match (before, value) {
            (Value::Float(before), Value::Float(value)) => {
                if !value.mid.is_finite() || !value.err.is_finite() {
                    return Err(Stop::Undecided);
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
                    Update::Add => before.mid + value.mid,
                    Update::Sub => before.mid - value.mid,
                    _ => return Err(Stop::Invalid("the atomic operation is not available for floats".into())),
                };
                Value::Float(Ball { mid, err: before.err + value.err })
            }
            (before, value) => {
                let (a, b) = (before.int(), value.int());
                let unsigned = |x: i64| if scalar == Scalar::U64 { x as u64 as i128 } else { x as i128 };
                Value::Int(wrapped(
                    scalar,
                    match update {
                        Update::Add => a.wrapping_add(b),
                        Update::Sub => a.wrapping_sub(b),
                        Update::Min => {
                            if unsigned(b) < unsigned(a) {
                                b
                            } else {
                                a
                            }
                        }
                        Update::Max => {
                            if unsigned(b) > unsigned(a) {
                                b
                            } else {
                                a
                            }
                        }
                        Update::And => a & b,
                        Update::Or => a | b,
                        Update::Xor => a ^ b,
                    },
                ))
            }
        };
        Ok(())
    }
}
