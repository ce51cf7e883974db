//! Lowering of expressions; operators are in `operator.rs`, subscripts in `index.rs`, calls in
//! `call.rs`.

use bornite_ir::{ExprId, Op, Scalar, Stmt as Ir, Value};
use ruff_python_ast::{BoolOp, CmpOp, Expr, ExprIf};
use ruff_text_size::Ranged;

use super::value::{Array, Binding, PyValue, Rvalue, literal};
use super::{ErrorReported, Lower, LowerResult};
use crate::python::const_eval::ConstValue;
use crate::python::types::{BOOL, I32, Pattern, Ty};

impl<'p> Lower<'p> {
    pub(super) fn eval(&mut self, expr: &'p Expr) -> LowerResult<PyValue> {
        match expr {
            Expr::Name(name) => self.name(name.id.as_str(), expr),
            Expr::NumberLiteral(_) | Expr::BooleanLiteral(_) => match self.eval_const(expr, true) {
                Ok(constant) => self.constant_val(constant, expr),
                Err((at, what)) => self.fail(&at, what, "", None),
            },
            Expr::StringLiteral(text) => Ok(PyValue::Const(ConstValue::Str(text.value.to_str().to_owned()))),
            Expr::NoneLiteral(_) => Ok(PyValue::Const(ConstValue::None)),
            Expr::Attribute(attribute) => self.attribute(&attribute.value, attribute.attr.as_str(), expr),
            Expr::Subscript(subscript) => self.subscript(&subscript.value, &subscript.slice, expr),
            Expr::BinOp(binary) => {
                let (a, b) = (self.eval(&binary.left), self.eval(&binary.right));
                let rvalue = self.binary(binary.op, a?, b?, expr, (&binary.left, &binary.right))?;
                Ok(PyValue::Rvalue(rvalue))
            }
            Expr::UnaryOp(unary) => {
                let val = self.eval(&unary.operand)?;
                self.unary(unary.op, val, expr).map(PyValue::Rvalue)
            }
            Expr::BoolOp(op) => self.bool_op(op.op, &op.values).map(|id| PyValue::Rvalue(Rvalue::new(id, BOOL))),
            Expr::Compare(compare) => self.compare(&compare.left, &compare.ops, &compare.comparators, expr),
            Expr::If(choice) => self.conditional(choice, expr),
            Expr::Call(call) => self.call(call, expr),
            Expr::Tuple(all) => {
                let vals = all.elts.iter().map(|one| self.eval(one)).collect::<Vec<_>>();
                Ok(PyValue::Tuple(vals.into_iter().collect::<LowerResult<Vec<_>>>()?))
            }
            Expr::Slice(slice) => self.slice([slice.lower.as_deref(), slice.upper.as_deref(), slice.step.as_deref()]),
            other => {
                let (what, hint) = named(other);
                self.fail(other, format!("{what} is not supported in kernels"), "unsupported syntax", hint)
            }
        }
    }

