//! Assignments to names, array elements, components and fields.

use bornite_ir::{Atomic, Stmt as Ir};
use ruff_python_ast::{Expr, Operator, StmtAssign, StmtAugAssign};
use ruff_text_size::Ranged;

use super::index::wrong_index_count;
use super::value::{Binding, Element, Projection, PyValue, Rvalue};
use super::{Lower, LowerResult};
use crate::python::const_eval::ConstValue;
use crate::python::types::{Pattern, Ty, conversion_syntax};

impl<'p> Lower<'p> {
    pub(super) fn assign(&mut self, assign: &'p StmtAssign) -> LowerResult {
        let [target] = &assign.targets[..] else {
            let hint = "assign each name on its own line".to_owned();
            return self.fail(assign, "chained assignment is not supported in kernels".into(), "", Some(hint));
        };
        let Expr::Tuple(targets) = target else {
            let val = self.eval(&assign.value)?;
            return self.store(target, val, &assign.value);
        };
        let names: Vec<&'p str> =
            targets.elts.iter().filter_map(|one| one.as_name_expr().map(|name| name.id.as_str())).collect();
        if names.len() != targets.elts.len() {
            let hint = "unpack into names first, then store each value".to_owned();
            return self.fail(target, "only names can be targets of an unpacking assignment".into(), "", Some(hint));
        }
        let vals = match assign.value.as_ref() {
            Expr::Call(call) if self.is_tid(call) => {
                let ids = self.tid_call(names.len(), call)?;
                ids.into_iter().map(PyValue::Rvalue).collect()
            }
            value => match self.eval(value)? {
                PyValue::Tuple(all) => all,
                PyValue::Shape(array) => array
                    .extents()
                    .into_iter()
                    .map(|id| PyValue::Rvalue(Rvalue::new(id, crate::python::types::I32)))
                    .collect(),
                other => {
                    let what = match self.value(other, value) {
                        Ok(rvalue) => format!("cannot unpack {}", self.type_name(rvalue.ty)),
                        Err(noted) => return Err(noted),
                    };
                    let hint = "index its components: v[0], v[1]".to_owned();
                    return self.fail(value, what, "expected a tuple", Some(hint));
                }
            },
        };
        if vals.len() != names.len() {
            let what = format!("expected {} values to unpack, found {}", names.len(), vals.len());
            return self.fail(assign, what, "", None);
        }
        // All are read before any is assigned: a, b = b, a.
        let mut read = vec![];
        for val in vals {
            read.push(self.loaded(val, assign.value.as_ref())?);
        }
        for (name, val) in names.into_iter().zip(read) {
            self.assign_name(name, val, target)?;
        }
        Ok(())
    }

    /// Loads an element, so that later stores do not change the value.
    fn loaded(&mut self, val: PyValue, at: &impl Ranged) -> LowerResult<PyValue> {
        Ok(match val {
            PyValue::Element(element) => PyValue::Rvalue(self.load(&element, at)?),
            other => other,
        })
    }

    /// Assigns to a target.
    fn store(&mut self, target: &'p Expr, val: PyValue, at: &'p Expr) -> LowerResult {
        match target {
            Expr::Name(name) => {
                // A name bound to a literal is a constant; a copy of another name is not.
                let mut val = self.loaded(val, at)?;
                if let (PyValue::Rvalue(rvalue), Expr::Name(_)) = (&mut val, at) {
                    rvalue.constant = None;
                }
                if matches!(val, PyValue::Const(crate::python::const_eval::ConstValue::None)) {
                    return self.fail(at, "this expression has no value".into(), "None", None);
                }
                self.assign_name(name.id.as_str(), val, target)
            }
            Expr::Subscript(_) | Expr::Attribute(_) => {
                let (base, path) = self.lvalue(target)?;
                match base {
                    LvalueBase::Element(mut element) => {
                        element.path.extend(path);
                        let rvalue = self.value(val, at)?;
                        self.store_element(&element, rvalue, target, at)
                    }
                    LvalueBase::Array(array) => self.reject_array_store(&array, target),
                    LvalueBase::Name(name, whole) => {
                        let rvalue = self.value(val, at)?;
                        let wanted = path.last().map_or(whole.ty, |step| step.ty());
                        let rvalue = self.converted_part(rvalue, wanted, target, at)?;
                        let id = self.replace_part(&whole, &path, rvalue.id, target)?;
                        self.assign_name(&name, PyValue::Rvalue(Rvalue::new(id, whole.ty)), target)
                    }
                    LvalueBase::Aggregate(name, fields) => {
                        let val = self.loaded(val, at)?;
                        self.store_field(&name, &fields, &path, val, target, at)
                    }
                }
            }
            other => self.fail(
                other,
                "cannot assign to this expression".into(),
                "expected a name, an element or a field",
                None,
            ),
        }
    }

