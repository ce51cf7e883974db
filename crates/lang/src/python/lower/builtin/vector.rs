//! Functions of vectors and matrices.

use bornite_ir::{Algebra, ExprId, Op, Scalar, Value};
use ruff_python_ast::Expr;

use super::super::call::Given;
use super::super::value::{Run, Val};
use super::super::{Lower, Lowers};
use crate::python::types::Ty;

type Made = Lowers<Option<Val>>;

fn made(id: ExprId, ty: Ty) -> Made {
    Ok(Some(Val::Run(Run::new(id, ty))))
}

/// The type as a vector, if it is one in memory.
fn as_vector(ty: Ty) -> Option<(Scalar, u8)> {
    match ty {
        Ty::Vector(s, n) => Some((s, n)),
        Ty::Quat(s) => Some((s, 4)),
        Ty::Transform(s) => Some((s, 7)),
        _ => None,
    }
    .filter(|(s, _)| *s != Scalar::Bool)
}

fn one<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Lowers<Option<Run>> {
    Ok(lower.alike_runs(given, 1, at)?.map(|(mut runs, _)| runs.remove(0)))
}

pub(super) fn dot<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    match lower.alike_runs(given, 2, at)? {
        Some((runs, ty)) => match as_vector(ty) {
            Some((s, _)) => made(lower.w.b.algebra(Algebra::Dot, &[runs[0].id, runs[1].id]), Ty::Scalar(s)),
            None => Ok(None),
        },
        None => Ok(None),
    }
}

pub(super) fn cross<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    match lower.alike_runs(given, 2, at)? {
        Some((runs, ty @ Ty::Vector(s, 3))) if s != Scalar::Bool => {
            made(lower.w.b.algebra(Algebra::Cross, &[runs[0].id, runs[1].id]), ty)
        }
        _ => Ok(None),
    }
}

pub(super) fn length<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some(run) = one(lower, given, at)? else { return Ok(None) };
    match as_vector(run.ty) {
        Some((s, _)) if s.is_float() => made(lower.w.b.algebra(Algebra::Length, &[run.id]), Ty::Scalar(s)),
        _ => Ok(None),
    }
}

pub(super) fn normalize<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some(run) = one(lower, given, at)? else { return Ok(None) };
    match (run.ty, as_vector(run.ty)) {
        (Ty::Transform(_), _) => Ok(None),
        // Of no length: no rotation.
        (Ty::Quat(s), _) => {
            let length = lower.w.b.algebra(Algebra::Length, &[run.id]);
            let [zero, unit] = [0.0, 1.0].map(|x| lower.w.constant(Value::from_f64(s, x)));
            let some = lower.op(Op::Lt, &[zero, length]);
            let turned = lower.w.b.algebra(Algebra::Normalize, &[run.id]);
            let ty = lower.w.b.type_of(run.id);
            let none = lower.w.b.construct(ty, &[zero, zero, zero, unit]);
            made(lower.op(Op::Select, &[some, turned, none]), run.ty)
        }
        (ty, Some((s, _))) if s.is_float() => made(lower.w.b.algebra(Algebra::Normalize, &[run.id]), ty),
        _ => Ok(None),
    }
}

pub(super) fn outer<'p>(lower: &mut Lower<'p>, given: &Given<'p>, _: &'p Expr) -> Made {
    if given.args.len() != 2 {
        return Ok(None);
    }
    let runs = lower.runs(given)?;
    match (runs[0].ty, runs[1].ty) {
        (Ty::Vector(s, n), Ty::Vector(t, m)) if s == t && n as usize * m as usize <= bornite_ir::MAX_COMPONENTS => {
            made(lower.w.b.algebra(Algebra::Outer, &[runs[0].id, runs[1].id]), Ty::Matrix(s, n, m))
        }
        _ => Ok(None),
    }
}

pub(super) fn transpose<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    match one(lower, given, at)? {
        Some(Run { id, ty: Ty::Matrix(s, rows, columns), .. }) => {
            made(lower.w.b.algebra(Algebra::Transpose, &[id]), Ty::Matrix(s, columns, rows))
        }
        _ => Ok(None),
    }
}

fn componentwise<'p>(lower: &mut Lower<'p>, op: Op, given: &Given<'p>, at: &'p Expr) -> Made {
    match lower.alike_runs(given, 2, at)? {
        Some((runs, ty @ (Ty::Vector(..) | Ty::Matrix(..) | Ty::Quat(_)))) if ty.element() != Some(Scalar::Bool) => {
            made(lower.op(op, &[runs[0].id, runs[1].id]), ty)
        }
        _ => Ok(None),
    }
}

pub(super) fn cw_mul<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    componentwise(lower, Op::Mul, given, at)
}

pub(super) fn cw_div<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    componentwise(lower, Op::Div, given, at)
}

pub(super) fn trace<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    match one(lower, given, at)? {
        Some(Run { id, ty: Ty::Matrix(s, rows, columns), .. }) if rows == columns => {
            let mut sum = lower.extracted(id, 0);
            for n in 1..rows as u32 {
                let part = lower.extracted(id, n * columns as u32 + n);
                sum = lower.op(Op::Add, &[sum, part]);
            }
            made(sum, Ty::Scalar(s))
        }
        _ => Ok(None),
    }
}

pub(super) fn diag<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    match one(lower, given, at)? {
        Some(Run { id, ty: Ty::Vector(s, n), .. }) => {
            let zero = lower.w.constant(Value::int(s, 0));
            let ty = Ty::Matrix(s, n, n);
            let ir = lower.ir_type(ty, at)?;
            let mut parts = vec![zero; n as usize * n as usize];
            for k in 0..n as usize {
                parts[k * (n as usize + 1)] = lower.extracted(id, k as u32);
            }
            made(lower.w.b.construct(ir, &parts), ty)
        }
        _ => Ok(None),
    }
}

