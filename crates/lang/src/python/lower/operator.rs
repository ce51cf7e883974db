//! Operators. Operands of different scalar types are never converted implicitly; vectors, matrices,
//! quaternions and transforms have their algebraic products.

use bornite_ir::{AlgebraOp, ExprId, Op, Scalar, Value};
use ruff_python_ast::{Expr, Operator, UnaryOp};
use ruff_text_size::Ranged;

use super::value::{PyValue, Rvalue};
use super::{Lower, LowerResult};
use crate::python::const_eval::ConstValue;
use crate::python::types::{BOOL, Ty, conversion_syntax};

impl<'p> Lower<'p> {
    pub(super) fn binary(
        &mut self,
        op: Operator,
        a: PyValue,
        b: PyValue,
        at: &impl Ranged,
        sides: (&'p Expr, &'p Expr),
    ) -> LowerResult<Rvalue> {
        // Elements are loaded after both operands are evaluated, as in Warp.
        let (a, b) = (self.value(a, sides.0)?, self.value(b, sides.1)?);
        if let Some(found) = self.user_operator(op, &a, &b, at)? {
            return Ok(found);
        }
        self.apply_operator(op, &a, &b, at)
    }

    /// Applies an operator to two values.
    pub(super) fn apply_operator(
        &mut self,
        op: Operator,
        a: &Rvalue,
        b: &Rvalue,
        at: &impl Ranged,
    ) -> LowerResult<Rvalue> {
        use Operator::*;
        let element = |ty: Ty| ty.element().filter(|s| *s != Scalar::Bool);
        let (x, y) = (a.ty, b.ty);
        let same = x == y && element(x).is_some();
        let found = match op {
            Add if same => Some((self.op(Op::Add, &[a.id, b.id]), x)),
            Sub if same => Some((self.op(Op::Sub, &[a.id, b.id]), x)),
            Mult => self.product(a, b),
            MatMult if !matches!((x, y), (Ty::Scalar(_), _) | (_, Ty::Scalar(_))) => self.product(a, b),
            Div => match (x, y) {
                (Ty::Scalar(_), Ty::Scalar(_)) if same => Some((self.op(Op::Div, &[a.id, b.id]), x)),
                (whole, Ty::Scalar(s)) if element(whole) == Some(s) => {
                    let splat = self.splat(b.id, whole);
                    Some((self.op(Op::Div, &[a.id, splat]), whole))
                }
                (Ty::Scalar(s), whole) if element(whole) == Some(s) => {
                    let splat = self.splat(a.id, whole);
                    Some((self.op(Op::Div, &[splat, b.id]), whole))
                }
                _ => None,
            },
            Mod if same && !matches!(x, Ty::Matrix(..)) => {
                let row = if x.is_float() { Op::Fmod } else { Op::Rem };
                Some((self.op(row, &[a.id, b.id]), x))
            }
            FloorDiv if same && x.scalar().is_some() => Some((self.floor_div(a.id, b.id, x), x)),
            Pow if same && x.is_float() && x.scalar().is_some() => Some((self.op(Op::Pow, &[a.id, b.id]), x)),
            LShift | RShift if same && element(x).is_some_and(Scalar::is_int) => {
                Some((self.op(if op == LShift { Op::Shl } else { Op::Shr }, &[a.id, b.id]), x))
            }
            BitAnd | BitOr | BitXor if x == y && x.element().is_some_and(|s| !s.is_float()) => {
                let row = match op {
                    BitAnd => Op::And,
                    BitOr => Op::Or,
                    _ => Op::Xor,
                };
                Some((self.op(row, &[a.id, b.id]), x))
            }
            _ => None,
        };
        match found {
            Some((id, ty)) => Ok(Rvalue::new(id, ty)),
            None => self.report_operator(op, a, b, at),
        }
    }