    /// Assigns to a field of a struct with arrays.
    fn store_field(
        &mut self,
        name: &str,
        fields: &[u32],
        path: &[Projection],
        val: PyValue,
        target: &'p Expr,
        at: &'p Expr,
    ) -> LowerResult {
        let Some(Binding::Value(mut whole)) = self.frame().names.get(name).cloned() else {
            return self.fail(target, format!("'{name}' has no value"), "", None);
        };
        let (mut field, mut pattern) = (&mut whole, Pattern::Any);
        for &n in fields {
            match field {
                PyValue::Aggregate(of, inner) if (n as usize) < inner.len() => {
                    pattern = self.fields_of(*of, target)?[n as usize].1.clone();
                    field = &mut inner[n as usize];
                }
                _ => return self.fail(target, "cannot assign to this expression".into(), "", None),
            }
        }
        let new = match (&*field, val) {
            (PyValue::Rvalue(_) | PyValue::FieldVariable(..), val) => {
                let old = self.value(field.clone(), target)?;
                let rvalue = self.value(val, at)?;
                let wanted = path.last().map_or(old.ty, |step| step.ty());
                let rvalue = self.converted_part(rvalue, wanted, target, at)?;
                let id = self.replace_part(&old, path, rvalue.id, target)?;
                if let PyValue::FieldVariable(local, _) = field {
                    self.w.b.assign(*local, id);
                    return Ok(());
                }
                PyValue::Rvalue(Rvalue::new(id, old.ty))
            }
            (PyValue::Array(_) | PyValue::Const(ConstValue::None), PyValue::Array(array)) => {
                let matches = |(element, rank): (&Pattern, u8)| {
                    element.match_score(array.element).is_some() && rank as usize == array.rank()
                };
                if !matches!(&pattern, Pattern::Array(element, rank) if matches((element, *rank))) {
                    let (found, wanted) = (self.describe(&PyValue::Array(array)), pattern.name(&self.struct_name()));
                    return self.fail(
                        at,
                        format!("the field has type {wanted}, found {found}"),
                        "mismatched type",
                        None,
                    );
                }
                PyValue::Array(array)
            }
            _ => return self.fail(target, "cannot assign to this expression".into(), "", None),
        };
        *field = new;
        self.assign_name(name, whole, target)
    }

    /// Checks the type of a value that is stored in a component or field; constants stored in
    /// components are converted.
    fn converted_part(&mut self, rvalue: Rvalue, wanted: Ty, target: &'p Expr, at: &'p Expr) -> LowerResult<Rvalue> {
        if rvalue.ty == wanted {
            return Ok(rvalue);
        }
        if let (Some(constant), Ty::Scalar(s)) = (&rvalue.constant, wanted)
            && constant.number().is_some()
            && !matches!(target, Expr::Attribute(_))
        {
            return self.constant_as(&rvalue, s, at);
        }
        // A scalar is broadcast to several components.
        if let (Ty::Vector(s, _), Ty::Scalar(t)) = (wanted, rvalue.ty)
            && s == t
        {
            let ty = self.ir_type(wanted, at)?;
            return Ok(Rvalue::new(self.w.b.construct(ty, &[rvalue.id]), wanted));
        }
        let are_scalars = rvalue.ty.scalar().is_some() && wanted.scalar().is_some();
        let (found, wanted) = (self.type_name(rvalue.ty), self.type_name(wanted));
        let hint = are_scalars.then(|| format!("convert it: {}", conversion_syntax(&wanted)));
        self.fail(
            at,
            format!("mismatched types: cannot assign {found} to {wanted}"),
            &format!("expected {wanted}"),
            hint,
        )
    }

