//! Stable radix sort of positions by row index, on a GPU: least significant digit first. Each warp
//! has a run of positions and counts their digits; one block computes the prefix sum of all counts;
//! then each warp scatters its positions. The result does not depend on the order in which warps
//! run.

use bornite_ir::{
    Access, Axis, Builder, Builtin, Emit, EmitBits, ExprId, Op as ScalarOp, ParamId, Scalar, SharedId, Shuffle, Stmt,
    Value, Vote,
};

use super::blocks::WARP;
use super::lowering::Lowering;
use super::scatter::{Scatter, ScatterStep};
use crate::{DType, Result, Tensor};

/// Positions sorted by row.
pub(super) struct SortedPositions {
    /// Start of each row's positions, and at least one more entry: the end of the last row.
    pub starts: Tensor,
    pub order: Tensor,
    /// The row of each sorted position, if they were radix-sorted.
    pub rows: Option<Tensor>,
}

/// Bits per digit, and number of digit values.
const DIGIT_BITS: usize = 8;
const BUCKETS: usize = 1 << DIGIT_BITS;

/// Minimum number of positions per warp, and approximate maximum number of warps, whose counts one
/// block sums.
const MIN_RUN: usize = 512;
const MAX_RUNS: usize = 1024;

/// Threads of the block that computes the prefix sum.
const SCAN_THREADS: usize = 1024;

/// Rows and positions sorted by the previous pass; `None` in the first pass.
type SortedPairs<'t> = Option<(&'t Tensor, &'t Tensor)>;