    fn report_operator(&mut self, op: Operator, a: &Rvalue, b: &Rvalue, at: &impl Ranged) -> LowerResult<Rvalue> {
        let (x, y) = (self.type_name(a.ty), self.type_name(b.ty));
        let sign = op.as_str();
        let hint = match (a.ty, b.ty, op) {
            (Ty::Vector(..), Ty::Vector(..), Operator::Mult) => "use wp.cw_mul or wp.dot".to_owned(),
            (Ty::Vector(..), Ty::Vector(..), Operator::Div) => "use wp.cw_div".to_owned(),
            (Ty::Scalar(s), Ty::Scalar(t), Operator::Pow) if s == t => {
                "'**' requires floats: wp.pow(float(x), float(y))".to_owned()
            }
            (Ty::Scalar(_), Ty::Scalar(s), _) if a.ty != b.ty && a.constant.is_some() => {
                let literal = if s == Scalar::F32 { "with a decimal point, or as " } else { "as " };
                format!("write the number {literal}{}", conversion_syntax(&y))
            }
            (Ty::Scalar(s), Ty::Scalar(_), _) if a.ty != b.ty && b.constant.is_some() => {
                let literal = if s == Scalar::F32 { "with a decimal point, or as " } else { "as " };
                format!("write the number {literal}{}", conversion_syntax(&x))
            }
            (Ty::Scalar(_), Ty::Scalar(_), _) if a.ty != b.ty => {
                format!("convert one of them: {}", conversion_syntax(if b.ty.is_float() { &y } else { &x }))
            }
            _ => {
                return self.fail(at, format!("'{sign}' is not defined for {x} and {y}"), "", None);
            }
        };
        let what = if a.ty.scalar().is_some() && b.ty.scalar().is_some() && a.ty != b.ty {
            format!("mismatched types in '{sign}': {x} and {y}")
        } else {
            format!("'{sign}' is not defined for {x} and {y}")
        };
        self.fail(at, what, "expected operands of the same type", Some(hint))
    }

    /// Broadcasts a scalar to all components of a type.
    pub(super) fn splat(&mut self, id: ExprId, ty: Ty) -> ExprId {
        match ty.ir(&self.structs) {
            Some(ir) if ty.scalar().is_none() => self.w.b.construct(ir, &[id]),
            _ => id,
        }
    }

    fn product(&mut self, a: &Rvalue, b: &Rvalue) -> Option<(ExprId, Ty)> {
        let number = |ty: Ty| ty.element().filter(|s| *s != Scalar::Bool);
        Some(match (a.ty, b.ty) {
            (Ty::Scalar(s), Ty::Scalar(t)) if s == t && s != Scalar::Bool => (self.op(Op::Mul, &[a.id, b.id]), a.ty),
            (whole, Ty::Scalar(s)) if number(whole) == Some(s) => {
                let splat = self.splat(b.id, whole);
                (self.op(Op::Mul, &[a.id, splat]), whole)
            }
            (Ty::Scalar(s), whole) if number(whole) == Some(s) => {
                let splat = self.splat(a.id, whole);
                (self.op(Op::Mul, &[splat, b.id]), whole)
            }
            (Ty::Matrix(s, rows, n), Ty::Vector(t, m)) if s == t && n == m => {
                (self.w.b.algebra(AlgebraOp::MatVec, &[a.id, b.id]), Ty::Vector(s, rows))
            }
            (Ty::Vector(s, n), Ty::Matrix(t, m, columns)) if s == t && n == m => {
                let transposed = self.w.b.algebra(AlgebraOp::Transpose, &[b.id]);
                (self.w.b.algebra(AlgebraOp::MatVec, &[transposed, a.id]), Ty::Vector(s, columns))
            }
            (Ty::Matrix(s, rows, n), Ty::Matrix(t, m, columns)) if s == t && n == m => {
                if rows as usize * columns as usize > bornite_ir::MAX_COMPONENTS {
                    return None;
                }
                (self.w.b.algebra(AlgebraOp::MatMul, &[a.id, b.id]), Ty::Matrix(s, rows, columns))
            }
            (Ty::Quat(s), Ty::Quat(t)) if s == t => (self.quat_product(a.id, b.id), a.ty),
            (Ty::Transform(s), Ty::Transform(t)) if s == t => (self.transform_product(a.id, b.id, s), a.ty),
            _ => return None,
        })
    }

    pub(super) fn components(&mut self, id: ExprId, count: u32) -> Vec<ExprId> {
        (0..count).map(|n| self.w.b.extract(id, n)).collect()
    }

