//! Making values: conversions of numbers, vectors, matrices, quaternions, transforms and structs of their parts.

use bornite_ir::{ExprId, Scalar, Value};
use ruff_python_ast::{Expr, ExprCall};

use super::call::Given;
use super::value::{Array, Axis, Run, Val};
use super::{Lower, Lowers};
use crate::python::fixed::{Fixed, fixed_value};
use crate::python::types::{Pattern, Ty, scalar_name, zeros};

impl<'p> Lower<'p> {
    pub(super) fn construct(&mut self, pattern: Pattern, call: &'p ExprCall, expr: &'p Expr) -> Lowers<Val> {
        if let Pattern::Array(..) = pattern {
            let given = self.given(call)?;
            return self.array_at(&given, expr).map(Val::Array);
        }
        if let Pattern::Foreign(name) = &pattern {
            // A block has one thread, so a tile of what each thread has is that.
            if name == "tile" && call.arguments.args.len() == 1 {
                return self.evaluated(&call.arguments.args[0]).map(Val::Run);
            }
            let what = format!("'{name}' is not supported in kernels");
            return self.fail(expr, what, "not in the subset", None);
        }
        let given = self.given(call)?;
        match (&pattern, pattern.exact()) {
            (Pattern::Struct(n), _) => self.make_struct(*n, &given, expr),
            (_, Some(ty)) => self.make(ty, &given, expr).map(Val::Run),
            (Pattern::Vector(..), None) => self.make_vector(&given, expr),
            _ => self.fail(expr, "this type is open and cannot be made".into(), "", None),
        }
    }

    /// `wp.array(ptr=a.ptr, shape=n, dtype=…)`: the elements of another array from its first on. Every access is still checked
    /// against the array that it is of, so nothing is made of an address that is only a number.
    fn array_at(&mut self, given: &Given<'p>, at: &'p Expr) -> Lowers<Array> {
        let hint =
            || Some("write wp.array(ptr=a.ptr, shape=n, dtype=a.dtype), or take a part of one: a[2:5]".to_owned());
        let named =
            |name: &str| given.named.iter().find(|(found, ..)| *found == name).map(|(_, val, at)| (val.clone(), *at));
        let mut array = match named("ptr") {
            Some((Val::Address(array), _)) => array,
            Some((_, ptr_at)) => {
                let what = "an array can be made of the ptr of another alone".to_owned();
                return self.fail(ptr_at, what, "this is a number", hint());
            }
            None => {
                return self.fail(at, "wp.array(…) without ptr".into(), "a kernel has no memory of its own", hint());
            }
        };
        let same = match named("dtype") {
            Some((Val::Fixed(Fixed::Type(pattern)), _)) => pattern.exact() == Some(array.element),
            other => other.is_none() && array.element == Ty::Scalar(Scalar::F32),
        };
        if !same || array.rank() != 1 {
            let what = "an array can be made of one with one dimension and the same type alone".to_owned();
            return self.fail(at, what, "this one has another type or more dimensions", hint());
        }
        let size = match named("shape") {
            Some((Val::Tuple(mut sizes), shape_at)) if sizes.len() == 1 => Some((sizes.remove(0), shape_at)),
            Some((Val::Fixed(Fixed::List(mut sizes)), shape_at)) if sizes.len() == 1 => {
                Some((Val::Fixed(sizes.remove(0)), shape_at))
            }
            Some((Val::Tuple(_) | Val::Fixed(Fixed::List(_)), _)) | None => None,
            one => one,
        };
        let Some((size, shape_at)) = size else {
            return self.fail(at, "an array made of a ptr needs a shape of one size".into(), "", hint());
        };
        let size = self.value(size, shape_at)?;
        if size.ty != Ty::Scalar(Scalar::I32) {
            return self.fail(shape_at, format!("a size of {}", self.type_name(size.ty)), "int32 is expected", None);
        }
        for axis in &mut array.axes {
            if let Axis::Along { extent, .. } = axis {
                *extent = size.id;
            }
        }
        Ok(array)
    }