    fn store_element(&mut self, element: &Element, rvalue: Rvalue, target: &'p Expr, at: &'p Expr) -> LowerResult {
        let wanted = element.ty();
        let rvalue = if element.path.is_empty() {
            if rvalue.ty != wanted {
                let are_scalars = rvalue.ty.scalar().is_some() && wanted.scalar().is_some();
                let (found, wanted) = (self.type_name(rvalue.ty), self.type_name(wanted));
                let hint = are_scalars.then(|| format!("convert it: {}", conversion_syntax(&wanted)));
                let what = format!("mismatched types: cannot store {found} in an array of {wanted}");
                return self.fail(at, what, &format!("expected {wanted}"), hint);
            }
            rvalue
        } else {
            self.converted_part(rvalue, wanted, target, at)?
        };
        self.store_to(element, rvalue, target)
    }

    /// Stores to an element or a part of it.
    pub(super) fn store_to(&mut self, element: &Element, rvalue: Rvalue, at: &impl Ranged) -> LowerResult {
        if let Some(part) = self.element_part(element, at)? {
            return self.store_part(element, &part, rvalue.id, at);
        }
        if !element.path.is_empty() {
            return self.for_each_choice(element, &mut |lower, chosen| match lower.element_part(chosen, at)? {
                Some(part) => lower.store_part(chosen, &part, rvalue.id, at),
                None => Ok(()),
            });
        }
        let value = rvalue.id;
        let args = self.memory_indices(&element.array, &element.indices);
        self.mark_written(&element.array);
        match bornite_ir::Args::new(&args) {
            Some(args) => self.w.stmt(Ir::Store { view: element.array.view, indices: args, value }),
            None => return self.fail(at, "too many indices".into(), "", None),
        }
        Ok(())
    }

    pub(super) fn mark_written(&mut self, array: &super::value::Array) {
        if let bornite_ir::View::Param(bornite_ir::ParamId(n)) = array.view {
            self.written_views[n as usize] = true;
        }
    }

    /// Reports `a[i] = x` for an array with more dimensions, or `a[1:3] = x`.
    fn reject_array_store(&mut self, array: &super::value::Array, target: &'p Expr) -> LowerResult {
        let rank = array.axes.len();
        let left = array.rank();
        let (what, hint) = if left < rank && left > 0 {
            let what = wrong_index_count(rank - left, rank);
            (what, "provide one index per dimension".to_owned())
        } else {
            ("cannot assign to an array or a slice of one".to_owned(), "loop over its elements".to_owned())
        };
        self.fail(target, what, "an array, not an element", Some(hint))
    }

    pub(super) fn augmented_assign(&mut self, assign: &'p StmtAugAssign) -> LowerResult {
        let target = assign.target.as_ref();
        if let Expr::Name(name) = target {
            let old = self.eval(target)?;
            let new = self.eval(&assign.value)?;
            let rvalue = self.binary(assign.op, old, new, assign, (target, &assign.value))?;
            return self.assign_name(name.id.as_str(), PyValue::Rvalue(rvalue), assign);
        }
        let (base, path) = self.lvalue(target)?;
        match base {
            LvalueBase::Element(mut element) => {
                element.path.extend(path);
                let atomic = match assign.op {
                    Operator::Add => Some(Atomic::Add),
                    Operator::Sub => Some(Atomic::Sub),
                    Operator::BitAnd => Some(Atomic::And),
                    Operator::BitOr => Some(Atomic::Or),
                    Operator::BitXor => Some(Atomic::Xor),
                    _ => None,
                };
                let scalar = element.ty().element();
                let new = self.eval(&assign.value)?;
                let mut new = self.value(new, assign.value.as_ref())?;
                if let (Some(constant), Ty::Scalar(s), false) = (&new.constant, element.ty(), element.path.is_empty())
                    && constant.number().is_some()
                    && new.ty != element.ty()
                {
                    new = self.constant_as(&new, s, assign.value.as_ref())?;
                }
                if let (Some(atomic), Some(scalar)) = (atomic, scalar)
                    && atomic.supports(scalar)
                    && new.ty == element.ty()
                {
                    return match element.path.is_empty() || self.element_part(&element, assign)?.is_some() {
                        true => self.atomic(atomic, &element, new, assign).map(|_| ()),
                        false => self.for_each_choice(&element, &mut |lower, chosen| {
                            lower.atomic(atomic, chosen, new.clone(), assign).map(|_| ())
                        }),
                    };
                }
                let old = self.load(&element, target)?;
                let rvalue = self.binary(
                    assign.op,
                    PyValue::Rvalue(old),
                    PyValue::Rvalue(new),
                    assign,
                    (target, &assign.value),
                )?;
                self.store_element(&element, rvalue, target, &assign.value)
            }
            LvalueBase::Name(name, whole) => {
                let old = self.project(&whole, &path, target)?;
                let new = self.eval(&assign.value)?;
                let new = self.value(new, assign.value.as_ref())?;
                let new = match (&new.constant, old.ty) {
                    (Some(constant), Ty::Scalar(s)) if constant.number().is_some() && new.ty != old.ty => {
                        let _ = constant;
                        self.constant_as(&new, s, assign.value.as_ref())?
                    }
                    _ => new,
                };
                let rvalue = self.binary(
                    assign.op,
                    PyValue::Rvalue(old),
                    PyValue::Rvalue(new),
                    assign,
                    (target, &assign.value),
                )?;
                let wanted = path.last().map_or(whole.ty, |step| step.ty());
                let rvalue = self.converted_part(rvalue, wanted, target, &assign.value)?;
                let id = self.replace_part(&whole, &path, rvalue.id, target)?;
                self.assign_name(&name, PyValue::Rvalue(Rvalue::new(id, whole.ty)), target)
            }
            LvalueBase::Array(_) | LvalueBase::Aggregate(..) => {
                let old = self.eval(target)?;
                let new = self.eval(&assign.value)?;
                let rvalue = self.binary(assign.op, old, new, assign, (target, &assign.value))?;
                self.store(target, PyValue::Rvalue(rvalue), &assign.value)
            }
        }
    }