pub(super) fn get_diag<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    match one(lower, given, at)? {
        Some(Run { id, ty: Ty::Matrix(s, rows, columns), .. }) if rows == columns => {
            let parts: Vec<ExprId> = (0..rows as u32).map(|n| lower.extracted(id, n * (columns as u32 + 1))).collect();
            let ty = Ty::Vector(s, rows);
            let ir = lower.ir_type(ty, at)?;
            made(lower.w.b.construct(ir, &parts), ty)
        }
        _ => Ok(None),
    }
}

pub(super) fn identity<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some((val, size_at)) = given.take(0, "n") else { return Ok(None) };
    let n = lower.size_of(&val, size_at)?;
    let s = match given.take(1, "dtype") {
        Some((Val::Fixed(crate::python::fixed::Fixed::Type(pattern)), _)) => {
            pattern.exact().and_then(Ty::scalar).unwrap_or(Scalar::F32)
        }
        _ => Scalar::F32,
    };
    if n > 8 {
        return lower.fail(at, format!("a matrix of {n} × {n}"), "64 components are the most", None);
    }
    let ty = Ty::Matrix(s, n as u8, n as u8);
    let ir = lower.ir_type(ty, at)?;
    let ids: Vec<ExprId> =
        (0..n * n).map(|k| lower.w.constant(Value::from_f64(s, if k / n == k % n { 1.0 } else { 0.0 }))).collect();
    made(lower.w.b.construct(ir, &ids), ty)
}

fn from_vectors<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr, rows: bool) -> Made {
    let runs = lower.runs(given)?;
    let Some(&Ty::Vector(s, n)) = runs.first().map(|run| &run.ty) else { return Ok(None) };
    if runs.iter().any(|run| run.ty != Ty::Vector(s, n)) {
        return Ok(None);
    }
    let count = runs.len() as u8;
    let ty = if rows { Ty::Matrix(s, count, n) } else { Ty::Matrix(s, n, count) };
    let ir = lower.ir_type(ty, at)?;
    let mut ids = vec![];
    if rows {
        for run in &runs {
            ids.extend(lower.parts(run.id, n as u32));
        }
    } else {
        for row in 0..n as u32 {
            ids.extend(runs.iter().map(|run| lower.extracted(run.id, row)).collect::<Vec<_>>());
        }
    }
    made(lower.w.b.construct(ir, &ids), ty)
}

pub(super) fn from_rows<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    from_vectors(lower, given, at, true)
}

pub(super) fn from_columns<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    from_vectors(lower, given, at, false)
}

pub(super) fn vector<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    lower.make_vector(given, at).map(Some)
}

pub(super) fn matrix<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    lower.make_matrix(given, at).map(Some)
}

/// The scalar type of what is made: as `dtype=` says, or as the first argument has it.
fn scalar_of<'p>(lower: &mut Lower<'p>, given: &Given<'p>) -> Lowers<Scalar> {
    if let Some(s) = lower.dtype_of(given)?.and_then(Ty::scalar) {
        return Ok(s);
    }
    let first = given.args.first().cloned().or(given.named.first().map(|(_, val, at)| (val.clone(), *at)));
    match first {
        Some((val, at)) => Ok(lower.value(val, at)?.ty.element().unwrap_or(Scalar::F32)),
        None => Ok(Scalar::F32),
    }
}

pub(super) fn quaternion<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let s = scalar_of(lower, given)?;
    lower.make(Ty::Quat(s), given, at).map(|run| Some(Val::Run(run)))
}

pub(super) fn transformation<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let s = scalar_of(lower, given)?;
    lower.make(Ty::Transform(s), given, at).map(|run| Some(Val::Run(run)))
}

fn unit<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr, of: fn(Scalar) -> Ty) -> Made {
    let s = match given.take(0, "dtype") {
        Some((Val::Fixed(crate::python::fixed::Fixed::Type(pattern)), _)) => {
            pattern.exact().and_then(Ty::scalar).unwrap_or(Scalar::F32)
        }
        _ => Scalar::F32,
    };
    let ty = of(s);
    let ir = lower.ir_type(ty, at)?;
    let last = ty.count() - 1;
    let ids: Vec<ExprId> = (0..=last).map(|n| lower.w.constant(Value::from_f64(s, (n == last) as u8 as f64))).collect();
    made(lower.w.b.construct(ir, &ids), ty)
}

pub(super) fn quat_identity<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    unit(lower, given, at, Ty::Quat)
}

pub(super) fn transform_identity<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    unit(lower, given, at, Ty::Transform)
}

/// Changes a part of a transform that is a variable.
fn set_part<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr, first: u32, count: u32) -> Made {
    let [(whole, target), (part, part_at)] = &given.args[..] else { return Ok(None) };
    let (run, part) = (lower.value(whole.clone(), *target)?, lower.value(part.clone(), *part_at)?);
    if !matches!(run.ty, Ty::Transform(_)) || part.ty.count() as u32 != count || part.ty.element() != run.ty.element() {
        return Ok(None);
    }
    let mut id = run.id;
    for n in 0..count {
        let one = lower.extracted(part.id, n);
        id = lower.w.b.insert(id, first + n, one);
    }
    let _ = at;
    lower.write_back(target, Run::new(id, run.ty))?;
    Ok(Some(Val::Fixed(crate::python::fixed::Fixed::None)))
}

pub(super) fn set_translation<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    set_part(lower, given, at, 0, 3)
}

pub(super) fn set_rotation<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    set_part(lower, given, at, 3, 4)
}
