//! Integer interval analysis: shows where arithmetic cannot overflow. The CUDA and C++ printers
//! then print plain arithmetic, the CUDA front end keeps such indices in 32 bits, and the CPU
//! backend omits their bounds checks.

use crate::{Builtin, LaunchMode, Op, Scalar, Value};

/// Inclusive interval of the values that an integer can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntRange {
    /// The smallest value.
    pub low: i128,
    /// The largest value.
    pub high: i128,
}

impl IntRange {
    /// Returns the range of a constant.
    pub fn exactly(value: Value) -> IntRange {
        let value = if value.scalar() == Scalar::U64 { value.bits() as i128 } else { value.as_i64() as i128 };
        IntRange { low: value, high: value }
    }

    /// Returns the range of all values of an integer type.
    pub fn of_type(scalar: Scalar) -> IntRange {
        let (low, high) = scalar.int_range();
        IntRange { low, high }
    }

    /// Returns the range from 0 to `high`.
    pub fn up_to(high: i64) -> IntRange {
        IntRange { low: 0, high: high.max(0) as i128 }
    }

    /// Returns the range of a loop counter that starts at 0 and stays below a bound in this range.
    pub fn below(self) -> IntRange {
        IntRange { low: 0, high: (self.high - 1).max(0) }
    }

    /// Returns the range of a thread or block index, or of a block or grid size, in a launch.
    pub fn of_builtin(launch: LaunchMode, builtin: Builtin) -> Option<IntRange> {
        let LaunchMode::Blocks { grid, block } = launch else { return None };
        let (sizes, axis, size) = match builtin {
            Builtin::Thread(axis) => (block, axis, false),
            Builtin::Block(axis) => (grid, axis, false),
            Builtin::BlockSize(axis) => (block, axis, true),
            Builtin::GridSize(axis) => (grid, axis, true),
        };
        let n = sizes[axis as usize] as i128;
        Some(if size { IntRange { low: n, high: n } } else { IntRange { low: 0, high: (n - 1).max(0) } })
    }

    /// Returns true if all values fit in the integer type.
    pub fn fits(self, scalar: Scalar) -> bool {
        let (low, high) = scalar.int_range();
        low <= self.low && self.high <= high
    }

    /// Returns the value if the range has only one.
    pub fn single_value(self) -> Option<i128> {
        (self.low == self.high).then_some(self.low)
    }

    /// Returns the range of sums of a value of this range and one of `other`.
    pub fn plus(self, other: IntRange) -> IntRange {
        IntRange { low: self.low.saturating_add(other.low), high: self.high.saturating_add(other.high) }
    }

    /// Returns the range of negated values.
    pub fn negated(self) -> IntRange {
        IntRange { low: self.high.saturating_neg(), high: self.low.saturating_neg() }
    }

    /// Returns the range of values times a non-negative factor.
    pub fn times(self, factor: u64) -> IntRange {
        IntRange { low: self.low.saturating_mul(factor as i128), high: self.high.saturating_mul(factor as i128) }
    }

    /// Returns the smallest range that contains both.
    pub fn union(self, other: IntRange) -> IntRange {
        IntRange { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// Returns the range of an op's exact result on operands of an integer type; `None` if it may
    /// overflow the type or is unknown. Operands without a range may have any value of the type.
    pub fn of_op(op: Op, scalar: Scalar, args: &[Option<IntRange>]) -> Option<IntRange> {
        if !scalar.is_int() {
            return None;
        }
        let of = |n: usize| Some(args.get(n)?.unwrap_or(IntRange::of_type(scalar)));
        let corners = |by: fn(i128, i128) -> Option<i128>| -> Option<IntRange> {
            let (a, b) = (of(0)?, of(1)?);
            let all = [by(a.low, b.low)?, by(a.low, b.high)?, by(a.high, b.low)?, by(a.high, b.high)?];
            Some(IntRange { low: all.into_iter().min()?, high: all.into_iter().max()? })
        };
        let range = match op {
            Op::Add => corners(i128::checked_add),
            Op::Sub => corners(i128::checked_sub),
            Op::Mul => corners(i128::checked_mul),
            Op::Div => {
                let divisor = of(1)?.single_value().filter(|&n| n > 0)?;
                Some(IntRange { low: of(0)?.low / divisor, high: of(0)?.high / divisor })
            }
            Op::Rem => {
                let max_remainder = of(1)?.single_value().filter(|&n| n > 0)? - 1;
                Some(IntRange { low: of(0)?.low.clamp(-max_remainder, 0), high: of(0)?.high.clamp(0, max_remainder) })
            }
            Op::Min => Some(IntRange { low: of(0)?.low.min(of(1)?.low), high: of(0)?.high.min(of(1)?.high) }),
            Op::Max => Some(IntRange { low: of(0)?.low.max(of(1)?.low), high: of(0)?.high.max(of(1)?.high) }),
            // The upper bound wins if the bounds are in the wrong order.
            Op::Clamp => Some(IntRange { low: of(1)?.low.min(of(2)?.low), high: of(2)?.high }),
            Op::Select => Some(of(1)?.union(of(2)?)),
            _ => None,
        };
        range.filter(|range| range.fits(scalar))
    }
}
