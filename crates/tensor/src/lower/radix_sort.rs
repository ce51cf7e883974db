//! Positions in order of the rows that they name, on a GPU: by one digit of the rows' numbers after the other, lowest
//! first, each time keeping the order of equal digits. A warp has a run of positions: it counts its digits, one block sums
//! the counts of all, then each warp places its positions. Nothing depends on which warp is first.

use bornite_ir::{
    Access, Axis, Builder, Builtin, Emit, EmitBits, ExprId, Op as ScalarOp, ParamId, Scalar, SharedId, Shuffle, Stmt,
    Value, Vote,
};

use super::blocks::WARP;
use super::lowering::Lowering;
use super::scatter::{Scatter, Step};
use crate::{DType, Result, Tensor};

/// Positions in order of rows.
pub(super) struct Sorted {
    /// Where each row's positions start, and at least one entry more: where the last row's end.
    pub starts: Tensor,
    pub order: Tensor,
    /// The row of each position in order, where they were sorted by digits.
    pub rows: Option<Tensor>,
}

/// Bits of a digit, and how many digits there are.
const BITS: usize = 8;
const DIGITS: usize = 1 << BITS;

/// Fewest positions of a warp, and about the most warps: the counts of all are summed by one block.
const RUN: usize = 512;
const MOST_RUNS: usize = 1024;

/// Threads of that block.
const SUMMING: usize = 1024;

/// Positions as a pass finds them: in their own order, or as the pass before has left them.
type Found<'t> = Option<(&'t Tensor, &'t Tensor)>;

