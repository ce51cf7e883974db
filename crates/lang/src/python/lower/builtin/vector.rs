//! Vector, matrix, quaternion and transform functions.

use bornite_ir::{AlgebraOp, ExprId, Op, Scalar, Value};
use ruff_python_ast::Expr;

use super::super::call::CallArgs;
use super::super::value::{PyValue, Rvalue};
use super::super::{Lower, LowerResult};
use crate::python::types::Ty;

type BuiltinResult = LowerResult<Option<PyValue>>;

fn value_result(id: ExprId, ty: Ty) -> BuiltinResult {
    Ok(Some(PyValue::Rvalue(Rvalue::new(id, ty))))
}

/// Scalar type and length of a type that is a vector in the IR.
fn as_vector(ty: Ty) -> Option<(Scalar, u8)> {
    match ty {
        Ty::Vector(s, n) => Some((s, n)),
        Ty::Quat(s) => Some((s, 4)),
        Ty::Transform(s) => Some((s, 7)),
        _ => None,
    }
    .filter(|(s, _)| *s != Scalar::Bool)
}

fn single_arg<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> LowerResult<Option<Rvalue>> {
    Ok(lower.same_type_args(call_args, 1, at)?.map(|(mut rvalues, _)| rvalues.remove(0)))
}

pub(super) fn dot<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    match lower.same_type_args(call_args, 2, at)? {
        Some((rvalues, ty)) => match as_vector(ty) {
            Some((s, _)) => {
                value_result(lower.w.b.algebra(AlgebraOp::Dot, &[rvalues[0].id, rvalues[1].id]), Ty::Scalar(s))
            }
            None => Ok(None),
        },
        None => Ok(None),
    }
}

pub(super) fn cross<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    match lower.same_type_args(call_args, 2, at)? {
        Some((rvalues, ty @ Ty::Vector(s, 3))) if s != Scalar::Bool => {
            value_result(lower.w.b.algebra(AlgebraOp::Cross, &[rvalues[0].id, rvalues[1].id]), ty)
        }
        _ => Ok(None),
    }
}

pub(super) fn length<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some(rvalue) = single_arg(lower, call_args, at)? else { return Ok(None) };
    match as_vector(rvalue.ty) {
        Some((s, _)) if s.is_float() => value_result(lower.w.b.algebra(AlgebraOp::Length, &[rvalue.id]), Ty::Scalar(s)),
        _ => Ok(None),
    }
}

pub(super) fn normalize<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some(rvalue) = single_arg(lower, call_args, at)? else { return Ok(None) };
    match (rvalue.ty, as_vector(rvalue.ty)) {
        (Ty::Transform(_), _) => Ok(None),
        // A zero quaternion becomes the identity.
        (Ty::Quat(s), _) => {
            let length = lower.w.b.algebra(AlgebraOp::Length, &[rvalue.id]);
            let [zero, unit] = [0.0, 1.0].map(|x| lower.w.constant(Value::from_f64(s, x)));
            let is_nonzero = lower.op(Op::Lt, &[zero, length]);
            let normalized = lower.w.b.algebra(AlgebraOp::Normalize, &[rvalue.id]);
            let ty = lower.w.b.type_of(rvalue.id);
            let identity = lower.w.b.construct(ty, &[zero, zero, zero, unit]);
            value_result(lower.op(Op::Select, &[is_nonzero, normalized, identity]), rvalue.ty)
        }
        (ty, Some((s, _))) if s.is_float() => value_result(lower.w.b.algebra(AlgebraOp::Normalize, &[rvalue.id]), ty),
        _ => Ok(None),
    }
}

pub(super) fn outer<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, _: &'p Expr) -> BuiltinResult {
    if call_args.positional.len() != 2 {
        return Ok(None);
    }
    let rvalues = lower.rvalues(call_args)?;
    match (rvalues[0].ty, rvalues[1].ty) {
        (Ty::Vector(s, n), Ty::Vector(t, m)) if s == t && n as usize * m as usize <= bornite_ir::MAX_COMPONENTS => {
            value_result(lower.w.b.algebra(AlgebraOp::Outer, &[rvalues[0].id, rvalues[1].id]), Ty::Matrix(s, n, m))
        }
        _ => Ok(None),
    }
}