    /// A sum of products; each term has a sign.
    fn sum_of_products(&mut self, terms: &[(ExprId, ExprId, bool)]) -> ExprId {
        let mut sum: Option<ExprId> = None;
        for &(a, b, plus) in terms {
            let product = self.op(Op::Mul, &[a, b]);
            sum = Some(match (sum, plus) {
                (Some(sum), true) => self.op(Op::Add, &[sum, product]),
                (Some(sum), false) => self.op(Op::Sub, &[sum, product]),
                (None, _) => product,
            });
        }
        sum.unwrap_or(ExprId(0))
    }

    fn quat_product(&mut self, a: ExprId, b: ExprId) -> ExprId {
        let ty = self.w.b.type_of(a);
        let (a, b) = (self.components(a, 4), self.components(b, 4));
        let [x, y, z, w] = [0, 1, 2, 3];
        let rows = [
            [(w, x, true), (x, w, true), (y, z, true), (z, y, false)],
            [(w, y, true), (y, w, true), (z, x, true), (x, z, false)],
            [(w, z, true), (z, w, true), (x, y, true), (y, x, false)],
            [(w, w, true), (x, x, false), (y, y, false), (z, z, false)],
        ];
        let parts: Vec<ExprId> =
            rows.iter().map(|row| self.sum_of_products(&row.map(|(m, n, plus)| (a[m], b[n], plus)))).collect();
        self.w.b.construct(ty, &parts)
    }

    /// Rotates a vector by a quaternion: v (2w² - 1) + 2w (q × v) + 2q (q · v).
    pub(super) fn rotated(&mut self, q: ExprId, v: ExprId, s: Scalar) -> ExprId {
        use bornite_ir::Type;
        let parts = self.components(q, 4);
        let axis = self.w.b.construct(Type::Vector(s, 3), &parts[..3]);
        let w = parts[3];
        let [one, two] = [1.0, 2.0].map(|x| self.w.constant(Value::from_f64(s, x)));
        let doubled = self.op(Op::Mul, &[two, w]);
        let square = self.op(Op::Mul, &[doubled, w]);
        let factor = self.op(Op::Sub, &[square, one]);
        let dot = self.w.b.algebra(AlgebraOp::Dot, &[axis, v]);
        let dot = self.op(Op::Mul, &[two, dot]);
        let cross = self.w.b.algebra(AlgebraOp::Cross, &[axis, v]);
        let ty = Ty::Vector(s, 3);
        let terms = [(v, factor), (cross, doubled), (axis, dot)].map(|(vector, by)| {
            let splat = self.splat(by, ty);
            self.op(Op::Mul, &[vector, splat])
        });
        let sum = self.op(Op::Add, &[terms[0], terms[1]]);
        self.op(Op::Add, &[sum, terms[2]])
    }

    fn transform_product(&mut self, a: ExprId, b: ExprId, s: Scalar) -> ExprId {
        use bornite_ir::Type;
        let (p, q) = (self.components(a, 7), self.components(b, 7));
        let vector = |me: &mut Self, parts: &[ExprId]| me.w.b.construct(Type::Vector(s, parts.len() as u8), parts);
        let (rotation, other_rotation) = (vector(self, &p[3..]), vector(self, &q[3..]));
        let (translation, other_translation) = (vector(self, &p[..3]), vector(self, &q[..3]));
        let rotated = self.rotated(rotation, other_translation, s);
        let sum = self.op(Op::Add, &[rotated, translation]);
        let product = self.quat_product(rotation, other_rotation);
        let mut all = self.components(sum, 3);
        all.extend(self.components(product, 4));
        self.w.b.construct(Type::Vector(s, 7), &all)
    }

    /// Division that rounds down.
    pub(super) fn floor_div(&mut self, a: ExprId, b: ExprId, ty: Ty) -> ExprId {
        let s = ty.scalar().unwrap_or(Scalar::I32);
        let quotient = self.op(Op::Div, &[a, b]);
        if s.is_float() {
            return self.op(Op::Floor, &[quotient]);
        }
        if !s.is_signed() {
            return quotient;
        }
        let [zero, one] = [0, 1].map(|n| self.w.constant(Value::int(s, n)));
        let remainder = self.op(Op::Rem, &[a, b]);
        let is_inexact = self.op(Op::Ne, &[remainder, zero]);
        let sign_bits = self.op(Op::Xor, &[remainder, b]);
        let signs_differ = self.op(Op::Lt, &[sign_bits, zero]);
        let rounds_down = self.op(Op::And, &[is_inexact, signs_differ]);
        let lower = self.op(Op::Sub, &[quotient, one]);
        self.op(Op::Select, &[rounds_down, lower, quotient])
    }