    /// Lowers a slice with optional start, end and step.
    pub(super) fn slice(&mut self, exprs: [Option<&'p Expr>; 3]) -> LowerResult<PyValue> {
        let mut parts: [Option<Rvalue>; 3] = [None, None, None];
        for (part, expr) in parts.iter_mut().zip(exprs) {
            let Some(expr) = expr else { continue };
            let mut rvalue = self.evaluated(expr)?;
            // As in Warp. A 64-bit bound could lie beyond every array.
            if rvalue.ty != I32 {
                let what = format!("slice bounds must be int32, found {}", self.type_name(rvalue.ty));
                return self.fail(expr, what, "expected int32", Some("convert it: int(…)".into()));
            }
            if rvalue.constant.is_none() {
                rvalue.constant = self.w.b.constant_value(rvalue.id).map(|v| ConstValue::Int(v.as_i64()));
            }
            *part = Some(rvalue);
        }
        Ok(PyValue::Slice(Box::new(parts)))
    }

    fn name(&mut self, name: &str, at: &'p Expr) -> LowerResult<PyValue> {
        if let Some(found) = self.read_name(name) {
            return found;
        }
        match self.eval_const(at, true) {
            Ok(constant) => self.constant_val(constant, at),
            Err((_, what)) => {
                if self.program.lookup(name, self.frame().func.scope).is_some() {
                    return self.fail(at, what, "not known at compile time", Some("pass it as a parameter".into()));
                }
                let close = self.similar(name);
                self.fail(at, what, "unknown name", close.map(|close| format!("did you mean '{close}'?")))
            }
        }
    }

    /// A name that the user may have meant.
    fn similar(&self, name: &str) -> Option<String> {
        let frame = self.frames.last()?;
        let names = frame.names.keys().map(String::as_str);
        let globals = self.program.scopes.first().into_iter().flat_map(|scope| scope.names.keys().copied());
        names
            .chain(globals)
            .filter(|other| distance(name, other) <= name.chars().count().div_ceil(4).min(name.len() / 2))
            .min_by_key(|other| distance(name, other))
            .map(str::to_owned)
    }

    /// A compile-time value as an rvalue, if it has a run-time representation.
    pub(super) fn constant_val(&mut self, constant: ConstValue, at: &impl Ranged) -> LowerResult<PyValue> {
        let Some((ty, parts)) = literal(&constant) else { return Ok(PyValue::Const(constant)) };
        let ids: Vec<ExprId> = parts.iter().map(|value| self.w.constant(*value)).collect();
        let id = match ty {
            Ty::Scalar(_) => ids[0],
            _ => {
                let ty = self.ir_type(ty, at)?;
                self.w.b.construct(ty, &ids)
            }
        };
        Ok(PyValue::Rvalue(Rvalue { id, ty, constant: Some(constant) }))
    }

    /// Converts a constant to another scalar type, from the number as written in the source.
    pub(super) fn constant_as(&mut self, rvalue: &Rvalue, to: Scalar, at: &impl Ranged) -> LowerResult<Rvalue> {
        let value = match rvalue.constant.as_ref().map(|constant| (constant.int(), constant.number())) {
            Some((Some(n), Some(x))) => crate::python::const_eval::scalar_value(to, x, n),
            Some((None, Some(x))) if to.is_float() => Value::from_f64(to, x),
            _ => {
                let (found, wanted) = (self.type_name(rvalue.ty), crate::python::types::scalar_name(to));
                return self.fail(at, format!("cannot convert this {found} constant to {wanted}"), "", None);
            }
        };
        Ok(Rvalue::new(self.w.constant(value), Ty::Scalar(to)))
    }

    /// Converts a Python value to an rvalue, loading an element; reports an error if it is not a
    /// value.
    pub(super) fn value(&mut self, val: PyValue, at: &impl Ranged) -> LowerResult<Rvalue> {
        match val {
            PyValue::Rvalue(rvalue) => Ok(rvalue),
            PyValue::Element(element) => self.load(&element, at),
            PyValue::Array(_) => self.fail(at, "expected a value, found an array".into(), "expected an element", None),
            PyValue::Shape(_) => {
                self.fail(at, "expected a value, found a shape".into(), "index it, such as a.shape[0]", None)
            }
            PyValue::Address(_) => self.fail(
                at,
                "expected a value, found an address".into(),
                "only wp.array(ptr=…) takes an address",
                None,
            ),
            PyValue::Tuple(_) => {
                self.fail(at, "expected a value, found a tuple".into(), "expected a single value", None)
            }
            PyValue::Aggregate(..) => {
                self.fail(at, "expected a value, found a struct with arrays".into(), "use one of its fields", None)
            }
            PyValue::FieldVariable(local, ty) => Ok(Rvalue::new(self.w.b.read(local), ty)),
            PyValue::Range(..) | PyValue::Slice(_) => {
                self.fail(at, "expected a value, found a range or slice".into(), "", None)
            }
            PyValue::Const(constant) => {
                let what = match &constant {
                    ConstValue::None => "expected a value, found None".into(),
                    ConstValue::Str(_) => "expected a value, found a string".into(),
                    ConstValue::List(_) => "module-level lists and tuples cannot be used in a kernel".into(),
                    ConstValue::Type(_) => "expected a value, found a type".into(),
                    ConstValue::Functions(_) | ConstValue::Builtin(_) => "expected a value, found a function".into(),
                    ConstValue::Kernel(id) => {
                        format!("expected a value, found kernel '{}'", self.func(*id).def.name.as_str())
                    }
                    ConstValue::PythonBuiltin(name) | ConstValue::PlainFunction(name, ..) => {
                        format!("'{name}' cannot be used in a kernel")
                    }
                    _ => "this cannot be used as a value in a kernel".into(),
                };
                let hint = matches!(constant, ConstValue::List(_))
                    .then(|| "read an element at compile time: wp.static(NAME[0])".into());
                self.fail(at, what, "expected a value", hint)
            }
        }
    }

    /// Evaluates an expression to an rvalue.
    pub(super) fn evaluated(&mut self, expr: &'p Expr) -> LowerResult<Rvalue> {
        let val = self.eval(expr)?;
        self.value(val, expr)
    }

    /// Evaluates an expression to a bool.
    pub(super) fn condition(&mut self, expr: &'p Expr) -> LowerResult<ExprId> {
        let val = self.eval(expr)?;
        self.truth(val, expr)
    }

    pub(super) fn truth(&mut self, val: PyValue, at: &impl Ranged) -> LowerResult<ExprId> {
        // An absent array has no elements.
        if let PyValue::Array(array) = &val {
            let zero = self.int(0);
            return Ok(match array.extents().first() {
                Some(&extent) => self.op(Op::Ne, &[extent, zero]),
                None => self.w.constant(Value::int(Scalar::Bool, 1)),
            });
        }
        let rvalue = self.value(val, at)?;
        match rvalue.ty {
            Ty::Scalar(Scalar::Bool) => Ok(rvalue.id),
            Ty::Scalar(s) => {
                let zero = self.w.constant(Value::int(s, 0));
                Ok(self.op(Op::Ne, &[rvalue.id, zero]))
            }
            _ => {
                let what = format!("cannot use {} as a condition", self.type_name(rvalue.ty));
                self.fail(at, what, "expected a bool or a number", None)
            }
        }
    }

    /// `and` and `or`, with short-circuit evaluation unless the operands are pure.
    fn bool_op(&mut self, op: BoolOp, values: &'p [Expr]) -> LowerResult<ExprId> {
        let Some((last, before)) = values.split_last() else { return Err(ErrorReported) };
        if before.is_empty() {
            return self.condition(last);
        }
        let a = self.bool_op(op, before)?;
        if let Some(known) = self.w.b.constant_value(a) {
            let decides = (known.bits() != 0) == (op == BoolOp::Or);
            return if decides { Ok(a) } else { self.condition(last) };
        }
        if self.is_pure(last) {
            let b = self.condition(last)?;
            return Ok(self.op(if op == BoolOp::And { Op::And } else { Op::Or }, &[a, b]));
        }
        let start = Value::int(Scalar::Bool, (op == BoolOp::Or) as i64);
        let result = self.w.b.local("holds", start);
        // In a loop, the variable still has the value of the last iteration.
        let init = self.w.constant(start);
        self.w.b.assign(result, init);
        self.promote_changed_names(&[], &[last], false)?;
        self.open_block(u32::MAX);
        let b = self.condition(last).map(|b| self.w.b.assign(result, b));
        let then = self.close_block();
        b?;
        let condition = if op == BoolOp::And { a } else { self.op(Op::Not, &[a]) };
        self.w.stmt(Ir::If { condition, then, otherwise: vec![] });
        Ok(self.w.b.read(result))
    }

    fn conditional(&mut self, choice: &'p ExprIf, expr: &'p Expr) -> LowerResult<PyValue> {
        let tested = self.eval(&choice.test)?;
        let known = match &tested {
            PyValue::Rvalue(Rvalue { constant: Some(constant), .. }) => constant.truth(),
            PyValue::Rvalue(rvalue) => self.w.b.constant_value(rvalue.id).map(|value| value.as_f64() != 0.0),
            PyValue::Array(array) => self.array_is_present(array),
            PyValue::Const(constant) => constant.truth(),
            _ => None,
        };
        if let Some(truth) = known {
            return self.eval(if truth { &choice.body } else { &choice.orelse });
        }
        let condition = self.truth(tested, choice.test.as_ref())?;
        if self.is_pure(&choice.body) && self.is_pure(&choice.orelse) {
            let (a, b) = (self.evaluated(&choice.body)?, self.evaluated(&choice.orelse)?);
            self.check_same_type(&a, &b, expr)?;
            return Ok(PyValue::Rvalue(Rvalue::new(self.choose(condition, a.id, b.id), a.ty)));
        }
        self.promote_changed_names(&[], &[&choice.body, &choice.orelse], false)?;
        self.open_block(u32::MAX);
        let a = self.evaluated(&choice.body).and_then(|a| {
            let result = self.zero_variable("chosen", a.ty, expr)?;
            self.w.b.assign(result, a.id);
            Ok((a, result))
        });
        let then = self.close_block();
        self.open_block(u32::MAX);
        let b = self.evaluated(&choice.orelse);
        let b = match (&a, b) {
            (Ok((a, result)), Ok(b)) => self.check_same_type(a, &b, expr).map(|()| self.w.b.assign(*result, b.id)),
            (_, b) => b.map(|_| ()),
        };
        let otherwise = self.close_block();
        let ((a, result), ()) = (a?, b?);
        self.w.stmt(Ir::If { condition, then, otherwise });
        Ok(PyValue::Rvalue(Rvalue::new(self.w.b.read(result), a.ty)))
    }

    /// Returns true if an array argument is present; `None` if that is not known at compile time.
    pub(super) fn array_is_present(&self, array: &Array) -> Option<bool> {
        let extents = array.extents();
        self.w.b.constant_value(*extents.first()?).map(|extent| extent.as_i64() != 0)
    }

    /// Selects between two values of the same type.
    pub(super) fn choose(&mut self, condition: ExprId, a: ExprId, b: ExprId) -> ExprId {
        let ty = self.w.b.type_of(a);
        if ty.element().is_some() {
            return self.op(Op::Select, &[condition, a, b]);
        }
        let init = crate::python::types::zeros(ty, self.w.b.structs());
        let local = self.w.b.typed_local("chosen", ty, &init);
        self.w.b.if_else(condition, |then| then.assign(local, a), |otherwise| otherwise.assign(local, b));
        self.w.b.read(local)
    }

    pub(super) fn check_same_type(&mut self, a: &Rvalue, b: &Rvalue, at: &impl Ranged) -> LowerResult {
        if a.ty == b.ty {
            return Ok(());
        }
        let (a, b) = (self.type_name(a.ty), self.type_name(b.ty));
        let hint = format!("convert one of them: {}", crate::python::types::conversion_syntax(&a));
        self.fail(at, format!("mismatched types: {a} and {b}"), "expected values of the same type", Some(hint))
    }

    fn compare(&mut self, left: &'p Expr, ops: &[CmpOp], rest: &'p [Expr], expr: &'p Expr) -> LowerResult<PyValue> {
        let mut a = self.eval(left)?;
        let mut result: Option<ExprId> = None;
        let mut last = left;
        for (op, right) in ops.iter().zip(rest) {
            let row = match op {
                CmpOp::Eq => Op::Eq,
                CmpOp::NotEq => Op::Ne,
                CmpOp::Lt => Op::Lt,
                CmpOp::LtE => Op::Le,
                CmpOp::Gt => Op::Gt,
                CmpOp::GtE => Op::Ge,
                CmpOp::Is | CmpOp::IsNot | CmpOp::In | CmpOp::NotIn => {
                    let what = format!("'{}' is not supported in kernels", op.as_str());
                    let hint = match (op, &a) {
                        (CmpOp::In | CmpOp::NotIn, _) => "compare with each value",
                        (_, PyValue::Array(_)) => "use 'if x:' to test whether an array is present",
                        _ => "use == or !=",
                    };
                    return self.fail(expr, what, "unsupported syntax", Some(hint.into()));
                }
            };
            let b = self.eval(right)?;
            // Types and functions are compared at compile time.
            if let (PyValue::Const(x), PyValue::Const(y)) = (&a, &b)
                && matches!(row, Op::Eq | Op::Ne)
            {
                let holds = (x == y) == (row == Op::Eq);
                return self.constant_val(ConstValue::Bool(holds), expr);
            }
            let (x, y) = (self.value(a, last)?, self.value(b, right)?);
            let id = self.compared(row, &x, &y, expr)?;
            result = Some(match result {
                Some(before) => self.op(Op::And, &[before, id]),
                None => id,
            });
            a = PyValue::Rvalue(y);
            last = right;
        }
        match result {
            Some(id) => Ok(PyValue::Rvalue(Rvalue::new(id, BOOL))),
            None => Err(ErrorReported),
        }
    }

    /// Returns true if an expression has no side effects and cannot fault: no loads, no calls.
    fn is_pure(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Name(_) | Expr::NumberLiteral(_) | Expr::BooleanLiteral(_) => true,
            Expr::Attribute(attribute) => self.is_pure(&attribute.value),
            Expr::BinOp(binary) => self.is_pure(&binary.left) && self.is_pure(&binary.right),
            Expr::UnaryOp(unary) => self.is_pure(&unary.operand),
            Expr::Compare(compare) => {
                self.is_pure(&compare.left) && compare.comparators.iter().all(|one| self.is_pure(one))
            }
            Expr::BoolOp(op) => op.values.iter().all(|one| self.is_pure(one)),
            // A size of an array, or a component of a variable.
            Expr::Subscript(subscript) => {
                let of = match subscript.value.as_ref() {
                    Expr::Attribute(attribute) => attribute.attr.as_str() == "shape" && self.is_pure(&attribute.value),
                    Expr::Name(name) => matches!(
                        self.frames.last().and_then(|frame| frame.names.get(name.id.as_str())),
                        Some(Binding::Value(PyValue::Rvalue(_)) | Binding::Local(..))
                    ),
                    _ => false,
                };
                of && matches!(subscript.slice.as_ref(), Expr::NumberLiteral(_))
            }
            _ => false,
        }
    }

