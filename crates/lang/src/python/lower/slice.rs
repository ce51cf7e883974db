//! Bounds of array slices. They follow Python's rules, except that bounds of backward slices are
//! clamped to the array like those of forward slices, as in Warp.

use bornite_ir::{ExprId, Op, Scalar};
use ruff_text_size::Ranged;

use super::value::Rvalue;
use super::{Lower, LowerResult};
use crate::lower::Tree;

/// Largest step of a slice: its product with an index of the slice fits in an int32.
const MAX_STEP: i64 = 1 << 24;

/// The resolved slice of an axis.
pub(super) struct SliceBounds {
    pub start: ExprId,
    /// `None`: 1.
    pub step: Option<ExprId>,
    pub length: ExprId,
}

/// Direction of a slice: true if backwards, known at compile time or computed.
#[derive(Clone, Copy)]
enum Direction {
    Known(bool),
    Computed(ExprId),
}

impl<'p> Lower<'p> {
    /// The index in memory of an index into a slice. Computed in 64 bits, so that an index out of
    /// range cannot overflow into the valid range.
    pub(super) fn memory_index(&mut self, start: Option<ExprId>, step: Option<ExprId>, index: ExprId) -> ExprId {
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

    /// An index as an int32. A 64-bit index that does not fit becomes one that is out of bounds for
    /// every array with 32-bit indices, which has fewer than 2³¹ elements.
    pub(super) fn index_as_i32(&mut self, id: ExprId) -> ExprId {
        let ty = self.w.b.type_of(id);
        let clamped = match ty.as_scalar() {
            Some(Scalar::I64) => {
                let [min, max] = [-1, i32::MAX as i64].map(|limit| Tree::int(Scalar::I64, limit));
                Tree::op(Op::Clamp, vec![Tree::emitted(id, ty), min, max])
            }
            Some(Scalar::U64) => {
                Tree::op(Op::Min, vec![Tree::emitted(id, ty), Tree::int(Scalar::U64, i32::MAX as i64)])
            }
            _ => return self.cast_id(Scalar::I32, id),
        };
        self.w.emit(&clamped.cast(Scalar::I32))
    }

    /// Resolves start, end and step of a slice of an axis. Negative bounds count from the end; all
    /// bounds are clamped to the axis.
    pub(super) fn slice_bounds(
        &mut self,
        parts: [Option<Rvalue>; 3],
        extent: ExprId,
        at: &impl Ranged,
    ) -> LowerResult<SliceBounds> {
        let [low, high, by] = parts;
        let known = by.as_ref().map_or(Some(1), |by| self.known_int(by));
        if let Some(by) = known.filter(|by| *by == 0 || by.abs() > MAX_STEP) {
            let label = format!("expected 1 to {MAX_STEP}, or the same negated");
            return self.fail(at, format!("slice step {by} is out of range"), &label, None);
        }
        let [zero, one] = [0, 1].map(|n| self.int(n));
        let step = match (known, by) {
            (None, Some(by)) => by.id,
            (known, _) => self.int(known.unwrap_or(1)),
        };
        let backwards = match known {
            Some(by) => Direction::Known(by < 0),
            None => Direction::Computed(self.op(Op::Lt, &[step, zero])),
        };
        let start = match &low {
            Some(low) => self.slice_bound(low, extent),
            None => self.select_by_direction(backwards, |me| me.op(Op::Sub, &[extent, one]), |_| zero),
        };
        let end = match &high {
            Some(high) => self.slice_bound(high, extent),
            None => self.select_by_direction(backwards, |me| me.int(-1), |_| extent),
        };
        let distance =
            self.select_by_direction(backwards, |me| me.op(Op::Sub, &[start, end]), |me| me.op(Op::Sub, &[end, start]));
        let length = match known {
            Some(1 | -1) => self.op(Op::Max, &[distance, zero]),
            _ => {
                let size = self.op(Op::Abs, &[step]);
                let rest = self.op(Op::Sub, &[distance, one]);
                let steps = self.op(Op::Div, &[rest, size]);
                let count = self.op(Op::Add, &[steps, one]);
                // A step of 0 selects nothing.
                let [has_distance, has_step] = [self.op(Op::Lt, &[zero, distance]), self.op(Op::Lt, &[zero, size])];
                let is_nonempty = self.op(Op::And, &[has_distance, has_step]);
                self.op(Op::Select, &[is_nonempty, count, zero])
            }
        };
        Ok(SliceBounds { start, step: (known != Some(1)).then_some(step), length })
    }

    /// Selects a value for backward or forward slices.
    fn select_by_direction(
        &mut self,
        backwards: Direction,
        backward: impl FnOnce(&mut Self) -> ExprId,
        forward: impl FnOnce(&mut Self) -> ExprId,
    ) -> ExprId {
        match backwards {
            Direction::Known(true) => backward(self),
            Direction::Known(false) => forward(self),
            Direction::Computed(backwards) => {
                let (backward, forward) = (backward(self), forward(self));
                self.op(Op::Select, &[backwards, backward, forward])
            }
        }
    }

    /// Resolves a bound of a slice.
    fn slice_bound(&mut self, rvalue: &Rvalue, extent: ExprId) -> ExprId {
        let zero = self.int(0);
        match self.known_int(rvalue).map(|n| n.clamp(-i64::from(i32::MAX), i32::MAX.into())) {
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
                let min = self.op(Op::Neg, &[extent]);
                let raised = self.op(Op::Max, &[rvalue.id, min]);
                let clamped = self.op(Op::Min, &[raised, extent]);
                let from_end = self.op(Op::Add, &[clamped, extent]);
                let negative = self.op(Op::Lt, &[clamped, zero]);
                self.op(Op::Select, &[negative, from_end, clamped])
            }
        }
    }
}
