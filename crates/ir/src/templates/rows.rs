//! Row reductions, one block per row: each thread reduces a strided part of the row, then the block
//! combines the partial results in shared memory.

use super::{I32, KernelResult, ThreadIndices, less_than, matrix, mul_add_index, reduce_tile, thread_indices};
use crate::{Access, Builder, Emit, EmitBits, ExprId, Op, ParamId, Scalar, SharedId, Stmt, Value};

/// Reduction of one row by one block.
struct RowReduction {
    columns: u64,
    threads: u32,
    thread: ExprId,
    block: ExprId,
    iterations: ExprId,
    tile: SharedId,
    /// Type of accumulators: f32 for 16-bit floats.
    compute_type: Scalar,
}

impl RowReduction {
    fn new(b: &mut Builder, scalar: Scalar, columns: u64, threads: u32) -> RowReduction {
        let compute_type = scalar.compute_type();
        let tile = b.shared("tile", compute_type, threads as u64);
        let ThreadIndices { thread, block, .. } = thread_indices(b);
        let iterations = b.index_constant(columns.div_ceil(threads.max(1) as u64));
        RowReduction { columns, threads, thread, block, iterations, tile, compute_type }
    }

    /// Emits a strided loop that runs `body` for each column of this thread.
    fn each(&self, b: &mut Builder, name: &str, body: &dyn Fn(&mut Builder, ExprId)) {
        let counter = b.open_loop(name);
        let n = b.read(counter);
        let column = mul_add_index(b, n, self.threads as u64, self.thread);
        let inside = less_than(b, column, self.columns);
        b.if_else(inside, |b| body(b, column), |_| {});
        b.close_loop(counter, self.iterations);
    }

    /// Loads an element of the row, converted to the accumulator type.
    fn load(&self, b: &mut Builder, x: ParamId, column: ExprId) -> ExprId {
        let value = b.load(x, [self.block, column]);
        b.cast(self.compute_type, &value)
    }

    /// Reduces `part(column)` over the row with `op`.
    fn reduce(
        &self,
        b: &mut Builder,
        name: &str,
        op: Op,
        init: f64,
        part: &dyn Fn(&mut Builder, ExprId) -> ExprId,
    ) -> ExprId {
        let current = b.local(name, Value::from_f64(self.compute_type, init));
        self.each(b, &format!("{name}_turn"), &|b, column| {
            let (value, before) = (part(b, column), b.read(current));
            let after = b.op(op, &[&before, &value]);
            b.assign(current, after);
        });
        let (current, first) = (b.read(current), b.index_constant(0));
        b.store(self.tile, self.thread, current);
        b.push_stmt(Stmt::Barrier);
        reduce_tile(b, self.tile, self.thread, self.threads, op);
        let result = b.load(self.tile, first);
        b.push_stmt(Stmt::Barrier);
        result
    }
}

/// Softmax of each row: maximum, sum of exponentials, quotients.
pub fn softmax(scalar: Scalar, rows: u64, columns: u64, threads: u32) -> KernelResult {
    let mut b = Builder::blocks("softmax", [rows.max(1) as u32, 1, 1], [threads, 1, 1], I32);
    let x = b.view("x", scalar, &matrix(rows, columns), Access::Read);
    let out = b.view("out", scalar, &matrix(rows, columns), Access::Write);
    let row = RowReduction::new(&mut b, scalar, columns, threads);
    let largest = row.reduce(&mut b, "largest", Op::Max, f64::NEG_INFINITY, &|b, column| row.load(b, x, column));
    let power = |b: &mut Builder, column: ExprId| {
        let value = row.load(b, x, column);
        let less = b.sub(&value, &largest);
        b.op(Op::Exp, &[&less])
    };
    let total = row.reduce(&mut b, "total", Op::Add, 0.0, &power);
    row.each(&mut b, "turn", &|b, column| {
        let value = power(b, column);
        let quotient = b.div(&value, &total);
        let quotient = b.cast(scalar, &quotient);
        b.store(out, [row.block, column], quotient);
    });
    b.finish()
}

/// Layer norm of each row: (x - mean) / √(variance + eps) · weight + bias. The variance is computed
/// from differences from the mean, not from squares, so it does not cancel far from 0.
pub fn layer_norm(scalar: Scalar, rows: u64, columns: u64, threads: u32, eps: f64) -> KernelResult {
    let mut b = Builder::blocks("layer_norm", [rows.max(1) as u32, 1, 1], [threads, 1, 1], I32);
    let x = b.view("x", scalar, &matrix(rows, columns), Access::Read);
    let [weight, bias] = ["weight", "bias"].map(|name| b.param(name, scalar, columns, Access::Read));
    let out = b.view("out", scalar, &matrix(rows, columns), Access::Write);
    let row = RowReduction::new(&mut b, scalar, columns, threads);
    let count = columns.max(1) as f64;
    let sum = row.reduce(&mut b, "sum", Op::Add, 0.0, &|b, column| row.load(b, x, column));
    let divisor = b.constant_like(&sum, count);
    let mean = b.div(&sum, &divisor);
    let centred = |b: &mut Builder, column: ExprId| {
        let value = row.load(b, x, column);
        b.sub(&value, &mean)
    };
    let squares = row.reduce(&mut b, "squares", Op::Add, 0.0, &|b, column| {
        let difference = centred(b, column);
        b.mul(&difference, &difference)
    });
    let variance = b.div(&squares, &divisor);
    let eps = b.constant_like(&variance, eps);
    let variance = b.add(&variance, &eps);
    let scale = b.op(Op::Rsqrt, &[&variance]);
    row.each(&mut b, "turn", &|b, column| {
        let difference = centred(b, column);
        let [weight, bias] = [weight, bias].map(|view| {
            let value = b.load(view, column);
            b.cast(row.compute_type, &value)
        });
        let normal = b.mul(&difference, &scale);
        let value = b.fma(&normal, &weight, &bias);
        let value = b.cast(scalar, &value);
        b.store(out, [row.block, column], value);
    });
    b.finish()
}
