//! Bodies of the algebra ops, over components of compute types.

use super::{AlgebraOp, Components};
use crate::{EmitBits, Op, Scalar, Type, Value};

/// Returns rows and columns; a vector is one column.
pub(super) fn shape(ty: Type) -> (usize, usize) {
    match ty {
        Type::Matrix(_, rows, columns) => (rows as usize, columns as usize),
        Type::Vector(_, n) => (n as usize, 1),
        _ => (1, 1),
    }
}

pub(super) fn transpose<V: Clone>(a: &Components<V>) -> Vec<V> {
    let (rows, columns) = shape(a.ty);
    (0..columns)
        .flat_map(|j| (0..rows).map(move |i| (i, j)))
        .map(|(i, j)| a.components[i * columns + j].clone())
        .collect()
}

/// a b + c, fused for floats.
fn accumulate<E: EmitBits>(e: &mut E, a: &E::V, b: &E::V, c: &E::V) -> E::V {
    if e.scalar(a).is_float() {
        return e.fma(a, b, c);
    }
    let product = e.mul(a, b);
    e.add(&product, c)
}

/// a b - c d, not fused, so that it is 0 if the products are equal.
fn difference<E: EmitBits>(e: &mut E, [a, b, c, d]: [&E::V; 4]) -> E::V {
    let (left, right) = (e.mul(a, b), e.mul(c, d));
    e.sub(&left, &right)
}

fn sum_of_products<'v, E: EmitBits>(e: &mut E, mut pairs: impl Iterator<Item = (&'v E::V, &'v E::V)>) -> Option<E::V>
where
    E::V: 'v,
{
    let (a, b) = pairs.next()?;
    let first = e.mul(a, b);
    Some(pairs.fold(first, |sum, (a, b)| accumulate(e, a, b, &sum)))
}

pub(super) fn arithmetic<E: EmitBits>(op: AlgebraOp, e: &mut E, args: &[Components<E::V>]) -> Vec<E::V> {
    let a = &args[0].components;
    match (op, args) {
        (AlgebraOp::Dot, [_, b]) => sum_of_products(e, a.iter().zip(&b.components)).into_iter().collect(),
        (AlgebraOp::Cross, [_, b]) => {
            let b = &b.components;
            [(1, 2), (2, 0), (0, 1)].map(|(i, j)| difference(e, [&a[i], &b[j], &a[j], &b[i]])).into()
        }
        (AlgebraOp::Length, _) => length(e, a).into_iter().collect(),
        (AlgebraOp::Normalize, _) => {
            let Some(length) = length(e, a) else { return vec![] };
            let zero = e.constant_like(&length, 0.0);
            let none = e.op(Op::Eq, &[&length, &zero]);
            let quotients: Vec<E::V> = a.iter().map(|component| e.div(component, &length)).collect();
            quotients.iter().map(|component| e.select(&none, &zero, component)).collect()
        }
        (AlgebraOp::Outer, [_, b]) => {
            a.iter().flat_map(|x| b.components.iter().map(move |y| (x, y))).map(|(x, y)| e.mul(x, y)).collect()
        }
        (AlgebraOp::Determinant, [m]) => determinant(e, shape(m.ty).0, a).into_iter().collect(),
        (AlgebraOp::Inverse, [m]) => inverse(e, shape(m.ty).0, a),
        (AlgebraOp::MatVec | AlgebraOp::MatMul, [left, right]) => {
            let ((rows, inner), (_, columns)) = (shape(left.ty), shape(right.ty));
            let b = &right.components;
            (0..rows * columns)
                .filter_map(|at| {
                    let (i, j) = (at / columns, at % columns);
                    sum_of_products(e, (0..inner).map(|k| (&a[i * inner + k], &b[k * columns + j])))
                })
                .collect()
        }
        _ => a.clone(),
    }
}

fn length<E: EmitBits>(e: &mut E, a: &[E::V]) -> Option<E::V> {
    let square = sum_of_products(e, a.iter().zip(a))?;
    Some(e.op(Op::Sqrt, &[&square]))
}

