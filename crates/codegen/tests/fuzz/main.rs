//! Random kernels: the text form parses back, the interpreter gives the same result in both orders,
//! CPU code gives identical bits, and so do the CUDA and C++ source compiled by g++, which shares
//! no code with Bornite. Failing kernels are minimized and can be reproduced from their seed.

#[path = "../../../ir/tests/suite/mod.rs"]
mod suite;

mod calls;
mod generate;
mod gpp;
mod shrink;

use std::sync::atomic::{AtomicU64, Ordering};

use bornite_codegen::cpu;
use bornite_ir::interp::ExecutionOrder;
use bornite_ir::{Access, AlgebraOp, Builder, Emit, Expr, Kernel, Op, Scalar, Stmt, TypeRule, View};

use calls::{interpreted, lend, memory, results};
use generate::{Case, case, vectorizable_case};
use suite::Outcome;

suite! {
    backends_agree,
    vectorized_kernels_agree,
    failing_kernels_are_minimized,
    gpp_agrees,
    generated_kernels_cover_all_features,
}

/// Seeds of the kernels to test.
fn seeds() -> std::ops::Range<u64> {
    let count = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 100_000 } else { 1_500 };
    let first = match std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()) << 20,
    };
    println!("kernels from BORNITE_TEST_SEED={first}");
    first..first + count
}

/// Kernel that applies every float op, each with its own result, so that all bodies are covered.
fn rows(scalar: Scalar) -> Case {
    let count = 500;
    let mut b = Builder::new("rows", count, Scalar::I32);
    let i = b.index();
    let args = ["a", "b", "c"].map(|name| {
        let view = b.param(name, scalar, count, Access::Read);
        b.load(view, i)
    });
    for &op in Op::ALL.iter().filter(|op| op.row().rule == TypeRule::Float) {
        let out = b.param(format!("{}_out", op.row().name), scalar, count, Access::Write);
        let value = b.op(op, &args[..op.arity()].iter().collect::<Vec<_>>());
        b.store(out, i, value);
    }
    Case { kernel: b.finish().unwrap(), values: vec![] }
}

/// Returns a description of how the backends disagree on a kernel, if they do.
fn disagreement(case: &Case, kernel: &Kernel, seed: u64) -> Option<String> {
    let text = kernel.to_string();
    let parsed: Kernel = match text.parse() {
        Ok(parsed) => parsed,
        Err(error) => return Some(format!("its text form does not parse: {error}")),
    };
    if parsed.to_string() != text {
        return Some(format!("its text form changes in a round trip:\n{parsed}"));
    }
    let expected = match interpreted(case, kernel, seed, ExecutionOrder::Forward) {
        Ok(expected) => expected,
        Err(fault) => return Some(fault.to_string()),
    };
    for (variant, kernel, order) in
        [("in the reverse order", kernel, ExecutionOrder::Reverse), ("parsed back", &parsed, ExecutionOrder::Forward)]
    {
        match interpreted(case, kernel, seed, order) {
            Ok(found) if found == expected => {}
            Ok(_) => return Some(format!("different results {variant}")),
            Err(fault) => return Some(format!("{variant}: {fault}")),
        }
    }
    if kernel.is_cooperative() {
        return None;
    }
    for options in COMPILE_OPTIONS {
        let compiled = match cpu::compile_with(kernel, options) {
            Ok(compiled) => compiled,
            Err(error) => return Some(error.to_string()),
        };
        // The number of threads varies between kernels; concurrent tests may change it without
        // effect.
        cpu::set_num_threads([1, 2, 5][seed as usize % 3]);
        cpu::set_chunk_size([0, 24, 31][seed as usize / 3 % 3]);
        let mut memory = memory(case, seed);
        if let Err(fault) = compiled.run(&mut lend(case, &mut memory)) {
            return Some(format!("machine code ({options:?}): {fault}"));
        }
        if results(case, &memory) != expected {
            return Some(format!("machine code ({options:?}) gives different results"));
        }
    }
    None
}

/// Compile options: vectorized and scalar, with all bounds checks and with the necessary ones.
const COMPILE_OPTIONS: [cpu::CompileOptions; 4] = {
    const fn options(simd: bool, check_all_indices: bool) -> cpu::CompileOptions {
        cpu::CompileOptions {
            simd,
            check_all_indices,
            max_statements: None,
            limit_per_instance: false,
            check_division: false,
        }
    }
    [options(true, false), options(true, true), options(false, false), options(false, true)]
};

fn backends_agree() {
    for scalar in [Scalar::F32, Scalar::F64, Scalar::F16, Scalar::BF16] {
        let case = rows(scalar);
        assert_eq!(disagreement(&case, &case.kernel, 0), None, "{scalar}");
    }
    let cooperative = AtomicU64::new(0);
    let total = compare_backends(1, |seed| {
        let case = case(seed, true);
        cooperative.fetch_add(case.kernel.is_cooperative() as u64, Ordering::Relaxed);
        case
    });
    let cooperative = cooperative.into_inner();
    assert!(cooperative * 8 > total, "only {cooperative} kernels have shared memory");
}

/// Kernels whose instances take the same path are vectorized: most of these are.
fn vectorized_kernels_agree() {
    let vectors = AtomicU64::new(0);
    let total = compare_backends(3, |seed| {
        let case = vectorizable_case(seed);
        let compiled = cpu::compile(&case.kernel).unwrap_or_else(|error| panic!("BORNITE_TEST_SEED={seed}: {error}"));
        vectors.fetch_add(compiled.uses_vectors() as u64, Ordering::Relaxed);
        case
    });
    let vectors = vectors.into_inner();
    println!("{vectors} of {total} kernels run in vectors");
    assert!(vectors * 2 > total, "only {vectors} of {total} kernels run in vectors");
}

