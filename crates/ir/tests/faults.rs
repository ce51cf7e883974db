//! Seeded faults: each is reported with its kind and line, and its corrected twin reports nothing, in both orders.

use bornite_ir::interp::{Options, Order, run_with};
use bornite_ir::{
    Access, Arg, Atomic, Axis, Builder, Builtin, Emit, EmitBits, ExprId, FaultKind, Kernel, Op, Scalar, Shuffle, Stmt,
    Value, Vote, templates,
};

const I32: Scalar = Scalar::I32;

/// Runs over memory that holds 0, 1, 2, … in every parameter that is read.
fn run(kernel: &Kernel, order: Order) -> Result<(), bornite_ir::Fault> {
    let mut memory: Vec<Vec<u64>> = (kernel.params.iter())
        .map(|p| {
            let mut words = vec![0u64; kernel.view_bytes(p, &[]).unwrap_or(0).div_ceil(8)];
            if p.access != Access::Write && p.ty == I32.into() {
                for (n, x) in bytemuck::cast_slice_mut::<u64, i32>(&mut words).iter_mut().enumerate() {
                    *x = n as i32 % 7;
                }
            }
            words
        })
        .collect();
    let mut args: Vec<Arg> = (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access == Access::Read { Arg::Read(words) } else { Arg::Write(words) })
        .collect();
    run_with(kernel, &mut args, Options { order, max_statements: Some(100_000) })
}

/// What a fault is, without its details.
fn name(kind: &FaultKind) -> &'static str {
    match kind {
        FaultKind::OutOfBounds { .. } => "bounds",
        FaultKind::Misaligned { .. } => "misaligned",
        FaultKind::Uninitialised { .. } => "uninitialised",
        FaultKind::Race { .. } => "race",
        FaultKind::DivergentBarrier { .. } => "barrier",
        FaultKind::PartialWarp { .. } => "warp",
        FaultKind::TooLong(_) => "too long",
        FaultKind::BadCall(_) => "call",
    }
}

/// The faulty kernel is reported as `kind` in a line that contains `line`; the right one is not reported.
fn check(what: &str, kind: &str, line: &str, faulty: &Kernel, right: &Kernel) {
    for order in [Order::Forward, Order::Reverse] {
        let fault = run(faulty, order).expect_err(what);
        assert_eq!(name(&fault.kind), kind, "{what}: {fault}");
        let text = faulty.to_string();
        let found = text.lines().nth(fault.line.unwrap_or_else(|| panic!("{what}: no line")) - 1).unwrap_or_default();
        assert!(found.contains(line), "{what}: reported in {found:?}, expected {line:?}\n{fault}\n{text}");
        run(right, order).unwrap_or_else(|fault| panic!("{what}: the right kernel is reported: {fault}\n{right}"));
    }
}

/// A kernel of 2 blocks of 64 threads over `x` (read), `y` (read and written) and shared `tile`, of 128, 128 and 64
/// elements; `body` gets the thread, the block and the global index.
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

/// Takes out the n-th barrier, counting in the order of the text.
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

#[test]
fn indices() {
    let shifted = |by: i64| {
        sample(|b, s| {
            let at = plus(b, s.global, by);
            let value = b.load(s.x, at);
            b.store(s.y, s.global, value);
        })
    };
    check("load one above", "bounds", "= x[", &shifted(1), &shifted(0));
    check("load one below", "bounds", "= x[", &shifted(-1), &shifted(0));
    let stored = |by: i64| {
        sample(|b, s| {
            let (value, at) = (b.load(s.x, s.global), plus(b, s.global, by));
            b.store(s.y, at, value);
        })
    };
    check("store one above", "bounds", "y[", &stored(1), &stored(0));
    check("store one below", "bounds", "y[", &stored(-1), &stored(0));
    let tile = |by: i64| {
        sample(|b, s| {
            let at = plus(b, s.thread, by);
            b.store(s.tile, at, s.thread);
        })
    };
    check("shared store above", "bounds", "tile[", &tile(1), &tile(0));
    let scaled = |factor: i64| {
        sample(|b, s| {
            let factor = constant(b, factor);
            let far = b.mul(&s.global, &factor);
            let value = b.load(s.x, far);
            b.store(s.y, s.global, value);
        })
    };
    check("index overflow", "bounds", "= x[", &scaled(1 << 30), &scaled(1));
    let counted = |index: i64| {
        sample(|b, s| {
            let (at, one) = (constant(b, index), constant(b, 1));
            b.atomic(Atomic::Add, s.y, at, one);
        })
    };
    check("atomic above", "bounds", "atomic add y[", &counted(128), &counted(127));
}

