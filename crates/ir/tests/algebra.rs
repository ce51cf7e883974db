//! Algebra ops: against exact integer arithmetic, derivatives against finite differences, published
//! test vectors.

use bornite_ir::interp::{evaluate, evaluate_algebra};
use bornite_ir::{AlgebraOp, Components, Emit, Op, Scalar, Type, Value};

const SCALARS: [Scalar; 12] = [
    Scalar::I8,
    Scalar::I16,
    Scalar::I32,
    Scalar::I64,
    Scalar::U8,
    Scalar::U16,
    Scalar::U32,
    Scalar::U64,
    Scalar::F16,
    Scalar::BF16,
    Scalar::F32,
    Scalar::F64,
];

struct Random(u64);

impl Random {
    fn from_env_or_time() -> Random {
        let seed_from_env = std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok());
        let seed =
            seed_from_env.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64) | 1);
        println!("BORNITE_TEST_SEED={seed}");
        Random(seed)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % n.max(1)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.below(1 << 30) as f64 / (1u64 << 30) as f64
    }
}

/// Operand types of an op at every size from 2 to 4, and a larger one if the op has no limit.
fn signatures(op: AlgebraOp, s: Scalar) -> Vec<Vec<Type>> {
    use Type::{Matrix, Vector};
    let squares = || (2..=4).map(|n| vec![Matrix(s, n, n)]).collect::<Vec<_>>();
    let all: Vec<Vec<Type>> = match op {
        AlgebraOp::Dot => [1, 2, 3, 4, 8].map(|n| vec![Vector(s, n), Vector(s, n)]).into(),
        AlgebraOp::Cross => vec![vec![Vector(s, 3), Vector(s, 3)]],
        AlgebraOp::Length | AlgebraOp::Normalize => [1, 2, 3, 4, 8].map(|n| vec![Vector(s, n)]).into(),
        AlgebraOp::Outer => vec![vec![Vector(s, 2), Vector(s, 3)], vec![Vector(s, 4), Vector(s, 4)]],
        AlgebraOp::Transpose => vec![vec![Matrix(s, 2, 3)], vec![Matrix(s, 4, 4)]],
        AlgebraOp::Determinant | AlgebraOp::Inverse => squares(),
        AlgebraOp::MatVec => vec![vec![Matrix(s, 2, 3), Vector(s, 3)], vec![Matrix(s, 4, 4), Vector(s, 4)]],
        AlgebraOp::MatMul => vec![vec![Matrix(s, 2, 3), Matrix(s, 3, 4)], vec![Matrix(s, 4, 4), Matrix(s, 4, 4)]],
        AlgebraOp::Construct | AlgebraOp::Extract | AlgebraOp::Insert | AlgebraOp::Philox => vec![],
    };
    all.into_iter().filter(|types| op.result(0, types[0], types, &[]).is_ok()).collect()
}

fn shape(ty: Type) -> (usize, usize) {
    match ty {
        Type::Matrix(_, rows, columns) => (rows as usize, columns as usize),
        Type::Vector(_, n) => (n as usize, 1),
        _ => (1, 1),
    }
}

/// Determinant by definition, in integers: the sum over permutations of products, and the sum of
/// their magnitudes.
fn permutations(n: usize, m: &[i128]) -> (i128, i128) {
    if n == 0 {
        return (1, 1);
    }
    let (mut signed, mut sizes) = (0, 0);
    for j in 0..n {
        let (minor, size) = permutations(n - 1, &without(n, m, 0, j));
        signed += if j % 2 == 0 { 1 } else { -1 } * m[j] * minor;
        sizes += m[j].abs() * size;
    }
    (signed, sizes)
}

fn without(n: usize, m: &[i128], i: usize, j: usize) -> Vec<i128> {
    (0..n * n).filter(|at| at / n != i && at % n != j).map(|at| m[at]).collect()
}

/// Exact component, as an integer or as a quotient or root of integers, and the scale that errors
/// are relative to.
enum Expected {
    Integer(i128, i128),
    Real(f64, f64),
}