    fn attribute(&mut self, of: &'p Expr, name: &str, expr: &'p Expr) -> LowerResult<PyValue> {
        let val = match of {
            // Not a local name: wp.pi, module.CONSTANT, Enum.MEMBER.
            Expr::Name(base) if !self.frame().names.contains_key(base.id.as_str()) => match self.eval_const(expr, true)
            {
                Ok(constant) => return self.constant_val(constant, expr),
                Err((at, what)) => match self.eval_const(of, true) {
                    Ok(known) if literal(&known).is_some() => self.constant_val(known, of)?,
                    _ => return self.fail(&at, what, "", None),
                },
            },
            // Reads only the requested field.
            Expr::Name(base) => match self.frame().names.get(base.id.as_str()) {
                Some(Binding::Value(whole @ PyValue::Aggregate(..))) => whole.clone(),
                _ => self.eval(of)?,
            },
            _ => self.eval(of)?,
        };
        match val {
            PyValue::Array(array) => self.array_attribute(array, name, expr),
            PyValue::Aggregate(n, mut vals) => {
                let at = self.field_index(n, name, expr)?;
                match vals.swap_remove(at as usize) {
                    PyValue::Const(ConstValue::None) => {
                        let what = format!("array field '{name}' is read before it is assigned");
                        self.fail(expr, what, "not assigned yet", None)
                    }
                    val => Ok(self.read_fields(val)),
                }
            }
            PyValue::Element(mut element) => {
                if let Some(ty) = self.dtype(element.ty(), name) {
                    return Ok(ty);
                }
                let step = self.attribute_projection(element.ty(), name, expr)?;
                element.path.push(step);
                Ok(PyValue::Element(element))
            }
            // `.value` of an enum member is the member itself.
            PyValue::Rvalue(rvalue)
                if name == "value" && of.is_attribute_expr() && matches!(rvalue.constant, Some(ConstValue::Int(_))) =>
            {
                Ok(PyValue::Rvalue(rvalue))
            }
            PyValue::Rvalue(rvalue) => {
                if let Some(ty) = self.dtype(rvalue.ty, name) {
                    return Ok(ty);
                }
                let step = self.attribute_projection(rvalue.ty, name, expr)?;
                let part = self.project(&rvalue, &[step], expr)?;
                Ok(PyValue::Rvalue(part))
            }
            PyValue::Const(known) => match self.const_attribute(known, name, expr) {
                Ok(constant) => self.constant_val(constant, expr),
                Err((at, what)) => self.fail(&at, what, "", None),
            },
            _ => self.fail(expr, format!("no attribute '{name}'"), "", None),
        }
    }

