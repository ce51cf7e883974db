//! CPU code beyond the reach of random kernels: adversarial kernels, proven indices, faults in
//! vectorized code, multi-threaded launches.

use bornite_codegen::cpu::{self, CompileOptions};
use bornite_ir::{
    Access, Arg, Builder, Emit, EmitBits, Extent, Fault, FaultKind, Kernel, Op, Scalar, Stmt, Value, interp, templates,
};

/// `out[i] = x[i + offset]` for `count` instances, both views of `count` elements.
fn shifted(count: u64, offset: i64, index: Scalar) -> Kernel {
    let mut b = Builder::new("shifted", count, index);
    let out = b.param("out", Scalar::F32, count, Access::Write);
    let x = b.param("x", Scalar::F32, count, Access::Read);
    let i = b.index();
    let offset = b.constant(Value::int(index, offset));
    let at = b.add(&i, &offset);
    let value = b.load(x, at);
    b.store(out, i, value);
    b.finish().unwrap()
}

fn run(kernel: &Kernel, options: CompileOptions, words: usize) -> Result<Vec<u64>, Fault> {
    let compiled = cpu::compile_with(kernel, options).unwrap();
    let (mut out, x) = (vec![0; words], vec![0x3f80_0000_3f80_0000; words]);
    compiled.run(&mut [Arg::Write(&mut out), Arg::Read(&x)])?;
    Ok(out)
}

#[test]
fn out_of_bounds_indices_are_faults() {
    for simd in [true, false] {
        for index in [Scalar::I32, Scalar::I64] {
            for (count, offset) in [(64, 1), (64, -1), (64, 40), (67, -3), (67, i32::MAX as i64), (9, -100), (1000, 1)]
            {
                let kernel = shifted(count, offset, index);
                let words = (count as usize).div_ceil(2);
                let fault = run(&kernel, CompileOptions { simd, ..CompileOptions::default() }, words).unwrap_err();
                let FaultKind::OutOfBounds { view, index: found, len, thread, .. } = &fault.kind else {
                    panic!("{fault}")
                };
                assert_eq!((view.as_str(), *len), ("x", count));
                // The reported instance does access the reported index.
                let instance: i64 = thread.strip_prefix("instance ").unwrap().parse().unwrap();
                assert!((0..count as i64).contains(&instance), "{fault}");
                let at = instance + offset;
                let wrapped = if index == Scalar::I32 { at as i32 as i64 } else { at };
                assert!(*found == at || *found == wrapped, "{fault}");
                assert!(!(0..count as i64).contains(&wrapped), "{fault}");
                // The next kernel runs unaffected.
                assert!(
                    run(&shifted(count, 0, index), CompileOptions { simd, ..CompileOptions::default() }, words).is_ok()
                );
            }
        }
    }
}

#[test]
fn adversarial_kernels_are_faults() {
    // 7 / (n - 3), for n = 0, 1, …
    let mut b = Builder::new("divides", 8, Scalar::I32);
    let out = b.param("out", Scalar::I16, 8, Access::Write);
    let i = b.index();
    let n = b.cast(Scalar::I16, &i);
    let [three, seven] = [3, 7].map(|n| b.constant(Value::int(Scalar::I16, n)));
    let by = b.sub(&n, &three);
    let quotient = b.div(&seven, &by);
    b.store(out, i, quotient);
    let kernel = b.finish().unwrap();
    let mut words = [0u64; 2];
    cpu::compile(&kernel).unwrap().run(&mut [Arg::Write(&mut words)]).unwrap();
    let options = CompileOptions { check_division: true, ..CompileOptions::default() };
    let fault = cpu::compile_with(&kernel, options).unwrap().run(&mut [Arg::Write(&mut words)]).unwrap_err();
    let options = interp::InterpreterOptions { check_division: true, ..interp::InterpreterOptions::default() };
    let expected = interp::run_with(&kernel, &mut [Arg::Write(&mut words)], options).unwrap_err();
    assert_eq!(fault.kind, expected.kind);

    // Infinite loops of all kinds.
    let endless = |write: &dyn Fn(&mut Builder)| {
        let mut b = Builder::new("endless", 4, Scalar::I64);
        b.param("out", Scalar::I32, 4, Access::Write);
        write(&mut b);
        b.finish().unwrap()
    };
    let nothing = endless(&|b| b.push_stmt(Stmt::Loop { body: vec![] }));
    let continues = endless(&|b| b.push_stmt(Stmt::Loop { body: vec![Stmt::Continue] }));
    let counts = endless(&|b| {
        let counter = b.open_loop("n");
        let end = b.index_constant(1 << 60);
        b.close_loop(counter, end);
    });
    for kernel in [nothing, continues, counts] {
        let options = CompileOptions { max_statements: Some(10_000), ..CompileOptions::default() };
        let fault = cpu::compile_with(&kernel, options).unwrap().run(&mut [Arg::Write(&mut words)]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::StatementLimit(10_000));
    }
    let fine = templates::axpy(Scalar::F32, 4, 2.0).unwrap();
    let (x, y) = ([0u64; 2], [0u64; 2]);
    cpu::compile(&fine).unwrap().run(&mut [Arg::Read(&x), Arg::Read(&y), Arg::Write(&mut words)]).unwrap();
}