fn expected_components(op: AlgebraOp, types: &[Type], args: &[Vec<i128>]) -> Vec<Expected> {
    let a = &args[0];
    let sums = |pairs: Vec<(i128, i128)>| {
        let (sum, size) = pairs.iter().fold((0, 0), |(sum, size), (x, y)| (sum + x * y, size + (x * y).abs()));
        Expected::Integer(sum, size)
    };
    let length = || (a.iter().map(|x| x * x).sum::<i128>() as f64).sqrt();
    match op {
        AlgebraOp::Dot => vec![sums(a.iter().copied().zip(args[1].iter().copied()).collect())],
        AlgebraOp::Cross => {
            let b = &args[1];
            [(1, 2), (2, 0), (0, 1)].map(|(i, j)| sums(vec![(a[i], b[j]), (-a[j], b[i])])).into()
        }
        AlgebraOp::Length => vec![Expected::Real(length(), length())],
        AlgebraOp::Normalize => {
            a.iter().map(|&x| Expected::Real(x as f64 / length(), x.abs() as f64 / length())).collect()
        }
        AlgebraOp::Outer => a.iter().flat_map(|&x| args[1].iter().map(move |&y| sums(vec![(x, y)]))).collect(),
        AlgebraOp::Transpose => {
            let (rows, columns) = shape(types[0]);
            (0..rows * columns).map(|at| Expected::Integer(a[at % rows * columns + at / rows], 0)).collect()
        }
        AlgebraOp::Determinant => {
            let (value, size) = permutations(shape(types[0]).0, a);
            vec![Expected::Integer(value, size)]
        }
        AlgebraOp::Inverse => {
            let n = shape(types[0]).0;
            let (det, det_size) = permutations(n, a);
            (0..n * n)
                .map(|at| {
                    let (i, j) = (at / n, at % n);
                    let (minor, size) = permutations(n - 1, &without(n, a, j, i));
                    let sign = if (i + j) % 2 == 0 { 1.0 } else { -1.0 };
                    let whole = det.abs() as f64;
                    let scale = (size as f64 + minor.abs() as f64 * det_size as f64 / whole) / whole;
                    Expected::Real(sign * minor as f64 / det as f64, scale)
                })
                .collect()
        }
        AlgebraOp::MatVec | AlgebraOp::MatMul => {
            let ((rows, inner), (_, columns)) = (shape(types[0]), shape(types[1]));
            (0..rows * columns)
                .map(|at| {
                    let (i, j) = (at / columns, at % columns);
                    sums((0..inner).map(|k| (a[i * inner + k], args[1][k * columns + j])).collect())
                })
                .collect()
        }
        other => panic!("{other:?} is tested by itself"),
    }
}

#[test]
fn results_are_within_error_bounds() {
    let mut random = Random::from_env_or_time();
    let mut checked = 0;
    for &op in AlgebraOp::ALL {
        for scalar in SCALARS {
            for types in signatures(op, scalar) {
                for round in 0..200 {
                    // Integers that the type represents exactly, small enough that products of four
                    // fit in i128.
                    let max: i128 = match scalar {
                        Scalar::F16 | Scalar::BF16 => 6,
                        _ if scalar.is_float() => 1 << [3, 10, 20][round % 3],
                        _ => scalar.int_range().1.min(1 << 20),
                    };
                    let min = if scalar.is_float() || scalar.is_signed() { -max } else { 0 };
                    let mut component = || min + random.below((max - min) as u64 + 1) as i128;
                    let args: Vec<Vec<i128>> =
                        types.iter().map(|ty| (0..ty.component_count(&[])).map(|_| component()).collect()).collect();
                    let values: Vec<(Type, Vec<Value>)> = (types.iter().zip(&args))
                        .map(|(ty, parts)| {
                            let exact = |&x: &i128| {
                                if scalar.is_float() {
                                    Value::from_f64(scalar, x as f64)
                                } else {
                                    Value::int(scalar, x as i64)
                                }
                            };
                            (*ty, parts.iter().map(exact).collect())
                        })
                        .collect();
                    if matches!(op, AlgebraOp::Inverse | AlgebraOp::Normalize) && singular(op, &types, &args) {
                        continue;
                    }
                    let (_, found) = evaluate_algebra(op, 0, types[0], &values, &[]).unwrap();
                    let expected = expected_components(op, &types, &args);
                    assert_eq!(found.len(), expected.len(), "{op:?} of {types:?}");
                    for (found, expected) in found.iter().zip(&expected) {
                        check(op, scalar, *found, expected, &values);
                        checked += 1;
                    }
                }
            }
        }
    }
    assert!(checked > 100_000, "only {checked} components were compared");
}

