//! Constructors: conversions of scalars, and vectors, matrices, quaternions, transforms and structs
//! from their components.

use bornite_ir::{ExprId, Scalar, Value};
use ruff_python_ast::{Expr, ExprCall};

use super::call::CallArgs;
use super::value::{Array, ArrayAxis, PyValue, Rvalue};
use super::{Lower, LowerResult};
use crate::python::const_eval::{ConstValue, scalar_value};
use crate::python::types::{Pattern, Ty, scalar_name, zeros};

impl<'p> Lower<'p> {
    pub(super) fn construct(&mut self, pattern: Pattern, call: &'p ExprCall, expr: &'p Expr) -> LowerResult<PyValue> {
        if let Pattern::Array(..) = pattern {
            let call_args = self.eval_args(call)?;
            return self.array_from_ptr(&call_args, expr).map(PyValue::Array);
        }
        if let Pattern::Unsupported(name) = &pattern {
            // A block has one thread, so a tile of one value per thread is that value.
            if name == "tile" && call.arguments.args.len() == 1 {
                return self.evaluated(&call.arguments.args[0]).map(PyValue::Rvalue);
            }
            let what = format!("'{name}' is not supported in kernels");
            return self.fail(expr, what, "not supported", None);
        }
        let call_args = self.eval_args(call)?;
        match (&pattern, pattern.exact()) {
            (Pattern::Struct(n), _) => self.construct_struct(*n, &call_args, expr),
            (_, Some(ty)) => self.construct_value(ty, &call_args, expr).map(PyValue::Rvalue),
            (Pattern::Vector(..), None) => self.construct_vector(&call_args, expr),
            _ => self.fail(expr, "cannot construct a value of a generic type".into(), "", None),
        }
    }

    /// `wp.array(ptr=a.ptr, shape=n, dtype=…)`: the elements of another array, starting at its
    /// first. Every access is still checked against that array, so a plain number is not accepted
    /// as address.
    fn array_from_ptr(&mut self, call_args: &CallArgs<'p>, at: &'p Expr) -> LowerResult<Array> {
        let hint = || Some("use wp.array(ptr=a.ptr, shape=n, dtype=a.dtype), or slice an array: a[2:5]".to_owned());
        let named = |name: &str| {
            call_args.named.iter().find(|(found, ..)| *found == name).map(|(_, val, at)| (val.clone(), *at))
        };
        let mut array = match named("ptr") {
            Some((PyValue::Address(array), _)) => array,
            Some((_, ptr_at)) => {
                let what = "ptr must be the ptr attribute of another array".to_owned();
                return self.fail(ptr_at, what, "this is a number", hint());
            }
            None => {
                return self.fail(
                    at,
                    "wp.array(…) requires ptr in a kernel".into(),
                    "kernels cannot allocate arrays",
                    hint(),
                );
            }
        };
        let same = match named("dtype") {
            Some((PyValue::Const(ConstValue::Type(pattern)), _)) => pattern.exact() == Some(array.element),
            other => other.is_none() && array.element == Ty::Scalar(Scalar::F32),
        };
        if !same || array.rank() != 1 {
            let what = "wp.array(ptr=…) requires a one-dimensional array of the same dtype".to_owned();
            return self.fail(at, what, "different dtype or more dimensions", hint());
        }
        let size = match named("shape") {
            Some((PyValue::Tuple(mut sizes), shape_at)) if sizes.len() == 1 => Some((sizes.remove(0), shape_at)),
            Some((PyValue::Const(ConstValue::List(mut sizes)), shape_at)) if sizes.len() == 1 => {
                Some((PyValue::Const(sizes.remove(0)), shape_at))
            }
            Some((PyValue::Tuple(_) | PyValue::Const(ConstValue::List(_)), _)) | None => None,
            one => one,
        };
        let Some((size, shape_at)) = size else {
            return self.fail(at, "wp.array(ptr=…) requires a shape with one dimension".into(), "", hint());
        };
        let size = self.value(size, shape_at)?;
        if size.ty != Ty::Scalar(Scalar::I32) {
            let what = format!("shape must be int32, found {}", self.type_name(size.ty));
            return self.fail(shape_at, what, "expected int32", None);
        }
        for axis in &mut array.axes {
            if let ArrayAxis::Range { extent, .. } = axis {
                *extent = size.id;
            }
        }
        Ok(array)
    }