/// The statement limit does not depend on how a launch is split.
#[test]
fn the_statement_limit_spans_all_threads() {
    let kernel = shifted(10_000, 0, Scalar::I32);
    for threads in [1, 2, 5] {
        cpu::set_num_threads(threads);
        cpu::set_chunk_size(100);
        // Three statements: an index, a load, a store.
        for (limit, fits) in [(30_000, true), (29_999, false), (3, false)] {
            let options = CompileOptions { max_statements: Some(limit), ..CompileOptions::default() };
            assert_eq!(run(&kernel, options, 5000).is_ok(), fits, "{limit} statements on {threads} threads");
        }
    }
    cpu::set_chunk_size(0);
}

/// A limit per instance stops an infinite loop at once and allows any number of short instances.
#[test]
fn the_statement_limit_can_apply_per_instance() {
    let each =
        |limit| CompileOptions { max_statements: Some(limit), limit_per_instance: true, ..CompileOptions::default() };
    let short = shifted(10_000, 0, Scalar::I32);
    let mut b = Builder::new("endless", 10_000, Scalar::I64);
    b.param("out", Scalar::I32, 10_000, Access::Write);
    b.push_stmt(Stmt::Loop { body: vec![Stmt::Continue] });
    let endless = cpu::compile_with(&b.finish().unwrap(), each(10_000_000)).unwrap();
    for threads in [1, 3] {
        cpu::set_num_threads(threads);
        for (limit, fits) in [(3, true), (2, false)] {
            assert_eq!(run(&short, each(limit), 5000).is_ok(), fits, "{limit} statements on {threads} threads");
        }
        let begun = std::time::Instant::now();
        let fault = endless.run(&mut [Arg::Write(&mut vec![0; 5000])]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::StatementLimit(10_000_000));
        assert!(begun.elapsed().as_secs() < 20, "{:?} for one instance's statements", begun.elapsed());
    }
}

