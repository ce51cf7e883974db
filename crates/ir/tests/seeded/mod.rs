//! Seeded faults: kernels with one fault each, and their corrected versions.

use bornite_ir::{
    Access, Atomic, Axis, Builder, Builtin, Dim, Emit, EmitBits, ExprId, Extent, Kernel, Op, Scalar, Shuffle, Stmt,
    Value, Vote, templates,
};

const I32: Scalar = Scalar::I32;

/// Kernel with a fault, and the corrected kernel.
pub struct Seeded {
    pub what: &'static str,
    /// Expected report: bounds, misaligned, uninitialised, race, barrier or warp.
    pub kind: &'static str,
    /// Fragment of the reported line.
    pub line: &'static str,
    pub faulty: Kernel,
    pub right: Kernel,
}

fn seeded(what: &'static str, kind: &'static str, line: &'static str, faulty: Kernel, right: Kernel) -> Seeded {
    Seeded { what, kind, line, faulty, right }
}

/// Returns all seeded faults.
pub fn all() -> Vec<Seeded> {
    let mut all = vec![];
    indices(&mut all);
    dimensions(&mut all);
    missing_barriers(&mut all);
    races(&mut all);
    divergence(&mut all);
    shared_memory(&mut all);
    all
}

/// Faults of dimensions, strides and vector accesses.
fn dimensions(all: &mut Vec<Seeded>) {
    let dim = |extent: i64, stride: i64| Dim { extent: Extent::Const(extent), stride: Extent::Const(stride) };
    // Inside the buffer but outside the row: loads an element of the next row.
    let column = |by: i64| {
        let mut b = Builder::blocks("column", [1, 1, 1], [8, 8, 1], I32);
        let x = b.view("x", I32, &[dim(8, 8), dim(8, 1)], Access::Read);
        let y = b.view("y", I32, &[dim(8, 8), dim(8, 1)], Access::Write);
        let [i, j] = [Axis::Y, Axis::X].map(|axis| b.builtin(Builtin::Thread(axis)));
        let next = plus(&mut b, j, by);
        let value = b.load(x, [i, next]);
        b.store(y, [i, j], value);
        b.finish().unwrap()
    };
    all.push(seeded("column beyond the row", "bounds", "= x[", column(1), column(0)));
    let aliased = |stride: i64| {
        let mut b = Builder::blocks("aliased", [1, 1, 1], [8, 8, 1], I32);
        let y = b.view("y", I32, &[dim(8, stride), dim(8, 1)], Access::Write);
        let [i, j] = [Axis::Y, Axis::X].map(|axis| b.builtin(Builtin::Thread(axis)));
        b.store(y, [i, j], j);
        b.finish().unwrap()
    };
    all.push(seeded("rows that share their memory", "race", "y[", aliased(0), aliased(8)));
    all.push(seeded("rows that overlap", "race", "y[", aliased(7), aliased(8)));
    let wide = |offset: i64, last: u64| {
        let mut b = Builder::blocks("wide", [1, 1, 1], [last as u32, 1, 1], I32);
        let x = b.param("x", I32, 128, Access::Read);
        let y = b.param("y", I32, 128, Access::Write);
        let thread = b.builtin(Builtin::Thread(Axis::X));
        let four = constant(&mut b, 4);
        let first = b.mul(&thread, &four);
        let at = plus(&mut b, first, offset);
        let value = b.load_wide(x, at, 4);
        b.store(y, first, value);
        b.finish().unwrap()
    };
    all.push(seeded("wide load off its multiple", "misaligned", "wide 4 x[", wide(2, 16), wide(0, 16)));
    all.push(seeded("wide load over the end", "bounds", "wide 4 x[", wide(4, 32), wide(0, 32)));
    let norm = templates::layer_norm(Scalar::F32, 2, 100, 64, 1e-5).unwrap();
    all.push(seeded("layer norm, reuse of the tile", "race", "tile[", without_barrier(&norm, 7), norm.clone()));
}