    /// Atomically updates an element and returns its old value.
    pub(super) fn atomic(
        &mut self,
        atomic: Atomic,
        element: &Element,
        value: Rvalue,
        at: &impl Ranged,
    ) -> LowerResult<Rvalue> {
        let ty = element.ty();
        if !ty.element().is_some_and(|scalar| atomic.supports(scalar)) {
            let what = format!("atomic '{}' is not supported for {}", atomic.name(), self.type_name(ty));
            let is_bitwise = matches!(atomic, Atomic::And | Atomic::Or | Atomic::Xor);
            let kind =
                if is_bitwise { "supported: 32- and 64-bit integers" } else { "supported: 32- and 64-bit numbers" };
            return self.fail(at, what, kind, None);
        }
        if let Some(part) = self.element_part(element, at)? {
            return self.update_part(atomic, element, &part, value.id, at);
        }
        let args = self.memory_indices(&element.array, &element.indices);
        self.mark_written(&element.array);
        let Some(args) = bornite_ir::Args::new(&args) else {
            return self.fail(at, "too many indices".into(), "", None);
        };
        let id = self.w.b.atomic(atomic, element.array.view, args, value.id);
        Ok(Rvalue::new(id, ty))
    }

    /// The base of an assignment target, and the projections that lead to the target.
    fn lvalue(&mut self, target: &'p Expr) -> LowerResult<(LvalueBase, Vec<Projection>)> {
        let (inner, step): (&'p Expr, &'p Expr) = match target {
            Expr::Subscript(subscript) => (&subscript.value, &subscript.slice),
            Expr::Attribute(attribute) => (&attribute.value, target),
            Expr::Name(name) => {
                if let Some(Binding::Value(PyValue::Aggregate(..))) = self.frame().names.get(name.id.as_str()) {
                    return Ok((LvalueBase::Aggregate(name.id.as_str().to_owned(), vec![]), vec![]));
                }
                return match self.eval(target)? {
                    PyValue::Rvalue(rvalue) => Ok((LvalueBase::Name(name.id.as_str().to_owned(), rvalue), vec![])),
                    PyValue::Array(array) => Ok((LvalueBase::Array(array), vec![])),
                    PyValue::Element(element) => Ok((LvalueBase::Element(element), vec![])),
                    PyValue::Shape(_) => self.fail(target, "cannot assign to a shape".into(), "", None),
                    _ => self.fail(
                        target,
                        format!("cannot assign to '{}'", name.id.as_str()),
                        "this is a constant",
                        None,
                    ),
                };
            }
            other => {
                return match self.eval(other)? {
                    PyValue::Array(array) => Ok((LvalueBase::Array(array), vec![])),
                    PyValue::Element(element) => Ok((LvalueBase::Element(element), vec![])),
                    _ => self.fail(other, "cannot assign to this expression".into(), "not a variable", None),
                };
            }
        };
        let (base, mut path) = self.lvalue(inner)?;
        match (&base, path.is_empty()) {
            (LvalueBase::Array(array), _) => {
                let array = array.clone();
                return match target {
                    Expr::Subscript(_) => match self.index_array(array, step)? {
                        PyValue::Element(element) => Ok((LvalueBase::Element(element), vec![])),
                        PyValue::Array(array) => Ok((LvalueBase::Array(array), vec![])),
                        _ => self.fail(target, "cannot assign to this expression".into(), "", None),
                    },
                    _ => self.fail(target, "arrays have no attributes to assign to".into(), "", None),
                };
            }
            (LvalueBase::Aggregate(name, fields), true) => {
                let val = self.field_value(name, fields, target)?;
                let PyValue::Aggregate(n, vals) = val else {
                    return self.projected_field(name.clone(), fields.clone(), val, target, step);
                };
                let Expr::Attribute(attribute) = target else {
                    return self.fail(target, "structs cannot be indexed".into(), "", None);
                };
                let at = self.field_index(n, attribute.attr.as_str(), target)?;
                let mut fields = fields.clone();
                fields.push(at);
                return match &vals[at as usize] {
                    PyValue::Array(array) if !matches!(array.view, bornite_ir::View::Shared(_)) => {
                        // Elements are stored through the array; `store_field` replaces the field
                        // itself.
                        Ok((LvalueBase::Array(array.clone()), vec![]))
                    }
                    _ => Ok((LvalueBase::Aggregate(name.clone(), fields), vec![])),
                };
            }
            _ => {}
        }
        let of = match &base {
            LvalueBase::Element(element) => path.last().map_or(element.ty(), |step| step.ty()),
            LvalueBase::Name(_, rvalue) => path.last().map_or(rvalue.ty, |step| step.ty()),
            LvalueBase::Aggregate(name, fields) => match path.last() {
                Some(step) => step.ty(),
                None => match self.field_value(name, fields, target)? {
                    PyValue::Rvalue(rvalue) => rvalue.ty,
                    _ => return self.fail(target, "cannot assign to this expression".into(), "", None),
                },
            },
            LvalueBase::Array(_) => return self.fail(target, "cannot assign to this expression".into(), "", None),
        };
        let step = match target {
            Expr::Attribute(attribute) => self.attribute_projection(of, attribute.attr.as_str(), target)?,
            _ => self.subscript_projection(of, step)?,
        };
        path.push(step);
        Ok((base, path))
    }

