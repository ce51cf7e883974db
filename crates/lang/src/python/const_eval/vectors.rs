//! Compile-time arithmetic on vectors, matrices and quaternions. Results are rounded to the
//! component type, as in Warp.

use bornite_ir::{Scalar, Value};
use ruff_python_ast::Operator;

use super::{ConstValue, scalar_value};
use crate::python::types::Ty;

/// A number rounded to a float type.
fn rounded(s: Scalar, x: f64) -> f64 {
    Value::from_f64(s, x).as_f64()
}

fn floats(ty: Ty, parts: &[f64]) -> Option<ConstValue> {
    let s = ty.element().filter(|s| s.is_float())?;
    Some(ConstValue::Typed(ty, parts.iter().map(|x| Value::from_f64(s, *x)).collect()))
}

/// Type, scalar type and components of a float vector, matrix or quaternion.
fn components(of: &ConstValue) -> Option<(Ty, Scalar, Vec<f64>)> {
    let ConstValue::Typed(ty, parts) = of else { return None };
    let s = ty.element().filter(|s| s.is_float() && ty.scalar().is_none())?;
    Some((*ty, s, parts.iter().map(|part| part.as_f64()).collect()))
}

/// A dot product, rounded after each step.
fn dot(s: Scalar, a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> f64 {
    a.zip(b).fold(0.0, |sum, (x, y)| rounded(s, sum + rounded(s, x * y)))
}

fn length(s: Scalar, parts: &[f64]) -> f64 {
    rounded(s, dot(s, parts.iter().copied(), parts.iter().copied()).sqrt())
}

pub(super) fn arithmetic(op: Operator, a: &ConstValue, b: &ConstValue) -> Option<ConstValue> {
    // Only addition and subtraction: Warp's integer division differs from Python's.
    if let (ConstValue::Typed(ty, x), ConstValue::Typed(other, y)) = (a, b)
        && let Some(s) = ty.element().filter(|s| s.is_int() && ty == other && ty.scalar().is_none())
    {
        let each = |(x, y): (&Value, &Value)| {
            let n = match op {
                Operator::Add => x.as_i64().wrapping_add(y.as_i64()),
                Operator::Sub => x.as_i64().wrapping_sub(y.as_i64()),
                _ => return None,
            };
            Some(scalar_value(s, n as f64, n))
        };
        return Some(ConstValue::Typed(*ty, x.iter().zip(y).map(each).collect::<Option<_>>()?));
    }
    match (op, components(a), components(b)) {
        (Operator::Add | Operator::Sub, Some((ty, _, x)), Some((other, _, y))) if ty == other => {
            let sign = if op == Operator::Add { 1.0 } else { -1.0 };
            floats(ty, &x.iter().zip(&y).map(|(x, y)| x + sign * y).collect::<Vec<_>>())
        }
        (Operator::Mult, Some((ty, s, x)), None) => {
            let by = rounded(s, b.number()?);
            floats(ty, &x.iter().map(|x| x * by).collect::<Vec<_>>())
        }
        (Operator::Mult, None, Some((ty, s, y))) => {
            let by = rounded(s, a.number()?);
            floats(ty, &y.iter().map(|y| by * y).collect::<Vec<_>>())
        }
        (Operator::Div, Some((ty, s, x)), None) => {
            let by = rounded(s, b.number()?);
            floats(ty, &x.iter().map(|x| x / by).collect::<Vec<_>>())
        }
        (Operator::Mult | Operator::MatMult, Some((Ty::Matrix(s, rows, inner), _, x)), Some((other, _, y))) => {
            let (ty, columns) = match other {
                Ty::Matrix(t, r, columns) if (t, r) == (s, inner) => (Ty::Matrix(s, rows, columns), columns as usize),
                Ty::Vector(t, n) if (t, n) == (s, inner) => (Ty::Vector(s, rows), 1),
                _ => return None,
            };
            let column = |c: usize| y.iter().copied().skip(c).step_by(columns);
            let row = |r: &[f64]| (0..columns).map(|c| dot(s, r.iter().copied(), column(c))).collect::<Vec<_>>();
            floats(ty, &x.chunks(inner as usize).flat_map(row).collect::<Vec<_>>())
        }
        _ => None,
    }
}

/// Warp builtins that are supported in constants.
pub(super) fn function(name: &str, args: &[ConstValue]) -> Option<ConstValue> {
    let parts: Vec<_> = args.iter().map(components).collect();
    match (name, &parts[..]) {
        ("quat_identity", []) => floats(Ty::Quat(Scalar::F32), &[0.0, 0.0, 0.0, 1.0]),
        ("transform_identity", []) => floats(Ty::Transform(Scalar::F32), &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]),
        ("length", [Some((Ty::Vector(..) | Ty::Quat(_), s, x))]) => Some(ConstValue::Float(length(*s, x))),
        ("normalize", [Some((ty @ (Ty::Vector(..) | Ty::Quat(_)), s, x))]) => {
            let size = length(*s, x);
            let by = |x: &f64| if size > 0.0 { x / size } else { 0.0 };
            floats(*ty, &x.iter().map(by).collect::<Vec<_>>())
        }
        ("dot", [Some((ty @ (Ty::Vector(..) | Ty::Quat(_)), s, x)), Some((other, _, y))]) if ty == other => {
            Some(ConstValue::Float(dot(*s, x.iter().copied(), y.iter().copied())))
        }
        ("cross", [Some((ty @ Ty::Vector(_, 3), s, x)), Some((other, _, y))]) if ty == other => {
            let part = |i: usize, j: usize| rounded(*s, x[i] * y[j]) - rounded(*s, x[j] * y[i]);
            floats(*ty, &[part(1, 2), part(2, 0), part(0, 1)])
        }
        ("quat_from_axis_angle", [Some((Ty::Vector(s, 3), _, axis)), None]) => {
            let half = rounded(*s, args[1].number()? * 0.5);
            let (sin, cos) = (rounded(*s, half.sin()), rounded(*s, half.cos()));
            floats(Ty::Quat(*s), &[axis[0] * sin, axis[1] * sin, axis[2] * sin, cos])
        }
        _ => None,
    }
}
