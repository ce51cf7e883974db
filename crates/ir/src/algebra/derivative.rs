//! Derivatives of the algebra ops, over [`Emit`].

use super::body::shape;
use super::{AlgebraOp, Components};
use crate::{Emit, Op, Type};

fn zero<E: Emit>(e: &mut E, like: &E::V) -> E::V {
    e.constant_like(like, 0.0)
}

/// Σ a b.
fn sum<E: Emit>(e: &mut E, pairs: impl Iterator<Item = (E::V, E::V)>, like: &E::V) -> E::V {
    let mut total: Option<E::V> = None;
    for (a, b) in pairs {
        let product = e.mul(&a, &b);
        total = Some(total.map_or(product.clone(), |total| e.add(&total, &product)));
    }
    total.unwrap_or_else(|| zero(e, like))
}

/// Product of left (rows × inner) and right (inner × columns), both passed as element functions.
fn product<E: Emit>(
    e: &mut E,
    (rows, inner, columns): (usize, usize, usize),
    left: impl Fn(usize, usize) -> E::V,
    right: impl Fn(usize, usize) -> E::V,
    like: &E::V,
) -> Vec<E::V> {
    (0..rows * columns)
        .map(|at| sum(e, (0..inner).map(|k| (left(at / columns, k), right(k, at % columns))), like))
        .collect()
}

pub(super) fn derivative<E: Emit>(
    op: AlgebraOp,
    e: &mut E,
    first_component: impl Fn(Type) -> usize,
    args: &[Components<E::V>],
    out: &Components<E::V>,
    g: &[E::V],
) -> Option<Vec<Vec<E::V>>> {
    let at = |components: &[E::V], columns: usize| {
        let components = components.to_vec();
        move |i: usize, j: usize| components[i * columns + j].clone()
    };
    let like = g.first()?;
    Some(match (op, args) {
        (AlgebraOp::Construct, [one]) if one.components.len() == 1 => {
            let unit = e.constant_like(like, 1.0);
            vec![vec![sum(e, g.iter().map(|g| (g.clone(), unit.clone())), like)]]
        }
        (AlgebraOp::Construct, args) => {
            let mut rest = g;
            (args.iter())
                .map(|arg| {
                    let (own, others) = rest.split_at(arg.components.len());
                    rest = others;
                    own.to_vec()
                })
                .collect()
        }
        (AlgebraOp::Extract, [whole]) => {
            let (start, none) = (first_component(whole.ty), zero(e, like));
            let mut components = vec![none; whole.components.len()];
            components[start..start + g.len()].clone_from_slice(g);
            vec![components]
        }
        (AlgebraOp::Insert, [whole, inserted]) => {
            let (start, none) = (first_component(whole.ty), zero(e, like));
            let own = g[start..start + inserted.components.len()].to_vec();
            let mut components = g.to_vec();
            components[start..start + own.len()].fill(none);
            vec![components, own]
        }
        (AlgebraOp::Dot, [a, b]) => {
            [b, a].map(|other| other.components.iter().map(|part| e.mul(&g[0], part)).collect()).into()
        }
        (AlgebraOp::Cross, [a, b]) => {
            // d(a × b) · g = b × g for a, g × a for b.
            let cross = |e: &mut E, a: &[E::V], b: &[E::V]| -> Vec<E::V> {
                let mut part = |i: usize, j: usize| {
                    let (left, right) = (e.mul(&a[i], &b[j]), e.mul(&a[j], &b[i]));
                    e.sub(&left, &right)
                };
                vec![part(1, 2), part(2, 0), part(0, 1)]
            };
            vec![cross(e, &b.components, g), cross(e, g, &a.components)]
        }
        (AlgebraOp::Length, [a]) => {
            vec![
                (a.components.iter())
                    .map(|part| {
                        let ratio = e.div(part, &out.components[0]);
                        e.mul(&g[0], &ratio)
                    })
                    .collect(),
            ]
        }
        (AlgebraOp::Normalize, [a]) => {
            // (g - n (n · g)) / |a|, with |a| = a · n; 0 where |a| is 0.
            let n = &out.components;
            let along = sum(e, n.iter().cloned().zip(g.iter().cloned()), like);
            let length = sum(e, a.components.iter().cloned().zip(n.iter().cloned()), like);
            let none = zero(e, like);
            let degenerate = e.op(Op::Eq, &[&length, &none]);
            let components = (n.iter().zip(g))
                .map(|(n, g)| {
                    let part = e.mul(n, &along);
                    let across = e.sub(g, &part);
                    let quotient = e.div(&across, &length);
                    e.select(&degenerate, &none, &quotient)
                })
                .collect();
            vec![components]
        }
        (AlgebraOp::Outer, [a, b]) => {
            let (n, m) = (a.components.len(), b.components.len());
            let (row, column) = (at(g, m), at(g, m));
            vec![
                product(e, (n, m, 1), row, at(&b.components, 1), like),
                product(e, (m, n, 1), move |i, k| column(k, i), at(&a.components, 1), like),
            ]
        }
        (AlgebraOp::Transpose, [a]) => {
            let (rows, columns) = shape(a.ty);
            vec![(0..rows * columns).map(|at| g[at % columns * rows + at / columns].clone()).collect()]
        }
        (AlgebraOp::Determinant, [m]) => {
            let n = shape(m.ty).0;
            let cofactors: Vec<E::V> = (0..n * n).map(|at| cofactor(e, n, &m.components, at / n, at % n)).collect();
            vec![cofactors.iter().map(|part| e.mul(&g[0], part)).collect()]
        }
        (AlgebraOp::Inverse, [m]) => {
            // -(M⁻¹)ᵀ g (M⁻¹)ᵀ.
            let n = shape(m.ty).0;
            let (left, right) = (at(&out.components, n), at(&out.components, n));
            let half = product(e, (n, n, n), move |i, k| left(k, i), at(g, n), like);
            let whole = product(e, (n, n, n), at(&half, n), move |k, j| right(j, k), like);
            vec![whole.iter().map(|part| e.neg(part)).collect()]
        }
        (AlgebraOp::MatVec | AlgebraOp::MatMul, [a, b]) => {
            let ((rows, inner), (_, columns)) = (shape(a.ty), shape(b.ty));
            let (left, right) = (at(&a.components, inner), at(&b.components, columns));
            vec![
                product(e, (rows, columns, inner), at(g, columns), move |k, j| right(j, k), like),
                product(e, (inner, rows, columns), move |i, k| left(k, i), at(g, columns), like),
            ]
        }
        _ => return None,
    })
}

/// Derivative of a determinant with respect to component (i, j): its cofactor.
fn cofactor<E: Emit>(e: &mut E, n: usize, m: &[E::V], i: usize, j: usize) -> E::V {
    let rest: Vec<E::V> = (0..n * n).filter(|at| at / n != i && at % n != j).map(|at| m[at].clone()).collect();
    let minor = plain_determinant(e, n - 1, &rest);
    if (i + j).is_multiple_of(2) { minor } else { e.neg(&minor) }
}

fn plain_determinant<E: Emit>(e: &mut E, n: usize, m: &[E::V]) -> E::V {
    if n == 1 {
        return m[0].clone();
    }
    let cofactors: Vec<E::V> = (0..n).map(|j| cofactor(e, n, m, 0, j)).collect();
    sum(e, m[..n].iter().cloned().zip(cofactors), &m[0])
}