/// Kernel of 2 blocks of 64 threads over `x` (read), `y` (read and written) and shared `tile`, of
/// 128, 128 and 64 elements; `body` receives the thread, block and global index.
fn sample(body: impl FnOnce(&mut Builder, Sample)) -> Kernel {
    let mut b = Builder::blocks("sample", [2, 1, 1], [64, 1, 1], I32);
    let x = b.param("x", I32, 128, Access::Read);
    let y = b.param("y", I32, 128, Access::ReadWrite);
    let tile = b.shared("tile", I32, 64);
    let (thread, block) = (b.builtin(Builtin::Thread(Axis::X)), b.builtin(Builtin::Block(Axis::X)));
    let size = b.builtin(Builtin::BlockSize(Axis::X));
    let first = b.mul(&block, &size);
    let global = b.add(&first, &thread);
    body(&mut b, Sample { x, y, tile, thread, global });
    b.finish().unwrap()
}

#[derive(Clone, Copy)]
struct Sample {
    x: bornite_ir::ParamId,
    y: bornite_ir::ParamId,
    tile: bornite_ir::SharedId,
    thread: ExprId,
    global: ExprId,
}

fn constant(b: &mut Builder, value: i64) -> ExprId {
    b.constant(Value::int(I32, value))
}

fn plus(b: &mut Builder, a: ExprId, value: i64) -> ExprId {
    let value = constant(b, value);
    b.add(&a, &value)
}

/// Removes the n-th barrier, in the order of the text form.
fn without_barrier(kernel: &Kernel, n: usize) -> Kernel {
    fn remove(block: &mut Vec<Stmt>, left: &mut usize) -> bool {
        for at in 0..block.len() {
            let found = match &mut block[at] {
                Stmt::Barrier | Stmt::WarpBarrier if *left == 0 => {
                    block.remove(at);
                    true
                }
                Stmt::Barrier | Stmt::WarpBarrier => {
                    *left -= 1;
                    false
                }
                Stmt::For { body, .. } | Stmt::Loop { body } => remove(body, left),
                Stmt::If { then, otherwise, .. } => remove(then, left) || remove(otherwise, left),
                _ => false,
            };
            if found {
                return true;
            }
        }
        false
    }
    let mut kernel = kernel.clone();
    let mut left = n;
    assert!(remove(&mut kernel.code.body, &mut left), "there is no barrier {n}");
    kernel
}

fn indices(all: &mut Vec<Seeded>) {
    let shifted = |by: i64| {
        sample(|b, s| {
            let at = plus(b, s.global, by);
            let value = b.load(s.x, at);
            b.store(s.y, s.global, value);
        })
    };
    all.push(seeded("load one above", "bounds", "= x[", shifted(1), shifted(0)));
    all.push(seeded("load one below", "bounds", "= x[", shifted(-1), shifted(0)));
    let stored = |by: i64| {
        sample(|b, s| {
            let (value, at) = (b.load(s.x, s.global), plus(b, s.global, by));
            b.store(s.y, at, value);
        })
    };
    all.push(seeded("store one above", "bounds", "y[", stored(1), stored(0)));
    all.push(seeded("store one below", "bounds", "y[", stored(-1), stored(0)));
    let tile = |by: i64| {
        sample(|b, s| {
            let at = plus(b, s.thread, by);
            b.store(s.tile, at, s.thread);
            b.push_stmt(Stmt::Barrier);
            let value = b.load(s.tile, at);
            b.store(s.y, s.global, value);
        })
    };
    all.push(seeded("shared store above", "bounds", "tile[", tile(1), tile(0)));
    let scaled = |factor: i64| {
        sample(|b, s| {
            let factor = constant(b, factor);
            let far = b.mul(&s.global, &factor);
            let value = b.load(s.x, far);
            b.store(s.y, s.global, value);
        })
    };
    all.push(seeded("index overflow", "bounds", "= x[", scaled(1 << 30), scaled(1)));
    let counted = |index: i64| {
        sample(|b, s| {
            let (at, one) = (constant(b, index), constant(b, 1));
            b.atomic(Atomic::Add, s.y, at, one);
        })
    };
    all.push(seeded("atomic above", "bounds", "atomic add y[", counted(128), counted(127)));
}

