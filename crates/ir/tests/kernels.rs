//! Handwritten kernels: what the verifier rejects, what the interpreter computes and reports, the
//! text form.

use bornite_ir::{
    Access, Arg, Args, Builder, Emit, EmitBits, Expr, ExprId, FaultKind, Kernel, Op, Scalar, Stmt, TypeRule, Value,
    interp, verify,
};

/// out[i] = x[i] < 0 ? -x[i] : x[0] + … + x[i], with a loop and a branch.
fn sample(count: u64) -> Kernel {
    let mut b = Builder::new("sample", count, Scalar::I32);
    let x = b.param("x", Scalar::F32, count, Access::Read);
    let out = b.param("out", Scalar::F32, count, Access::Write);
    let i = b.index();
    let xi = b.load(x, i);
    let zero = b.constant_like(&xi, 0.0);
    let negative = b.lt(&xi, &zero);
    let total = b.local("total", Value::from_f64(Scalar::F32, 0.0));
    let one = b.index_constant(1);
    let end = b.add(&i, &one);
    b.if_else(
        negative,
        |b| {
            let minus = b.neg(&xi);
            b.assign(total, minus);
        },
        |b| {
            let j = b.open_loop("j");
            let at = b.read(j);
            let xj = b.load(x, at);
            let before = b.read(total);
            let sum = b.add(&before, &xj);
            b.assign(total, sum);
            b.close_loop(j, end);
        },
    );
    let value = b.read(total);
    b.store(out, i, value);
    b.finish().unwrap()
}

fn words(values: &[f32]) -> Vec<u64> {
    let mut words = vec![0; values.len().div_ceil(2)];
    bytemuck::cast_slice_mut::<u64, f32>(&mut words)[..values.len()].copy_from_slice(values);
    words
}

#[test]
fn loops_and_branches() {
    let count = 700; // more than two sets of lanes, the last one partly used
    let x: Vec<f32> = (0..count).map(|i| if i % 3 == 1 { -(i as f32) } else { i as f32 }).collect();
    let input = words(&x);
    let mut output = vec![0; input.len()];
    interp::run(&sample(count), &mut [Arg::Read(&input), Arg::Write(&mut output)]).unwrap();
    let found = &bytemuck::cast_slice::<u64, f32>(&output)[..x.len()];
    for (i, &found) in found.iter().enumerate() {
        let expected = if x[i] < 0.0 { -x[i] } else { x[..=i].iter().sum() };
        assert_eq!(found, expected, "element {i}");
    }
}

/// A backend without branches: a body's tables and rare branches become selects.
#[test]
fn expanded_bodies_give_identical_bits() {
    let x = [0.5, -3.0, 1e5, 4_294_967_295.0, 4_294_967_296.0, -1e22, 5.3e263, f64::MAX, f64::NEG_INFINITY, 0.0];
    let input = x.map(f64::to_bits);
    for &op in Op::ALL.iter().filter(|op| op.row().rule == TypeRule::Float && op.arity() == 1) {
        let mut b = Builder::new("both", x.len() as u64, Scalar::I32);
        let i = b.index();
        let view = b.param("x", Scalar::F64, x.len() as u64, Access::Read);
        let [out, expanded] = ["out", "expanded"].map(|n| b.param(n, Scalar::F64, x.len() as u64, Access::Write));
        let at = b.load(view, i);
        let value = b.op(op, &[&at]);
        b.store(out, i, value);
        let Some(value) = op.body(&mut b, &[&at]) else { continue };
        b.store(expanded, i, value);
        let (mut out, mut expanded) = ([0; 10], [1; 10]);
        let mut args = [Arg::Read(&input), Arg::Write(&mut out), Arg::Write(&mut expanded)];
        interp::run(&b.finish().unwrap(), &mut args).unwrap();
        assert_eq!(out, expanded, "{op:?}");
    }
}

#[test]
fn an_out_of_bounds_index_is_a_fault() {
    let mut b = Builder::new("shift", 10, Scalar::I32);
    let x = b.param("x", Scalar::F32, 10, Access::Read);
    let out = b.param("out", Scalar::F32, 10, Access::Write);
    let i = b.index();
    let one = b.index_constant(1);
    let next = b.add(&i, &one);
    let value = b.load(x, next);
    b.store(out, i, value);
    let kernel = b.finish().unwrap();
    let fault = interp::run(&kernel, &mut [Arg::Read(&words(&[0.0; 10])), Arg::Write(&mut [0; 5])]).unwrap_err();
    assert_eq!(
        fault.kind,
        FaultKind::OutOfBounds {
            view: "x".into(),
            index: 10,
            len: 10,
            indices: Box::default(),
            thread: "instance 9".into()
        }
    );
    assert_eq!(
        fault.to_string(),
        "kernel 'shift': index 10 is outside 'x' of 10 elements, in instance 9 (line 7 of the IR text)"
    );
}

#[test]
fn mismatched_arguments_are_faults() {
    let kernel = sample(10);
    let x = words(&[0.0; 10]);
    for (args, expected) in [
        (vec![Arg::Read(&x)], "expected 2 arguments, found 1"),
        (vec![Arg::Read(&x), Arg::Read(&x)], "'out' has access mode Write; expected an Arg::Write"),
        (vec![Arg::Read(&x), Arg::Write(&mut [0; 4])], "'out' needs 40 bytes; the argument has 32"),
    ] {
        let mut args = args;
        let fault = interp::run(&kernel, &mut args).unwrap_err();
        assert_eq!(fault.kind, FaultKind::InvalidCall(expected.into()));
    }
}