impl Scatter<'_> {
    pub(super) fn radix_sort(&self, steps: &mut Vec<ScatterStep>) -> Result<SortedPositions> {
        let run = self.count.div_ceil(MAX_RUNS).next_multiple_of(WARP).max(MIN_RUN);
        let runs = self.count.div_ceil(run);
        // Out-of-range positions go to an additional row after the last.
        let bits = usize::BITS - self.rows.leading_zeros();
        let mut sorted: Option<(Tensor, Tensor)> = None;
        for pass in 0..(bits as usize).div_ceil(DIGIT_BITS) {
            let before = sorted.as_ref().map(|(rows, order)| (rows, order));
            let counts = self.temporary(BUCKETS * runs, DType::I32);
            steps.push((self.count_digits(before, pass, run, runs)?, vec![counts.clone()]));
            let firsts = self.temporary(BUCKETS * runs, DType::I32);
            steps.push((self.scan_counts(&counts)?, vec![firsts.clone()]));
            let (rows, order) = (self.temporary(self.count, DType::I32), self.temporary(self.count, DType::I32));
            let placed = self.place_digits(before, &firsts, pass, run, runs)?;
            steps.push((placed, vec![rows.clone(), order.clone()]));
            sorted = Some((rows, order));
        }
        let starts = self.temporary(self.rows + 2, DType::I32);
        let Some((rows, order)) = sorted else {
            return Ok(SortedPositions { order: starts.clone(), starts, rows: None });
        };
        steps.push((self.find_starts(&rows)?, vec![starts.clone()]));
        Ok(SortedPositions { starts, order, rows: Some(rows) })
    }

    /// A kernel with one warp per run.
    fn warps(&self, name: &str, runs: usize) -> Lowering {
        Lowering::single(Builder::blocks(name, [runs as u32, 1, 1], [WARP as u32, 1, 1], self.index), self.index)
    }

    /// Counts the positions of each run by digit.
    fn count_digits(&self, sorted: SortedPairs<'_>, pass: usize, run: usize, runs: usize) -> Result<super::Lowered> {
        let mut l = self.warps("scatter_count_digits", runs);
        let out = l.b.param("counts", DType::I32, (BUCKETS * runs) as u64, Access::Write);
        if sorted.is_none() {
            l.status = Some(l.b.param("status", DType::I64, crate::runtime::status::WORDS, Access::ReadWrite));
        }
        let counts = l.b.shared("counted", DType::I32, BUCKETS as u64);
        let none = l.b.constant(Value::int(DType::I32, 0));
        l.for_each_digit(|l, digit, _| l.b.store(counts, digit, none));
        l.b.push_stmt(Stmt::WarpBarrier);
        self.for_each_position(&mut l, sorted, pass, run, &mut |l, at| {
            let before = l.b.load(counts, at.digit);
            let after = l.b.add(&before, &at.peers);
            l.b.push_stmt(Stmt::WarpBarrier);
            l.when(Some(at.leads), &mut |l| l.b.store(counts, at.digit, after));
            l.b.push_stmt(Stmt::WarpBarrier);
        });
        let block = l.b.builtin(Builtin::Block(Axis::X));
        l.for_each_digit(|l, digit, _| {
            let slot = l.index_op(ScalarOp::Mul, digit, runs);
            let slot = l.b.add(&slot, &block);
            let count = l.b.load(counts, digit);
            l.b.store(out, slot, count);
        });
        l.finish()
    }

    /// Scatters rows and positions in the order of one more digit.
    fn place_digits(
        &self,
        sorted: SortedPairs<'_>,
        firsts: &Tensor,
        pass: usize,
        run: usize,
        runs: usize,
    ) -> Result<super::Lowered> {
        let mut l = self.warps("scatter_place_digits", runs);
        let [rows, order] = ["rows", "order"].map(|name| l.b.param(name, DType::I32, self.count as u64, Access::Write));
        let firsts = l.view(firsts);
        let next: SharedId = l.b.shared("next", DType::I32, BUCKETS as u64);
        let block = l.b.builtin(Builtin::Block(Axis::X));
        l.for_each_digit(|l, digit, _| {
            let slot = l.index_op(ScalarOp::Mul, digit, runs);
            let slot = l.b.add(&slot, &block);
            let first = l.b.load(firsts, slot);
            l.b.store(next, digit, first);
        });
        l.b.push_stmt(Stmt::WarpBarrier);
        self.for_each_position(&mut l, sorted, pass, run, &mut |l, at| {
            let first = l.b.load(next, at.digit);
            let after = l.b.add(&first, &at.peers);
            l.b.push_stmt(Stmt::WarpBarrier);
            l.when(Some(at.leads), &mut |l| l.b.store(next, at.digit, after));
            l.when(Some(at.inside), &mut |l| {
                let slot = l.b.add(&first, &at.earlier);
                let slot = l.b.cast(self.index, &slot);
                l.b.store(rows, slot, at.row);
                l.b.store(order, slot, at.position);
            });
            l.b.push_stmt(Stmt::WarpBarrier);
        });
        l.finish()
    }

    /// Emits a loop over a run, one position per lane.
    fn for_each_position(
        &self,
        l: &mut Lowering,
        sorted: SortedPairs<'_>,
        pass: usize,
        run: usize,
        body: &mut dyn FnMut(&mut Lowering, &Position),
    ) {
        let views: Option<[ParamId; 2]> = sorted.map(|(rows, order)| [rows, order].map(|tensor| l.view(tensor)));
        let (lane, block) = (l.b.builtin(Builtin::Thread(Axis::X)), l.b.builtin(Builtin::Block(Axis::X)));
        let first = l.index_op(ScalarOp::Mul, block, run);
        let first = l.b.add(&first, &lane);
        let [row, position] = ["row", "position"].map(|name| l.b.local(name, Value::int(DType::I32, 0)));
        let iterations = l.b.index_constant((run / WARP) as u64);
        l.for_each("turn", iterations, |l, iteration| {
            let ahead = l.index_op(ScalarOp::Mul, iteration, WARP);
            let slot = l.b.add(&first, &ahead);
            let end = l.b.index_constant(self.count as u64);
            let inside = l.b.lt(&slot, &end);
            l.when(Some(inside), &mut |l| {
                let [named, at] = match views {
                    Some([rows, order]) => [l.b.load(rows, slot), l.b.load(order, slot)],
                    // Out-of-range indices are reported by the kernel that counts.
                    None => {
                        let named = self.row_of(l, slot, l.status.is_some());
                        [named, slot].map(|n| l.b.cast(DType::I32, &n))
                    }
                };
                l.b.assign(row, named);
                l.b.assign(position, at);
            });
            let (row, position) = (l.b.read(row), l.b.read(position));
            let at = l.rank(row, position, inside, lane, pass);
            body(l, &at);
        });
    }

    /// Exclusive prefix sum of the counts, ordered by digit, then by run.
    fn scan_counts(&self, counts: &Tensor) -> Result<super::Lowered> {
        let total = counts.0.elements();
        let b = Builder::blocks("scatter_sum_counts", [1, 1, 1], [SCAN_THREADS as u32, 1, 1], self.index);
        let mut l = Lowering::single(b, self.index);
        let out = l.b.param("firsts", DType::I32, total as u64, Access::Write);
        let counts = l.view(counts);
        let thread = l.b.builtin(Builtin::Thread(Axis::X));
        // Each thread sums adjacent counts.
        let own = total.div_ceil(SCAN_THREADS);
        let first = l.index_op(ScalarOp::Mul, thread, own);
        let (end, iterations) = (l.b.index_constant(total as u64), l.b.index_constant(own as u64));
        let sum = l.b.local("sum", Value::int(DType::I32, 0));
        l.for_each("n", iterations, |l, n| {
            let slot = l.b.add(&first, &n);
            let inside = l.b.lt(&slot, &end);
            l.when(Some(inside), &mut |l| {
                let (before, more) = (l.b.read(sum), l.b.load(counts, slot));
                let after = l.b.add(&before, &more);
                l.b.assign(sum, after);
            });
        });
        let own_sum = l.b.read(sum);
        let (warp, lane) = (l.index_op(ScalarOp::Div, thread, WARP), l.index_op(ScalarOp::Rem, thread, WARP));
        let none = l.b.constant(Value::int(DType::I32, 0));
        let mut upto = own_sum;
        for distance in [1, 2, 4, 8, 16] {
            let by = l.b.index_constant(distance);
            let other = l.b.shuffle(Shuffle::Up, upto, by);
            let below = l.b.lt(&lane, &by);
            let other = l.b.select(&below, &none, &other);
            upto = l.b.add(&upto, &other);
        }
        let sums = l.b.shared("sums", DType::I32, (SCAN_THREADS / WARP) as u64);
        let last = l.b.index_constant(WARP as u64 - 1);
        let is_last = l.b.op(ScalarOp::Eq, &[&lane, &last]);
        l.when(Some(is_last), &mut |l| l.b.store(sums, warp, upto));
        l.b.push_stmt(Stmt::Barrier);
        let before = l.b.sub(&upto, &own_sum);
        l.b.assign(sum, before);
        l.for_each("warp", warp, |l, other| {
            let (before, more) = (l.b.read(sum), l.b.load(sums, other));
            let after = l.b.add(&before, &more);
            l.b.assign(sum, after);
        });
        l.for_each("m", iterations, |l, n| {
            let slot = l.b.add(&first, &n);
            let inside = l.b.lt(&slot, &end);
            l.when(Some(inside), &mut |l| {
                let (before, more) = (l.b.read(sum), l.b.load(counts, slot));
                l.b.store(out, slot, before);
                let after = l.b.add(&before, &more);
                l.b.assign(sum, after);
            });
        });
        l.finish()
    }

    /// Finds the start of each row's positions by binary search; one instance per row.
    fn find_starts(&self, rows: &Tensor) -> Result<super::Lowered> {
        let entries = self.rows + 2;
        let mut l = Lowering::single(Builder::new("scatter_starts", entries as u64, self.index), self.index);
        let out = l.b.param("starts", DType::I32, entries as u64, Access::Write);
        let rows = l.view(rows);
        let row = l.b.index();
        let low = l.b.local("low", Value::int(self.index, 0));
        let high = l.b.local("high", Value::int(self.index, self.count as i64));
        let iterations = l.b.index_constant((usize::BITS - self.count.leading_zeros()) as u64);
        l.for_each("half", iterations, |l, _| {
            let (from, to) = (l.b.read(low), l.b.read(high));
            let open = l.b.lt(&from, &to);
            l.when(Some(open), &mut |l| {
                let sum = l.b.add(&from, &to);
                let middle = l.index_op(ScalarOp::Div, sum, 2);
                let sorted = l.b.load(rows, middle);
                let sorted = l.b.cast(self.index, &sorted);
                let less = l.b.lt(&sorted, &row);
                let after = l.index_op(ScalarOp::Add, middle, 1);
                let new_low = l.b.select(&less, &after, &from);
                let new_high = l.b.select(&less, &to, &middle);
                l.b.assign(low, new_low);
                l.b.assign(high, new_high);
            });
        });
        let start = l.b.read(low);
        let start = l.b.cast(DType::I32, &start);
        l.b.store(out, row, start);
        l.finish()
    }
}

