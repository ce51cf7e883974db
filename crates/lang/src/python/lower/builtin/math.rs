//! Scalar functions, applied to vectors component by component.

use bornite_ir::{ExprId, Op, Scalar, Value};
use ruff_python_ast::Expr;

use super::super::call::CallArgs;
use super::super::value::{PyValue, Rvalue};
use super::super::{Lower, LowerResult};
use crate::python::const_eval::ConstValue;
use crate::python::types::{BOOL, Ty};

type BuiltinResult = LowerResult<Option<PyValue>>;

fn value_result(id: ExprId, ty: Ty) -> BuiltinResult {
    Ok(Some(PyValue::Rvalue(Rvalue::new(id, ty))))
}

/// A number, broadcast to all components of a type.
fn splat_number(lower: &mut Lower<'_>, ty: Ty, x: f64) -> ExprId {
    let s = ty.element().unwrap_or(Scalar::F32);
    let one = lower.w.constant(Value::from_f64(s, x));
    lower.splat(one, ty)
}

fn single_arg<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> LowerResult<Option<Rvalue>> {
    Ok(lower.same_type_args(call_args, 1, at)?.map(|(mut rvalues, _)| rvalues.remove(0)))
}

/// Applies an op to its argument clamped to [-1, 1].
fn clamped_to_unit<'p>(lower: &mut Lower<'p>, op: Op, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some(rvalue) =
        single_arg(lower, call_args, at)?.filter(|rvalue| rvalue.ty.is_float() && rvalue.ty.scalar().is_some())
    else {
        return Ok(None);
    };
    let (low, high) = (splat_number(lower, rvalue.ty, -1.0), splat_number(lower, rvalue.ty, 1.0));
    let raised = lower.op(Op::Fmax, &[rvalue.id, low]);
    let clamped = lower.op(Op::Fmin, &[raised, high]);
    value_result(lower.op(op, &[clamped]), rvalue.ty)
}

pub(super) fn acos<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    clamped_to_unit(lower, Op::Acos, call_args, at)
}

pub(super) fn asin<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    clamped_to_unit(lower, Op::Asin, call_args, at)
}

pub(super) fn abs<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some(rvalue) = single_arg(lower, call_args, at)?.filter(|rvalue| rvalue.ty.element() != Some(Scalar::Bool))
    else {
        return Ok(None);
    };
    let unsigned = rvalue.ty.element().is_some_and(|s| s.is_int() && !s.is_signed());
    value_result(if unsigned { rvalue.id } else { lower.op(Op::Abs, &[rvalue.id]) }, rvalue.ty)
}

/// -1 below 0, else 1.
pub(super) fn sign<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some(rvalue) = single_arg(lower, call_args, at)?.filter(|rvalue| rvalue.ty.element() != Some(Scalar::Bool))
    else {
        return Ok(None);
    };
    let [below, zero, above] = [-1.0, 0.0, 1.0].map(|x| splat_number(lower, rvalue.ty, x));
    let less = lower.op(Op::Lt, &[rvalue.id, zero]);
    value_result(lower.op(Op::Select, &[less, below, above]), rvalue.ty)
}

/// 1 below 0, else 0.
pub(super) fn step<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some(rvalue) = single_arg(lower, call_args, at)?.filter(|rvalue| rvalue.ty.element() != Some(Scalar::Bool))
    else {
        return Ok(None);
    };
    let [zero, one] = [0.0, 1.0].map(|x| splat_number(lower, rvalue.ty, x));
    let less = lower.op(Op::Lt, &[rvalue.id, zero]);
    value_result(lower.op(Op::Select, &[less, one, zero]), rvalue.ty)
}

fn min_or_max<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr, smaller: bool) -> BuiltinResult {
    let row = |ty: Ty| match (ty.is_float(), smaller) {
        (true, true) => Op::Fmin,
        (true, false) => Op::Fmax,
        (false, true) => Op::Min,
        (false, false) => Op::Max,
    };
    // A single vector: its smallest or largest component.
    if let Some(rvalue) = single_arg(lower, call_args, at)?.filter(|rvalue| matches!(rvalue.ty, Ty::Vector(..))) {
        let s = rvalue.ty.element().unwrap_or(Scalar::F32);
        let parts = lower.components(rvalue.id, rvalue.ty.count() as u32);
        let mut best = parts[0];
        for part in &parts[1..] {
            best = lower.op(row(rvalue.ty), &[best, *part]);
        }
        return value_result(best, Ty::Scalar(s));
    }
    match lower.same_type_args(call_args, 2, at)? {
        Some((rvalues, ty)) if ty.element() != Some(Scalar::Bool) && !matches!(ty, Ty::Matrix(..)) => {
            value_result(lower.op(row(ty), &[rvalues[0].id, rvalues[1].id]), ty)
        }
        _ => Ok(None),
    }
}

pub(super) fn min<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    min_or_max(lower, call_args, at, true)
}

pub(super) fn max<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    min_or_max(lower, call_args, at, false)
}

