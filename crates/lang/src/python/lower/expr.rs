//! Expressions.

use bornite_ir::{ExprId, Op, Scalar, Stmt as Ir, Value};
use ruff_python_ast::{BoolOp, CmpOp, Expr, ExprIf};
use ruff_text_size::Ranged;

use super::value::{Array, Binding, Run, Val, literal};
use super::{Lower, Lowers, Noted};
use crate::python::fixed::Fixed;
use crate::python::types::{BOOL, I32, Pattern, Ty};

impl<'p> Lower<'p> {
    pub(super) fn eval(&mut self, expr: &'p Expr) -> Lowers<Val> {
        match expr {
            Expr::Name(name) => self.name(name.id.as_str(), expr),
            Expr::NumberLiteral(_) | Expr::BooleanLiteral(_) => match self.fixed(expr, true) {
                Ok(fixed) => self.constant_val(fixed, expr),
                Err((at, what)) => self.fail(&at, what, "", None),
            },
            Expr::StringLiteral(text) => Ok(Val::Fixed(Fixed::Text(text.value.to_str().to_owned()))),
            Expr::NoneLiteral(_) => Ok(Val::Fixed(Fixed::None)),
            Expr::Attribute(attribute) => self.attribute(&attribute.value, attribute.attr.as_str(), expr),
            Expr::Subscript(subscript) => self.subscript(&subscript.value, &subscript.slice, expr),
            Expr::BinOp(binary) => {
                let (a, b) = (self.eval(&binary.left), self.eval(&binary.right));
                let run = self.binary(binary.op, a?, b?, expr, (&binary.left, &binary.right))?;
                Ok(Val::Run(run))
            }
            Expr::UnaryOp(unary) => {
                let val = self.eval(&unary.operand)?;
                self.unary(unary.op, val, expr).map(Val::Run)
            }
            Expr::BoolOp(op) => self.bool_op(op.op, &op.values).map(|id| Val::Run(Run::new(id, BOOL))),
            Expr::Compare(compare) => self.compare(&compare.left, &compare.ops, &compare.comparators, expr),
            Expr::If(choice) => self.choice(choice, expr),
            Expr::Call(call) => self.call(call, expr),
            Expr::Tuple(all) => {
                let vals = all.elts.iter().map(|one| self.eval(one)).collect::<Vec<_>>();
                Ok(Val::Tuple(vals.into_iter().collect::<Lowers<Vec<_>>>()?))
            }
            Expr::Slice(slice) => self.slice([slice.lower.as_deref(), slice.upper.as_deref(), slice.step.as_deref()]),
            other => {
                let (what, hint) = named(other);
                self.fail(other, format!("{what} is not supported in kernels"), "not in the dialect", hint)
            }
        }
    }