#[test]
fn missing_barriers() {
    let sum = templates::block_sum(I32, 256, 64).unwrap();
    check("reduction, before the first step", "race", "tile[", &without_barrier(&sum, 0), &sum);
    check("reduction, between steps", "race", "tile[", &without_barrier(&sum, 2), &sum);
    let transpose = templates::transpose(I32, 40, 33).unwrap();
    // In this order a thread reads what the others have not written yet.
    let faulty = without_barrier(&transpose, 0);
    for order in [Order::Forward, Order::Reverse] {
        let fault = run(&faulty, order).unwrap_err();
        assert!(matches!(name(&fault.kind), "race" | "uninitialised"), "{fault}");
    }
    let matmul = templates::matmul(I32, 16, 32, 16, 8);
    assert!(matmul.is_err(), "fma is for floats");
    let matmul = templates::matmul(Scalar::F32, 16, 32, 16, 8).unwrap();
    check("product, before use", "race", "= tile_", &without_barrier(&matmul, 0), &matmul);
    check("product, before the next tile", "race", "tile_a[", &without_barrier(&matmul, 1), &matmul);
    let scan = templates::block_scan(I32, 128, 64).unwrap();
    check("scan", "race", "= even[", &without_barrier(&scan, 0), &scan);
    let histogram = templates::histogram(256, 20, 64).unwrap();
    check("histogram, before counting", "race", "atomic add local[", &without_barrier(&histogram, 0), &histogram);
    check("histogram, before adding up", "race", "= local[", &without_barrier(&histogram, 1), &histogram);
    let softmax = templates::softmax(Scalar::F32, 2, 100, 64).unwrap();
    check("softmax, reuse of the tile", "race", "tile[", &without_barrier(&softmax, 7), &softmax);
    // Threads of one warp need a warp's barrier, no more.
    let exchange = sample(|b, s| {
        b.store(s.tile, s.thread, s.thread);
        b.simple(Stmt::WarpBarrier);
        let one = constant(b, 1);
        let other = b.op(Op::Xor, &[&s.thread, &one]);
        let value = b.load(s.tile, other);
        b.store(s.y, s.global, value);
    });
    check("exchange in a warp", "race", "= tile[", &without_barrier(&exchange, 0), &exchange);
    let far = sample(|b, s| {
        b.store(s.tile, s.thread, s.thread);
        b.simple(Stmt::WarpBarrier);
        let half = constant(b, 32);
        let other = b.op(Op::Xor, &[&s.thread, &half]);
        let value = b.load(s.tile, other);
        b.store(s.y, s.global, value);
    });
    check("exchange between warps behind a warp's barrier", "race", "= tile[", &far, &exchange);
}

#[test]
fn races() {
    let same = |faulty: bool| {
        sample(|b, s| {
            let zero = constant(b, 0);
            let at = if faulty { zero } else { s.thread };
            b.store(s.tile, at, s.thread);
        })
    };
    check("two threads write one element", "race", "tile[", &same(true), &same(false));
    let blocks = |faulty: bool| sample(|b, s| b.store(s.y, if faulty { s.thread } else { s.global }, s.thread));
    check("two blocks write one element", "race", "y[", &blocks(true), &blocks(false));
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
    check("histogram without atomics", "race", "y[", &count(false), &count(true));
    let peek = |faulty: bool| {
        sample(|b, s| {
            let (zero, one) = (constant(b, 0), constant(b, 1));
            b.atomic(Atomic::Max, s.y, zero, one);
            if faulty {
                b.load(s.y, zero);
            }
        })
    };
    check("plain read of what others update", "race", "y[", &peek(true), &peek(false));
    let neighbour = |apart: bool| {
        sample(|b, s| {
            b.store(s.tile, s.thread, s.thread);
            b.simple(Stmt::Barrier);
            let one = constant(b, 1);
            let other = b.op(Op::Xor, &[&s.thread, &one]);
            let value = b.load(s.tile, other);
            if apart {
                b.simple(Stmt::Barrier);
            }
            b.store(s.tile, s.thread, value);
        })
    };
    check("write of what a neighbour reads", "race", "tile[", &neighbour(false), &neighbour(true));
}