#[test]
fn indices_proven_in_bounds_are_not_checked() {
    let compiled = |kernel: &Kernel| cpu::compile(kernel).unwrap();
    // At the instance's own index, for constant and dynamic sizes.
    assert_eq!(compiled(&templates::axpy(Scalar::F32, 1000, 2.0).unwrap()).bounds_checks(), 0);
    let mut b = Builder::new("unknown", 1, Scalar::I64);
    let n = Extent::Value(0);
    b.value("n", Scalar::I64);
    b.set_instance_count(n);
    let out = b.view("out", Scalar::F64, &bornite_ir::contiguous(&[n]), Access::Write);
    let i = b.index();
    let value = b.cast(Scalar::F64, &i);
    b.store(out, i, value);
    assert_eq!(compiled(&b.finish().unwrap()).bounds_checks(), 0);
    // A transposed view of a matrix, a broadcast row, a sum over columns.
    let (rows, columns) = (6, 10);
    let mut b = Builder::new("views", rows * columns, Scalar::I32);
    let out = b.param("out", Scalar::F32, rows * columns, Access::Write);
    let x = b.param("x", Scalar::F32, rows * columns, Access::Read);
    let row = b.param("row", Scalar::F32, columns, Access::Read);
    let i = b.index();
    let [r, c] = [rows, columns].map(|n| b.index_constant(n));
    let (upper, lower) = (b.div(&i, &r), b.op(Op::Rem, &[&i, &r]));
    let transposed = b.mul(&lower, &c);
    let transposed = b.add(&transposed, &upper);
    let (value, along) = (b.load(x, transposed), b.op(Op::Rem, &[&i, &c]));
    let other = b.load(row, along);
    let sum = b.local("sum", Value::from_f64(Scalar::F32, 0.0));
    let counter = b.open_loop("n");
    let n = b.read(counter);
    let start = b.mul(&n, &c);
    let offset = b.add(&start, &along);
    let (found, before) = (b.load(x, offset), b.read(sum));
    let after = b.add(&before, &found);
    b.assign(sum, after);
    b.close_loop(counter, r);
    let (total, both) = (b.read(sum), b.add(&value, &other));
    let value = b.add(&total, &both);
    b.store(out, i, value);
    let kernel = b.finish().unwrap();
    assert_eq!(compiled(&kernel).bounds_checks(), 0);
    assert_eq!(
        cpu::compile_with(&kernel, CompileOptions { check_all_indices: true, ..CompileOptions::default() })
            .unwrap()
            .bounds_checks(),
        4
    );
    // One element too far, one too early, and an index that wraps.
    for (offset, bounds_checks) in [(0, 0), (1, 1), (-1, 1), (i32::MAX as i64, 1)] {
        assert_eq!(compiled(&shifted(64, offset, Scalar::I32)).bounds_checks(), bounds_checks, "{offset}");
    }
}

/// Comparisons whose operand wraps inside a vector: its range is that of the type, which hides the
/// wrap.
#[test]
fn comparisons_of_wrapping_operands_are_scalarized() {
    for step in [0x4ccc_cccd, 0x6000_0001, 0x1999_999a] {
        let count = 64;
        let mut b = Builder::new("wraps", count, Scalar::I32);
        let out = b.param("out", Scalar::I32, count, Access::Write);
        let i = b.index();
        let [step, many, zero, one] = [step, 1000, 0, 1].map(|n| b.constant(Value::int(Scalar::I32, n)));
        // The quotient is always 0, and not folded.
        let (wrapped, quotient) = (b.mul(&i, &step), b.div(&i, &many));
        let sum = b.add(&wrapped, &quotient);
        let negative = b.op(Op::Lt, &[&sum, &zero]);
        b.if_else(negative, |b| b.store(out, i, one), |b| b.store(out, i, zero));
        let kernel = b.finish().unwrap();
        let mut expected = vec![0u64; 32];
        interp::run(&kernel, &mut [Arg::Write(&mut expected)]).unwrap();
        for simd in [true, false] {
            let mut found = vec![0u64; 32];
            let compiled = cpu::compile_with(&kernel, CompileOptions { simd, ..CompileOptions::default() }).unwrap();
            compiled.run(&mut [Arg::Write(&mut found)]).unwrap();
            assert_eq!(found, expected, "simd {simd}, vectors {}", compiled.uses_vectors());
        }
    }
}

/// A kernel long enough to be split gives the same result for any number of threads.
#[test]
fn results_do_not_depend_on_threads() {
    let count = 300_001;
    let mut b = Builder::new("waves", count, Scalar::I32);
    let out = b.param("out", Scalar::F32, count, Access::Write);
    let i = b.index();
    let x = b.cast(Scalar::F32, &i);
    let (sine, root) = (b.op(Op::Sin, &[&x]), b.op(Op::Sqrt, &[&x]));
    let value = b.mul(&sine, &root);
    b.store(out, i, value);
    let kernel = b.finish().unwrap();
    let run = |options: CompileOptions| {
        let mut words = vec![0u64; (count as usize).div_ceil(2)];
        let compiled = cpu::compile_with(&kernel, options).unwrap();
        // Twice: the first run measures the cost, the second uses it.
        for _ in 0..2 {
            compiled.run(&mut [Arg::Write(&mut words)]).unwrap();
        }
        words
    };
    let mut expected = vec![0u64; (count as usize).div_ceil(2)];
    interp::run(&kernel, &mut [Arg::Write(&mut expected)]).unwrap();
    for threads in [1, 2, 5] {
        for chunk in [0, 1000, 4093] {
            for simd in [true, false] {
                cpu::set_num_threads(threads);
                cpu::set_chunk_size(chunk);
                let found = run(CompileOptions { simd, ..CompileOptions::default() });
                assert!(found == expected, "{threads} threads, chunks of {chunk}, simd {simd}");
            }
        }
    }
    cpu::set_chunk_size(0);
}