    /// A slice from its start, end and step, each of which may be left out.
    pub(super) fn slice(&mut self, given: [Option<&'p Expr>; 3]) -> Lowers<Val> {
        let mut parts: [Option<Run>; 3] = [None, None, None];
        for (part, given) in parts.iter_mut().zip(given) {
            let Some(given) = given else { continue };
            let mut run = self.evaluated(given)?;
            // As in Warp; one of 64 bits could lie beyond every array.
            if run.ty != I32 {
                let what = format!("a slice by {}", self.type_name(run.ty));
                return self.fail(given, what, "int32 is expected", Some("convert it: int(…)".into()));
            }
            if run.constant.is_none() {
                run.constant = self.w.b.known(run.id).map(|v| Fixed::Int(v.as_i64()));
            }
            *part = Some(run);
        }
        Ok(Val::Slice(Box::new(parts)))
    }

    fn name(&mut self, name: &str, at: &'p Expr) -> Lowers<Val> {
        if let Some(found) = self.read_name(name) {
            return found;
        }
        match self.fixed(at, true) {
            Ok(fixed) => self.constant_val(fixed, at),
            Err((_, what)) => {
                if self.program.lookup(name, self.frame().func.scope).is_some() {
                    return self.fail(at, what, "not known beforehand", Some("pass it as a parameter".into()));
                }
                let close = self.similar(name);
                self.fail(at, what, "unknown name", close.map(|close| format!("there is '{close}'")))
            }
        }
    }

    /// A name that could be meant.
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

    /// What is known, as a value of the kernel where it can be one.
    pub(super) fn constant_val(&mut self, fixed: Fixed, at: &impl Ranged) -> Lowers<Val> {
        let Some((ty, parts)) = literal(&fixed) else { return Ok(Val::Fixed(fixed)) };
        let ids: Vec<ExprId> = parts.iter().map(|value| self.w.constant(*value)).collect();
        let id = match ty {
            Ty::Scalar(_) => ids[0],
            _ => {
                let ty = self.ir_type(ty, at)?;
                self.w.b.construct(ty, &ids)
            }
        };
        Ok(Val::Run(Run { id, ty, constant: Some(fixed) }))
    }

    /// A constant in another scalar type, from the number as it was written.
    pub(super) fn constant_as(&mut self, run: &Run, to: Scalar, at: &impl Ranged) -> Lowers<Run> {
        let value = match run.constant.as_ref().map(|fixed| (fixed.int(), fixed.number())) {
            Some((Some(n), Some(x))) => crate::python::fixed::fixed_value(to, x, n),
            Some((None, Some(x))) if to.is_float() => Value::from_f64(to, x),
            _ => {
                let (found, wanted) = (self.type_name(run.ty), crate::python::types::scalar_name(to));
                return self.fail(at, format!("{found} is not {wanted}"), "", None);
            }
        };
        Ok(Run::new(self.w.constant(value), Ty::Scalar(to)))
    }

    /// What an expression stands for as a value of the kernel.
    pub(super) fn value(&mut self, val: Val, at: &impl Ranged) -> Lowers<Run> {
        match val {
            Val::Run(run) => Ok(run),
            Val::Element(element) => self.load(&element, at),
            Val::Array(_) => self.fail(at, "an array is no value".into(), "an element is expected", None),
            Val::Shape(_) => self.fail(at, "a shape is no value".into(), "such as a.shape[0]", None),
            Val::Address(_) => self.fail(at, "an address is no value".into(), "only wp.array(ptr=…) takes one", None),
            Val::Tuple(_) => self.fail(at, "a tuple is no value".into(), "one value is expected", None),
            Val::Aggregate(..) => {
                self.fail(at, "a struct with arrays is no value".into(), "name one of its fields", None)
            }
            Val::Held(local, ty) => Ok(Run::new(self.w.b.read(local), ty)),
            Val::Range(..) | Val::Slice(_) => self.fail(at, "a range is no value".into(), "", None),
            Val::Fixed(fixed) => {
                let what = match &fixed {
                    Fixed::None => "None is no value".into(),
                    Fixed::Text(_) => "a string is no value of a kernel".into(),
                    Fixed::List(_) => "a list or tuple of the file cannot be used in a kernel as it is".into(),
                    Fixed::Type(_) => "a type is no value".into(),
                    Fixed::Functions(_) | Fixed::Builtin(_) => "a function is no value".into(),
                    Fixed::Kernel(id) => format!("'{}' is a kernel, not a value", self.func(*id).def.name.as_str()),
                    Fixed::Python(name) | Fixed::Plain(name, ..) => format!("'{name}' cannot be used in a kernel"),
                    _ => "this is no value of a kernel".into(),
                };
                let hint = matches!(fixed, Fixed::List(_)).then(|| "take an element of it: wp.static(NAME[0])".into());
                self.fail(at, what, "a value is expected", hint)
            }
        }
    }

    pub(super) fn evaluated(&mut self, expr: &'p Expr) -> Lowers<Run> {
        let val = self.eval(expr)?;
        self.value(val, expr)
    }

    /// A condition as a bool.
    pub(super) fn condition(&mut self, expr: &'p Expr) -> Lowers<ExprId> {
        let val = self.eval(expr)?;
        self.truth(val, expr)
    }

    pub(super) fn truth(&mut self, val: Val, at: &impl Ranged) -> Lowers<ExprId> {
        // An array that is not there has no elements.
        if let Val::Array(array) = &val {
            let zero = self.int(0);
            return Ok(match array.extents().first() {
                Some(&extent) => self.op(Op::Ne, &[extent, zero]),
                None => self.w.constant(Value::int(Scalar::Bool, 1)),
            });
        }
        let run = self.value(val, at)?;
        match run.ty {
            Ty::Scalar(Scalar::Bool) => Ok(run.id),
            Ty::Scalar(s) => {
                let zero = self.w.constant(Value::int(s, 0));
                Ok(self.op(Op::Ne, &[run.id, zero]))
            }
            _ => {
                let what = format!("{} is neither true nor false", self.type_name(run.ty));
                self.fail(at, what, "a bool or a number is expected", None)
            }
        }
    }

    /// `and` and `or`: what need not be computed is not, where that could matter.
    fn bool_op(&mut self, op: BoolOp, values: &'p [Expr]) -> Lowers<ExprId> {
        let Some((last, before)) = values.split_last() else { return Err(Noted) };
        if before.is_empty() {
            return self.condition(last);
        }
        let a = self.bool_op(op, before)?;
        if let Some(known) = self.w.b.known(a) {
            let decides = (known.bits() != 0) == (op == BoolOp::Or);
            return if decides { Ok(a) } else { self.condition(last) };
        }
        if self.is_plain(last) {
            let b = self.condition(last)?;
            return Ok(self.op(if op == BoolOp::And { Op::And } else { Op::Or }, &[a, b]));
        }
        let start = Value::int(Scalar::Bool, (op == BoolOp::Or) as i64);
        let result = self.w.b.local("holds", start);
        // A variable keeps its value from the last time in a loop.
        let init = self.w.constant(start);
        self.w.b.assign(result, init);
        self.before_branches(&[], &[last], false)?;
        self.open_block(u32::MAX);
        let b = self.condition(last).map(|b| self.w.b.assign(result, b));
        let then = self.close_block();
        b?;
        let condition = if op == BoolOp::And { a } else { self.op(Op::Not, &[a]) };
        self.w.stmt(Ir::If { condition, then, otherwise: vec![] });
        Ok(self.w.b.read(result))
    }

    fn choice(&mut self, choice: &'p ExprIf, expr: &'p Expr) -> Lowers<Val> {
        let tested = self.eval(&choice.test)?;
        let known = match &tested {
            Val::Run(Run { constant: Some(fixed), .. }) => fixed.truth(),
            Val::Run(run) => self.w.b.known(run.id).map(|value| value.as_f64() != 0.0),
            Val::Array(array) => self.array_there(array),
            Val::Fixed(fixed) => fixed.truth(),
            _ => None,
        };
        if let Some(truth) = known {
            return self.eval(if truth { &choice.body } else { &choice.orelse });
        }
        let condition = self.truth(tested, choice.test.as_ref())?;
        if self.is_plain(&choice.body) && self.is_plain(&choice.orelse) {
            let (a, b) = (self.evaluated(&choice.body)?, self.evaluated(&choice.orelse)?);
            self.alike(&a, &b, expr)?;
            return Ok(Val::Run(Run::new(self.choose(condition, a.id, b.id), a.ty)));
        }
        self.before_branches(&[], &[&choice.body, &choice.orelse], false)?;
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
            (Ok((a, result)), Ok(b)) => self.alike(a, &b, expr).map(|()| self.w.b.assign(*result, b.id)),
            (_, b) => b.map(|_| ()),
        };
        let otherwise = self.close_block();
        let ((a, result), ()) = (a?, b?);
        self.w.stmt(Ir::If { condition, then, otherwise });
        Ok(Val::Run(Run::new(self.w.b.read(result), a.ty)))
    }