#[test]
fn divergence() {
    let branch = |faulty: bool| {
        sample(|b, s| {
            let limit = constant(b, if faulty { 10 } else { 64 });
            let some = b.lt(&s.thread, &limit);
            b.if_else(some, |b| b.simple(Stmt::Barrier), |_| {});
        })
    };
    check("barrier under a branch", "barrier", "barrier", &branch(true), &branch(false));
    let turns = |faulty: bool| {
        sample(|b, s| {
            let same = constant(b, 3);
            let j = b.open_loop("j");
            b.simple(Stmt::Barrier);
            b.close_loop(j, if faulty { s.thread } else { same });
        })
    };
    check("barrier in a loop of different lengths", "barrier", "barrier", &turns(true), &turns(false));
    let warp = |faulty: bool| {
        sample(|b, s| {
            let limit = constant(b, if faulty { 40 } else { 32 });
            let some = b.lt(&s.thread, &limit);
            b.if_else(some, |b| b.simple(Stmt::WarpBarrier), |_| {});
        })
    };
    check("warp barrier for half a warp", "barrier", "warp_barrier", &warp(true), &warp(false));
    let shuffle = |faulty: bool| {
        sample(|b, s| {
            let (limit, one) = (constant(b, if faulty { 10 } else { 32 }), constant(b, 1));
            let some = b.lt(&s.thread, &limit);
            b.if_else(some, |b| _ = b.shuffle(Shuffle::Down, s.thread, one), |_| {});
        })
    };
    check("shuffle from an inactive lane", "warp", "shuffle down", &shuffle(true), &shuffle(false));
    let vote = |faulty: bool| {
        sample(|b, s| {
            let limit = constant(b, if faulty { 10 } else { 32 });
            let some = b.lt(&s.thread, &limit);
            b.if_else(some, |b| _ = b.vote(Vote::Any, some), |_| {});
        })
    };
    check("vote of half a warp", "warp", "vote any", &vote(true), &vote(false));
    // Threads that have ended are not waited for.
    let ended = sample(|b, s| {
        let limit = constant(b, 32);
        let some = b.lt(&s.thread, &limit);
        b.if_else(some, |b| b.simple(Stmt::Return(None)), |_| {});
        b.simple(Stmt::Barrier);
    });
    run(&ended, Order::Forward).unwrap();
}

#[test]
fn shared_memory_and_time() {
    let read = |written: bool| {
        sample(|b, s| {
            if written {
                b.store(s.tile, s.thread, s.thread);
            }
            let value = b.load(s.tile, s.thread);
            b.store(s.y, s.global, value);
        })
    };
    check("shared read before write", "uninitialised", "= tile[", &read(false), &read(true));
    let update = |written: bool| {
        sample(|b, s| {
            let one = constant(b, 1);
            if written {
                b.store(s.tile, s.thread, one);
            }
            b.atomic(Atomic::Add, s.tile, s.thread, one);
        })
    };
    check("update of what nobody wrote", "uninitialised", "atomic add tile[", &update(false), &update(true));
    let endless = sample(|b, _| b.endless(|b| b.simple(Stmt::Continue)));
    let fault = run(&endless, Order::Forward).unwrap_err();
    assert_eq!(fault.kind, FaultKind::TooLong(100_000), "{fault}");
}

#[test]
fn loops_with_break_continue_and_return() {
    // y[i] = the first square above x[i], for even threads; odd ones leave y as it is.
    let kernel = sample(|b, s| {
        let (one, two) = (constant(b, 1), constant(b, 2));
        let parity = b.op(Op::Rem, &[&s.thread, &two]);
        let odd = b.op(Op::Eq, &[&parity, &one]);
        b.if_else(odd, |b| b.simple(Stmt::Return(None)), |_| {});
        let x = b.load(s.x, s.global);
        let root = b.local("root", Value::int(I32, 0));
        b.endless(|b| {
            let r = b.read(root);
            let next = b.add(&r, &one);
            b.assign(root, next);
            let square = b.mul(&next, &next);
            let small = b.op(Op::Le, &[&square, &x]);
            b.if_else(small, |b| b.simple(Stmt::Continue), |_| {});
            b.store(s.y, s.global, square);
            b.simple(Stmt::Break);
        });
    });
    let (x, mut y): (Vec<i32>, Vec<i32>) = ((0..128).collect(), vec![-1; 128]);
    let mut words = vec![0u64; 64];
    bytemuck::cast_slice_mut::<u64, i32>(&mut words).copy_from_slice(&y);
    let mut input = vec![0u64; 64];
    bytemuck::cast_slice_mut::<u64, i32>(&mut input).copy_from_slice(&x);
    run_with(&kernel, &mut [Arg::Read(&input), Arg::Write(&mut words)], Options::default()).unwrap();
    y.copy_from_slice(bytemuck::cast_slice(&words));
    for (i, &found) in y.iter().enumerate() {
        let first = (1..).map(|r| r * r).find(|&s| s > i as i32).unwrap();
        assert_eq!(found, if i % 2 == 0 { first } else { -1 }, "element {i}");
    }
}