    /// A comparison; scalars of different types are converted as in C++.
    pub(super) fn compared(&mut self, op: Op, a: &Rvalue, b: &Rvalue, at: &impl Ranged) -> LowerResult<ExprId> {
        match (a.ty, b.ty) {
            (Ty::Scalar(x), Ty::Scalar(y)) => {
                let common = common_type(x, y);
                let (a, b) = (self.cast_id(common, a.id), self.cast_id(common, b.id));
                Ok(self.op(op, &[a, b]))
            }
            (x, y) if x == y && matches!(op, Op::Eq | Op::Ne) && x.element().is_some() => {
                let each = self.op(Op::Eq, &[a.id, b.id]);
                let mut all: Option<ExprId> = None;
                for n in 0..x.count() as u32 {
                    let part = self.w.b.extract(each, n);
                    all = Some(match all {
                        Some(before) => self.op(Op::And, &[before, part]),
                        None => part,
                    });
                }
                let all = all.unwrap_or(each);
                Ok(if op == Op::Eq { all } else { self.op(Op::Not, &[all]) })
            }
            (x, y) => {
                let (x, y) = (self.type_name(x), self.type_name(y));
                self.fail(at, format!("cannot compare {x} and {y} with this operator"), "", None)
            }
        }
    }

    pub(super) fn unary(&mut self, op: UnaryOp, val: PyValue, at: &'p Expr) -> LowerResult<Rvalue> {
        if op == UnaryOp::Not {
            let truth = self.truth(val, at)?;
            return Ok(Rvalue::new(self.op(Op::Not, &[truth]), BOOL));
        }
        let rvalue = self.value(val, at)?;
        // Negation is the only operator whose result is a constant: a negative literal stays exact.
        let negated = match rvalue.constant {
            Some(ConstValue::Typed(Ty::Scalar(Scalar::U64), ref parts)) if parts[0].bits() == 1 << 63 => {
                Some(ConstValue::Int(i64::MIN))
            }
            Some(ConstValue::Bool(b)) => Some(ConstValue::Int(-i64::from(b))),
            Some(ConstValue::Int(n)) => n.checked_neg().map(ConstValue::Int),
            Some(ConstValue::Float(x)) => Some(ConstValue::Float(-x)),
            _ => None,
        };
        if let (UnaryOp::USub, Some(negated)) = (op, negated) {
            let val = self.constant_val(negated, at)?;
            return self.value(val, at);
        }
        let is_defined = match op {
            UnaryOp::Invert => rvalue.ty.element().is_some_and(Scalar::is_int),
            _ => rvalue.ty.element().is_some_and(|s| s != Scalar::Bool),
        };
        if !is_defined {
            let what = format!("'{}' is not defined for {}", op.as_str(), self.type_name(rvalue.ty));
            return self.fail(at, what, "", None);
        }
        let id = match op {
            UnaryOp::Invert => self.op(Op::Not, &[rvalue.id]),
            UnaryOp::USub => self.op(Op::Neg, &[rvalue.id]),
            _ => rvalue.id,
        };
        Ok(Rvalue::new(id, rvalue.ty))
    }
}

/// The common type to which C++ converts the operands of a comparison.
fn common_type(x: Scalar, y: Scalar) -> Scalar {
    if x == y {
        return x;
    }
    match (x.is_float(), y.is_float()) {
        (true, true) => {
            if x == Scalar::F64 || y == Scalar::F64 {
                Scalar::F64
            } else {
                Scalar::F32
            }
        }
        (true, false) => {
            if x.bytes() < 4 {
                Scalar::F32
            } else {
                x
            }
        }
        (false, true) => {
            if y.bytes() < 4 {
                Scalar::F32
            } else {
                y
            }
        }
        (false, false) => {
            let wide = |s: Scalar| if s.bytes() < 4 { Scalar::I32 } else { s };
            let (x, y) = (wide(x), wide(y));
            if x.bytes() != y.bytes() {
                if x.bytes() > y.bytes() { x } else { y }
            } else if x.is_signed() {
                y
            } else {
                x
            }
        }
    }
}
