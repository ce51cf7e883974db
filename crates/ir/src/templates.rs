//! Example kernels built with the [`Builder`]; also tests for every backend.

mod rows;
mod tiles;

use crate::{
    Access, AlgebraOp, Atomic, Axis, Builder, Builtin, Dim, Emit, EmitBits, ExprId, Extent, Kernel, Op, Scalar,
    SharedId, Shuffle, Stmt, Type, Value, VerifyError, contiguous,
};
pub use rows::{layer_norm, softmax};
pub use tiles::{matmul, transpose};

/// A kernel, or the reason it is not valid.
pub type KernelResult = Result<Kernel, VerifyError>;

const I32: Scalar = Scalar::I32;

fn grid_for(n: u64, threads: u32) -> [u32; 3] {
    [n.div_ceil(threads.max(1) as u64).max(1) as u32, 1, 1]
}

/// Dimensions of a contiguous matrix.
fn matrix(rows: u64, columns: u64) -> [Dim; 2] {
    let dims = contiguous(&[rows.into(), columns.into()]);
    [dims[0], dims[1]]
}

/// Thread, block and global index along x.
struct ThreadIndices {
    thread: ExprId,
    block: ExprId,
    global: ExprId,
}

fn thread_indices(b: &mut Builder) -> ThreadIndices {
    let (thread, block) = (b.builtin(Builtin::Thread(Axis::X)), b.builtin(Builtin::Block(Axis::X)));
    let size = b.builtin(Builtin::BlockSize(Axis::X));
    let first = b.mul(&block, &size);
    let global = b.add(&first, &thread);
    ThreadIndices { thread, block, global }
}

/// Returns the index `a · n + c`.
fn mul_add_index(b: &mut Builder, a: ExprId, n: u64, c: ExprId) -> ExprId {
    let n = b.index_constant(n);
    let product = b.mul(&a, &n);
    b.add(&product, &c)
}

fn less_than(b: &mut Builder, a: ExprId, n: u64) -> ExprId {
    let n = b.index_constant(n);
    b.lt(&a, &n)
}

/// `out[i] = value`.
pub fn fill(scalar: Scalar, n: u64, value: f64) -> KernelResult {
    let mut b = Builder::new("fill", n, I32);
    let out = b.param("out", scalar, n, Access::Write);
    let i = b.index();
    let value = b.constant(Value::from_f64(scalar, value));
    b.store(out, i, value);
    b.finish()
}

/// `out[i] = a · x[i] + y[i]`.
pub fn axpy(scalar: Scalar, n: u64, a: f64) -> KernelResult {
    let mut b = Builder::new("axpy", n, I32);
    let x = b.param("x", scalar, n, Access::Read);
    let y = b.param("y", scalar, n, Access::Read);
    let out = b.param("out", scalar, n, Access::Write);
    let i = b.index();
    let (xi, yi) = (b.load(x, i), b.load(y, i));
    let a = b.constant_like(&xi, a);
    let value = b.fma(&a, &xi, &yi);
    b.store(out, i, value);
    b.finish()
}

/// Tree reduction of one value per thread into the tile's first element. Each step adds the upper
/// half to the lower and ends with a barrier. The number of threads need not be a power of 2.
fn reduce_tile(b: &mut Builder, tile: SharedId, thread: ExprId, threads: u32, op: Op) {
    let mut width = threads as u64;
    while width > 1 {
        let far = width.div_ceil(2);
        let active = less_than(b, thread, width - far);
        b.if_else(
            active,
            |b| {
                let far = b.index_constant(far);
                let other = b.add(&thread, &far);
                let (mine, theirs) = (b.load(tile, thread), b.load(tile, other));
                let both = b.op(op, &[&mine, &theirs]);
                b.store(tile, thread, both);
            },
            |_| {},
        );
        b.push_stmt(Stmt::Barrier);
        width = far;
    }
}