    /// Constructs a value of a type.
    pub(super) fn construct_value(&mut self, ty: Ty, call_args: &CallArgs<'p>, at: &'p Expr) -> LowerResult<Rvalue> {
        let Some(s) = ty.element() else {
            return self.fail(at, "structs are constructed by calling the struct".into(), "", None);
        };
        if let Ty::Scalar(_) = ty {
            let call_args = self.bind_keywords(scalar_name(s), call_args.clone(), &["a"])?;
            return self.convert_scalar(s, &call_args, at);
        }
        let ir = self.ir_type(ty, at)?;
        let names: &[&str] = match ty {
            Ty::Quat(_) if call_args.named.iter().any(|(name, ..)| matches!(*name, "ijk" | "real")) => &["ijk", "real"],
            Ty::Quat(_) => &["x", "y", "z", "w"],
            Ty::Transform(_) => &["p", "q"],
            _ => &[],
        };
        let call_args = self.bind_keywords(&self.type_name(ty), call_args.clone(), names)?;
        let mut rvalues = vec![];
        for (val, expr) in &call_args.positional {
            rvalues.push((self.value(val.clone(), *expr)?, *expr));
        }
        let id = match (&rvalues[..], ty) {
            ([], _) => {
                let init = zeros(ir, self.w.b.structs());
                let ids: Vec<ExprId> = init.iter().map(|value| self.w.constant(*value)).collect();
                self.w.b.construct(ir, &ids)
            }
            // The same shape: a copy, possibly with a converted component type.
            ([(one, _)], _)
                if one.ty.with_element(s) == ty || one.ty.count() == ty.count() && one.ty.scalar().is_none() =>
            {
                let same = matches!((one.ty, ty), (Ty::Matrix(..), Ty::Matrix(..))) == matches!(ty, Ty::Matrix(..));
                if !same {
                    return self.cannot_construct(ty, &rvalues, at);
                }
                self.cast_id(s, one.id)
            }
            // A translation without rotation.
            ([(one, _)], Ty::Transform(_)) if one.ty == Ty::Vector(s, 3) => {
                let mut parts = self.components(one.id, 3);
                parts.extend([0, 0, 0, 1].map(|n| self.w.constant(scalar_value(s, n as f64, n))));
                self.w.b.construct(ir, &parts)
            }
            ([(one, expr)], Ty::Vector(..) | Ty::Matrix(..) | Ty::FixedArray(..)) if one.ty.scalar().is_some() => {
                let part = self.as_component(one, s, expr)?;
                self.w.b.construct(ir, &[part])
            }
            (many, _) => {
                let mut parts = vec![];
                for (rvalue, expr) in many {
                    match rvalue.ty {
                        Ty::Scalar(_) => parts.push(self.as_component(rvalue, s, expr)?),
                        Ty::Matrix(..) | Ty::Struct(_) => return self.cannot_construct(ty, &rvalues, at),
                        whole if whole.element() == Some(s) && !matches!(ty, Ty::Matrix(..)) => {
                            parts.extend(self.components(rvalue.id, whole.count() as u32));
                        }
                        _ => return self.cannot_construct(ty, &rvalues, at),
                    }
                }
                if parts.len() != ty.count() {
                    return self.cannot_construct(ty, &rvalues, at);
                }
                self.w.b.construct(ir, &parts)
            }
        };
        Ok(Rvalue::new(id, ty))
    }