/// Compares all backends on the kernels of a fraction of the seeds, on all cores; returns the
/// number of kernels.
fn compare_backends(part: u64, case: impl Fn(u64) -> Case + Sync) -> u64 {
    let range = seeds();
    let range = range.start..range.start + (range.end - range.start) / part;
    let next = AtomicU64::new(range.start);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !range.contains(&seed) {
                        return;
                    }
                    let case = case(seed);
                    if let Some(what) = disagreement(&case, &case.kernel, seed) {
                        let small = shrink::shrink(&case.kernel, &|kernel| disagreement(&case, kernel, seed).is_some());
                        panic!("BORNITE_TEST_SEED={seed}: {what}\nminimized:\n{small}");
                    }
                }
            });
        }
    });
    range.end - range.start
}

fn failing_kernels_are_minimized() {
    // A fake failure: the kernel contains a cube root.
    let has_root = |kernel: &Kernel| {
        let root = |stmt: &Stmt| match stmt {
            Stmt::Let(id) => matches!(kernel.code.expr(*id), Expr::Op(Op::Cbrt, _)),
            _ => false,
        };
        kernel.code.any(&root)
    };
    let found: Vec<Kernel> = (0..3000).map(|seed| case(seed, true).kernel).filter(has_root).take(20).collect();
    assert!(found.len() == 20, "the generator produces too few cube roots");
    for kernel in found {
        let small = shrink::shrink(&kernel, &has_root);
        assert!(has_root(&small) && bornite_ir::verify(&small).is_ok());
        let left = shrink::statements(&small.code.body);
        assert!(left <= 4, "{left} statements are left:\n{small}");
    }
}

fn gpp_agrees() -> Outcome {
    let gpp = gpp::Gpp::find().ok_or("g++ cannot be run")?;
    let range = seeds();
    let count = if range.end - range.start > 10_000 { 5_000 } else { 150 };
    let all = [Scalar::F32, Scalar::F64, Scalar::F16, Scalar::BF16].map(|scalar| (0, rows(scalar)));
    let random =
        range.map(|seed| (seed, case(seed, true))).filter(|(_, case)| !case.kernel.is_cooperative()).take(count);
    let cases: Vec<(u64, Case)> = all.into_iter().chain(random).collect();
    for cases in cases.chunks(50) {
        for (n, (found, (seed, case))) in gpp.run(cases).into_iter().zip(cases).enumerate() {
            let expected = interpreted(case, &case.kernel, *seed, ExecutionOrder::Forward).unwrap();
            for (dialect, found) in found {
                if results(case, &found) != expected {
                    let fails = |kernel: &Kernel| gpp.disagrees(case, kernel, *seed, dialect);
                    let small = shrink::shrink(&case.kernel, &fails);
                    let text = gpp::text(&small, dialect);
                    panic!(
                        "BORNITE_TEST_SEED={seed}, kernel {n}: {dialect:?} source compiled by g++ gives different results\nminimized:\n{small}\n{text}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// The generator covers all features, each often enough.
fn generated_kernels_cover_all_features() {
    let total = 1000;
    let cases: Vec<Case> = (0..total).map(|seed| case(seed, true)).collect();
    let codes = |case: &Case| {
        let functions = case.kernel.functions.iter().map(|f| f.code.clone());
        functions.chain([case.kernel.code.clone()]).collect::<Vec<_>>()
    };
    let exprs = |case: &Case, predicate: &dyn Fn(&Expr) -> bool| {
        codes(case).iter().any(|code| code.exprs.iter().any(predicate))
    };
    let count = |predicate: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| predicate(case)).count();
    for (what, found) in [
        ("calls", count(&|c| exprs(c, &|e| matches!(e, Expr::Call(..))))),
        ("structs", count(&|c| !c.kernel.structs.is_empty())),
        ("values", count(&|c| !c.values.is_empty())),
        ("wide loads", count(&|c| exprs(c, &|e| matches!(e, Expr::Load { width: 2.., .. })))),
        ("three dimensions", count(&|c| c.kernel.params.iter().any(|p| p.dims.len() >= 3))),
        (
            "negative strides",
            count(&|c| c.kernel.params.iter().any(|p| p.dims.iter().any(|d| d.stride.resolve(&[]) < 0))),
        ),
        ("atomics", count(&|c| exprs(c, &|e| matches!(e, Expr::Atomic { .. })))),
        (
            "loops",
            count(&|c| codes(c).iter().any(|code| code.any(&|s| matches!(s, Stmt::For { .. } | Stmt::Loop { .. })))),
        ),
        ("local arrays", count(&|c| exprs(c, &|e| matches!(e, Expr::Load { view: View::Local(_), .. })))),
        ("barriers", count(&|c| c.kernel.code.any(&|s| matches!(s, Stmt::Barrier)))),
        ("shuffles", count(&|c| exprs(c, &|e| matches!(e, Expr::Shuffle { .. })))),
    ] {
        println!("{what}: {found} of {total}");
        assert!(found >= 20, "{what}: {found} of {total}");
    }
    for &row in AlgebraOp::ALL {
        let found = count(&|c| exprs(c, &|e| matches!(e, Expr::Algebra { op: other, .. } if *other == row)));
        println!("{}: {found} of {total}", row.row().name);
        assert!(found >= 4, "{}: {found} of {total}", row.row().name);
    }
}