impl Scatter<'_> {
    pub(super) fn sort_by_digits(&self, steps: &mut Vec<Step>) -> Result<Sorted> {
        let run = self.count.div_ceil(MOST_RUNS).next_multiple_of(WARP).max(RUN);
        let runs = self.count.div_ceil(run);
        // What is nowhere is in the row after the last.
        let bits = usize::BITS - self.rows.leading_zeros();
        let mut found: Option<(Tensor, Tensor)> = None;
        for pass in 0..(bits as usize).div_ceil(BITS) {
            let before = found.as_ref().map(|(rows, order)| (rows, order));
            let counts = self.between(DIGITS * runs, DType::I32);
            steps.push((self.count_digits(before, pass, run, runs)?, vec![counts.clone()]));
            let firsts = self.between(DIGITS * runs, DType::I32);
            steps.push((self.sum_counts(&counts)?, vec![firsts.clone()]));
            let (rows, order) = (self.between(self.count, DType::I32), self.between(self.count, DType::I32));
            let placed = self.place_digits(before, &firsts, pass, run, runs)?;
            steps.push((placed, vec![rows.clone(), order.clone()]));
            found = Some((rows, order));
        }
        let starts = self.between(self.rows + 2, DType::I32);
        let Some((rows, order)) = found else { return Ok(Sorted { order: starts.clone(), starts, rows: None }) };
        steps.push((self.find_starts(&rows)?, vec![starts.clone()]));
        Ok(Sorted { starts, order, rows: Some(rows) })
    }

    /// A kernel of one warp a run.
    fn warps(&self, name: &str, runs: usize) -> Lowering {
        Lowering::single(Builder::blocks(name, [runs as u32, 1, 1], [WARP as u32, 1, 1], self.index), self.index)
    }

    /// How many positions of each run have each digit.
    fn count_digits(&self, found: Found<'_>, pass: usize, run: usize, runs: usize) -> Result<super::Lowered> {
        let mut l = self.warps("scatter_count_digits", runs);
        let out = l.b.param("counts", DType::I32, (DIGITS * runs) as u64, Access::Write);
        if found.is_none() {
            l.status = Some(l.b.param("status", DType::I64, crate::runtime::status::WORDS, Access::ReadWrite));
        }
        let counts = l.b.shared("counted", DType::I32, DIGITS as u64);
        let none = l.b.constant(Value::int(DType::I32, 0));
        l.each_digit(|l, digit, _| l.b.store(counts, digit, none));
        l.b.simple(Stmt::WarpBarrier);
        self.each_position(&mut l, found, pass, run, &mut |l, at| {
            let before = l.b.load(counts, at.digit);
            let after = l.b.add(&before, &at.peers);
            l.b.simple(Stmt::WarpBarrier);
            l.under(Some(at.leads), &mut |l| l.b.store(counts, at.digit, after));
            l.b.simple(Stmt::WarpBarrier);
        });
        let block = l.b.builtin(Builtin::Block(Axis::X));
        l.each_digit(|l, digit, _| {
            let place = l.index_op(ScalarOp::Mul, digit, runs);
            let place = l.b.add(&place, &block);
            let count = l.b.load(counts, digit);
            l.b.store(out, place, count);
        });
        l.finish()
    }

    /// Rows and positions in order of one more digit.
    fn place_digits(
        &self,
        found: Found<'_>,
        firsts: &Tensor,
        pass: usize,
        run: usize,
        runs: usize,
    ) -> Result<super::Lowered> {
        let mut l = self.warps("scatter_place_digits", runs);
        let [rows, order] = ["rows", "order"].map(|name| l.b.param(name, DType::I32, self.count as u64, Access::Write));
        let firsts = l.view(firsts);
        let next: SharedId = l.b.shared("next", DType::I32, DIGITS as u64);
        let block = l.b.builtin(Builtin::Block(Axis::X));
        l.each_digit(|l, digit, _| {
            let place = l.index_op(ScalarOp::Mul, digit, runs);
            let place = l.b.add(&place, &block);
            let first = l.b.load(firsts, place);
            l.b.store(next, digit, first);
        });
        l.b.simple(Stmt::WarpBarrier);
        self.each_position(&mut l, found, pass, run, &mut |l, at| {
            let first = l.b.load(next, at.digit);
            let after = l.b.add(&first, &at.peers);
            l.b.simple(Stmt::WarpBarrier);
            l.under(Some(at.leads), &mut |l| l.b.store(next, at.digit, after));
            l.under(Some(at.inside), &mut |l| {
                let place = l.b.add(&first, &at.earlier);
                let place = l.b.cast(self.index, &place);
                l.b.store(rows, place, at.row);
                l.b.store(order, place, at.position);
            });
            l.b.simple(Stmt::WarpBarrier);
        });
        l.finish()
    }

    /// Goes through a run, a position a lane.
    fn each_position(
        &self,
        l: &mut Lowering,
        found: Found<'_>,
        pass: usize,
        run: usize,
        body: &mut dyn FnMut(&mut Lowering, &Position),
    ) {
        let views: Option<[ParamId; 2]> = found.map(|(rows, order)| [rows, order].map(|tensor| l.view(tensor)));
        let (lane, block) = (l.b.builtin(Builtin::Thread(Axis::X)), l.b.builtin(Builtin::Block(Axis::X)));
        let first = l.index_op(ScalarOp::Mul, block, run);
        let first = l.b.add(&first, &lane);
        let [row, position] = ["row", "position"].map(|name| l.b.local(name, Value::int(DType::I32, 0)));
        let turns = l.b.index_constant((run / WARP) as u64);
        l.for_each("turn", turns, |l, turn| {
            let ahead = l.index_op(ScalarOp::Mul, turn, WARP);
            let place = l.b.add(&first, &ahead);
            let end = l.b.index_constant(self.count as u64);
            let inside = l.b.lt(&place, &end);
            l.under(Some(inside), &mut |l| {
                let [named, at] = match views {
                    Some([rows, order]) => [l.b.load(rows, place), l.b.load(order, place)],
                    // What is nowhere is reported by the kernel that counts.
                    None => {
                        let named = self.row_of(l, place, l.status.is_some());
                        [named, place].map(|n| l.b.cast(DType::I32, &n))
                    }
                };
                l.b.assign(row, named);
                l.b.assign(position, at);
            });
            let (row, position) = (l.b.read(row), l.b.read(position));
            let at = l.ranked(row, position, inside, lane, pass);
            body(l, &at);
        });
    }

    /// The sum of all counts before each: of lower digits, then of earlier runs.
    fn sum_counts(&self, counts: &Tensor) -> Result<super::Lowered> {
        let total = counts.0.elements();
        let b = Builder::blocks("scatter_sum_counts", [1, 1, 1], [SUMMING as u32, 1, 1], self.index);
        let mut l = Lowering::single(b, self.index);
        let out = l.b.param("firsts", DType::I32, total as u64, Access::Write);
        let counts = l.view(counts);
        let thread = l.b.builtin(Builtin::Thread(Axis::X));
        // Each thread has neighbours, whose number divides evenly: digits are as many as a power of 2, runs are not.
        let own = total.div_ceil(SUMMING);
        let first = l.index_op(ScalarOp::Mul, thread, own);
        let (end, turns) = (l.b.index_constant(total as u64), l.b.index_constant(own as u64));
        let sum = l.b.local("sum", Value::int(DType::I32, 0));
        l.for_each("n", turns, |l, n| {
            let place = l.b.add(&first, &n);
            let inside = l.b.lt(&place, &end);
            l.under(Some(inside), &mut |l| {
                let (before, more) = (l.b.read(sum), l.b.load(counts, place));
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
        let sums = l.b.shared("sums", DType::I32, (SUMMING / WARP) as u64);
        let last = l.b.index_constant(WARP as u64 - 1);
        let is_last = l.b.op(ScalarOp::Eq, &[&lane, &last]);
        l.under(Some(is_last), &mut |l| l.b.store(sums, warp, upto));
        l.b.simple(Stmt::Barrier);
        let before = l.b.sub(&upto, &own_sum);
        l.b.assign(sum, before);
        l.for_each("warp", warp, |l, other| {
            let (before, more) = (l.b.read(sum), l.b.load(sums, other));
            let after = l.b.add(&before, &more);
            l.b.assign(sum, after);
        });
        l.for_each("m", turns, |l, n| {
            let place = l.b.add(&first, &n);
            let inside = l.b.lt(&place, &end);
            l.under(Some(inside), &mut |l| {
                let (before, more) = (l.b.read(sum), l.b.load(counts, place));
                l.b.store(out, place, before);
                let after = l.b.add(&before, &more);
                l.b.assign(sum, after);
            });
        });
        l.finish()
    }

    /// Where each row's positions start, by halving, a row an instance.
    fn find_starts(&self, rows: &Tensor) -> Result<super::Lowered> {
        let entries = self.rows + 2;
        let mut l = Lowering::single(Builder::new("scatter_starts", entries as u64, self.index), self.index);
        let out = l.b.param("starts", DType::I32, entries as u64, Access::Write);
        let rows = l.view(rows);
        let row = l.b.index();
        let low = l.b.local("low", Value::int(self.index, 0));
        let high = l.b.local("high", Value::int(self.index, self.count as i64));
        let turns = l.b.index_constant((usize::BITS - self.count.leading_zeros()) as u64);
        l.for_each("half", turns, |l, _| {
            let (from, to) = (l.b.read(low), l.b.read(high));
            let open = l.b.lt(&from, &to);
            l.under(Some(open), &mut |l| {
                let sum = l.b.add(&from, &to);
                let middle = l.index_op(ScalarOp::Div, sum, 2);
                let found = l.b.load(rows, middle);
                let found = l.b.cast(self.index, &found);
                let less = l.b.lt(&found, &row);
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

/// A lane's position in a turn.
struct Position {
    row: ExprId,
    position: ExprId,
    /// Whether there is one.
    inside: ExprId,
    digit: ExprId,
    /// Lanes with the same digit, and those of them before this one.
    peers: ExprId,
    earlier: ExprId,
    /// Whether it is the first of them.
    leads: ExprId,
}

impl Lowering {
    /// Something for all digits, some a lane.
    fn each_digit(&mut self, mut body: impl FnMut(&mut Lowering, ExprId, usize)) {
        let lane = self.b.builtin(Builtin::Thread(Axis::X));
        for n in 0..DIGITS / WARP {
            let digit = self.index_op(ScalarOp::Add, lane, n * WARP);
            body(self, digit, n);
        }
    }

    fn ranked(&mut self, row: ExprId, position: ExprId, inside: ExprId, lane: ExprId, pass: usize) -> Position {
        let [shift, most] = [BITS * pass, DIGITS - 1].map(|n| self.b.constant(Value::int(DType::I32, n as i64)));
        let shifted = self.b.op(ScalarOp::Shr, &[&row, &shift]);
        let digit = self.b.op(ScalarOp::And, &[&shifted, &most]);
        // The lanes that agree in every bit.
        let mut same = self.b.vote(Vote::Ballot, inside);
        for bit in 0..BITS {
            let (mask, zero) =
                (self.b.constant(Value::int(DType::I32, 1 << bit)), self.b.constant(Value::int(DType::I32, 0)));
            let kept = self.b.op(ScalarOp::And, &[&digit, &mask]);
            let set = self.b.op(ScalarOp::Ne, &[&kept, &zero]);
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