/// `out[block]` = sum of the block's elements of x, reduced in shared memory. Two passes sum any
/// length up to the square of the block size.
pub fn block_sum(scalar: Scalar, n: u64, threads: u32) -> KernelResult {
    let grid = grid_for(n, threads);
    let mut b = Builder::blocks("block_sum", grid, [threads, 1, 1], I32);
    let x = b.param("x", scalar, n, Access::Read);
    let out = b.param("out", scalar, grid[0] as u64, Access::Write);
    let tile = b.shared("tile", scalar, threads as u64);
    let ThreadIndices { thread, block, global } = thread_indices(&mut b);
    let zero = b.constant(Value::from_f64(scalar, 0.0));
    let inside = less_than(&mut b, global, n);
    b.if_else(
        inside,
        |b| {
            let value = b.load(x, global);
            b.store(tile, thread, value);
        },
        |b| b.store(tile, thread, zero),
    );
    b.push_stmt(Stmt::Barrier);
    reduce_tile(&mut b, tile, thread, threads, Op::Add);
    let first = less_than(&mut b, thread, 1);
    b.if_else(
        first,
        |b| {
            let total = b.load(tile, thread);
            b.store(out, block, total);
        },
        |_| {},
    );
    b.finish()
}

/// `out[warp]` = sum of the warp's 32 elements of x, by shuffles. `n` must be a multiple of 32.
pub fn warp_sum(scalar: Scalar, n: u64) -> KernelResult {
    let mut b = Builder::blocks("warp_sum", grid_for(n, 32), [32, 1, 1], I32);
    let x = b.param("x", scalar, n, Access::Read);
    let out = b.param("out", scalar, n.div_ceil(32), Access::Write);
    let ThreadIndices { thread, block, global } = thread_indices(&mut b);
    let mut sum = b.load(x, global);
    for distance in [16, 8, 4, 2, 1] {
        let distance = b.index_constant(distance);
        let other = b.shuffle(Shuffle::Xor, sum, distance);
        sum = b.add(&sum, &other);
    }
    let first = less_than(&mut b, thread, 1);
    b.if_else(first, |b| b.store(out, block, sum), |_| {});
    b.finish()
}

/// `counts[x[i]] += 1`, first in shared memory, then one atomic add per block and bin into
/// `counts`, which is not cleared first.
pub fn histogram(n: u64, bins: u64, threads: u32) -> KernelResult {
    let mut b = Builder::blocks("histogram", grid_for(n, threads), [threads, 1, 1], I32);
    let x = b.param("x", I32, n, Access::Read);
    let counts = b.param("counts", I32, bins, Access::ReadWrite);
    let local = b.shared("local", I32, bins);
    let ThreadIndices { thread, global, .. } = thread_indices(&mut b);
    let (zero, one) = (b.index_constant(0), b.index_constant(1));
    // Strided loop over bins: thread `t` handles bins `t`, `t + threads`, …
    let per_bin = |b: &mut Builder, body: &dyn Fn(&mut Builder, ExprId)| {
        let iterations = b.index_constant(bins.div_ceil(threads.max(1) as u64));
        let counter = b.open_loop("turn");
        let n = b.read(counter);
        let bin = mul_add_index(b, n, threads as u64, thread);
        let inside = less_than(b, bin, bins);
        b.if_else(inside, |b| body(b, bin), |_| {});
        b.close_loop(counter, iterations);
    };
    per_bin(&mut b, &|b, bin| b.store(local, bin, zero));
    b.push_stmt(Stmt::Barrier);
    let inside = less_than(&mut b, global, n);
    b.if_else(
        inside,
        |b| {
            let bin = b.load(x, global);
            b.atomic(Atomic::Add, local, bin, one);
        },
        |_| {},
    );
    b.push_stmt(Stmt::Barrier);
    per_bin(&mut b, &|b, bin| {
        let count = b.load(local, bin);
        b.atomic(Atomic::Add, counts, bin, count);
    });
    b.finish()
}