fn missing_barriers(all: &mut Vec<Seeded>) {
    let sum = templates::block_sum(I32, 256, 64).unwrap();
    all.push(seeded("reduction, before the first step", "race", "tile[", without_barrier(&sum, 0), sum.clone()));
    all.push(seeded("reduction, between steps", "race", "tile[", without_barrier(&sum, 2), sum.clone()));
    let transpose = templates::transpose(I32, 40, 33).unwrap();
    // Depending on the order, a thread may also read elements that have not been written yet.
    all.push(seeded("transpose", "race or uninitialised", "tile[", without_barrier(&transpose, 0), transpose));
    let matmul = templates::matmul(Scalar::F32, 16, 32, 16, 8).unwrap();
    all.push(seeded("product, before use", "race", "= tile_", without_barrier(&matmul, 0), matmul.clone()));
    all.push(seeded("product, before the next tile", "race", "tile_a[", without_barrier(&matmul, 1), matmul.clone()));
    let scan = templates::block_scan(I32, 128, 64).unwrap();
    all.push(seeded("scan", "race", "= even[", without_barrier(&scan, 0), scan));
    let histogram = templates::histogram(256, 20, 64).unwrap();
    all.push(seeded(
        "histogram, before counting",
        "race",
        "atomic add local[",
        without_barrier(&histogram, 0),
        histogram.clone(),
    ));
    all.push(seeded(
        "histogram, before adding up",
        "race",
        "= local[",
        without_barrier(&histogram, 1),
        histogram.clone(),
    ));
    let softmax = templates::softmax(Scalar::F32, 2, 100, 64).unwrap();
    all.push(seeded("softmax, reuse of the tile", "race", "tile[", without_barrier(&softmax, 7), softmax));
    // Threads of one warp need only a warp barrier.
    let exchange = sample(|b, s| {
        b.store(s.tile, s.thread, s.thread);
        b.push_stmt(Stmt::WarpBarrier);
        let one = constant(b, 1);
        let other = b.op(Op::Xor, &[&s.thread, &one]);
        let value = b.load(s.tile, other);
        b.store(s.y, s.global, value);
    });
    all.push(seeded("exchange in a warp", "race", "= tile[", without_barrier(&exchange, 0), exchange.clone()));
    let far = sample(|b, s| {
        b.store(s.tile, s.thread, s.thread);
        b.push_stmt(Stmt::WarpBarrier);
        let half = constant(b, 32);
        let other = b.op(Op::Xor, &[&s.thread, &half]);
        let value = b.load(s.tile, other);
        b.store(s.y, s.global, value);
    });
    all.push(seeded("exchange between warps behind a warp's barrier", "race", "= tile[", far, exchange.clone()));
}

fn races(all: &mut Vec<Seeded>) {
    let same = |faulty: bool| {
        sample(|b, s| {
            let zero = constant(b, 0);
            let at = if faulty { zero } else { s.thread };
            b.store(s.tile, at, s.thread);
            b.push_stmt(Stmt::Barrier);
            let value = b.load(s.tile, at);
            b.store(s.y, s.global, value);
        })
    };
    all.push(seeded("two threads write one element", "race", "tile[", same(true), same(false)));
    let blocks = |faulty: bool| sample(|b, s| b.store(s.y, if faulty { s.thread } else { s.global }, s.thread));
    all.push(seeded("two blocks write one element", "race", "y[", blocks(true), blocks(false)));
    let count = |atomic: bool| {
        sample(|b, s| {
            let (bin, one) = (b.load(s.x, s.global), constant(b, 1));
            if atomic {
                b.atomic(Atomic::Add, s.y, bin, one);
            } else {
                let before = b.load(s.y, bin);
                let after = b.add(&before, &one);
                b.store(s.y, bin, after);
            }
        })
    };
    all.push(seeded("histogram without atomics", "race", "y[", count(false), count(true)));
    let plain_read = |faulty: bool| {
        sample(|b, s| {
            let (zero, one) = (constant(b, 0), constant(b, 1));
            b.atomic(Atomic::Max, s.y, zero, one);
            if faulty {
                b.load(s.y, zero);
            }
        })
    };
    all.push(seeded("plain read of what others update", "race", "y[", plain_read(true), plain_read(false)));
    let neighbour = |apart: bool| {
        sample(|b, s| {
            b.store(s.tile, s.thread, s.thread);
            b.push_stmt(Stmt::Barrier);
            let one = constant(b, 1);
            let other = b.op(Op::Xor, &[&s.thread, &one]);
            let value = b.load(s.tile, other);
            if apart {
                b.push_stmt(Stmt::Barrier);
            }
            b.store(s.tile, s.thread, value);
        })
    };
    all.push(seeded("write of what a neighbour reads", "race", "tile[", neighbour(false), neighbour(true)));
}

