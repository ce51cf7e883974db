//! Every float row of the op table with a derivative, away from its kinks.

use bornite_ir::adjoint::Accumulation;
use bornite_ir::{Access, Builder, Emit, Op, ParamId, Scalar, TypeRule, Value, store_scalar};

use crate::harness::check_kernel;

/// Ranges of each operand, in turn: between integers, below and above each other.
const RANGES: [[(f64, f64); 3]; 4] = [
    [(0.1, 0.4), (0.5, 0.7), (0.75, 0.95)],
    [(0.75, 0.95), (0.1, 0.4), (0.5, 0.7)],
    [(0.5, 0.7), (0.1, 0.4), (0.75, 0.95)],
    [(2.6, 2.9), (1.1, 1.3), (1.5, 1.8)],
];

/// Ops that are defined up to 1, and those from 1.
const BELOW_ONE: [Op; 3] = [Op::Asin, Op::Acos, Op::Atanh];

pub fn rows_equal_finite_differences() {
    let mut tested = 0;
    for &op in Op::ALL {
        let rule = op.row().rule;
        if !matches!(rule, TypeRule::Float | TypeRule::Number) || matches!(op, Op::Rem) {
            continue;
        }
        for (n, ranges) in RANGES.iter().enumerate() {
            if n == 3 && BELOW_ONE.contains(&op) || n < 3 && op == Op::Acosh {
                continue;
            }
            tested += 1;
            row(op, ranges);
        }
    }
    assert!(tested > 150, "{tested}");
    row_with_select();
}

fn row(op: Op, ranges: &[(f64, f64); 3]) {
    let count = 5;
    let mut b = Builder::new("row", count, Scalar::I32);
    let i = b.index();
    let names = ["a", "b", "c"];
    let params: Vec<ParamId> =
        names[..op.arity()].iter().map(|name| b.param(*name, Scalar::F64, count, Access::Read)).collect();
    let args: Vec<_> = params.iter().map(|param| b.load(*param, i)).collect();
    let out = b.param("out", Scalar::F64, count, Access::Write);
    let value = b.op(op, &args.iter().collect::<Vec<_>>());
    b.store(out, i, value);
    let kernel = b.finish().unwrap();
    let memory: Vec<Vec<u64>> = (0..=op.arity())
        .map(|n| {
            let (low, high) = ranges.get(n).copied().unwrap_or((0.0, 0.0));
            (0..count).map(|at| (low + (high - low) * (at as f64 + 0.3) / count as f64).to_bits()).collect()
        })
        .collect();
    let found = check_kernel(&kernel, &[], &memory, &params, Accumulation::Ordered);
    found.unwrap_or_else(|message| panic!("{op:?} {ranges:?}: {message}"));
}

/// Conversions between floats, selection by a comparison, and a struct's components.
fn row_with_select() {
    let mut b = Builder::new("select", 6, Scalar::I32);
    let x = b.param("x", Scalar::F32, 6, Access::Read);
    let y = b.param("y", Scalar::F64, 6, Access::Write);
    let i = b.index();
    let a = b.load(x, i);
    let wide = bornite_ir::EmitBits::cast(&mut b, Scalar::F64, &a);
    let narrow = bornite_ir::EmitBits::cast(&mut b, Scalar::F32, &wide);
    let (half, square) = (b.constant_like(&a, 0.5), b.mul(&narrow, &a));
    let condition = b.lt(&a, &half);
    let selected = b.select(&condition, &square, &a);
    let wide = bornite_ir::EmitBits::cast(&mut b, Scalar::F64, &selected);
    b.store(y, i, wide);
    let kernel = b.finish().unwrap();
    let mut words = vec![0u64; 3];
    (0..6).for_each(|n| store_scalar(&mut words, n * 4, Value::from_f64(Scalar::F32, (n as f64 + 0.3) / 6.0)));
    check_kernel(&kernel, &[], &[words, vec![0; 6]], &[x], Accumulation::Ordered).unwrap();
}