    fn dtype(&mut self, ty: Ty, name: &str) -> Option<PyValue> {
        let s = ty.element().filter(|_| ty.scalar().is_none())?;
        match (name, ty) {
            ("dtype", _) => Some(PyValue::Const(ConstValue::Type(Pattern::of(Ty::Scalar(s))))),
            ("length", Ty::Vector(_, n)) => Some(PyValue::Rvalue(self.const_int(n as i64))),
            ("shape", Ty::Matrix(_, rows, columns)) => {
                let sizes = [rows, columns].map(|n| PyValue::Rvalue(self.const_int(n as i64)));
                Some(PyValue::Tuple(sizes.into()))
            }
            ("shape", Ty::FixedArray(_, n)) => Some(PyValue::Tuple(vec![PyValue::Rvalue(self.const_int(n as i64))])),
            _ => None,
        }
    }

    fn array_attribute(&mut self, array: Array, name: &str, at: &'p Expr) -> LowerResult<PyValue> {
        match name {
            "shape" => Ok(PyValue::Shape(array)),
            "ptr" => Ok(PyValue::Address(array)),
            "dtype" => Ok(PyValue::Const(ConstValue::Type(Pattern::of(array.element)))),
            "ndim" => {
                let n = array.rank() as i64;
                Ok(PyValue::Rvalue(Rvalue { id: self.int(n), ty: I32, constant: Some(ConstValue::Int(n)) }))
            }
            _ => {
                let hint = "arrays have shape, dtype, ndim and ptr".to_owned();
                self.fail(at, format!("arrays have no attribute '{name}'"), "", Some(hint))
            }
        }
    }
}

/// A description of an unsupported expression, and a hint.
fn named(expr: &Expr) -> (&'static str, Option<String>) {
    let hint = |text: &str| Some(text.to_owned());
    match expr {
        Expr::Lambda(_) => ("a lambda", hint("define a function with @wp.func")),
        Expr::List(_) => ("a list", hint("use a vector, or wp.zeros(shape=N, dtype=…) for a local array")),
        Expr::Dict(_) | Expr::Set(_) => ("a dict or set", None),
        Expr::ListComp(_) | Expr::SetComp(_) | Expr::DictComp(_) | Expr::Generator(_) => {
            ("a comprehension", hint("use a loop"))
        }
        Expr::FString(_) | Expr::TString(_) => ("an f-string", hint("pass the values to print as separate arguments")),
        Expr::Named(_) => ("':='", hint("assign on a separate line")),
        Expr::Starred(_) => ("'*' here", None),
        Expr::Await(_) | Expr::Yield(_) | Expr::YieldFrom(_) => ("'await' or 'yield'", None),
        _ => ("this expression", None),
    }
}

/// The edit distance between two words.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(40).collect(), b.chars().take(40).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (corner + (x != y) as usize).min(row[j] + 1).min(row[j + 1] + 1);
            corner = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}