    fn field_value(&mut self, name: &str, fields: &[u32], at: &impl Ranged) -> LowerResult<PyValue> {
        let Some(Binding::Value(mut val)) = self.frame().names.get(name).cloned() else {
            return self.fail(at, format!("'{name}' has no value"), "", None);
        };
        for &n in fields {
            val = match val {
                PyValue::Aggregate(_, mut inner) if (n as usize) < inner.len() => inner.swap_remove(n as usize),
                _ => return self.fail(at, "no such field".into(), "", None),
            };
        }
        Ok(if let PyValue::FieldVariable(..) = val { self.read_fields(val) } else { val })
    }

    /// A projection of a value field of a struct with arrays.
    fn projected_field(
        &mut self,
        name: String,
        fields: Vec<u32>,
        val: PyValue,
        target: &'p Expr,
        step: &'p Expr,
    ) -> LowerResult<(LvalueBase, Vec<Projection>)> {
        let PyValue::Rvalue(rvalue) = val else {
            return self.fail(target, "cannot assign to this expression".into(), "", None);
        };
        let step = match target {
            Expr::Attribute(attribute) => self.attribute_projection(rvalue.ty, attribute.attr.as_str(), target)?,
            _ => self.subscript_projection(rvalue.ty, step)?,
        };
        Ok((LvalueBase::Aggregate(name, fields), vec![step]))
    }
}

/// The base of an assignment target.
enum LvalueBase {
    /// An array element.
    Element(Element),
    Array(super::value::Array),
    /// A variable and its value.
    Name(String, Rvalue),
    /// A struct with arrays: its name and a path of fields.
    Aggregate(String, Vec<u32>),
}