/// 2 × 2 minors of rows `i` and `j` of a 4 × 4 matrix, for the column pairs 01, 02, 03, 12, 13, 23.
fn minors<E: EmitBits>(e: &mut E, m: &[E::V], i: usize, j: usize) -> [E::V; 6] {
    [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
        .map(|(p, q)| difference(e, [&m[i * 4 + p], &m[j * 4 + q], &m[i * 4 + q], &m[j * 4 + p]]))
}

/// x a - y b + z c.
fn alternating<E: EmitBits>(e: &mut E, [x, y, z]: [&E::V; 3], [a, b, c]: [&E::V; 3]) -> E::V {
    let first = difference(e, [x, a, y, b]);
    accumulate(e, z, c, &first)
}

fn determinant<E: EmitBits>(e: &mut E, n: usize, m: &[E::V]) -> Option<E::V> {
    match (n, m) {
        (2, [a, b, c, d]) => Some(difference(e, [a, d, b, c])),
        (3, m) => {
            let [x, y, z] = [(1, 2), (0, 2), (0, 1)].map(|(p, q)| minor_of_three(e, m, (1, 2), (p, q)));
            Some(alternating(e, [&m[0], &m[1], &m[2]], [&x, &y, &z]))
        }
        (4, m) => {
            let (s, c) = (minors(e, m, 0, 1), minors(e, m, 2, 3));
            Some(laplace(e, &s, &c))
        }
        _ => None,
    }
}

fn minor_of_three<E: EmitBits>(e: &mut E, m: &[E::V], (i, j): (usize, usize), (p, q): (usize, usize)) -> E::V {
    difference(e, [&m[i * 3 + p], &m[j * 3 + q], &m[i * 3 + q], &m[j * 3 + p]])
}

/// Determinant of a 4 × 4 matrix by Laplace expansion over the minors of its upper and lower rows.
fn laplace<E: EmitBits>(e: &mut E, s: &[E::V; 6], c: &[E::V; 6]) -> E::V {
    let first = difference(e, [&s[0], &c[5], &s[1], &c[4]]);
    let second = accumulate(e, &s[2], &c[3], &first);
    let third = accumulate(e, &s[3], &c[2], &second);
    let right = difference(e, [&s[4], &c[1], &s[5], &c[0]]);
    e.sub(&third, &right)
}

fn inverse<E: EmitBits>(e: &mut E, n: usize, m: &[E::V]) -> Vec<E::V> {
    let (adjugate, determinant): (Vec<E::V>, E::V) = match (n, m) {
        (2, [a, b, c, d]) => {
            let (minus_b, minus_c) = (e.neg(b), e.neg(c));
            (vec![d.clone(), minus_b, minus_c, a.clone()], difference(e, [a, d, b, c]))
        }
        (3, m) => {
            // Component (i, j) is the cofactor of (j, i); cyclic indices carry its sign.
            let cofactors: Vec<E::V> = (0..9)
                .map(|at| {
                    let (i, j) = (at / 3, at % 3);
                    minor_of_three(e, m, ((j + 1) % 3, (j + 2) % 3), ((i + 1) % 3, (i + 2) % 3))
                })
                .collect();
            let column = [&cofactors[0], &cofactors[3], &cofactors[6]];
            let determinant = sum_of_products(e, m[..3].iter().zip(column));
            (cofactors, determinant.unwrap_or_else(|| m[0].clone()))
        }
        (4, m) => {
            let (s, c) = (minors(e, m, 0, 1), minors(e, m, 2, 3));
            let determinant = laplace(e, &s, &c);
            // Row i of the adjugate: minors of the other three columns, of the lower rows, then of
            // the upper ones.
            let triples = [(1, 2, 3, [5, 4, 3]), (0, 2, 3, [5, 2, 1]), (0, 1, 3, [4, 2, 0]), (0, 1, 2, [3, 1, 0])];
            let mut components = vec![];
            for (i, (p, q, r, pairs)) in triples.into_iter().enumerate() {
                for (j, (row, minors)) in [(1, &c), (0, &c), (3, &s), (2, &s)].into_iter().enumerate() {
                    let m = &m[row * 4..];
                    let [x, y, z] = pairs.map(|n: usize| &minors[n]);
                    let value = alternating(e, [&m[p], &m[q], &m[r]], [x, y, z]);
                    components.push(if (i + j) % 2 == 0 { value } else { e.neg(&value) });
                }
            }
            (components, determinant)
        }
        (_, m) => (m.to_vec(), m[0].clone()),
    };
    let zero = e.constant_like(&determinant, 0.0);
    let singular = e.op(Op::Eq, &[&determinant, &zero]);
    let quotients: Vec<E::V> = adjugate.iter().map(|component| e.div(component, &determinant)).collect();
    quotients.iter().map(|component| e.select(&singular, &zero, component)).collect()
}

/// Ten rounds of Philox 4×32: two 32 × 32-bit products per round, with the key incremented between
/// rounds.
pub(super) fn philox<E: EmitBits>(e: &mut E, counter: &[E::V], key: &[E::V]) -> Vec<E::V> {
    let (mut c, mut k) = (counter.to_vec(), key.to_vec());
    let [half, low] = [32, u32::MAX as u64].map(|bits| e.constant(Value::from_bits(Scalar::U64, bits)));
    for round in 0..10 {
        if round > 0 {
            for (word, step) in k.iter_mut().zip([0x9E37_79B9u64, 0xBB67_AE85]) {
                let step = e.constant(Value::from_bits(Scalar::U32, step));
                *word = e.add(word, &step);
            }
        }
        let products = [(0xD251_1F53u64, &c[0]), (0xCD9E_8D57, &c[2])].map(|(factor, word)| {
            let factor = e.constant(Value::from_bits(Scalar::U64, factor));
            let word = e.cast(Scalar::U64, word);
            let product = e.mul(&factor, &word);
            let (upper, lower) = (e.op(Op::Shr, &[&product, &half]), e.op(Op::And, &[&product, &low]));
            [upper, lower].map(|word| e.cast(Scalar::U32, &word))
        });
        let [[upper0, lower0], [upper1, lower1]] = products;
        let mix = |e: &mut E, a: &E::V, b: &E::V, c: &E::V| {
            let mixed = e.op(Op::Xor, &[a, b]);
            e.op(Op::Xor, &[&mixed, c])
        };
        let (first, third) = (mix(e, &upper1, &c[1], &k[0]), mix(e, &upper0, &c[3], &k[1]));
        c = vec![first, lower1, third, lower0];
    }
    c
}