    /// A value of a type.
    pub(super) fn make(&mut self, ty: Ty, given: &Given<'p>, at: &'p Expr) -> Lowers<Run> {
        let Some(s) = ty.element() else { return self.fail(at, "a struct is expected by name".into(), "", None) };
        if let Ty::Scalar(_) = ty {
            let given = self.placed(scalar_name(s), given.clone(), &["a"])?;
            return self.converted(s, &given, at);
        }
        let ir = self.ir_type(ty, at)?;
        let names: &[&str] = match ty {
            Ty::Quat(_) if given.named.iter().any(|(name, ..)| matches!(*name, "ijk" | "real")) => &["ijk", "real"],
            Ty::Quat(_) => &["x", "y", "z", "w"],
            Ty::Transform(_) => &["p", "q"],
            _ => &[],
        };
        let given = self.placed(&self.type_name(ty), given.clone(), names)?;
        let mut runs = vec![];
        for (val, expr) in &given.args {
            runs.push((self.value(val.clone(), *expr)?, *expr));
        }
        let id = match (&runs[..], ty) {
            ([], _) => {
                let init = zeros(ir, self.w.b.structs());
                let ids: Vec<ExprId> = init.iter().map(|value| self.w.constant(*value)).collect();
                self.w.b.construct(ir, &ids)
            }
            // The same shape: a copy, with other components perhaps.
            ([(one, _)], _)
                if one.ty.with_element(s) == ty || one.ty.count() == ty.count() && one.ty.scalar().is_none() =>
            {
                let same = matches!((one.ty, ty), (Ty::Matrix(..), Ty::Matrix(..))) == matches!(ty, Ty::Matrix(..));
                if !same {
                    return self.not_made(ty, &runs, at);
                }
                self.cast_id(s, one.id)
            }
            // A place alone is not turned.
            ([(one, _)], Ty::Transform(_)) if one.ty == Ty::Vector(s, 3) => {
                let mut parts = self.parts(one.id, 3);
                parts.extend([0, 0, 0, 1].map(|n| self.w.constant(fixed_value(s, n as f64, n))));
                self.w.b.construct(ir, &parts)
            }
            ([(one, expr)], Ty::Vector(..) | Ty::Matrix(..) | Ty::Fixed(..)) if one.ty.scalar().is_some() => {
                let part = self.component_of(one, s, expr)?;
                self.w.b.construct(ir, &[part])
            }
            (many, _) => {
                let mut parts = vec![];
                for (run, expr) in many {
                    match run.ty {
                        Ty::Scalar(_) => parts.push(self.component_of(run, s, expr)?),
                        Ty::Matrix(..) | Ty::Struct(_) => return self.not_made(ty, &runs, at),
                        whole if whole.element() == Some(s) && !matches!(ty, Ty::Matrix(..)) => {
                            parts.extend(self.parts(run.id, whole.count() as u32));
                        }
                        _ => return self.not_made(ty, &runs, at),
                    }
                }
                if parts.len() != ty.count() {
                    return self.not_made(ty, &runs, at);
                }
                self.w.b.construct(ir, &parts)
            }
        };
        Ok(Run::new(id, ty))
    }