pub(super) fn transpose<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    match single_arg(lower, call_args, at)? {
        Some(Rvalue { id, ty: Ty::Matrix(s, rows, columns), .. }) => {
            value_result(lower.w.b.algebra(AlgebraOp::Transpose, &[id]), Ty::Matrix(s, columns, rows))
        }
        _ => Ok(None),
    }
}

fn componentwise<'p>(lower: &mut Lower<'p>, op: Op, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    match lower.same_type_args(call_args, 2, at)? {
        Some((rvalues, ty @ (Ty::Vector(..) | Ty::Matrix(..) | Ty::Quat(_)))) if ty.element() != Some(Scalar::Bool) => {
            value_result(lower.op(op, &[rvalues[0].id, rvalues[1].id]), ty)
        }
        _ => Ok(None),
    }
}

pub(super) fn cw_mul<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    componentwise(lower, Op::Mul, call_args, at)
}

pub(super) fn cw_div<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    componentwise(lower, Op::Div, call_args, at)
}

pub(super) fn trace<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    match single_arg(lower, call_args, at)? {
        Some(Rvalue { id, ty: Ty::Matrix(s, rows, columns), .. }) if rows == columns => {
            let mut sum = lower.extract(id, 0);
            for n in 1..rows as u32 {
                let part = lower.extract(id, n * columns as u32 + n);
                sum = lower.op(Op::Add, &[sum, part]);
            }
            value_result(sum, Ty::Scalar(s))
        }
        _ => Ok(None),
    }
}

pub(super) fn diag<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    match single_arg(lower, call_args, at)? {
        Some(Rvalue { id, ty: Ty::Vector(s, n), .. }) => {
            let zero = lower.w.constant(Value::int(s, 0));
            let ty = Ty::Matrix(s, n, n);
            let ir = lower.ir_type(ty, at)?;
            let mut parts = vec![zero; n as usize * n as usize];
            for k in 0..n as usize {
                parts[k * (n as usize + 1)] = lower.extract(id, k as u32);
            }
            value_result(lower.w.b.construct(ir, &parts), ty)
        }
        _ => Ok(None),
    }
}

pub(super) fn get_diag<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    match single_arg(lower, call_args, at)? {
        Some(Rvalue { id, ty: Ty::Matrix(s, rows, columns), .. }) if rows == columns => {
            let parts: Vec<ExprId> = (0..rows as u32).map(|n| lower.extract(id, n * (columns as u32 + 1))).collect();
            let ty = Ty::Vector(s, rows);
            let ir = lower.ir_type(ty, at)?;
            value_result(lower.w.b.construct(ir, &parts), ty)
        }
        _ => Ok(None),
    }
}

pub(super) fn identity<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some((val, size_at)) = call_args.get(0, "n") else { return Ok(None) };
    let n = lower.constant_size(&val, size_at)?;
    let s = match call_args.get(1, "dtype") {
        Some((PyValue::Const(crate::python::const_eval::ConstValue::Type(pattern)), _)) => {
            pattern.exact().and_then(Ty::scalar).unwrap_or(Scalar::F32)
        }
        _ => Scalar::F32,
    };
    if n > 8 {
        return lower.fail(at, format!("a {n} × {n} matrix is too large"), "at most 64 components", None);
    }
    let ty = Ty::Matrix(s, n as u8, n as u8);
    let ir = lower.ir_type(ty, at)?;
    let ids: Vec<ExprId> =
        (0..n * n).map(|k| lower.w.constant(Value::from_f64(s, if k / n == k % n { 1.0 } else { 0.0 }))).collect();
    value_result(lower.w.b.construct(ir, &ids), ty)
}

