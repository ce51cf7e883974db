//! Intervals of integers: shows where arithmetic cannot overflow. The CUDA and C++ printers write such sums as people do, the
//! CUDA front end leaves such indices in 32 bits, and the CPU backend omits the bounds checks of such indices.

use crate::{Builtin, Launch, Op, Scalar, Value};

/// The smallest and the largest value that an integer can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntRange {
    /// The smallest value.
    pub low: i128,
    /// The largest value.
    pub high: i128,
}

impl IntRange {
    /// One value.
    pub fn exactly(value: Value) -> IntRange {
        let value = if value.scalar() == Scalar::U64 { value.bits() as i128 } else { value.as_i64() as i128 };
        IntRange { low: value, high: value }
    }

    /// All values of an integer type.
    pub fn of_type(scalar: Scalar) -> IntRange {
        let (low, high) = scalar.int_range();
        IntRange { low, high }
    }

    /// From 0 to a number.
    pub fn up_to(high: i64) -> IntRange {
        IntRange { low: 0, high: high.max(0) as i128 }
    }

    /// The values of a loop counter that starts at 0 and stays below a number of this range.
    pub fn below(self) -> IntRange {
        IntRange { low: 0, high: (self.high - 1).max(0) }
    }

    /// The values of a grid coordinate or grid size in a launch.
    pub fn of_builtin(launch: Launch, builtin: Builtin) -> Option<IntRange> {
        let Launch::Blocks { grid, block } = launch else { return None };
        let (sizes, axis, size) = match builtin {
            Builtin::Thread(axis) => (block, axis, false),
            Builtin::Block(axis) => (grid, axis, false),
            Builtin::BlockSize(axis) => (block, axis, true),
            Builtin::GridSize(axis) => (grid, axis, true),
        };
        let n = sizes[axis as usize] as i128;
        Some(if size { IntRange { low: n, high: n } } else { IntRange { low: 0, high: (n - 1).max(0) } })
    }

    /// True if an integer type holds all values.
    pub fn fits(self, scalar: Scalar) -> bool {
        let (low, high) = scalar.int_range();
        low <= self.low && self.high <= high
    }

    /// The value, if there is only one.
    pub fn single_value(self) -> Option<i128> {
        (self.low == self.high).then_some(self.low)
    }

    /// The sum of a value of this range and one of another.
    pub fn plus(self, other: IntRange) -> IntRange {
        IntRange { low: self.low.saturating_add(other.low), high: self.high.saturating_add(other.high) }
    }

    /// A value of this range with the other sign.
    pub fn negated(self) -> IntRange {
        IntRange { low: self.high.saturating_neg(), high: self.low.saturating_neg() }
    }

    /// A value of this range times a factor of at least 0.
    pub fn times(self, factor: u64) -> IntRange {
        IntRange { low: self.low.saturating_mul(factor as i128), high: self.high.saturating_mul(factor as i128) }
    }

    /// The smallest range that contains both.
    pub fn union(self, other: IntRange) -> IntRange {
        IntRange { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// The exact result of an op on operands of an integer type, if it fits that type; `None` if it may overflow or is not
    /// known. Operands without a range have any value of the type.
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
                let most = of(1)?.single_value().filter(|&n| n > 0)? - 1;
                Some(IntRange { low: of(0)?.low.clamp(-most, 0), high: of(0)?.high.clamp(0, most) })
            }
            Op::Min => Some(IntRange { low: of(0)?.low.min(of(1)?.low), high: of(0)?.high.min(of(1)?.high) }),
            Op::Max => Some(IntRange { low: of(0)?.low.max(of(1)?.low), high: of(0)?.high.max(of(1)?.high) }),
            // The upper bound wins where the bounds are in the wrong order.
            Op::Clamp => Some(IntRange { low: of(1)?.low.min(of(2)?.low), high: of(2)?.high }),
            Op::Select => Some(of(1)?.union(of(2)?)),
            _ => None,
        };
        range.filter(|range| range.fits(scalar))
    }
}
