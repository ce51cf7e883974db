//! Seeded faults: each is reported with its kind and line, and the corrected kernel is not
//! reported, in both execution orders.

mod seeded;

use bornite_ir::interp::{ExecutionOrder, InterpreterOptions, run_with};
use bornite_ir::{
    Access, Arg, Axis, Builder, Builtin, Emit, EmitBits, ExprId, FaultKind, Kernel, Op, Scalar, Stmt, Value, templates,
};
use seeded::Seeded;

const I32: Scalar = Scalar::I32;

/// Runs a kernel; parameters that are read hold 0, 1, 2, …
fn run(kernel: &Kernel, order: ExecutionOrder) -> Result<(), bornite_ir::Fault> {
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
    run_with(
        kernel,
        &mut args,
        InterpreterOptions { order, max_statements: Some(100_000), ..InterpreterOptions::default() },
    )
}

/// Short name of a fault kind.
fn name(kind: &FaultKind) -> &'static str {
    match kind {
        FaultKind::OutOfBounds { .. } => "bounds",
        FaultKind::Misaligned { .. } => "misaligned",
        FaultKind::Uninitialized { .. } => "uninitialised",
        FaultKind::Race { .. } => "race",
        FaultKind::DivergentBarrier { .. } => "barrier",
        FaultKind::PartialWarp { .. } => "warp",
        FaultKind::AssertionFailed { .. } => "assertion",
        FaultKind::Division { .. } => "division",
        FaultKind::StatementLimit(_) => "too long",
        FaultKind::InvalidCall(_) => "call",
    }
}

#[test]
fn seeded_faults_are_reported_and_corrected_kernels_are_not() {
    let all = seeded::all();
    assert!(all.len() >= 30, "only {} faults", all.len());
    for Seeded { what, kind, line, faulty, right } in &all {
        for order in [ExecutionOrder::Forward, ExecutionOrder::Reverse] {
            let fault = run(faulty, order).expect_err(what);
            assert!(kind.split(" or ").any(|kind| kind == name(&fault.kind)), "{what}: {fault}");
            let text = faulty.to_string();
            let at = fault.line.unwrap_or_else(|| panic!("{what}: no line"));
            let found = text.lines().nth(at - 1).unwrap_or_default();
            assert!(found.contains(line), "{what}: reported in {found:?}, expected {line:?}\n{fault}\n{text}");
            run(right, order).unwrap_or_else(|fault| panic!("{what}: the right kernel is reported: {fault}\n{right}"));
        }
    }
}

#[test]
fn templates_run_without_faults() {
    let kernels = [
        templates::fill(I32, 100, 1.0),
        templates::axpy(Scalar::F32, 100, 2.0),
        templates::block_sum(I32, 100, 64),
        templates::warp_sum(Scalar::F32, 128),
        templates::transpose(I32, 40, 33),
        templates::matmul(Scalar::F32, 16, 32, 16, 8),
        templates::histogram(256, 20, 64),
        templates::block_scan(I32, 128, 64),
        templates::stencil(Scalar::F32, 9, 11),
        templates::softmax(Scalar::F32, 3, 70, 64),
        templates::layer_norm(Scalar::BF16, 3, 70, 64, 1e-5),
        templates::conv2d(Scalar::F32, 2, 6, 6, 2, 3),
    ];
    for kernel in kernels {
        for order in [ExecutionOrder::Forward, ExecutionOrder::Reverse] {
            run(kernel.as_ref().unwrap(), order).unwrap_or_else(|fault| panic!("{fault}"));
        }
    }
    assert!(templates::matmul(I32, 16, 32, 16, 8).is_err(), "fma is for floats");
}

fn sample(body: impl FnOnce(&mut Builder, bornite_ir::ParamId, bornite_ir::ParamId, ExprId, ExprId)) -> Kernel {
    let mut b = Builder::blocks("sample", [2, 1, 1], [64, 1, 1], I32);
    let x = b.param("x", I32, 128, Access::Read);
    let y = b.param("y", I32, 128, Access::ReadWrite);
    let [thread, block, size] =
        [Builtin::Thread, Builtin::Block, Builtin::BlockSize].map(|builtin| b.builtin(builtin(Axis::X)));
    let first = b.mul(&block, &size);
    let global = b.add(&first, &thread);
    body(&mut b, x, y, thread, global);
    b.finish().unwrap()
}

fn constant(b: &mut Builder, value: i64) -> ExprId {
    b.constant(Value::int(I32, value))
}

#[test]
fn barriers_do_not_wait_for_returned_threads() {
    let ended = sample(|b, _, _, thread, _| {
        let limit = constant(b, 32);
        let some = b.lt(&thread, &limit);
        b.if_else(some, |b| b.push_stmt(Stmt::Return(None)), |_| {});
        b.push_stmt(Stmt::Barrier);
    });
    run(&ended, ExecutionOrder::Forward).unwrap();
}

