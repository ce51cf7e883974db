//! Kernel parameters, and the sizes of arrays and of the launch.

use bornite_ir::{Access, Dim, ExprId, Extent, Op, Scalar, Value, View, contiguous};
use ruff_python_ast::Expr;
use ruff_text_size::Ranged;

use super::value::{Array, ArrayAxis, PyValue, Rvalue};
use super::{ErrorReported, Lower, LowerResult, ir_name};
use crate::ParamRef;
use crate::lower::Tree;
use crate::python::excerpt::tid_counts;
use crate::python::program::Func;
use crate::python::types::{Pattern, Ty};

impl<'p> Lower<'p> {
    /// Declares views and values for the parameters of the kernel.
    pub(super) fn parameters(
        &mut self,
        func: &'p Func<'p>,
        types: &[(String, Ty)],
    ) -> LowerResult<Vec<(String, ParamRef)>> {
        let mut all = vec![];
        let mut failed = false;
        self.param_names = func.def.parameters.iter_non_variadic_params().map(|p| ir_name(p.name().as_str())).collect();
        for parameter in func.def.parameters.iter_non_variadic_params() {
            let name = parameter.name().as_str();
            let Some(annotation) = parameter.parameter.annotation() else {
                self.report(
                    &parameter.parameter,
                    format!("parameter '{name}' has no type annotation"),
                    "expected an annotation",
                    Some("such as 'x: wp.array(dtype=float)' or 'n: int'".into()),
                );
                failed = true;
                continue;
            };
            let Ok(mut pattern) = self.pattern(annotation) else {
                failed = true;
                continue;
            };
            if let Some((_, ty)) = types.iter().find(|(found, _)| found == name) {
                pattern = specialize(&pattern, *ty);
            }
            match self.parameter(name, &pattern, annotation, &mut all) {
                Ok(val) => self.bind_new(name, val),
                Err(ErrorReported) => failed = true,
            }
        }
        if let Some(extra) = func.def.parameters.vararg.as_ref().or(func.def.parameters.kwarg.as_ref()) {
            self.report(extra.as_ref(), "kernels cannot have *args or **kwargs".into(), "", None);
            failed = true;
        }
        if failed { Err(ErrorReported) } else { Ok(all) }
    }

    fn parameter(
        &mut self,
        name: &str,
        pattern: &Pattern,
        at: &Expr,
        all: &mut Vec<(String, ParamRef)>,
    ) -> LowerResult<PyValue> {
        let mut param_name = ir_name(name);
        // A struct field needs a name that no parameter has.
        if name.contains('.') {
            while self.param_names.contains(&param_name) {
                param_name.push('_');
            }
            self.param_names.push(param_name.clone());
        }
        match pattern {
            Pattern::Array(element, rank) => {
                let element = match element.exact() {
                    Some(ty) => ty,
                    None => {
                        let what = format!("the element type of '{name}' is generic");
                        let hint = format!("specify it, such as {name}:float32");
                        return self.fail(at, what, "Any", Some(hint));
                    }
                };
                let ty = self.ir_type(element, at)?;
                let (dims, extents) = self.dims(name, &param_name, *rank as usize, at)?;
                let id = self.w.b.view(param_name, ty, &dims, Access::Read);
                self.written_views.push(false);
                all.push((name.into(), ParamRef::View(self.views as u32)));
                self.views += 1;
                let axes =
                    extents.into_iter().map(|extent| ArrayAxis::Range { start: None, step: None, extent }).collect();
                Ok(PyValue::Array(Array { view: View::Param(id), element, axes }))
            }
            Pattern::Struct(n) if self.has_arrays(*n, at)? => {
                let fields = self.fields_of(*n, at)?;
                let mut vals = vec![];
                for (field, pattern) in fields.iter() {
                    vals.push(self.parameter(&format!("{name}.{field}"), pattern, at, all)?);
                }
                Ok(PyValue::Aggregate(*n, vals))
            }
            Pattern::Unsupported(kind) => {
                self.fail(at, format!("'{kind}' parameters are not supported"), "unsupported type", None)
            }
            other => match other.exact() {
                Some(ty) => {
                    let of = self.ir_type(ty, at)?;
                    let id = self.w.b.value(param_name, of);
                    all.push((name.into(), ParamRef::Value(self.values)));
                    self.values += 1;
                    Ok(PyValue::Rvalue(Rvalue::new(id, ty)))
                }
                None => {
                    let what = format!("the type of '{name}' is generic");
                    let hint = format!("specify it, such as {name}:float32");
                    self.fail(at, what, "generic", Some(hint))
                }
            },
        }
    }

