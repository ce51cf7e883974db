//! A kernel's parameters, and the sizes of arrays and of the launch.

use bornite_ir::{Access, Dim, ExprId, Extent, Op, Scalar, Value, View, contiguous};
use ruff_python_ast::Expr;
use ruff_text_size::Ranged;

use super::value::{Array, Axis, Run, Val};
use super::{Lower, Lowers, Noted, ir_name};
use crate::ParamRef;
use crate::lower::Tree;
use crate::python::excerpt::tid_counts;
use crate::python::program::Func;
use crate::python::types::{Pattern, Ty};

impl<'p> Lower<'p> {
    /// Parameters of the kernel become views and values.
    pub(super) fn parameters(&mut self, func: &'p Func<'p>, types: &[(String, Ty)]) -> Lowers<Vec<(String, ParamRef)>> {
        let mut all = vec![];
        let mut failed = false;
        self.given = func.def.parameters.iter_non_variadic_params().map(|p| ir_name(p.name().as_str())).collect();
        for parameter in func.def.parameters.iter_non_variadic_params() {
            let name = parameter.name().as_str();
            let Some(annotation) = parameter.parameter.annotation() else {
                self.note(
                    &parameter.parameter,
                    format!("parameter '{name}' has no type"),
                    "an annotation is expected",
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
                pattern = chosen(&pattern, *ty);
            }
            match self.parameter(name, &pattern, annotation, &mut all) {
                Ok(val) => self.bind_new(name, val),
                Err(Noted) => failed = true,
            }
        }
        if let Some(extra) = func.def.parameters.vararg.as_ref().or(func.def.parameters.kwarg.as_ref()) {
            self.note(extra.as_ref(), "a kernel takes no variable number of parameters".into(), "", None);
            failed = true;
        }
        if failed { Err(Noted) } else { Ok(all) }
    }

    fn parameter(
        &mut self,
        name: &str,
        pattern: &Pattern,
        at: &Expr,
        all: &mut Vec<(String, ParamRef)>,
    ) -> Lowers<Val> {
        let mut told = ir_name(name);
        // A field of a struct has the name of nothing else.
        if name.contains('.') {
            while self.given.contains(&told) {
                told.push('_');
            }
            self.given.push(told.clone());
        }
        match pattern {
            Pattern::Array(element, rank) => {
                let element = match element.exact() {
                    Some(ty) => ty,
                    None => {
                        let what = format!("the type of the elements of '{name}' is open");
                        let hint = format!("name it in the request, such as {name}:float32");
                        return self.fail(at, what, "Any", Some(hint));
                    }
                };
                let ty = self.ir_type(element, at)?;
                let (dims, extents) = self.dims(name, &told, *rank as usize, at)?;
                let id = self.w.b.view(told, ty, &dims, Access::Read);
                self.written.push(false);
                all.push((name.into(), ParamRef::View(self.views as u32)));
                self.views += 1;
                let axes = extents.into_iter().map(|extent| Axis::Along { start: None, step: None, extent }).collect();
                Ok(Val::Array(Array { view: View::Param(id), element, axes }))
            }
            Pattern::Struct(n) if self.has_arrays(*n, at)? => {
                let fields = self.fields_of(*n, at)?;
                let mut vals = vec![];
                for (field, pattern) in fields.iter() {
                    vals.push(self.parameter(&format!("{name}.{field}"), pattern, at, all)?);
                }
                Ok(Val::Aggregate(*n, vals))
            }
            Pattern::Foreign(kind) => {
                self.fail(at, format!("'{kind}' parameters are not supported"), "not in the dialect's subset", None)
            }
            other => match other.exact() {
                Some(ty) => {
                    let of = self.ir_type(ty, at)?;
                    let id = self.w.b.value(told, of);
                    all.push((name.into(), ParamRef::Value(self.values)));
                    self.values += 1;
                    Ok(Val::Run(Run::new(id, ty)))
                }
                None => {
                    let what = format!("the type of '{name}' is open");
                    let hint = format!("name it in the request, such as {name}:float32");
                    self.fail(at, what, "generic", Some(hint))
                }
            },
        }
    }

    /// Dimensions of an array as the request has them, or left to the call.
    fn dims(&mut self, name: &str, told: &str, rank: usize, at: &Expr) -> Lowers<(Vec<Dim>, Vec<ExprId>)> {
        let given = self.request.views.iter().find(|(found, _)| found == name).map(|(_, dims)| dims.clone());
        if let Some(mut dims) = given {
            if dims.is_empty() {
                // An array that is not there.
                dims = contiguous(&vec![Extent::Const(0); rank]);
            }
            if dims.len() != rank {
                let what = format!("'{name}' has {rank} dimensions, {} are given", dims.len());
                let hint = format!("give {rank} sizes with an x between them");
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
            // Rank by rank the same, so small that all of it can be reached.
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
            let (extent, extent_value) = self.sized(format!("{told}_shape{n}"), &format!("a size of '{name}'"), at)?;
            let stride = if n + 1 == rank {
                Extent::Const(1)
            } else {
                self.w.b.value(format!("{told}_stride{n}"), self.index);
                self.values += 1;
                Extent::Value(self.values - 1)
            };
            dims.push(Dim { extent, stride });
            extents.push(extent_value);
        }
        Ok((dims, extents))
    }

    /// A size that is known, as the dialect's int.
    fn known_size(&mut self, size: i128, what: &str, at: &impl Ranged) -> Lowers<ExprId> {
        if (0..=i32::MAX as i128).contains(&size) {
            return Ok(self.w.constant(Value::int(Scalar::I32, size as i64)));
        }
        let most = i32::MAX;
        let hint = "sizes and indices are int32 in the dialect: split the work into several launches".to_owned();
        self.fail(at, format!("{what} is {size}; {most} is the most"), "", Some(hint))
    }

    /// A size that the call gives. With indices of 64 bits the call could give one that the dialect's int has no room for,
    /// and nothing would notice.
    fn sized(&mut self, name: String, what: &str, at: &impl Ranged) -> Lowers<(Extent, ExprId)> {
        if self.index != Scalar::I32 {
            let what = format!("{what} is left to the call, where indices are {}", self.index);
            let hint = "tell all sizes: they are int32 in the dialect, and a larger one is an error then".to_owned();
            return self.fail(at, what, "", Some(hint));
        }
        let id = self.w.b.value(name, self.index);
        self.values += 1;
        Ok((Extent::Value(self.values - 1), id))
    }

    /// An index, known to be that small, as the dialect's int.
    pub(super) fn as_i32(&mut self, id: ExprId) -> ExprId {
        if self.index == Scalar::I32 { id } else { self.w.emit(&Tree::emitted(id, self.index).cast(Scalar::I32)) }
    }

    pub(super) fn launch_sizes(&mut self) -> Lowers {
        let at = self.frame().at;
        if self.request.dims.is_empty() {
            // Known to the call only: the number of instances, and each size where there are several.
            let counts = self.frames.last().map(|frame| tid_counts(self.program, frame.func));
            let rank = counts.into_iter().flatten().max().unwrap_or(1).min(4);
            let (count, id) = self.sized("launch_count".into(), "the number of instances of the launch", &at)?;
            self.w.b.count(count);
            self.launch = vec![id];
            if rank > 1 {
                let mut size = |n: usize| self.sized(format!("launch_dim{n}"), "a size of the launch", &at);
                self.launch = (0..rank).map(|n| size(n).map(|(_, id)| id)).collect::<Lowers<_>>()?;
            }
            return Ok(());
        }
        // The place of an instance is counted as one number before it is taken apart.
        let count = self.request.dims.iter().fold(1i128, |n, size| n.saturating_mul((*size).into()));
        self.known_size(count, "the number of instances of the launch", &at)?;
        self.w.b.count(Extent::Const(count as i64));
        for &n in &self.request.dims {
            let size = self.known_size(n.into(), "a size of the launch", &at)?;
            self.launch.push(size);
        }
        Ok(())
    }

    /// The instance's place in the launch, as far as it is asked for.
    pub(super) fn place(&mut self, rank: usize) -> Vec<ExprId> {
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

/// The pattern with a type in place of what it leaves open.
fn chosen(pattern: &Pattern, ty: Ty) -> Pattern {
    match pattern {
        Pattern::Array(element, rank) if element.exact().is_none() => Pattern::Array(Box::new(Pattern::of(ty)), *rank),
        other if other.exact().is_none() => Pattern::of(ty),
        other => other.clone(),
    }
}