#[test]
fn text_form_of_a_kernel() {
    let expected = "\
bornite-ir 3
kernel sample parallel_for 10 index i32
  param x: read f32[10]
  param out: write f32[10]
  var $0 total: f32 = 0.0f32
  var $1 j: i32 = 0i32
{
  %1: f32 = x[index]
  %3: bool = lt(%1, 0.0f32)
  %5: i32 = add(index, 1i32)
  if %3 {
    %6: f32 = neg(%1)
    $0 = %6
  } else {
    for $1 below %5 {
      %7: i32 = $1
      %8: f32 = x[%7]
      %9: f32 = $0
      %10: f32 = add(%9, %8)
      $0 = %10
    }
  }
  %11: f32 = $0
  out[index] = %11
}
";
    assert_eq!(sample(10).to_string(), expected);
}

#[test]
fn the_verifier_rejects_invalid_kernels() {
    let cases: [(&str, fn(&mut Kernel)); 15] = [
        ("loop counter $1 is read outside its loop", |k| {
            k.code.exprs[11] = Expr::Read(bornite_ir::LocalId(1));
            k.code.types[11] = Scalar::I32.into();
        }),
        ("loop counter $1 is assigned", |k| k.code.body.insert(0, Stmt::Assign(bornite_ir::LocalId(1), ExprId(0)))),
        ("$1 is the counter of two loops", |k| {
            k.code.body.push(Stmt::For { counter: bornite_ir::LocalId(1), end: ExprId(0), body: vec![] })
        }),
        ("variable $0 has the name", |k| k.code.locals[0].name = "a; */ b".into()),
        ("has not been evaluated", |k| k.code.body.rotate_left(1)),
        ("%1 is evaluated twice", |k| k.code.body.insert(1, k.code.body[0].clone())),
        ("%1 is f32 but recorded as f64", |k| k.code.types[1] = Scalar::F64.into()),
        ("is not an identifier", |k| k.name = "9 lives".into()),
        ("needs a unique identifier as its name", |k| k.params[1].name = "x".into()),
        ("the index type is f32", |k| k.index = Scalar::F32),
        ("more than the index type i32 can address", |k| {
            k.params[0].dims = bornite_ir::contiguous(&[(1u64 << 31).into()])
        }),
        ("'x' is read-only", |k| {
            k.code.body.push(Stmt::Store {
                view: bornite_ir::ParamId(0).into(),
                indices: ExprId(0).into(),
                value: ExprId(1),
            })
        }),
        ("%99 does not exist", |k| k.code.body.push(Stmt::Let(ExprId(99)))),
        ("a condition needs bool, %1 is f32", |k| {
            k.code.body.push(Stmt::If { condition: ExprId(1), then: vec![], otherwise: vec![] })
        }),
        ("add of (f32, i32) expects arguments of one type", |k| {
            k.code.exprs[5] = Expr::Op(Op::Add, Args::new(&[ExprId(1), ExprId(4)]).unwrap())
        }),
    ];
    for (expected, corrupt) in cases {
        let mut kernel = sample(10);
        corrupt(&mut kernel);
        let error = verify(&kernel).expect_err(expected);
        assert!(error.message.contains(expected), "{error}, expected {expected}");
    }
}

#[test]
fn the_builder_reports_the_first_error() {
    let mut b = Builder::new("wrong", 1, Scalar::I32);
    let a = b.constant(Value::from_f64(Scalar::F32, 1.0));
    let c = b.constant(Value::from_f64(Scalar::F64, 1.0));
    b.add(&a, &c);
    b.op(Op::Sqrt, &[&a, &a, &a, &a]);
    b.load(bornite_ir::ParamId(7), a);
    b.read(bornite_ir::LocalId(7));
    b.add(&ExprId(77), &a);
    b.close_loop(bornite_ir::LocalId(7), ExprId(77));
    let error = b.finish().unwrap_err();
    assert_eq!(error.to_string(), "kernel 'wrong' is not valid: add of (f32, f64) expects arguments of one type");
}

#[test]
fn the_builder_reports_unbalanced_loops() {
    let mut b = Builder::new("unclosed", 1, Scalar::I32);
    b.open_loop("j");
    assert!(b.finish().unwrap_err().message.contains("opened and not closed"));
    let mut b = Builder::new("overclosed", 1, Scalar::I32);
    let end = b.index_constant(3);
    let j = b.open_loop("j");
    b.close_loop(j, end);
    b.close_loop(j, end);
    assert!(b.finish().unwrap_err().message.contains("closed and not opened"));
}

#[test]
fn one_op_is_evaluated_on_constants() {
    let two = Value::from_f64(Scalar::F32, 2.0);
    assert_eq!(interp::evaluate(Op::Add, &[two, two]), Ok(Value::from_f64(Scalar::F32, 4.0)));
    assert_eq!(interp::evaluate(Op::Add, &[]), Err("as many arguments as the op takes"));
    assert_eq!(interp::evaluate(Op::Rem, &[two, two]), Err("integers"));
}
