//! Where integers lie, as far as the text of a kernel shows it: what cannot overflow is printed as people write it.

use bornite_ir::{Builtin, Launch, Op, Scalar, Value};

use super::Term;

/// The smallest and the largest value that an integer can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    low: i128,
    high: i128,
}

impl Range {
    pub fn exactly(value: Value) -> Range {
        let value = if value.scalar() == Scalar::U64 { value.bits() as i128 } else { value.as_i64() as i128 };
        Range { low: value, high: value }
    }

    pub fn up_to(high: i64) -> Range {
        Range { low: 0, high: high.max(0) as i128 }
    }

    /// What a counter has that goes from 0 to below a number of this range.
    pub fn below(self) -> Range {
        Range { low: 0, high: (self.high - 1).max(0) }
    }

    /// A place in the grid.
    pub fn of_place(launch: Launch, builtin: Builtin) -> Option<Range> {
        let Launch::Blocks { grid, block } = launch else { return None };
        let (sizes, axis, size) = match builtin {
            Builtin::Thread(axis) => (block, axis, false),
            Builtin::Block(axis) => (grid, axis, false),
            Builtin::BlockSize(axis) => (block, axis, true),
            Builtin::GridSize(axis) => (grid, axis, true),
        };
        let n = sizes[axis as usize] as i128;
        Some(if size { Range { low: n, high: n } } else { Range { low: 0, high: (n - 1).max(0) } })
    }

    pub fn fits(self, scalar: Scalar) -> bool {
        let (low, high) = scalar.int_range();
        low <= self.low && self.high <= high
    }

    /// The value, if there is only one.
    pub fn only(self) -> Option<i128> {
        (self.low == self.high).then_some(self.low)
    }

    /// The exact result of an op on integers, if it fits their type; `None` if that is not known.
    pub fn of_op(op: Op, args: &[Term]) -> Option<Range> {
        let scalar = args.last()?.ty.as_scalar().filter(|scalar| scalar.is_int())?;
        let of = |n: usize| -> Option<Range> {
            let (low, high) = scalar.int_range();
            Some(args.get(n)?.range.unwrap_or(Range { low, high }))
        };
        let corners = |by: fn(i128, i128) -> Option<i128>| -> Option<Range> {
            let (a, b) = (of(0)?, of(1)?);
            let all = [by(a.low, b.low)?, by(a.low, b.high)?, by(a.high, b.low)?, by(a.high, b.high)?];
            Some(Range { low: all.into_iter().min()?, high: all.into_iter().max()? })
        };
        let range = match op {
            Op::Add => corners(i128::checked_add),
            Op::Sub => corners(i128::checked_sub),
            Op::Mul => corners(i128::checked_mul),
            Op::Div => {
                let divisor = of(1)?.only().filter(|&n| n > 0)?;
                Some(Range { low: of(0)?.low / divisor, high: of(0)?.high / divisor })
            }
            Op::Rem => {
                let most = of(1)?.only().filter(|&n| n > 0)? - 1;
                let a = of(0)?;
                Some(Range { low: if a.low < 0 { -most } else { 0 }, high: most.min(a.high.max(0)) })
            }
            Op::Min => Some(Range { low: of(0)?.low.min(of(1)?.low), high: of(0)?.high.min(of(1)?.high) }),
            Op::Max => Some(Range { low: of(0)?.low.max(of(1)?.low), high: of(0)?.high.max(of(1)?.high) }),
            Op::Select => Some(Range { low: of(1)?.low.min(of(2)?.low), high: of(1)?.high.max(of(2)?.high) }),
            _ => None,
        };
        range.filter(|range| range.fits(scalar))
    }
}
