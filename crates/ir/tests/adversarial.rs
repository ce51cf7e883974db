//! Adversarial kernels: each is rejected, reported or stopped, quickly and in little memory.

use std::fmt::Write as _;

use bornite_ir::interp::{InterpreterOptions, run_with};
use bornite_ir::{Access, Arg, Builder, Emit, EmitBits, FaultKind, Kernel, Op, Scalar, Stmt, Value, templates};

/// Text form of a kernel with the given launch, declarations and body.
fn text(launch: &str, views: &str, body: &str) -> String {
    format!("bornite-ir 3\nkernel k {launch}\n{views}{{\n{body}}}\n")
}

#[test]
fn overflowing_sizes_are_rejected() {
    let max = "9223372036854775807";
    for (launch, views, expected) in [
        ("grid [1, 1, 1] block [4294967295, 4294967295, 4294967295] index i64", "", "a block of"),
        ("grid [2147483647, 65535, 65535] block [1024, 1, 1] index i64", "", "do not fit the index type"),
        (
            "grid [1, 1, 1] block [1, 1, 1] index i64",
            &format!("  shared s: f32[{max}, {max}, {max}, 0]\n")[..],
            "bytes of shared memory",
        ),
        ("parallel_for 1 index i64", "  param x: read f32[1 by -9223372036854775808]\n", ""),
        ("parallel_for 1 index i64", "  param x: read f32[1 by -9223372036854775809]\n", "a 64-bit integer"),
    ] {
        match text(launch, views, "").parse::<Kernel>() {
            Ok(kernel) => assert!(expected.is_empty() && kernel.to_string().parse::<Kernel>().is_ok()),
            Err(error) => assert!(!expected.is_empty() && error.to_string().contains(expected), "{error}"),
        }
    }
}

#[test]
fn infinite_kernels_reach_the_statement_limit() {
    let options = InterpreterOptions { max_statements: Some(10_000), ..InterpreterOptions::default() };
    for (launch, body) in [
        ("parallel_for 1 index i64", "  loop {\n  }\n"),
        ("parallel_for 9223372036854775807 index i64", ""),
        ("grid [2147483647, 65535, 1] block [1, 1, 1] index i64", ""),
    ] {
        let kernel: Kernel = text(launch, "", body).parse().unwrap();
        let fault = run_with(&kernel, &mut [], options).unwrap_err();
        assert_eq!(fault.kind, FaultKind::StatementLimit(10_000), "{fault}");
    }
    let counted =
        text("parallel_for 1 index i64", "  var $0 n: i64 = 0i64\n", "  for $0 below 9223372036854775807i64 {\n  }\n");
    let fault = run_with(&counted.parse::<Kernel>().unwrap(), &mut [], options).unwrap_err();
    assert_eq!(fault.kind, FaultKind::StatementLimit(10_000));
}

#[test]
fn call_depth_and_struct_nesting_are_limited() {
    // Each function calls the previous one: twice, which doubles the inlined size, or once, which
    // deepens the call chain.
    for (count, twice, expected) in [(20, true, "statements after inlining"), (200, false, "a call depth of")] {
        let mut b = Builder::new("k", 1, Scalar::I32);
        let mut last = None;
        for n in 0..count {
            let id = b.function(format!("f{n}"), &[("a", Scalar::I32.into())], Scalar::I32, |b, args| match last {
                None => args[0],
                Some(id) => {
                    let first = b.call(id, args);
                    if twice { b.call(id, &[first]) } else { first }
                }
            });
            last = Some(id);
        }
        let error = b.finish().expect_err("too much");
        assert!(error.message.contains(expected), "{error}");
    }
    let mut wrapped = String::from("bornite-ir 3\nstruct S0 { a: i32 }\n");
    for n in 1..2000 {
        let _ = writeln!(wrapped, "struct S{n} {{ a: S{} }}", n - 1);
    }
    wrapped += "kernel k parallel_for 1 index i32\n{\n}\n";
    assert!(wrapped.parse::<Kernel>().unwrap_err().to_string().contains("structs deep"));
    let mut b = Builder::new("deep", 1, Scalar::I32);
    let yes = b.constant(Value::int(Scalar::Bool, 1));
    let mut inner = vec![Stmt::Return(None)];
    for _ in 0..100 {
        inner = vec![Stmt::If { condition: yes, then: inner, otherwise: vec![] }];
    }
    inner.into_iter().for_each(|stmt| b.push_stmt(stmt));
    assert!(b.finish().unwrap_err().message.contains("nested more than 64 deep"));
}

#[test]
fn large_expression_numbers_allocate_no_memory() {
    // Each block could request as many expressions as the whole text has bytes.
    let mut many = String::from("bornite-ir 3\n");
    for n in 0..300 {
        let _ = writeln!(many, "function f{n}(): i32\n{{\n  %30000: i32 = add(1i32, 1i32)\n  return %30000\n}}");
    }
    many += "kernel k parallel_for 1 index i32\n{\n}\n";
    assert!(many.parse::<Kernel>().unwrap_err().to_string().contains("%30000 is never evaluated"));
    let mut b = Builder::blocks("wide", [1, 1, 1], [1024, 1, 1], Scalar::I32);
    let one = b.constant(Value::from_f64(Scalar::F32, 1.0));
    let mut value = b.construct(bornite_ir::Type::Vector(Scalar::F32, 64), &[one]);
    for _ in 0..3000 {
        value = b.add(&value, &value);
    }
    let fault = run_with(&b.finish().unwrap(), &mut [], InterpreterOptions::default()).unwrap_err();
    assert!(fault.to_string().contains("exceed the interpreter's limit"), "{fault}");
}