    /// Dimensions and extents of an array: from the request, or as values that are passed at
    /// launch.
    fn dims(&mut self, name: &str, param_name: &str, rank: usize, at: &Expr) -> LowerResult<(Vec<Dim>, Vec<ExprId>)> {
        let requested = self.request.views.iter().find(|(found, _)| found == name).map(|(_, dims)| dims.clone());
        if let Some(mut dims) = requested {
            if dims.is_empty() {
                // An absent array.
                dims = contiguous(&vec![Extent::Const(0); rank]);
            }
            if dims.len() != rank {
                let what = format!("'{name}' has {rank} dimensions, but the given shape has {}", dims.len());
                let hint = format!("give {rank} sizes separated by 'x'");
                return self.fail(at, what, "", Some(hint));
            }
            let mut extents = vec![];
            for dim in &dims {
                let size = dim.extent.known().unwrap_or(0);
                extents.push(self.known_size(size.into(), &format!("a size of '{name}'"), at)?);
            }
            return Ok((dims, extents));
        }
        if let Some(length) = self.request.default_length {
            // The same extent along each axis, with at most `length` elements in total.
            let each = (length as f64).powf(1.0 / rank as f64) as u64;
            let dims = contiguous(&vec![each.into(); rank]);
            let mut extents = vec![];
            for _ in 0..rank {
                extents.push(self.known_size(each.into(), &format!("a size of '{name}'"), at)?);
            }
            return Ok((dims, extents));
        }
        let mut extents = vec![];
        let mut dims = vec![];
        for n in 0..rank {
            let (extent, extent_value) =
                self.runtime_size(format!("{param_name}_shape{n}"), &format!("a size of '{name}'"), at)?;
            let stride = if n + 1 == rank {
                Extent::Const(1)
            } else {
                self.w.b.value(format!("{param_name}_stride{n}"), self.index);
                self.values += 1;
                Extent::Value(self.values - 1)
            };
            dims.push(Dim { extent, stride });
            extents.push(extent_value);
        }
        Ok((dims, extents))
    }

    /// A constant size as an int32; reports an error if it does not fit.
    fn known_size(&mut self, size: i128, what: &str, at: &impl Ranged) -> LowerResult<ExprId> {
        if (0..=i32::MAX as i128).contains(&size) {
            return Ok(self.w.constant(Value::int(Scalar::I32, size as i64)));
        }
        let limit = i32::MAX;
        let hint = "sizes and indices are int32 in Warp: split the work into several launches".to_owned();
        self.fail(at, format!("{what} is {size}; the limit is {limit}"), "", Some(hint))
    }

    /// A size that is passed at launch. Requires 32-bit indices: with 64-bit indices, a size that
    /// does not fit in an int32 would go unnoticed.
    fn runtime_size(&mut self, name: String, what: &str, at: &impl Ranged) -> LowerResult<(Extent, ExprId)> {
        if self.index != Scalar::I32 {
            let what = format!("{what} must be specified when indices are {}", self.index);
            let hint = "specify all sizes: they are int32 in Warp, and larger ones are rejected".to_owned();
            return self.fail(at, what, "", Some(hint));
        }
        let id = self.w.b.value(name, self.index);
        self.values += 1;
        Ok((Extent::Value(self.values - 1), id))
    }

    /// An index that is known to fit, as an int32.
    pub(super) fn as_i32(&mut self, id: ExprId) -> ExprId {
        if self.index == Scalar::I32 { id } else { self.w.emit(&Tree::emitted(id, self.index).cast(Scalar::I32)) }
    }

    /// Sets the number of instances, and declares the launch sizes unless the request specifies
    /// them.
    pub(super) fn declare_launch_sizes(&mut self) -> LowerResult {
        let at = self.frame().current_range;
        if self.request.dims.is_empty() {
            // Passed at launch: the number of instances, and the sizes if there are several.
            let counts = self.frames.last().map(|frame| tid_counts(self.program, frame.func));
            let rank = counts.into_iter().flatten().max().unwrap_or(1).min(4);
            let (count, id) = self.runtime_size("launch_count".into(), "the number of instances of the launch", &at)?;
            self.w.b.set_instance_count(count);
            self.launch = vec![id];
            if rank > 1 {
                let mut size = |n: usize| self.runtime_size(format!("launch_dim{n}"), "a size of the launch", &at);
                self.launch = (0..rank).map(|n| size(n).map(|(_, id)| id)).collect::<LowerResult<_>>()?;
            }
            return Ok(());
        }
        // The instance index is computed as one int32 before it is split into dimensions.
        let count = self.request.dims.iter().fold(1i128, |n, size| n.saturating_mul((*size).into()));
        self.known_size(count, "the number of instances of the launch", &at)?;
        self.w.b.set_instance_count(Extent::Const(count as i64));
        for &n in &self.request.dims {
            let size = self.known_size(n.into(), "a size of the launch", &at)?;
            self.launch.push(size);
        }
        Ok(())
    }

    /// The indices of the instance in the first `rank` dimensions of the launch.
    pub(super) fn thread_indices(&mut self, rank: usize) -> Vec<ExprId> {
        if self.tid.is_none() {
            let index = self.w.b.index();
            let mut rest = self.as_i32(index);
            let sizes = self.launch.clone();
            let mut all = vec![rest; sizes.len()];
            for n in (1..sizes.len()).rev() {
                all[n] = self.op(Op::Rem, &[rest, sizes[n]]);
                rest = self.op(Op::Div, &[rest, sizes[n]]);
            }
            all[0] = rest;
            self.tid = Some(all);
        }
        let mut all = self.tid.clone().unwrap_or_default();
        let zero = self.w.constant(Value::int(Scalar::I32, 0));
        all.resize(rank.max(all.len()), zero);
        all.truncate(rank);
        all
    }
}

/// Replaces the generic type in a pattern by a specified one.
fn specialize(pattern: &Pattern, ty: Ty) -> Pattern {
    match pattern {
        Pattern::Array(element, rank) if element.exact().is_none() => Pattern::Array(Box::new(Pattern::of(ty)), *rank),
        other if other.exact().is_none() => Pattern::of(ty),
        other => other.clone(),
    }
}