fn from_vectors<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr, rows: bool) -> BuiltinResult {
    let rvalues = lower.rvalues(call_args)?;
    let Some(&Ty::Vector(s, n)) = rvalues.first().map(|rvalue| &rvalue.ty) else { return Ok(None) };
    if rvalues.iter().any(|rvalue| rvalue.ty != Ty::Vector(s, n)) {
        return Ok(None);
    }
    let count = rvalues.len() as u8;
    let ty = if rows { Ty::Matrix(s, count, n) } else { Ty::Matrix(s, n, count) };
    let ir = lower.ir_type(ty, at)?;
    let mut ids = vec![];
    if rows {
        for rvalue in &rvalues {
            ids.extend(lower.components(rvalue.id, n as u32));
        }
    } else {
        for row in 0..n as u32 {
            ids.extend(rvalues.iter().map(|rvalue| lower.extract(rvalue.id, row)).collect::<Vec<_>>());
        }
    }
    value_result(lower.w.b.construct(ir, &ids), ty)
}

pub(super) fn from_rows<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    from_vectors(lower, call_args, at, true)
}

pub(super) fn from_columns<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    from_vectors(lower, call_args, at, false)
}

pub(super) fn vector<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    lower.construct_vector(call_args, at).map(Some)
}

pub(super) fn matrix<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    lower.construct_matrix(call_args, at).map(Some)
}

/// The scalar type of a constructed value: `dtype`, or that of the first argument.
fn scalar_of<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>) -> LowerResult<Scalar> {
    if let Some(s) = lower.dtype_argument(call_args)?.and_then(Ty::scalar) {
        return Ok(s);
    }
    let first =
        call_args.positional.first().cloned().or(call_args.named.first().map(|(_, val, at)| (val.clone(), *at)));
    match first {
        Some((val, at)) => Ok(lower.value(val, at)?.ty.element().unwrap_or(Scalar::F32)),
        None => Ok(Scalar::F32),
    }
}

pub(super) fn quaternion<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let s = scalar_of(lower, call_args)?;
    lower.construct_value(Ty::Quat(s), call_args, at).map(|rvalue| Some(PyValue::Rvalue(rvalue)))
}

pub(super) fn transformation<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let s = scalar_of(lower, call_args)?;
    lower.construct_value(Ty::Transform(s), call_args, at).map(|rvalue| Some(PyValue::Rvalue(rvalue)))
}

fn unit<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr, of: fn(Scalar) -> Ty) -> BuiltinResult {
    let s = match call_args.get(0, "dtype") {
        Some((PyValue::Const(crate::python::const_eval::ConstValue::Type(pattern)), _)) => {
            pattern.exact().and_then(Ty::scalar).unwrap_or(Scalar::F32)
        }
        _ => Scalar::F32,
    };
    let ty = of(s);
    let ir = lower.ir_type(ty, at)?;
    let last = ty.count() - 1;
    let ids: Vec<ExprId> = (0..=last).map(|n| lower.w.constant(Value::from_f64(s, (n == last) as u8 as f64))).collect();
    value_result(lower.w.b.construct(ir, &ids), ty)
}

pub(super) fn quat_identity<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    unit(lower, call_args, at, Ty::Quat)
}

pub(super) fn transform_identity<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    unit(lower, call_args, at, Ty::Transform)
}

/// Replaces the translation or rotation of a transform variable.
fn set_part<'p>(
    lower: &mut Lower<'p>,
    call_args: &CallArgs<'p>,
    at: &'p Expr,
    first: u32,
    count: u32,
) -> BuiltinResult {
    let [(whole, target), (part, part_at)] = &call_args.positional[..] else { return Ok(None) };
    let (rvalue, part) = (lower.value(whole.clone(), *target)?, lower.value(part.clone(), *part_at)?);
    if !matches!(rvalue.ty, Ty::Transform(_))
        || part.ty.count() as u32 != count
        || part.ty.element() != rvalue.ty.element()
    {
        return Ok(None);
    }
    let mut id = rvalue.id;
    for n in 0..count {
        let one = lower.extract(part.id, n);
        id = lower.w.b.insert(id, first + n, one);
    }
    let _ = at;
    lower.write_back(target, Rvalue::new(id, rvalue.ty))?;
    Ok(Some(PyValue::Const(crate::python::const_eval::ConstValue::None)))
}

pub(super) fn set_translation<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    set_part(lower, call_args, at, 0, 3)
}

pub(super) fn set_rotation<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    set_part(lower, call_args, at, 3, 4)
}