#[test]
fn branches_of_a_warp_exchange_values_at_barriers() {
    // Threads 0 to 15 of a warp pass their numbers to threads 16 to 31 and get theirs back. Each
    // side has its own branch and its own barriers; some threads leave the loop of their branch,
    // and some the kernel, early.
    let kernel = sample(|b, _, y, thread, global| {
        let tile = b.shared("tile", I32, 64);
        let [zero, half, warp, last] = [0, 16, 32, 62].map(|n| constant(b, n));
        let lane = b.op(Op::Rem, &[&thread, &warp]);
        let in_first_half = b.lt(&lane, &half);
        let ends = b.lt(&last, &thread);
        let up = b.add(&thread, &half);
        let down = b.sub(&thread, &half);
        b.store(tile, thread, zero);
        b.if_else(
            in_first_half,
            |b| {
                b.store(tile, thread, thread);
                let iterations = constant(b, 2);
                let counter = b.open_loop("turn");
                b.push_stmt(Stmt::WarpBarrier);
                b.close_loop(counter, iterations);
                let value = b.load(tile, up);
                b.store(y, global, value);
            },
            |b| {
                b.if_else(ends, |b| b.push_stmt(Stmt::Return(None)), |_| {});
                b.push_stmt(Stmt::WarpBarrier);
                let value = b.load(tile, down);
                b.store(tile, thread, value);
                b.push_stmt(Stmt::WarpBarrier);
                b.store(y, global, value);
            },
        );
    });
    for order in [ExecutionOrder::Forward, ExecutionOrder::Reverse] {
        let (x, mut y) = (vec![0u64; 64], vec![0u64; 64]);
        run_with(
            &kernel,
            &mut [Arg::Read(&x), Arg::Write(&mut y)],
            InterpreterOptions { order, ..InterpreterOptions::default() },
        )
        .unwrap();
        let y = bytemuck::cast_slice::<u64, i32>(&y);
        for (n, &found) in y.iter().enumerate() {
            // Thread 63 has returned: thread 47 reads the zero that it left, and its own result
            // stays 0.
            let (thread, lane) = (n as i32 % 64, n as i32 % 32);
            let expected = if lane < 16 { thread } else { thread - 16 };
            assert_eq!(found, if thread == 63 || thread == 47 { 0 } else { expected }, "{n}, {order:?}");
        }
    }
}

#[test]
fn an_infinite_loop_reaches_the_statement_limit() {
    let endless = sample(|b, _, _, _, _| b.infinite_loop(|b| b.push_stmt(Stmt::Continue)));
    let fault = run(&endless, ExecutionOrder::Forward).unwrap_err();
    assert_eq!(fault.kind, FaultKind::StatementLimit(100_000), "{fault}");
}

#[test]
fn a_fault_in_a_function_has_its_line() {
    let mut b = Builder::new("endless", 1, I32);
    let spin = b.function("spin", &[("a", I32.into())], I32, |b, args| {
        b.infinite_loop(|b| b.push_stmt(Stmt::Continue));
        args[0]
    });
    let i = b.index();
    b.call(spin, &[i]);
    let kernel = b.finish().unwrap();
    let fault = run(&kernel, ExecutionOrder::Forward).unwrap_err();
    let text = kernel.to_string();
    let line = text.lines().nth(fault.line.unwrap() - 1).unwrap_or_default();
    assert!(line.contains("loop") || line.contains("continue"), "{fault}\n{text}");
    assert!(fault.line < text.lines().position(|line| line.starts_with("kernel")), "{fault}\n{text}");
}

#[test]
fn loops_with_break_continue_and_return() {
    // y[i] = the first square above x[i], for even threads; odd threads leave y unchanged.
    let kernel = sample(|b, view_x, view_y, thread, global| {
        let (one, two) = (constant(b, 1), constant(b, 2));
        let parity = b.op(Op::Rem, &[&thread, &two]);
        let odd = b.op(Op::Eq, &[&parity, &one]);
        b.if_else(odd, |b| b.push_stmt(Stmt::Return(None)), |_| {});
        let x = b.load(view_x, global);
        let root = b.local("root", Value::int(I32, 0));
        b.infinite_loop(|b| {
            let r = b.read(root);
            let next = b.add(&r, &one);
            b.assign(root, next);
            let square = b.mul(&next, &next);
            let small = b.op(Op::Le, &[&square, &x]);
            b.if_else(small, |b| b.push_stmt(Stmt::Continue), |_| {});
            b.store(view_y, global, square);
            b.push_stmt(Stmt::Break);
        });
    });
    let (x, mut y): (Vec<i32>, Vec<i32>) = ((0..128).collect(), vec![-1; 128]);
    let mut words = vec![0u64; 64];
    bytemuck::cast_slice_mut::<u64, i32>(&mut words).copy_from_slice(&y);
    let mut input = vec![0u64; 64];
    bytemuck::cast_slice_mut::<u64, i32>(&mut input).copy_from_slice(&x);
    run_with(&kernel, &mut [Arg::Read(&input), Arg::Write(&mut words)], InterpreterOptions::default()).unwrap();
    y.copy_from_slice(bytemuck::cast_slice(&words));
    for (i, &found) in y.iter().enumerate() {
        let first = (1..).map(|r| r * r).find(|&s| s > i as i32).unwrap();
        assert_eq!(found, if i % 2 == 0 { first } else { -1 }, "element {i}");
    }
}
