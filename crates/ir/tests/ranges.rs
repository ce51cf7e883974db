//! Integer ranges against the interpreter: every result of an op is in the computed range.

use bornite_ir::interp::evaluate;
use bornite_ir::{IntRange, Op, Scalar, Value};

const OPS: [Op; 8] = [Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Rem, Op::Min, Op::Max, Op::Clamp];

fn of(low: i128, high: i128) -> IntRange {
    IntRange { low, high }
}

/// Ranges of an 8-bit type whose ends are near zero or at the ends of the type.
fn intervals(scalar: Scalar) -> Vec<IntRange> {
    let (lowest, highest) = scalar.int_range();
    let ends = [lowest, -3, -1, 0, 1, 2, 7, highest].map(|end| end.max(lowest));
    let pairs = ends.iter().flat_map(|&low| ends.iter().map(move |&high| of(low, high)));
    let mut all: Vec<IntRange> = pairs.filter(|range| range.low <= range.high).collect();
    all.sort_by_key(|range| (range.low, range.high));
    all.dedup();
    all
}

/// Both ends of a range, their neighbours and zero.
fn members(range: IntRange) -> Vec<i128> {
    let near = [range.low, range.low + 1, 0, range.high - 1, range.high];
    near.into_iter().filter(|n| (range.low..=range.high).contains(n)).collect()
}

#[test]
fn results_are_in_their_range() {
    let mut stated = 0;
    for scalar in [Scalar::I8, Scalar::U8] {
        let all = intervals(scalar);
        let value = |n: i128| Value::from_bits(scalar, n as u64 & 0xff);
        for op in OPS {
            for (n, &a) in all.iter().enumerate() {
                for (m, &b) in all.iter().enumerate() {
                    let third = all[(3 * n + m) % all.len()];
                    let args = &[a, b, third][..op.arity()];
                    let Some(range) = IntRange::of_op(op, scalar, &args.iter().copied().map(Some).collect::<Vec<_>>())
                    else {
                        continue;
                    };
                    stated += 1;
                    assert!(range.fits(scalar), "{op:?} {args:?}: {range:?}");
                    let thirds = if op.arity() == 3 { members(third) } else { vec![0] };
                    for (x, y, z) in members(a).into_iter().flat_map(|x| {
                        let thirds = &thirds;
                        members(b).into_iter().flat_map(move |y| thirds.iter().map(move |&z| (x, y, z)))
                    }) {
                        let values = [x, y, z].map(value);
                        let result = IntRange::exactly(evaluate(op, &values[..op.arity()]).unwrap()).low;
                        let inside = (range.low..=range.high).contains(&result);
                        assert!(inside, "{op:?} of {x}, {y}, {z} is {result}, not within {range:?}");
                    }
                }
            }
        }
    }
    assert!(stated > 5000, "{stated}");
}

#[test]
fn ranges_are_tight() {
    let wide = Some(IntRange::of_type(Scalar::I32));
    let exactly = |n: i128| Some(of(n, n));
    for (op, args, expected) in [
        (Op::Rem, vec![Some(of(-1, 5)), exactly(8)], Some(of(-1, 5))),
        (Op::Rem, vec![None, exactly(8)], Some(of(-7, 7))),
        (Op::Rem, vec![Some(of(3, 5)), None], None),
        (Op::Clamp, vec![None, exactly(0), Some(of(3, 9))], Some(of(0, 9))),
        (Op::Clamp, vec![wide, exactly(5), Some(of(3, 4))], Some(of(3, 4))),
        (Op::Select, vec![None, Some(of(-2, 0)), exactly(7)], Some(of(-2, 7))),
        (Op::Add, vec![None, exactly(1)], None),
        (Op::Mul, vec![Some(of(-3, 2)), Some(of(-5, 4))], Some(of(-12, 15))),
    ] {
        assert_eq!(IntRange::of_op(op, Scalar::I32, &args), expected, "{op:?} {args:?}");
    }
}
