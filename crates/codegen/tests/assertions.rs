//! Assertions in kernels: the interpreter and CPU code report the same failures, in functions and
//! loops too, and generated source contains them.

use bornite_codegen::{cpp, cpu, cuda};
use bornite_ir::interp::run;
use bornite_ir::{Access, Arg, Builder, Check, Emit, EmitBits, Kernel, Scalar, Stmt, Value};

/// `out[i] = i` for 100 instances, each of which executes `check`.
fn kernel(check: impl Fn(&mut Builder, bornite_ir::ExprId)) -> Kernel {
    let mut b = Builder::new("assertions", 100, Scalar::I32);
    let out = b.param("out", Scalar::I32, 100, Access::Write);
    let i = b.index();
    b.infinite_loop(|b| {
        check(b, i);
        b.push_stmt(Stmt::Break);
    });
    b.store(out, i, i);
    b.finish().unwrap()
}

#[test]
fn backends_report_the_same_failures() {
    let below = |limit: i64| {
        move |b: &mut Builder, i| {
            let limit = b.constant(Value::int(Scalar::I32, limit));
            let condition = b.lt(&i, &limit);
            b.push_stmt(Stmt::Check(Check::Assert { condition, message: "i < limit".into() }));
        }
    };
    let within = |from: i64, len: u64| {
        move |b: &mut Builder, i| {
            let from = b.constant(Value::int(Scalar::I32, from));
            let index = b.sub(&i, &from);
            b.push_stmt(Stmt::Check(Check::InBounds { index, len, array: "table".into() }));
        }
    };
    let cases: [(Kernel, Option<&str>); 5] = [
        (kernel(below(100)), None),
        (kernel(below(99)), Some("'i < limit' does not hold, in instance 99")),
        (kernel(within(0, 100)), None),
        (kernel(within(0, 42)), Some("index 42 is outside 'table' of 42 elements, in instance 42")),
        (kernel(within(1, 1 << 40)), Some("index -1 is outside 'table' of 1099511627776 elements, in instance 0")),
    ];
    for (kernel, expected) in cases {
        let [mut a, mut b] = [vec![0; 50], vec![0; 50]];
        let interpreted = run(&kernel, &mut [Arg::Write(&mut a)]).map_err(|fault| fault.kind.to_string());
        let compiled = cpu::compile(&kernel).unwrap().run(&mut [Arg::Write(&mut b)]);
        let compiled = compiled.map_err(|fault| fault.kind.to_string());
        assert_eq!(interpreted.err().as_deref(), expected, "{kernel}");
        assert_eq!(compiled.err().as_deref(), expected, "{kernel}");
    }
    let asserting = kernel(below(5));
    for text in [cuda::print(&asserting), cpp::print(&asserting).unwrap()] {
        assert!(text.contains(", \"i < limit\");") && text.contains("void bn_assert("), "{text}");
    }
    assert!(!cuda::print(&kernel(within(0, 5))).contains("table"));
}