fn singular(op: AlgebraOp, types: &[Type], args: &[Vec<i128>]) -> bool {
    match op {
        AlgebraOp::Inverse => permutations(shape(types[0]).0, &args[0]).0 == 0,
        _ => args[0].iter().all(|&x| x == 0),
    }
}

fn check(op: AlgebraOp, scalar: Scalar, found: Value, expected: &Expected, args: &[(Type, Vec<Value>)]) {
    if !scalar.is_float() {
        let Expected::Integer(value, _) = expected else { panic!("{op:?} of integers") };
        assert_eq!(found, Value::int(scalar, *value as i64), "{op:?} of {args:?}");
        return;
    }
    let (value, scale) = match expected {
        Expected::Integer(value, size) => (*value as f64, *size as f64),
        Expected::Real(value, scale) => (*value, *scale),
    };
    let unit = |scalar: Scalar| match scalar {
        Scalar::F64 => 2f64.powi(-53),
        Scalar::F32 => 2f64.powi(-24),
        Scalar::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-8),
    };
    // The reference itself is rounded twice if it is a quotient or root.
    let slack = if matches!(expected, Expected::Real(..)) { 2.0 * unit(Scalar::F64) * value.abs() } else { 0.0 };
    let narrow = if scalar.bytes() == 2 { unit(scalar) * value.abs() * 1.01 } else { 0.0 };
    let bound = op.row().error * unit(scalar.compute_type()) * scale + slack + narrow;
    let error = (found.as_f64() - value).abs();
    assert!(error <= bound, "{op:?} of {args:?}: {found}, not {value}: error {error:e} above {bound:e}");
}

/// [`Emit`] on plain f64.
struct Evaluate;

impl Emit for Evaluate {
    type V = f64;

    fn op(&mut self, op: Op, args: &[&f64]) -> f64 {
        let mut values: Vec<Value> = args.iter().map(|x| Value::from_f64(Scalar::F64, **x)).collect();
        if op == Op::Select {
            values[0] = Value::int(Scalar::Bool, (*args[0] != 0.0) as i64);
        }
        evaluate(op, &values).map_or(f64::NAN, |v| v.as_f64())
    }

    fn constant_like(&mut self, _: &f64, value: f64) -> f64 {
        value
    }
}