/// A lane's position in an iteration.
struct Position {
    row: ExprId,
    position: ExprId,
    /// Condition that the lane has a position.
    inside: ExprId,
    digit: ExprId,
    /// Number of lanes with the same digit, and of those before this one.
    peers: ExprId,
    earlier: ExprId,
    /// Condition that it is the first of them.
    leads: ExprId,
}

impl Lowering {
    /// Emits code for every digit value, distributed over the lanes.
    fn for_each_digit(&mut self, mut body: impl FnMut(&mut Lowering, ExprId, usize)) {
        let lane = self.b.builtin(Builtin::Thread(Axis::X));
        for n in 0..BUCKETS / WARP {
            let digit = self.index_op(ScalarOp::Add, lane, n * WARP);
            body(self, digit, n);
        }
    }

    /// Digit of a row, and rank of the lane among those with the same digit.
    fn rank(&mut self, row: ExprId, position: ExprId, inside: ExprId, lane: ExprId, pass: usize) -> Position {
        let [shift, most] = [DIGIT_BITS * pass, BUCKETS - 1].map(|n| self.b.constant(Value::int(DType::I32, n as i64)));
        let shifted = self.b.op(ScalarOp::Shr, &[&row, &shift]);
        let digit = self.b.op(ScalarOp::And, &[&shifted, &most]);
        // The lanes with the same digit, bit by bit.
        let mut same = self.b.vote(Vote::Ballot, inside);
        for bit in 0..DIGIT_BITS {
            let (mask, zero) =
                (self.b.constant(Value::int(DType::I32, 1 << bit)), self.b.constant(Value::int(DType::I32, 0)));
            let masked = self.b.op(ScalarOp::And, &[&digit, &mask]);
            let set = self.b.op(ScalarOp::Ne, &[&masked, &zero]);
            let lanes = self.b.vote(Vote::Ballot, set);
            let others = self.b.op(ScalarOp::Not, &[&lanes]);
            let agree = self.b.select(&set, &lanes, &others);
            same = self.b.op(ScalarOp::And, &[&same, &agree]);
        }
        let one = self.b.constant(Value::int(Scalar::U32, 1));
        let lane = self.b.cast(Scalar::U32, &lane);
        let own = self.b.op(ScalarOp::Shl, &[&one, &lane]);
        let below = self.b.sub(&own, &one);
        let earlier = self.b.op(ScalarOp::And, &[&same, &below]);
        let [peers, earlier] = [same, earlier].map(|lanes| {
            let count = self.b.op(ScalarOp::Popcount, &[&lanes]);
            self.b.cast(DType::I32, &count)
        });
        let zero = self.b.constant(Value::int(DType::I32, 0));
        let first = self.b.op(ScalarOp::Eq, &[&earlier, &zero]);
        let leads = self.b.op(ScalarOp::And, &[&first, &inside]);
        let digit = self.b.cast(self.index, &digit);
        Position { row, position, inside, digit, peers, earlier, leads }
    }
}