    fn cannot_construct(&mut self, ty: Ty, rvalues: &[(Rvalue, &'p Expr)], at: &'p Expr) -> LowerResult<Rvalue> {
        let found: Vec<String> = rvalues.iter().map(|(rvalue, _)| self.type_name(rvalue.ty)).collect();
        let name = self.type_name(ty);
        let hint = match ty {
            Ty::Matrix(..) => "use wp.matrix_from_rows(…) or wp.matrix_from_cols(…)".to_owned(),
            _ => format!("it has {} components", ty.count()),
        };
        self.fail(
            at,
            format!("cannot construct {name} from ({})", found.join(", ")),
            "mismatched arguments",
            Some(hint),
        )
    }

    /// Converts a value to a component; only constants may have another type.
    fn as_component(&mut self, rvalue: &Rvalue, s: Scalar, at: &'p Expr) -> LowerResult<ExprId> {
        if rvalue.ty == Ty::Scalar(s) {
            return Ok(rvalue.id);
        }
        if rvalue.constant.is_some() {
            return self.constant_as(rvalue, s, at).map(|rvalue| rvalue.id);
        }
        let (found, wanted) = (self.type_name(rvalue.ty), scalar_name(s));
        let hint = format!("convert it: {}(…)", if s == Scalar::F32 { "float" } else { wanted });
        self.fail(
            at,
            format!("component has type {found}, expected {wanted}"),
            &format!("expected {wanted}"),
            Some(hint),
        )
    }

    /// Converts a scalar.
    fn convert_scalar(&mut self, s: Scalar, call_args: &CallArgs<'p>, at: &'p Expr) -> LowerResult<Rvalue> {
        let ty = Ty::Scalar(s);
        let Some((val, expr)) = call_args.positional.first() else {
            return Ok(Rvalue::new(self.w.constant(Value::int(s, 0)), ty));
        };
        if call_args.positional.len() > 1 {
            return self.fail(at, format!("{} expects one argument", scalar_name(s)), "", None);
        }
        let rvalue = self.value(val.clone(), *expr)?;
        if rvalue.ty.scalar().is_none() {
            let what = format!("cannot convert {} to {}", self.type_name(rvalue.ty), scalar_name(s));
            return self.fail(at, what, "expected a number", None);
        }
        // Converted from the number as written, without rounding to the default type first.
        if let Some(ConstValue::Int(n)) = &rvalue.constant {
            let value = scalar_value(s, *n as f64, *n);
            let value = if s == Scalar::Bool { Value::int(s, (*n != 0) as i64) } else { value };
            return Ok(Rvalue::new(self.w.constant(value), ty));
        }
        if let Some(ConstValue::Float(x)) = &rvalue.constant
            && s == Scalar::F64
        {
            return Ok(Rvalue::new(self.w.constant(Value::from_f64(s, *x)), ty));
        }
        let id = match rvalue.ty {
            Ty::Scalar(from) if s == Scalar::Bool && from != Scalar::Bool => {
                let zero = self.w.constant(Value::int(from, 0));
                self.op(bornite_ir::Op::Ne, &[rvalue.id, zero])
            }
            _ => self.cast_id(s, rvalue.id),
        };
        Ok(Rvalue::new(id, ty))
    }

    fn construct_struct(&mut self, n: u32, call_args: &CallArgs<'p>, at: &'p Expr) -> LowerResult<PyValue> {
        let fields = self.fields_of(n, at)?;
        if call_args.positional.len() > fields.len() {
            let (name, count) = (self.program.structs[n as usize].name, fields.len());
            let what = format!("'{name}' has {count} {}", if count == 1 { "field" } else { "fields" });
            return self.fail(at, what, "too many arguments", None);
        }
        if let Some((name, _, expr)) = call_args.named.iter().find(|(name, ..)| fields.iter().all(|(f, _)| f != name)) {
            self.field_index(n, name, *expr)?;
        }
        let has_arrays = self.has_arrays(n, at)?;
        let mut vals = vec![];
        for (index, (name, pattern)) in fields.iter().enumerate() {
            let val = match call_args.get(index, name) {
                Some((val, expr)) => match (pattern, val) {
                    (Pattern::Array(..), val @ PyValue::Array(_)) => val,
                    (Pattern::Struct(_), val @ PyValue::Aggregate(..)) => val,
                    (pattern, val) => {
                        let rvalue = self.value(val, expr)?;
                        if pattern.match_score(rvalue.ty).is_none() {
                            let (found, wanted) = (self.type_name(rvalue.ty), pattern.name(&self.struct_name()));
                            let what = format!("field '{name}' has type {wanted}, found {found}");
                            return self.fail(expr, what, &format!("expected {wanted}"), None);
                        }
                        PyValue::Rvalue(rvalue)
                    }
                },
                None => match pattern.exact() {
                    Some(Ty::Struct(inner)) if !self.has_arrays(inner, at)? => {
                        self.construct_struct(inner, &CallArgs { positional: vec![], named: vec![] }, at)?
                    }
                    Some(ty) if !matches!(ty, Ty::Struct(_)) => PyValue::Rvalue(self.construct_value(
                        ty,
                        &CallArgs { positional: vec![], named: vec![] },
                        at,
                    )?),
                    // An array may be assigned later.
                    _ => match pattern {
                        Pattern::Array(..) => PyValue::Const(ConstValue::None),
                        Pattern::Struct(inner) => {
                            self.construct_struct(*inner, &CallArgs { positional: vec![], named: vec![] }, at)?
                        }
                        _ => return self.fail(at, format!("missing value for field '{name}'"), "", None),
                    },
                },
            };
            vals.push(val);
        }
        if has_arrays {
            return Ok(PyValue::Aggregate(n, vals));
        }
        let mut ids = vec![];
        for val in vals {
            ids.push(self.value(val, at)?.id);
        }
        let ty = Ty::Struct(n);
        let ir = self.ir_type(ty, at)?;
        Ok(PyValue::Rvalue(Rvalue::new(self.w.b.construct(ir, &ids), ty)))
    }

    /// The type given by the keyword argument `dtype`.
    pub(super) fn dtype_argument(&mut self, call_args: &CallArgs<'p>) -> LowerResult<Option<Ty>> {
        let Some((_, val, at)) = call_args.named.iter().find(|(name, ..)| *name == "dtype") else { return Ok(None) };
        match val {
            PyValue::Const(ConstValue::Type(pattern)) if pattern.exact().is_some() => Ok(pattern.exact()),
            _ => self.fail(*at, "expected a type".into(), "", None),
        }
    }

    /// A size given by an argument, which must be constant.
    pub(super) fn constant_size(&mut self, val: &PyValue, at: &'p Expr) -> LowerResult<i64> {
        let known = match val {
            PyValue::Rvalue(rvalue) => self.known_int(&rvalue.clone()),
            PyValue::Const(constant) => constant.int(),
            _ => None,
        };
        match known {
            Some(n) if (1..=64).contains(&n) => Ok(n),
            Some(n) => self.fail(at, format!("size {n} is out of range"), "expected 1 to 64", None),
            None => self.fail(at, "the size must be known at compile time".into(), "expected a constant", None),
        }
    }

    /// `wp.vector(…)`: a vector with one component per argument.
    pub(super) fn construct_vector(&mut self, call_args: &CallArgs<'p>, at: &'p Expr) -> LowerResult<PyValue> {
        let dtype = self.dtype_argument(call_args)?.and_then(Ty::scalar);
        let length = match call_args.named.iter().find(|(name, ..)| *name == "length") {
            Some((_, val, expr)) => Some(self.constant_size(&val.clone(), expr)?),
            None => None,
        };
        let mut rvalues = vec![];
        for (val, expr) in &call_args.positional {
            rvalues.push(self.value(val.clone(), *expr)?);
        }
        let s = match (dtype, rvalues.first()) {
            (Some(s), _) => s,
            (None, Some(first)) => first.ty.element().unwrap_or(Scalar::F32),
            (None, None) => Scalar::F32,
        };
        let count = match length {
            Some(n) => n,
            None => rvalues.iter().map(|rvalue| rvalue.ty.count() as i64).sum(),
        };
        if !(1..=64).contains(&count) {
            return self.fail(
                at,
                "a vector needs a length".into(),
                "",
                Some("wp.vector(length=3, dtype=float)".into()),
            );
        }
        let ty = Ty::Vector(s, count as u8);
        if rvalues.is_empty() && call_args.named.iter().all(|(name, ..)| *name != "dtype") && length.is_none() {
            return self.fail(at, "a vector needs a length".into(), "", None);
        }
        self.construct_value(ty, call_args, at).map(PyValue::Rvalue)
    }

    /// `wp.matrix(…, shape=(2, 2))`.
    pub(super) fn construct_matrix(&mut self, call_args: &CallArgs<'p>, at: &'p Expr) -> LowerResult<PyValue> {
        let dtype = self.dtype_argument(call_args)?.and_then(Ty::scalar);
        let Some((_, shape, expr)) = call_args.named.iter().find(|(name, ..)| *name == "shape").cloned() else {
            let hint = "wp.matrix(…, shape=(2, 2)), or wp.matrix_from_rows(…)".to_owned();
            return self.fail(at, "a matrix needs a shape".into(), "", Some(hint));
        };
        let parts = match shape {
            PyValue::Tuple(all) => all,
            PyValue::Const(ConstValue::List(all)) => all.into_iter().map(PyValue::Const).collect(),
            _ => vec![],
        };
        let [rows, columns] = &parts[..] else {
            return self.fail(expr, "expected a shape with two dimensions".into(), "", None);
        };
        let (rows, columns) = (self.constant_size(rows, expr)?, self.constant_size(columns, expr)?);
        let first = match call_args.positional.first() {
            Some((val, expr)) => self.value(val.clone(), *expr)?.ty.element(),
            None => None,
        };
        let s = dtype.or(first).unwrap_or(Scalar::F32);
        self.construct_value(Ty::Matrix(s, rows as u8, columns as u8), call_args, at).map(PyValue::Rvalue)
    }
}