/// Every op's derivative against central differences.
#[test]
fn derivatives_match_finite_differences() {
    let mut random = Random::from_env_or_time();
    let s = Scalar::F64;
    let vector = Type::Vector(s, 3);
    for &op in AlgebraOp::ALL {
        let cases: Vec<(u32, Type, Vec<Type>)> = match op {
            AlgebraOp::Construct => vec![(0, vector, vec![Type::Scalar(s); 3]), (0, vector, vec![Type::Scalar(s)])],
            AlgebraOp::Extract => vec![(1, vector, vec![vector]), (5, vector, vec![Type::Matrix(s, 2, 3)])],
            AlgebraOp::Insert => vec![(2, vector, vec![vector, Type::Scalar(s)])],
            AlgebraOp::Philox => continue,
            _ => signatures(op, s).into_iter().map(|types| (0, types[0], types)).collect(),
        };
        assert!(!cases.is_empty(), "{op:?} has no case");
        for (at, wanted, types) in cases {
            let args: Vec<Vec<f64>> = (types.iter())
                .map(|ty| {
                    // Near the identity where a matrix is inverted, so that differences are
                    // accurate.
                    let columns = shape(*ty).1.max(1);
                    let diagonal = |n: usize| if n / columns == n % columns { 2.0 } else { 0.0 };
                    (0..ty.component_count(&[])).map(|n| random.between(-1.0, 1.0) * 0.7 + diagonal(n)).collect()
                })
                .collect();
            let run = |args: &[Vec<f64>]| -> (Type, Vec<f64>) {
                let args: Vec<(Type, Vec<Value>)> = (types.iter().zip(args))
                    .map(|(ty, parts)| (*ty, parts.iter().map(|&x| Value::from_f64(s, x)).collect()))
                    .collect();
                let (ty, parts) = evaluate_algebra(op, at, wanted, &args, &[]).unwrap();
                (ty, parts.iter().map(|v| v.as_f64()).collect())
            };
            let (ty, out) = run(&args);
            let grad: Vec<f64> = out.iter().map(|_| random.between(-1.0, 1.0)).collect();
            let parts: Vec<Components<f64>> =
                types.iter().zip(&args).map(|(&ty, parts)| Components { ty, components: parts.clone() }).collect();
            let gradients = op.derivative(&mut Evaluate, at, &parts, &Components { ty, components: out }, &grad, &[]);
            let gradients = gradients.unwrap_or_else(|| panic!("{op:?} has no derivative"));
            for (n, (gradients, arg)) in gradients.iter().zip(&args).enumerate() {
                assert_eq!(gradients.len(), arg.len(), "{op:?}, operand {n}");
                for (k, gradient) in gradients.iter().enumerate() {
                    let along = |h: f64| -> f64 {
                        let mut moved = args.clone();
                        moved[n][k] += h;
                        run(&moved).1.iter().zip(&grad).map(|(x, g)| x * g).sum()
                    };
                    let h = 1e-5;
                    let difference = (along(h) - along(-h)) / (2.0 * h);
                    let error = (gradient - difference).abs();
                    assert!(
                        error < 1e-6 * (1.0 + difference.abs()),
                        "{op:?} of {types:?}, {n}.{k}: {gradient} {difference}"
                    );
                }
            }
        }
    }
}

#[test]
fn philox_matches_the_published_test_vectors() {
    for (counter, key, expected) in [
        ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
        ([0xffffffff; 4], [0xffffffff; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
        (
            [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
            [0xa4093822, 0x299f31d0],
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1u64],
        ),
    ] {
        let words = |words: &[u64]| words.iter().map(|&w| Value::from_bits(Scalar::U32, w)).collect::<Vec<_>>();
        let args = [(Type::Vector(Scalar::U32, 4), words(&counter)), (Type::Vector(Scalar::U32, 2), words(&key))];
        let (_, found) = evaluate_algebra(AlgebraOp::Philox, 0, args[0].0, &args, &[]).unwrap();
        assert_eq!(found, words(&expected));
    }
}

#[test]
fn edge_cases_are_as_documented() {
    let s = Scalar::F32;
    let run = |op: AlgebraOp, args: &[(Type, &[f64])]| -> Vec<f64> {
        let args: Vec<(Type, Vec<Value>)> =
            (args.iter()).map(|(ty, parts)| (*ty, parts.iter().map(|&x| Value::from_f64(s, x)).collect())).collect();
        let (_, parts) = evaluate_algebra(op, 0, args[0].0, &args, &[]).unwrap();
        parts.iter().map(|v| v.as_f64()).collect()
    };
    let (v3, m2) = (Type::Vector(s, 3), Type::Matrix(s, 2, 2));
    assert_eq!(run(AlgebraOp::Normalize, &[(v3, &[0.0, -0.0, 0.0])]), [0.0; 3]);
    assert_eq!(run(AlgebraOp::Inverse, &[(m2, &[0.1, 0.2, 0.1, 0.2])]), [0.0; 4]);
    assert_eq!(run(AlgebraOp::Determinant, &[(m2, &[0.1, 0.2, 0.1, 0.2])]), [0.0]);
    let a = [0.1, 1e10, -3.7];
    assert_eq!(run(AlgebraOp::Cross, &[(v3, &a), (v3, &a)]), [0.0; 3]);
    assert!(run(AlgebraOp::Length, &[(v3, &[f64::NAN, 0.0, 0.0])])[0].is_nan());
    let result = AlgebraOp::Cross.result(0, v3, &[Type::Vector(s, 2), Type::Vector(s, 2)], &[]);
    assert_eq!(result, Err("vector, vector → vector"));
    assert_eq!(AlgebraOp::Inverse.result(0, m2, &[Type::Matrix(Scalar::I32, 2, 2)], &[]), Err("floats"));
}