/// Inclusive prefix sums of each block of `threads` elements: a Hillis-Steele scan with double
/// buffering.
pub fn block_scan(scalar: Scalar, n: u64, threads: u32) -> KernelResult {
    let mut b = Builder::blocks("block_scan", grid_for(n, threads), [threads, 1, 1], I32);
    let x = b.param("x", scalar, n, Access::Read);
    let out = b.param("out", scalar, n, Access::Write);
    let buffers = [b.shared("even", scalar, threads as u64), b.shared("odd", scalar, threads as u64)];
    let ThreadIndices { thread, global, .. } = thread_indices(&mut b);
    let zero = b.constant(Value::from_f64(scalar, 0.0));
    let inside = less_than(&mut b, global, n);
    b.if_else(
        inside,
        |b| {
            let value = b.load(x, global);
            b.store(buffers[0], thread, value);
        },
        |b| b.store(buffers[0], thread, zero),
    );
    let (mut distance, mut from) = (1, 0);
    while distance < threads as u64 {
        b.push_stmt(Stmt::Barrier);
        let mine = b.load(buffers[from], thread);
        let is_prefix = less_than(&mut b, thread, distance);
        b.if_else(
            is_prefix,
            |b| b.store(buffers[1 - from], thread, mine),
            |b| {
                let far = b.index_constant(distance);
                let other = b.sub(&thread, &far);
                let theirs = b.load(buffers[from], other);
                let sum = b.add(&theirs, &mine);
                b.store(buffers[1 - from], thread, sum);
            },
        );
        (distance, from) = (distance * 2, 1 - from);
    }
    b.if_else(
        inside,
        |b| {
            let value = b.load(buffers[from], thread);
            b.store(out, global, value);
        },
        |_| {},
    );
    b.finish()
}

/// Four-point stencil: out is the mean of each element's neighbours above, below, left and right;
/// the border is copied.
pub fn stencil(scalar: Scalar, rows: u64, columns: u64) -> KernelResult {
    let mut b = Builder::new("stencil", rows * columns, I32);
    let x = b.param("x", scalar, rows * columns, Access::Read);
    let out = b.param("out", scalar, rows * columns, Access::Write);
    let index = b.index();
    let width = b.index_constant(columns);
    let (i, j) = (b.div(&index, &width), b.op(Op::Rem, &[&index, &width]));
    let one = b.index_constant(1);
    let mut inner = None;
    for (coordinate, length) in [(i, rows), (j, columns)] {
        let high = b.index_constant(length.saturating_sub(1));
        let (above, within) = (b.op(Op::Ge, &[&coordinate, &one]), b.lt(&coordinate, &high));
        let both = b.op(Op::And, &[&above, &within]);
        inner = Some(inner.map_or(both, |all: ExprId| b.op(Op::And, &[&all, &both])));
    }
    let inner = inner.unwrap_or(index);
    b.if_else(
        inner,
        |b| {
            let neighbours = [b.sub(&index, &width), b.add(&index, &width), b.sub(&index, &one), b.add(&index, &one)];
            let values = neighbours.map(|at| b.load(x, at));
            let (vertical, horizontal) = (b.add(&values[0], &values[1]), b.add(&values[2], &values[3]));
            let sum = b.add(&vertical, &horizontal);
            let mean = b.scale(&sum, 0.25);
            b.store(out, index, mean);
        },
        |b| {
            let value = b.load(x, index);
            b.store(out, index, value);
        },
    );
    b.finish()
}