pub(super) fn clamp<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some((rvalues, ty)) = lower.same_type_args(call_args, 3, at)?.filter(|(_, ty)| ty.scalar().is_some()) else {
        return Ok(None);
    };
    let (max, min) = if ty.is_float() { (Op::Fmax, Op::Fmin) } else { (Op::Max, Op::Min) };
    let raised = lower.op(max, &[rvalues[1].id, rvalues[0].id]);
    value_result(lower.op(min, &[raised, rvalues[2].id]), ty)
}

/// `where(condition, a, b)`.
pub(super) fn choose<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let [(cond, c_at), (a, a_at), (b, b_at)] = &call_args.positional[..] else { return Ok(None) };
    let condition = lower.truth(cond.clone(), *c_at)?;
    if let (PyValue::Array(x), PyValue::Array(y)) = (a, b)
        && x == y
    {
        return Ok(Some(a.clone()));
    }
    let (a, b) = (lower.value(a.clone(), *a_at)?, lower.value(b.clone(), *b_at)?);
    lower.check_same_type(&a, &b, at)?;
    value_result(lower.choose(condition, a.id, b.id), a.ty)
}

/// Tests the components: true if the test holds for any of them, or for all of them (`all`).
fn test_components<'p>(
    lower: &mut Lower<'p>,
    call_args: &CallArgs<'p>,
    at: &'p Expr,
    all: bool,
    test: fn(&mut Lower<'p>, ExprId, Ty) -> ExprId,
) -> BuiltinResult {
    let Some(rvalue) = single_arg(lower, call_args, at)? else { return Ok(None) };
    let Some(s) = rvalue.ty.element() else { return Ok(None) };
    if !s.is_float() {
        return value_result(lower.w.constant(Value::int(Scalar::Bool, all as i64)), BOOL);
    }
    let parts = if rvalue.ty.scalar().is_some() {
        vec![rvalue.id]
    } else {
        lower.components(rvalue.id, rvalue.ty.count() as u32)
    };
    let mut result: Option<ExprId> = None;
    for part in parts {
        let holds = test(lower, part, Ty::Scalar(s));
        result = Some(match result {
            Some(before) => lower.op(if all { Op::And } else { Op::Or }, &[before, holds]),
            None => holds,
        });
    }
    match result {
        Some(id) => value_result(id, BOOL),
        None => Ok(None),
    }
}

pub(super) fn isnan<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    test_components(lower, call_args, at, false, |lower, id, _| lower.op(Op::Ne, &[id, id]))
}

pub(super) fn isinf<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    test_components(lower, call_args, at, false, |lower, id, ty| {
        let (size, limit) = (lower.op(Op::Abs, &[id]), splat_number(lower, ty, f64::INFINITY));
        lower.op(Op::Eq, &[size, limit])
    })
}

pub(super) fn isfinite<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    test_components(lower, call_args, at, true, |lower, id, ty| {
        let (size, limit) = (lower.op(Op::Abs, &[id]), splat_number(lower, ty, f64::INFINITY));
        lower.op(Op::Lt, &[size, limit])
    })
}

pub(super) fn bit_count<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some(rvalue) = single_arg(lower, call_args, at)?.filter(|rvalue| rvalue.ty.is_int()) else { return Ok(None) };
    value_result(lower.op(Op::Popcount, &[rvalue.id]), rvalue.ty)
}

pub(super) fn neg<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some(rvalue) = single_arg(lower, call_args, at)?.filter(|rvalue| rvalue.ty.element() != Some(Scalar::Bool))
    else {
        return Ok(None);
    };
    value_result(lower.op(Op::Neg, &[rvalue.id]), rvalue.ty)
}

pub(super) fn pos<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    Ok(single_arg(lower, call_args, at)?.map(|rvalue| PyValue::Rvalue(Rvalue::new(rvalue.id, rvalue.ty))))
}

pub(super) fn unot<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some((val, _)) = call_args.positional.first() else { return Ok(None) };
    let truth = lower.truth(val.clone(), at)?;
    value_result(lower.op(Op::Not, &[truth]), BOOL)
}

pub(super) fn invert<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some(rvalue) =
        single_arg(lower, call_args, at)?.filter(|rvalue| rvalue.ty.element().is_some_and(Scalar::is_int))
    else {
        return Ok(None);
    };
    value_result(lower.op(Op::Not, &[rvalue.id]), rvalue.ty)
}

/// `wp.cast`: reinterprets the bits as another type.
pub(super) fn cast<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let (Some((val, from)), Some((PyValue::Const(ConstValue::Type(pattern)), _))) =
        (call_args.get(0, "a"), call_args.get(1, "dtype"))
    else {
        return Ok(None);
    };
    let rvalue = lower.value(val, from)?;
    match (rvalue.ty.element(), pattern.exact()) {
        (Some(s), Some(ty)) if ty.count() == rvalue.ty.count() => {
            let to = ty.element().unwrap_or(s);
            if to.bytes() != s.bytes() || (s == Scalar::Bool) != (to == Scalar::Bool) {
                let what = "cannot reinterpret the bits as a type of another width".to_owned();
                return lower.fail(at, what, "expected types of the same width", None);
            }
            let id = if s == to { rvalue.id } else { bornite_ir::EmitBits::bitcast(&mut lower.w.b, to, &rvalue.id) };
            value_result(id, ty)
        }
        _ => Ok(None),
    }
}
