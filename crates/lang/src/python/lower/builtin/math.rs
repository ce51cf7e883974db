//! Functions of numbers, of vectors component by component.

use bornite_ir::{ExprId, Op, Scalar, Value};
use ruff_python_ast::Expr;

use super::super::call::Given;
use super::super::value::{Run, Val};
use super::super::{Lower, Lowers};
use crate::python::fixed::Fixed;
use crate::python::types::{BOOL, Ty};

type Made = Lowers<Option<Val>>;

fn made(id: ExprId, ty: Ty) -> Made {
    Ok(Some(Val::Run(Run::new(id, ty))))
}

/// A number in every component of a type.
fn number(lower: &mut Lower<'_>, ty: Ty, x: f64) -> ExprId {
    let s = ty.element().unwrap_or(Scalar::F32);
    let one = lower.w.constant(Value::from_f64(s, x));
    lower.splat(one, ty)
}

fn one<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Lowers<Option<Run>> {
    Ok(lower.alike_runs(given, 1, at)?.map(|(mut runs, _)| runs.remove(0)))
}

/// Arguments beyond -1 and 1 count as those.
fn within_one<'p>(lower: &mut Lower<'p>, op: Op, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some(run) = one(lower, given, at)?.filter(|run| run.ty.is_float() && run.ty.scalar().is_some()) else {
        return Ok(None);
    };
    let (low, high) = (number(lower, run.ty, -1.0), number(lower, run.ty, 1.0));
    let raised = lower.op(Op::Fmax, &[run.id, low]);
    let kept = lower.op(Op::Fmin, &[raised, high]);
    made(lower.op(op, &[kept]), run.ty)
}

pub(super) fn acos<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    within_one(lower, Op::Acos, given, at)
}

pub(super) fn asin<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    within_one(lower, Op::Asin, given, at)
}

pub(super) fn abs<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some(run) = one(lower, given, at)?.filter(|run| run.ty.element() != Some(Scalar::Bool)) else {
        return Ok(None);
    };
    let unsigned = run.ty.element().is_some_and(|s| s.is_int() && !s.is_signed());
    made(if unsigned { run.id } else { lower.op(Op::Abs, &[run.id]) }, run.ty)
}

/// -1 below 0, else 1.
pub(super) fn sign<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some(run) = one(lower, given, at)?.filter(|run| run.ty.element() != Some(Scalar::Bool)) else {
        return Ok(None);
    };
    let [below, zero, above] = [-1.0, 0.0, 1.0].map(|x| number(lower, run.ty, x));
    let less = lower.op(Op::Lt, &[run.id, zero]);
    made(lower.op(Op::Select, &[less, below, above]), run.ty)
}

/// 1 below 0, else 0.
pub(super) fn step<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some(run) = one(lower, given, at)?.filter(|run| run.ty.element() != Some(Scalar::Bool)) else {
        return Ok(None);
    };
    let [zero, one] = [0.0, 1.0].map(|x| number(lower, run.ty, x));
    let less = lower.op(Op::Lt, &[run.id, zero]);
    made(lower.op(Op::Select, &[less, one, zero]), run.ty)
}

fn extreme<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr, smaller: bool) -> Made {
    let row = |ty: Ty| match (ty.is_float(), smaller) {
        (true, true) => Op::Fmin,
        (true, false) => Op::Fmax,
        (false, true) => Op::Min,
        (false, false) => Op::Max,
    };
    // Of one vector, its smallest component.
    if let Some(run) = one(lower, given, at)?.filter(|run| matches!(run.ty, Ty::Vector(..))) {
        let s = run.ty.element().unwrap_or(Scalar::F32);
        let parts = lower.parts(run.id, run.ty.count() as u32);
        let mut best = parts[0];
        for part in &parts[1..] {
            best = lower.op(row(run.ty), &[best, *part]);
        }
        return made(best, Ty::Scalar(s));
    }
    match lower.alike_runs(given, 2, at)? {
        Some((runs, ty)) if ty.element() != Some(Scalar::Bool) && !matches!(ty, Ty::Matrix(..)) => {
            made(lower.op(row(ty), &[runs[0].id, runs[1].id]), ty)
        }
        _ => Ok(None),
    }
}

pub(super) fn min<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    extreme(lower, given, at, true)
}

pub(super) fn max<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    extreme(lower, given, at, false)
}