/// Convolution without padding, one instance per output element: `out[c, i, j] = Σ x[d, i+p, j+q]
/// w[c, d, p, q]`.
pub fn conv2d(scalar: Scalar, channels: u64, height: u64, width: u64, filters: u64, size: u64) -> KernelResult {
    let (rows, columns) = ((height + 1).saturating_sub(size), (width + 1).saturating_sub(size));
    let n = filters * rows * columns;
    let mut b = Builder::new("conv2d", n, I32);
    let x = b.param("x", scalar, channels * height * width, Access::Read);
    let w = b.param("w", scalar, filters * channels * size * size, Access::Read);
    let out = b.param("out", scalar, n, Access::Write);
    let index = b.index();
    let by = |b: &mut Builder, op: Op, a: ExprId, n: u64| {
        let n = b.index_constant(n.max(1));
        b.op(op, &[&a, &n])
    };
    let (j, rest) = (by(&mut b, Op::Rem, index, columns), by(&mut b, Op::Div, index, columns));
    let (i, c) = (by(&mut b, Op::Rem, rest, rows), by(&mut b, Op::Div, rest, rows));
    let sum = b.local("sum", Value::from_f64(scalar, 0.0));
    let (all, side) = (b.index_constant(channels), b.index_constant(size));
    let d = b.open_loop("d");
    let channel = b.read(d);
    let p = b.open_loop("p");
    let down = b.read(p);
    let q = b.open_loop("q");
    let right = b.read(q);
    let (row, column) = (b.add(&i, &down), b.add(&j, &right));
    let plane = mul_add_index(&mut b, channel, height, row);
    let from = mul_add_index(&mut b, plane, width, column);
    let filter = mul_add_index(&mut b, c, channels, channel);
    let filter = mul_add_index(&mut b, filter, size, down);
    let weight = mul_add_index(&mut b, filter, size, right);
    let (value, weight, before) = (b.load(x, from), b.load(w, weight), b.read(sum));
    let after = b.fma(&value, &weight, &before);
    b.assign(sum, after);
    b.close_loop(q, side);
    b.close_loop(p, side);
    b.close_loop(d, all);
    let total = b.read(sum);
    b.store(out, index, total);
    b.finish()
}

/// One time step of `n` particles that fall and bounce off the floor y = 0; `n`, the time step and
/// gravity are passed by value. Uses structs, vectors and a function.
pub fn particles() -> KernelResult {
    let vector = Type::Vector(Scalar::F32, 3);
    let mut b = Builder::new("particles", 0, I32);
    let particle =
        b.struct_type("Particle", &[("position", vector), ("velocity", vector), ("mass", Scalar::F32.into())]);
    b.value("n", I32);
    let [dt, gravity] = [("dt", Type::Scalar(Scalar::F32)), ("gravity", vector)].map(|(name, ty)| b.value(name, ty));
    b.set_instance_count(Extent::Value(0));
    let particles = b.view("particles", particle, &contiguous(&[Extent::Value(0)]), Access::ReadWrite);
    let energy = b.view("energy", Scalar::F32, &contiguous(&[Extent::Value(0)]), Access::Write);
    let bounced = b.function("bounced", &[("velocity", vector), ("height", Scalar::F32.into())], vector, |b, args| {
        let (up, zero) = (b.extract(args[0], 1), b.constant_like(&args[1], 0.0));
        let (above, rising) = (b.op(Op::Ge, &[&args[1], &zero]), b.op(Op::Ge, &[&up, &zero]));
        let free = b.op(Op::Or, &[&above, &rising]);
        b.if_else(free, |b| b.push_stmt(Stmt::Return(Some(args[0]))), |_| {});
        let back = b.scale(&up, -0.5);
        b.insert(args[0], 1, back)
    });
    let i = b.index();
    let whole = b.load(particles, i);
    let [position, velocity, mass] = [0, 1, 2].map(|field| b.extract(whole, field));
    let step = b.construct(vector, &[dt]);
    let velocity = b.fma(&gravity, &step, &velocity);
    let position = b.fma(&velocity, &step, &position);
    let height = b.extract(position, 1);
    let velocity = b.call(bounced, &[velocity, height]);
    let whole = b.construct(particle, &[position, velocity, mass]);
    b.store(particles, i, whole);
    let square = b.algebra(AlgebraOp::Dot, &[velocity, velocity]);
    let half = b.scale(&mass, 0.5);
    let value = b.mul(&half, &square);
    b.store(energy, i, value);
    b.finish()
}