/// Every op on every type, on special values and random bits, vectorized and scalar, on one, two
/// and five threads.
#[test]
fn every_op_agrees_with_the_interpreter() {
    let count = 997;
    let mut random = std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64);
    let seed = std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok());
    random = seed.unwrap_or(random);
    println!("BORNITE_TEST_SEED={random}");
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random ^ random >> 29
    };
    let mut checked = 0;
    for &op in Op::ALL {
        for scalar in Scalar::ALL {
            let mut types = vec![scalar; op.arity()];
            if op == Op::Select {
                types[0] = Scalar::Bool;
            }
            let Ok(result) = op.row().rule.result(&types) else { continue };
            let mut b = Builder::new(op.row().name, count, Scalar::I32);
            let out = b.param("out", result, count, Access::Write);
            let i = b.index();
            let args: Vec<_> = (types.iter().enumerate())
                .map(|(n, &scalar)| {
                    let view = b.param(format!("in{n}"), scalar, count, Access::Read);
                    b.load(view, i)
                })
                .collect();
            let value = b.op(op, &args.iter().collect::<Vec<_>>());
            b.store(out, i, value);
            let kernel = b.finish().unwrap();
            let columns: Vec<Vec<u64>> = (types.iter())
                .map(|&scalar| {
                    let mut words = vec![0; (count as usize * scalar.bytes()).div_ceil(8)];
                    for n in 0..count as usize {
                        let specials = [0.0, -0.0, f64::NAN, f64::INFINITY, -1.0, 1e-40, 1e9, 0.5, 2.5, -128.0, 127.0];
                        let value = match next() % 4 {
                            0 => Value::from_f64(scalar, specials[(next() >> 7) as usize % specials.len()]),
                            1 => Value::from_bits(scalar, next()),
                            _ => Value::from_f64(scalar, (next() >> 40) as f64 / 4e5 - 20.0),
                        };
                        bornite_ir::store_scalar(&mut words, n * scalar.bytes(), value);
                    }
                    words
                })
                .collect();
            let results = |words: &[u64]| -> Vec<u64> {
                let values = (0..count as usize).map(|n| bornite_ir::load_scalar(words, n * result.bytes(), result));
                values.map(|v| if v.as_f64().is_nan() { u64::MAX } else { v.bits() }).collect()
            };
            let call = |run: &dyn Fn(&mut [Arg]) -> Result<(), Fault>| {
                let mut out = vec![0; (count as usize * result.bytes()).div_ceil(8)];
                let mut args = vec![Arg::Write(&mut out)];
                args.extend(columns.iter().map(|words| Arg::Read(words)));
                run(&mut args).unwrap();
                results(&out)
            };
            let expected = call(&|args| interp::run(&kernel, args));
            for (n, simd) in [true, false].into_iter().enumerate() {
                let compiled =
                    cpu::compile_with(&kernel, CompileOptions { simd, ..CompileOptions::default() }).unwrap();
                assert_eq!(compiled.bounds_checks(), 0);
                assert!(compiled.uses_vectors() == simd || cfg!(not(target_arch = "x86_64")));
                cpu::set_num_threads([1, 2, 5][(checked + n) % 3]);
                cpu::set_chunk_size(100);
                let found = call(&|args| compiled.run(args));
                let differs = (0..count as usize).find(|&n| found[n] != expected[n]);
                assert!(differs.is_none(), "{op:?} of {scalar}, simd {simd}, differs at {differs:?}");
            }
            checked += 1;
        }
    }
    assert!(checked > 250, "only {checked} combinations of row and type");
    cpu::set_chunk_size(0);
}