#[test]
fn views_named_like_statements_parse_back() {
    let names =
        ["loop", "for", "if", "return", "print", "fence", "break", "continue", "barrier", "warp_barrier", "var"];
    let mut b = Builder::new("kernel", 1, Scalar::I32);
    let i = b.index();
    // NaN constants are canonicalized too.
    let odd = b.constant(Value::from_bits(Scalar::F32, 0xffc0_0001));
    let bits = b.bitcast(Scalar::I32, &odd);
    for name in names {
        let view = b.param(name, Scalar::I32, 1, Access::Write);
        b.store(view, i, bits);
    }
    let kernel = b.finish().unwrap();
    let parsed: Kernel = kernel.to_string().parse().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(parsed.to_string(), kernel.to_string());
    for kernel in [&kernel, &parsed] {
        let mut memory = vec![[0u64]; names.len()];
        let mut args: Vec<Arg> = memory.iter_mut().map(|word| Arg::Write(word)).collect();
        run_with(kernel, &mut args, InterpreterOptions::default()).unwrap();
        assert!(memory.iter().all(|[word]| *word == 0x7fc0_0000), "{memory:x?}");
    }
}

#[test]
fn races_between_instances_are_reported() {
    let count = |atomic: bool| {
        let mut b = Builder::new("histogram", 1000, Scalar::I32);
        let h = b.param("h", Scalar::I32, 1, Access::ReadWrite);
        let (zero, one) = (b.index_constant(0), b.index_constant(1));
        if atomic {
            b.atomic(bornite_ir::Atomic::Add, h, zero, one);
        } else {
            let before = b.load(h, zero);
            let after = b.add(&before, &one);
            b.store(h, zero, after);
        }
        b.finish().unwrap()
    };
    let mut words = [0u64];
    run_with(&count(true), &mut [Arg::Write(&mut words)], InterpreterOptions::default()).unwrap();
    assert_eq!(words, [1000]);
    let fault = run_with(&count(false), &mut [Arg::Write(&mut words)], InterpreterOptions::default()).unwrap_err();
    assert!(fault.to_string().contains("race on 'h[0]': a read by instance"), "{fault}");
}

#[test]
fn an_atomic_update_does_not_hide_an_earlier_write() {
    let mut b = Builder::blocks("hidden", [1, 1, 1], [64, 1, 1], Scalar::I32);
    let x = b.param("x", Scalar::I32, 1, Access::ReadWrite);
    let thread = b.builtin(bornite_ir::Builtin::Thread(bornite_ir::Axis::X));
    let (zero, last) = (b.index_constant(0), b.index_constant(63));
    let is_last = b.op(Op::Eq, &[&thread, &last]);
    b.if_else(is_last, |b| b.store(x, zero, thread), |_| {});
    b.atomic(bornite_ir::Atomic::Add, x, zero, thread);
    let fault = run_with(&b.finish().unwrap(), &mut [Arg::Write(&mut [0])], InterpreterOptions::default()).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
}

#[test]
fn undefined_divisions_are_reported_on_request() {
    for (a, b, faulty) in [(1, 0, true), (i32::MIN as i64, -1, true), (i32::MIN as i64, 1, false), (7, -1, false)] {
        let mut builder = Builder::new("quotient", 1, Scalar::I32);
        let [a, b] = [a, b].map(|n| builder.constant(Value::int(Scalar::I32, n)));
        builder.div(&a, &b);
        let kernel = builder.finish().unwrap();
        run_with(&kernel, &mut [], InterpreterOptions::default()).unwrap();
        let outcome =
            run_with(&kernel, &mut [], InterpreterOptions { check_division: true, ..InterpreterOptions::default() });
        assert_eq!(outcome.is_err(), faulty, "{outcome:?}");
    }
}

#[test]
fn tree_reductions_support_any_number_of_threads() {
    for threads in [1u32, 2, 3, 33, 96, 100] {
        let kernel = templates::block_sum(Scalar::U64, threads as u64, threads).unwrap();
        let input: Vec<u64> = (1..=threads as u64).collect();
        let mut sum = [0u64];
        run_with(&kernel, &mut [Arg::Read(&input), Arg::Write(&mut sum)], InterpreterOptions::default()).unwrap();
        assert_eq!(sum[0], input.iter().sum::<u64>(), "{threads} threads");
    }
    for kernel in [templates::block_sum(Scalar::F32, 10, 0), templates::softmax(Scalar::F32, 1, 10, 0)] {
        assert!(kernel.unwrap_err().message.contains("a block of [0, 1, 1] threads"));
    }
}

#[test]
fn field_alignment_follows_alignas() {
    let kernel = |field: &str| {
        format!(
            "bornite-ir 3\nstruct S {{ a: i8, b: {field} }}\nkernel k parallel_for 4 index i32\n  param x: read S[4]\n{{\n}}\n"
        )
    };
    for (field, expected) in [
        ("f32x2", Some((12, 4))),
        ("f32x2 align 8", Some((16, 8))),
        ("f64 align 8", Some((16, 8))),
        ("i8 align 256", Some((512, 256))),
        ("f32 align 3", None),
        ("f32 align 0", None),
        ("f32 align 512", None),
        // Below the type's natural alignment, which `alignas` rejects too.
        ("f64 align 4", None),
        ("f32 align", None),
    ] {
        let found = kernel(field).parse::<Kernel>().ok().filter(|kernel| bornite_ir::verify(kernel).is_ok());
        let layout = found.as_ref().map(|kernel| {
            let layout = kernel.params[0].ty.layout(&kernel.structs);
            (layout.bytes, layout.align)
        });
        assert_eq!(layout, expected, "{field}");
        if let Some(kernel) = found {
            assert_eq!(kernel.to_string().parse::<Kernel>().unwrap(), kernel);
        }
    }
}