    /// Whether an array was given, if that is known.
    pub(super) fn array_there(&self, array: &Array) -> Option<bool> {
        let extents = array.extents();
        self.w.b.known(*extents.first()?).map(|extent| extent.as_i64() != 0)
    }

    /// A choice between values of any one type.
    pub(super) fn choose(&mut self, condition: ExprId, a: ExprId, b: ExprId) -> ExprId {
        let ty = self.w.b.type_of(a);
        if ty.element().is_some() {
            return self.op(Op::Select, &[condition, a, b]);
        }
        let init = crate::python::types::zeros(ty, self.w.b.structs());
        let local = self.w.b.local_of("chosen", ty, &init);
        self.w.b.if_else(condition, |then| then.assign(local, a), |otherwise| otherwise.assign(local, b));
        self.w.b.read(local)
    }

    pub(super) fn alike(&mut self, a: &Run, b: &Run, at: &impl Ranged) -> Lowers {
        if a.ty == b.ty {
            return Ok(());
        }
        let (a, b) = (self.type_name(a.ty), self.type_name(b.ty));
        let hint = format!("convert one of them: {}", crate::python::types::spelled(&a));
        self.fail(at, format!("{a} and {b} are mixed"), "values of one type are expected", Some(hint))
    }

    fn compare(&mut self, left: &'p Expr, ops: &[CmpOp], rest: &'p [Expr], expr: &'p Expr) -> Lowers<Val> {
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
                        (CmpOp::In | CmpOp::NotIn, _) => "compare with each",
                        (_, Val::Array(_)) => "'if x:' asks whether an array is there",
                        _ => "use == or !=",
                    };
                    return self.fail(expr, what, "not in the dialect", Some(hint.into()));
                }
            };
            let b = self.eval(right)?;
            // Types and functions are compared now.
            if let (Val::Fixed(x), Val::Fixed(y)) = (&a, &b)
                && matches!(row, Op::Eq | Op::Ne)
            {
                let holds = (x == y) == (row == Op::Eq);
                return self.constant_val(Fixed::Bool(holds), expr);
            }
            let (x, y) = (self.value(a, last)?, self.value(b, right)?);
            let id = self.compared(row, &x, &y, expr)?;
            result = Some(match result {
                Some(before) => self.op(Op::And, &[before, id]),
                None => id,
            });
            a = Val::Run(y);
            last = right;
        }
        match result {
            Some(id) => Ok(Val::Run(Run::new(id, BOOL))),
            None => Err(Noted),
        }
    }

    /// Whether computing an expression does nothing but take a moment: no memory, no calls.
    fn is_plain(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Name(_) | Expr::NumberLiteral(_) | Expr::BooleanLiteral(_) => true,
            Expr::Attribute(attribute) => self.is_plain(&attribute.value),
            Expr::BinOp(binary) => self.is_plain(&binary.left) && self.is_plain(&binary.right),
            Expr::UnaryOp(unary) => self.is_plain(&unary.operand),
            Expr::Compare(compare) => {
                self.is_plain(&compare.left) && compare.comparators.iter().all(|one| self.is_plain(one))
            }
            Expr::BoolOp(op) => op.values.iter().all(|one| self.is_plain(one)),
            // A size, or a component of a variable.
            Expr::Subscript(subscript) => {
                let of = match subscript.value.as_ref() {
                    Expr::Attribute(attribute) => attribute.attr.as_str() == "shape" && self.is_plain(&attribute.value),
                    Expr::Name(name) => matches!(
                        self.frames.last().and_then(|frame| frame.names.get(name.id.as_str())),
                        Some(Binding::Val(Val::Run(_)) | Binding::Local(..))
                    ),
                    _ => false,
                };
                of && matches!(subscript.slice.as_ref(), Expr::NumberLiteral(_))
            }
            _ => false,
        }
    }

    fn attribute(&mut self, of: &'p Expr, name: &str, expr: &'p Expr) -> Lowers<Val> {
        let val = match of {
            // What is not a variable is looked up as a whole: wp.pi, module.CONSTANT, Enum.MEMBER.
            Expr::Name(base) if !self.frame().names.contains_key(base.id.as_str()) => match self.fixed(expr, true) {
                Ok(fixed) => return self.constant_val(fixed, expr),
                Err((at, what)) => match self.fixed(of, true) {
                    Ok(known) if literal(&known).is_some() => self.constant_val(known, of)?,
                    _ => return self.fail(&at, what, "", None),
                },
            },
            // Only the field that is asked for is read.
            Expr::Name(base) => match self.frame().names.get(base.id.as_str()) {
                Some(Binding::Val(whole @ Val::Aggregate(..))) => whole.clone(),
                _ => self.eval(of)?,
            },
            _ => self.eval(of)?,
        };
        match val {
            Val::Array(array) => self.array_attribute(array, name, expr),
            Val::Aggregate(n, mut vals) => {
                let at = self.field_number(n, name, expr)?;
                match vals.swap_remove(at as usize) {
                    Val::Fixed(Fixed::None) => {
                        let what = format!("field '{name}' has no array yet");
                        self.fail(expr, what, "read before it is assigned", None)
                    }
                    val => Ok(self.seen(val)),
                }
            }
            Val::Element(mut element) => {
                if let Some(ty) = self.dtype(element.ty(), name) {
                    return Ok(ty);
                }
                let step = self.attribute_step(element.ty(), name, expr)?;
                element.path.push(step);
                Ok(Val::Element(element))
            }
            // An enum's member is its value.
            Val::Run(run)
                if name == "value" && of.is_attribute_expr() && matches!(run.constant, Some(Fixed::Int(_))) =>
            {
                Ok(Val::Run(run))
            }
            Val::Run(run) => {
                if let Some(ty) = self.dtype(run.ty, name) {
                    return Ok(ty);
                }
                let step = self.attribute_step(run.ty, name, expr)?;
                let part = self.part(&run, &[step], expr)?;
                Ok(Val::Run(part))
            }
            Val::Fixed(known) => match self.fixed_attribute(known, name, expr) {
                Ok(fixed) => self.constant_val(fixed, expr),
                Err((at, what)) => self.fail(&at, what, "", None),
            },
            _ => self.fail(expr, format!("there is no '{name}'"), "", None),
        }
    }

    fn dtype(&mut self, ty: Ty, name: &str) -> Option<Val> {
        let s = ty.element().filter(|_| ty.scalar().is_none())?;
        match (name, ty) {
            ("dtype", _) => Some(Val::Fixed(Fixed::Type(Pattern::of(Ty::Scalar(s))))),
            ("length", Ty::Vector(_, n)) => Some(Val::Run(self.run_int(n as i64))),
            ("shape", Ty::Matrix(_, rows, columns)) => {
                let sizes = [rows, columns].map(|n| Val::Run(self.run_int(n as i64)));
                Some(Val::Tuple(sizes.into()))
            }
            ("shape", Ty::Fixed(_, n)) => Some(Val::Tuple(vec![Val::Run(self.run_int(n as i64))])),
            _ => None,
        }
    }

    fn array_attribute(&mut self, array: Array, name: &str, at: &'p Expr) -> Lowers<Val> {
        match name {
            "shape" => Ok(Val::Shape(array)),
            "ptr" => Ok(Val::Address(array)),
            "dtype" => Ok(Val::Fixed(Fixed::Type(Pattern::of(array.element)))),
            "ndim" => {
                let n = array.rank() as i64;
                Ok(Val::Run(Run { id: self.int(n), ty: I32, constant: Some(Fixed::Int(n)) }))
            }
            _ => {
                let hint = "arrays have shape, dtype, ndim and ptr".to_owned();
                self.fail(at, format!("an array has no '{name}'"), "", Some(hint))
            }
        }
    }
}

/// An expression in words, and what to do instead.
fn named(expr: &Expr) -> (&'static str, Option<String>) {
    let hint = |text: &str| Some(text.to_owned());
    match expr {
        Expr::Lambda(_) => ("a lambda", hint("write a function with @wp.func")),
        Expr::List(_) => ("a list", hint("use a vector, or wp.zeros(shape=N, dtype=…) for a local array")),
        Expr::Dict(_) | Expr::Set(_) => ("a dict or set", None),
        Expr::ListComp(_) | Expr::SetComp(_) | Expr::DictComp(_) | Expr::Generator(_) => {
            ("a comprehension", hint("write a loop"))
        }
        Expr::FString(_) | Expr::TString(_) => ("an f-string", hint("print the values one after the other")),
        Expr::Named(_) => ("':='", hint("assign in a line before")),
        Expr::Starred(_) => ("'*' here", None),
        Expr::Await(_) | Expr::Yield(_) | Expr::YieldFrom(_) => ("'await' or 'yield'", None),
        _ => ("this expression", None),
    }
}

/// Letters to change to make one word of another.
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
