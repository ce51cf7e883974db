//! Slices of arrays: which elements of an axis they are. Python's rules, but that bounds of slices that go backwards are held
//! within the array as those of others are, which is what Warp does.

use bornite_ir::{ExprId, Op, Scalar};
use ruff_text_size::Ranged;

use super::value::Run;
use super::{Lower, Lowers};
use crate::lower::Tree;

/// The step of a slice: multiplied by an index it is still the dialect's int.
const MAX_STEP: i64 = 1 << 24;

/// A slice of an axis.
pub(super) struct Cut {
    pub start: ExprId,
    /// `None`: 1.
    pub step: Option<ExprId>,
    pub length: ExprId,
}

/// Whether a slice goes backwards.
#[derive(Clone, Copy)]
enum Way {
    Known(bool),
    Computed(ExprId),
}

impl<'p> Lower<'p> {
    /// The index in memory of an index into a slice, in 64 bits: it may be any number, and must not come to lie inside by an
    /// overflow.
    pub(super) fn index_along(&mut self, start: Option<ExprId>, step: Option<ExprId>, index: ExprId) -> ExprId {
        if start.is_none() && step.is_none() {
            return index;
        }
        let mut wide = |id: ExprId| Tree::emitted(id, self.w.b.type_of(id)).cast(Scalar::I64);
        let mut sum = wide(index);
        if let Some(step) = step {
            sum = Tree::op(Op::Mul, vec![sum, wide(step)]);
        }
        if let Some(start) = start {
            sum = Tree::op(Op::Add, vec![wide(start), sum]);
        }
        self.w.emit(&sum)
    }

    /// An index as an int32. One of 64 bits that int32 does not hold becomes one that is outside every array: arrays of such
    /// indices have less than 2³¹ elements.
    pub(super) fn narrow_index(&mut self, id: ExprId) -> ExprId {
        let ty = self.w.b.type_of(id);
        let inside = match ty.as_scalar() {
            Some(Scalar::I64) => {
                let [least, most] = [-1, i32::MAX as i64].map(|limit| Tree::int(Scalar::I64, limit));
                Tree::op(Op::Clamp, vec![Tree::emitted(id, ty), least, most])
            }
            Some(Scalar::U64) => {
                Tree::op(Op::Min, vec![Tree::emitted(id, ty), Tree::int(Scalar::U64, i32::MAX as i64)])
            }
            _ => return self.cast_id(Scalar::I32, id),
        };
        self.w.emit(&inside.cast(Scalar::I32))
    }

    /// A slice by its start, end and step of an axis of that extent. Bounds count from the end where they are negative, and
    /// are no further than the axis goes.
    pub(super) fn cut(&mut self, parts: [Option<Run>; 3], extent: ExprId, at: &impl Ranged) -> Lowers<Cut> {
        let [low, high, by] = parts;
        let known = by.as_ref().map_or(Some(1), |by| self.known_int(by));
        if let Some(by) = known.filter(|by| *by == 0 || by.abs() > MAX_STEP) {
            let label = format!("1 to {MAX_STEP}, forwards or backwards");
            return self.fail(at, format!("a slice by steps of {by}"), &label, None);
        }
        let [zero, one] = [0, 1].map(|n| self.int(n));
        let step = match (known, by) {
            (None, Some(by)) => by.id,
            (known, _) => self.int(known.unwrap_or(1)),
        };
        let backwards = match known {
            Some(by) => Way::Known(by < 0),
            None => Way::Computed(self.op(Op::Lt, &[step, zero])),
        };
        let start = match &low {
            Some(low) => self.bound(low, extent),
            None => self.by_way(backwards, |me| me.op(Op::Sub, &[extent, one]), |_| zero),
        };
        let end = match &high {
            Some(high) => self.bound(high, extent),
            None => self.by_way(backwards, |me| me.int(-1), |_| extent),
        };
        let way = self.by_way(backwards, |me| me.op(Op::Sub, &[start, end]), |me| me.op(Op::Sub, &[end, start]));
        let length = match known {
            Some(1 | -1) => self.op(Op::Max, &[way, zero]),
            _ => {
                let size = self.op(Op::Abs, &[step]);
                let rest = self.op(Op::Sub, &[way, one]);
                let steps = self.op(Op::Div, &[rest, size]);
                let count = self.op(Op::Add, &[steps, one]);
                // A step of 0 leads nowhere.
                let [some, moves] = [self.op(Op::Lt, &[zero, way]), self.op(Op::Lt, &[zero, size])];
                let some = self.op(Op::And, &[some, moves]);
                self.op(Op::Select, &[some, count, zero])
            }
        };
        Ok(Cut { start, step: (known != Some(1)).then_some(step), length })
    }

    /// What a slice that goes backwards has, or one that goes forwards.
    fn by_way(
        &mut self,
        backwards: Way,
        back: impl FnOnce(&mut Self) -> ExprId,
        forth: impl FnOnce(&mut Self) -> ExprId,
    ) -> ExprId {
        match backwards {
            Way::Known(true) => back(self),
            Way::Known(false) => forth(self),
            Way::Computed(backwards) => {
                let (back, forth) = (back(self), forth(self));
                self.op(Op::Select, &[backwards, back, forth])
            }
        }
    }

    /// A bound of a slice.
    fn bound(&mut self, run: &Run, extent: ExprId) -> ExprId {
        let zero = self.int(0);
        match self.known_int(run).map(|n| n.clamp(-i64::from(i32::MAX), i32::MAX.into())) {
            Some(n) if n < 0 => {
                let n = self.int(n);
                let sum = self.op(Op::Add, &[extent, n]);
                self.op(Op::Max, &[sum, zero])
            }
            Some(n) => {
                let n = self.int(n);
                self.op(Op::Min, &[n, extent])
            }
            None => {
                let least = self.op(Op::Neg, &[extent]);
                let above = self.op(Op::Max, &[run.id, least]);
                let within = self.op(Op::Min, &[above, extent]);
                let from_end = self.op(Op::Add, &[within, extent]);
                let negative = self.op(Op::Lt, &[within, zero]);
                self.op(Op::Select, &[negative, from_end, within])
            }
        }
    }
}