fn divergence(all: &mut Vec<Seeded>) {
    let branch = |faulty: bool| {
        sample(|b, s| {
            let limit = constant(b, if faulty { 10 } else { 64 });
            let some = b.lt(&s.thread, &limit);
            b.if_else(some, |b| b.push_stmt(Stmt::Barrier), |_| {});
        })
    };
    all.push(seeded("barrier under a branch", "barrier", "barrier", branch(true), branch(false)));
    let iterations = |faulty: bool| {
        sample(|b, s| {
            let same = constant(b, 3);
            let j = b.open_loop("j");
            b.push_stmt(Stmt::Barrier);
            b.close_loop(j, if faulty { s.thread } else { same });
        })
    };
    all.push(seeded(
        "barrier in a loop of different lengths",
        "barrier",
        "barrier",
        iterations(true),
        iterations(false),
    ));
    let warp = |faulty: bool| {
        sample(|b, s| {
            let limit = constant(b, if faulty { 40 } else { 32 });
            let some = b.lt(&s.thread, &limit);
            b.if_else(some, |b| b.push_stmt(Stmt::WarpBarrier), |_| {});
        })
    };
    all.push(seeded("warp barrier for half a warp", "barrier", "warp_barrier", warp(true), warp(false)));
    let branches = |faulty: bool| {
        sample(|b, s| {
            let (limit, times) = (constant(b, 10), constant(b, 2));
            let some = b.lt(&s.thread, &limit);
            b.if_else(
                some,
                |b| {
                    let j = b.open_loop("j");
                    b.push_stmt(Stmt::WarpBarrier);
                    b.close_loop(j, times);
                },
                |b| (0..2 - faulty as u32).for_each(|_| b.push_stmt(Stmt::WarpBarrier)),
            );
        })
    };
    all.push(seeded("more warp barriers in one branch", "barrier", "warp_barrier", branches(true), branches(false)));
    let shuffle = |faulty: bool| {
        sample(|b, s| {
            let (limit, one) = (constant(b, if faulty { 10 } else { 32 }), constant(b, 1));
            let some = b.lt(&s.thread, &limit);
            b.if_else(some, |b| _ = b.shuffle(Shuffle::Down, s.thread, one), |_| {});
        })
    };
    all.push(seeded("shuffle from an inactive lane", "warp", "shuffle down", shuffle(true), shuffle(false)));
    let vote = |faulty: bool| {
        sample(|b, s| {
            let limit = constant(b, if faulty { 10 } else { 32 });
            let some = b.lt(&s.thread, &limit);
            b.if_else(some, |b| _ = b.vote(Vote::Any, some), |_| {});
        })
    };
    all.push(seeded("vote of half a warp", "warp", "vote any", vote(true), vote(false)));
}

fn shared_memory(all: &mut Vec<Seeded>) {
    let read = |written: bool| {
        sample(|b, s| {
            if written {
                b.store(s.tile, s.thread, s.thread);
            }
            let value = b.load(s.tile, s.thread);
            b.store(s.y, s.global, value);
        })
    };
    all.push(seeded("shared read before write", "uninitialised", "= tile[", read(false), read(true)));
    let update = |written: bool| {
        sample(|b, s| {
            let one = constant(b, 1);
            if written {
                b.store(s.tile, s.thread, one);
            }
            b.atomic(Atomic::Add, s.tile, s.thread, one);
        })
    };
    all.push(seeded(
        "atomic update of uninitialised shared memory",
        "uninitialised",
        "atomic add tile[",
        update(false),
        update(true),
    ));
}