    fn not_made(&mut self, ty: Ty, runs: &[(Run, &'p Expr)], at: &'p Expr) -> Lowers<Run> {
        let found: Vec<String> = runs.iter().map(|(run, _)| self.type_name(run.ty)).collect();
        let name = self.type_name(ty);
        let hint = match ty {
            Ty::Matrix(..) => "rows and columns: wp.matrix_from_rows(…), wp.matrix_from_cols(…)".to_owned(),
            _ => format!("it has {} components", ty.count()),
        };
        self.fail(at, format!("{name} is not made of ({})", found.join(", ")), "other parts are expected", Some(hint))
    }

    /// A component; a number as it is written may be of another type.
    fn component_of(&mut self, run: &Run, s: Scalar, at: &'p Expr) -> Lowers<ExprId> {
        if run.ty == Ty::Scalar(s) {
            return Ok(run.id);
        }
        if run.constant.is_some() {
            return self.constant_as(run, s, at).map(|run| run.id);
        }
        let (found, wanted) = (self.type_name(run.ty), scalar_name(s));
        let hint = format!("convert it: {}(…)", if s == Scalar::F32 { "float" } else { wanted });
        self.fail(at, format!("a component is {found}, not {wanted}"), &format!("{wanted} is expected"), Some(hint))
    }

    /// A conversion of a number.
    fn converted(&mut self, s: Scalar, given: &Given<'p>, at: &'p Expr) -> Lowers<Run> {
        let ty = Ty::Scalar(s);
        let Some((val, expr)) = given.args.first() else {
            return Ok(Run::new(self.w.constant(Value::int(s, 0)), ty));
        };
        if given.args.len() > 1 {
            return self.fail(at, format!("{} takes one number", scalar_name(s)), "", None);
        }
        let run = self.value(val.clone(), *expr)?;
        if run.ty.scalar().is_none() {
            let what = format!("{} cannot become {}", self.type_name(run.ty), scalar_name(s));
            return self.fail(at, what, "a number is expected", None);
        }
        // As it is written, not as the smaller type has it.
        if let Some(Fixed::Int(n)) = &run.constant {
            let value = fixed_value(s, *n as f64, *n);
            let value = if s == Scalar::Bool { Value::int(s, (*n != 0) as i64) } else { value };
            return Ok(Run::new(self.w.constant(value), ty));
        }
        if let Some(Fixed::Float(x)) = &run.constant
            && s == Scalar::F64
        {
            return Ok(Run::new(self.w.constant(Value::from_f64(s, *x)), ty));
        }
        let id = match run.ty {
            Ty::Scalar(from) if s == Scalar::Bool && from != Scalar::Bool => {
                let zero = self.w.constant(Value::int(from, 0));
                self.op(bornite_ir::Op::Ne, &[run.id, zero])
            }
            _ => self.cast_id(s, run.id),
        };
        Ok(Run::new(id, ty))
    }

    fn make_struct(&mut self, n: u32, given: &Given<'p>, at: &'p Expr) -> Lowers<Val> {
        let fields = self.fields_of(n, at)?;
        if given.args.len() > fields.len() {
            let what = format!("'{}' has {} fields", self.program.structs[n as usize].name, fields.len());
            return self.fail(at, what, "too many are given", None);
        }
        if let Some((name, _, expr)) = given.named.iter().find(|(name, ..)| fields.iter().all(|(f, _)| f != name)) {
            self.field_number(n, name, *expr)?;
        }
        let whole = self.has_arrays(n, at)?;
        let mut vals = vec![];
        for (place, (name, pattern)) in fields.iter().enumerate() {
            let val = match given.take(place, name) {
                Some((val, expr)) => match (pattern, val) {
                    (Pattern::Array(..), val @ Val::Array(_)) => val,
                    (Pattern::Struct(_), val @ Val::Aggregate(..)) => val,
                    (pattern, val) => {
                        let run = self.value(val, expr)?;
                        if pattern.fit(run.ty).is_none() {
                            let (found, wanted) = (self.type_name(run.ty), pattern.name(&self.struct_name()));
                            let what = format!("field '{name}' is {wanted}, not {found}");
                            return self.fail(expr, what, &format!("{wanted} is expected"), None);
                        }
                        Val::Run(run)
                    }
                },
                None => match pattern.exact() {
                    Some(Ty::Struct(inner)) if !self.has_arrays(inner, at)? => {
                        self.make_struct(inner, &Given { args: vec![], named: vec![] }, at)?
                    }
                    Some(ty) if !matches!(ty, Ty::Struct(_)) => {
                        Val::Run(self.make(ty, &Given { args: vec![], named: vec![] }, at)?)
                    }
                    // An array may be given later.
                    _ => match pattern {
                        Pattern::Array(..) => Val::Fixed(Fixed::None),
                        Pattern::Struct(inner) => {
                            self.make_struct(*inner, &Given { args: vec![], named: vec![] }, at)?
                        }
                        _ => return self.fail(at, format!("field '{name}' must be given"), "", None),
                    },
                },
            };
            vals.push(val);
        }
        if whole {
            return Ok(Val::Aggregate(n, vals));
        }
        let mut ids = vec![];
        for val in vals {
            ids.push(self.value(val, at)?.id);
        }
        let ty = Ty::Struct(n);
        let ir = self.ir_type(ty, at)?;
        Ok(Val::Run(Run::new(self.w.b.construct(ir, &ids), ty)))
    }

    /// The scalar type that a `dtype=` names.
    pub(super) fn dtype_of(&mut self, given: &Given<'p>) -> Lowers<Option<Ty>> {
        let Some((_, val, at)) = given.named.iter().find(|(name, ..)| *name == "dtype") else { return Ok(None) };
        match val {
            Val::Fixed(Fixed::Type(pattern)) if pattern.exact().is_some() => Ok(pattern.exact()),
            _ => self.fail(*at, "a type is expected".into(), "", None),
        }
    }

    /// A size that an argument names.
    pub(super) fn size_of(&mut self, val: &Val, at: &'p Expr) -> Lowers<i64> {
        let known = match val {
            Val::Run(run) => self.known_int(&run.clone()),
            Val::Fixed(fixed) => fixed.int(),
            _ => None,
        };
        match known {
            Some(n) if (1..=64).contains(&n) => Ok(n),
            Some(n) => self.fail(at, format!("a size of {n}"), "1 to 64 are possible", None),
            None => self.fail(at, "a size must be known beforehand".into(), "a constant is expected", None),
        }
    }

    /// `wp.vector(…)`: a vector of as many components as are given.
    pub(super) fn make_vector(&mut self, given: &Given<'p>, at: &'p Expr) -> Lowers<Val> {
        let dtype = self.dtype_of(given)?.and_then(Ty::scalar);
        let length = match given.named.iter().find(|(name, ..)| *name == "length") {
            Some((_, val, expr)) => Some(self.size_of(&val.clone(), expr)?),
            None => None,
        };
        let mut runs = vec![];
        for (val, expr) in &given.args {
            runs.push(self.value(val.clone(), *expr)?);
        }
        let s = match (dtype, runs.first()) {
            (Some(s), _) => s,
            (None, Some(first)) => first.ty.element().unwrap_or(Scalar::F32),
            (None, None) => Scalar::F32,
        };
        let count = match length {
            Some(n) => n,
            None => runs.iter().map(|run| run.ty.count() as i64).sum(),
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
        if runs.is_empty() && given.named.iter().all(|(name, ..)| *name != "dtype") && length.is_none() {
            return self.fail(at, "a vector needs a length".into(), "", None);
        }
        self.make(ty, given, at).map(Val::Run)
    }

    /// `wp.matrix(…, shape=(2, 2))`.
    pub(super) fn make_matrix(&mut self, given: &Given<'p>, at: &'p Expr) -> Lowers<Val> {
        let dtype = self.dtype_of(given)?.and_then(Ty::scalar);
        let Some((_, shape, expr)) = given.named.iter().find(|(name, ..)| *name == "shape").cloned() else {
            let hint = "wp.matrix(…, shape=(2, 2)), or wp.matrix_from_rows(…)".to_owned();
            return self.fail(at, "a matrix needs a shape".into(), "", Some(hint));
        };
        let parts = match shape {
            Val::Tuple(all) => all,
            Val::Fixed(Fixed::List(all)) => all.into_iter().map(Val::Fixed).collect(),
            _ => vec![],
        };
        let [rows, columns] = &parts[..] else {
            return self.fail(expr, "a shape of two sizes is expected".into(), "", None);
        };
        let (rows, columns) = (self.size_of(rows, expr)?, self.size_of(columns, expr)?);
        let first = match given.args.first() {
            Some((val, expr)) => self.value(val.clone(), *expr)?.ty.element(),
            None => None,
        };
        let s = dtype.or(first).unwrap_or(Scalar::F32);
        self.make(Ty::Matrix(s, rows as u8, columns as u8), given, at).map(Val::Run)
    }
}
