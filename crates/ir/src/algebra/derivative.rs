//! Derivatives of the rows, over [`Emit`] alone.

use super::body::shape;
use super::{Algebra, Parts};
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

/// left (rows × inner) times right (inner × columns), given by element.
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
    row: Algebra,
    e: &mut E,
    place: impl Fn(Type) -> usize,
    args: &[Parts<E::V>],
    out: &Parts<E::V>,
    g: &[E::V],
) -> Option<Vec<Vec<E::V>>> {
    let at = |parts: &[E::V], columns: usize| {
        let parts = parts.to_vec();
        move |i: usize, j: usize| parts[i * columns + j].clone()
    };
    let like = g.first()?;
    Some(match (row, args) {
        (Algebra::Construct, [one]) if one.parts.len() == 1 => {
            let unit = e.constant_like(like, 1.0);
            vec![vec![sum(e, g.iter().map(|g| (g.clone(), unit.clone())), like)]]
        }
        (Algebra::Construct, args) => {
            let mut rest = g;
            (args.iter())
                .map(|arg| {
                    let (own, others) = rest.split_at(arg.parts.len());
                    rest = others;
                    own.to_vec()
                })
                .collect()
        }
        (Algebra::Extract, [whole]) => {
            let (start, none) = (place(whole.ty), zero(e, like));
            let mut parts = vec![none; whole.parts.len()];
            parts[start..start + g.len()].clone_from_slice(g);
            vec![parts]
        }
        (Algebra::Insert, [whole, part]) => {
            let (start, none) = (place(whole.ty), zero(e, like));
            let own = g[start..start + part.parts.len()].to_vec();
            let mut parts = g.to_vec();
            parts[start..start + own.len()].fill(none);
            vec![parts, own]
        }
        (Algebra::Dot, [a, b]) => {
            [b, a].map(|other| other.parts.iter().map(|part| e.mul(&g[0], part)).collect()).into()
        }
        (Algebra::Cross, [a, b]) => {
            // d(a × b) · g = b × g for a, g × a for b.
            let cross = |e: &mut E, a: &[E::V], b: &[E::V]| -> Vec<E::V> {
                let mut part = |i: usize, j: usize| {
                    let (left, right) = (e.mul(&a[i], &b[j]), e.mul(&a[j], &b[i]));
                    e.sub(&left, &right)
                };
                vec![part(1, 2), part(2, 0), part(0, 1)]
            };
            vec![cross(e, &b.parts, g), cross(e, g, &a.parts)]
        }
        (Algebra::Length, [a]) => {
            vec![
                (a.parts.iter())
                    .map(|part| {
                        let ratio = e.div(part, &out.parts[0]);
                        e.mul(&g[0], &ratio)
                    })
                    .collect(),
            ]
        }
        (Algebra::Normalize, [a]) => {
            // (g - n (n · g)) / |a|, with |a| = a · n; 0 where a is.
            let n = &out.parts;
            let along = sum(e, n.iter().cloned().zip(g.iter().cloned()), like);
            let length = sum(e, a.parts.iter().cloned().zip(n.iter().cloned()), like);
            let none = zero(e, like);
            let degenerate = e.op(Op::Eq, &[&length, &none]);
            let parts = (n.iter().zip(g))
                .map(|(n, g)| {
                    let part = e.mul(n, &along);
                    let across = e.sub(g, &part);
                    let slope = e.div(&across, &length);
                    e.select(&degenerate, &none, &slope)
                })
                .collect();
            vec![parts]
        }
        (Algebra::Outer, [a, b]) => {
            let (n, m) = (a.parts.len(), b.parts.len());
            let (row, column) = (at(g, m), at(g, m));
            vec![
                product(e, (n, m, 1), row, at(&b.parts, 1), like),
                product(e, (m, n, 1), move |i, k| column(k, i), at(&a.parts, 1), like),
            ]
        }
        (Algebra::Transpose, [a]) => {
            let (rows, columns) = shape(a.ty);
            vec![(0..rows * columns).map(|at| g[at % columns * rows + at / columns].clone()).collect()]
        }
        (Algebra::Determinant, [m]) => {
            let n = shape(m.ty).0;
            let cofactors: Vec<E::V> = (0..n * n).map(|at| cofactor(e, n, &m.parts, at / n, at % n)).collect();
            vec![cofactors.iter().map(|part| e.mul(&g[0], part)).collect()]
        }
        (Algebra::Inverse, [m]) => {
            // -(M⁻¹)ᵀ g (M⁻¹)ᵀ.
            let n = shape(m.ty).0;
            let (left, right) = (at(&out.parts, n), at(&out.parts, n));
            let half = product(e, (n, n, n), move |i, k| left(k, i), at(g, n), like);
            let whole = product(e, (n, n, n), at(&half, n), move |k, j| right(j, k), like);
            vec![whole.iter().map(|part| e.neg(part)).collect()]
        }
        (Algebra::MatVec | Algebra::MatMul, [a, b]) => {
            let ((rows, inner), (_, columns)) = (shape(a.ty), shape(b.ty));
            let (left, right) = (at(&a.parts, inner), at(&b.parts, columns));
            vec![
                product(e, (rows, columns, inner), at(g, columns), move |k, j| right(j, k), like),
                product(e, (inner, rows, columns), move |i, k| left(k, i), at(g, columns), like),
            ]
        }
        _ => return None,
    })
}

/// The derivative of a determinant by component (i, j): its cofactor.
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