pub(super) fn clamp<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some((runs, ty)) = lower.alike_runs(given, 3, at)?.filter(|(_, ty)| ty.scalar().is_some()) else {
        return Ok(None);
    };
    let (max, min) = if ty.is_float() { (Op::Fmax, Op::Fmin) } else { (Op::Max, Op::Min) };
    let raised = lower.op(max, &[runs[1].id, runs[0].id]);
    made(lower.op(min, &[raised, runs[2].id]), ty)
}

/// `where(condition, a, b)`.
pub(super) fn choose<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let [(cond, c_at), (a, a_at), (b, b_at)] = &given.args[..] else { return Ok(None) };
    let condition = lower.truth(cond.clone(), *c_at)?;
    if let (Val::Array(x), Val::Array(y)) = (a, b)
        && x == y
    {
        return Ok(Some(a.clone()));
    }
    let (a, b) = (lower.value(a.clone(), *a_at)?, lower.value(b.clone(), *b_at)?);
    lower.alike(&a, &b, at)?;
    made(lower.choose(condition, a.id, b.id), a.ty)
}

/// Whether a test holds for any component, or all.
fn tested<'p>(
    lower: &mut Lower<'p>,
    given: &Given<'p>,
    at: &'p Expr,
    all: bool,
    test: fn(&mut Lower<'p>, ExprId, Ty) -> ExprId,
) -> Made {
    let Some(run) = one(lower, given, at)? else { return Ok(None) };
    let Some(s) = run.ty.element() else { return Ok(None) };
    if !s.is_float() {
        return made(lower.w.constant(Value::int(Scalar::Bool, all as i64)), BOOL);
    }
    let parts = if run.ty.scalar().is_some() { vec![run.id] } else { lower.parts(run.id, run.ty.count() as u32) };
    let mut result: Option<ExprId> = None;
    for part in parts {
        let holds = test(lower, part, Ty::Scalar(s));
        result = Some(match result {
            Some(before) => lower.op(if all { Op::And } else { Op::Or }, &[before, holds]),
            None => holds,
        });
    }
    match result {
        Some(id) => made(id, BOOL),
        None => Ok(None),
    }
}

pub(super) fn isnan<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    tested(lower, given, at, false, |lower, id, _| lower.op(Op::Ne, &[id, id]))
}

pub(super) fn isinf<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    tested(lower, given, at, false, |lower, id, ty| {
        let (size, limit) = (lower.op(Op::Abs, &[id]), number(lower, ty, f64::INFINITY));
        lower.op(Op::Eq, &[size, limit])
    })
}

pub(super) fn isfinite<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    tested(lower, given, at, true, |lower, id, ty| {
        let (size, limit) = (lower.op(Op::Abs, &[id]), number(lower, ty, f64::INFINITY));
        lower.op(Op::Lt, &[size, limit])
    })
}

pub(super) fn bit_count<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some(run) = one(lower, given, at)?.filter(|run| run.ty.is_int()) else { return Ok(None) };
    made(lower.op(Op::Popcount, &[run.id]), run.ty)
}

pub(super) fn neg<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some(run) = one(lower, given, at)?.filter(|run| run.ty.element() != Some(Scalar::Bool)) else {
        return Ok(None);
    };
    made(lower.op(Op::Neg, &[run.id]), run.ty)
}

pub(super) fn pos<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    Ok(one(lower, given, at)?.map(|run| Val::Run(Run::new(run.id, run.ty))))
}

pub(super) fn unot<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some((val, _)) = given.args.first() else { return Ok(None) };
    let truth = lower.truth(val.clone(), at)?;
    made(lower.op(Op::Not, &[truth]), BOOL)
}

pub(super) fn invert<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some(run) = one(lower, given, at)?.filter(|run| run.ty.element().is_some_and(Scalar::is_int)) else {
        return Ok(None);
    };
    made(lower.op(Op::Not, &[run.id]), run.ty)
}

/// The same bits as another type.
pub(super) fn cast<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let (Some((val, from)), Some((Val::Fixed(Fixed::Type(pattern)), _))) = (given.take(0, "a"), given.take(1, "dtype"))
    else {
        return Ok(None);
    };
    let run = lower.value(val, from)?;
    match (run.ty.element(), pattern.exact()) {
        (Some(s), Some(ty)) if ty.count() == run.ty.count() => {
            let to = ty.element().unwrap_or(s);
            if to.bytes() != s.bytes() || (s == Scalar::Bool) != (to == Scalar::Bool) {
                let what = "a cast of bits to another width".to_owned();
                return lower.fail(at, what, "types of one width are expected", None);
            }
            let id = if s == to { run.id } else { bornite_ir::EmitBits::bitcast(&mut lower.w.b, to, &run.id) };
            made(id, ty)
        }
        _ => Ok(None),
    }
}
