//! Subscripts and attributes: array elements, slices, vector and matrix components, struct fields.

use bornite_ir::{ExprId, Op, Scalar, Type, Value};
use ruff_python_ast::Expr;
use ruff_text_size::Ranged;

use super::value::{Array, ArrayAxis, ComponentGrid, Element, Projection, PyValue, Rvalue};
use super::{Lower, LowerResult};
use crate::python::const_eval::ConstValue;
use crate::python::types::{I32, Ty};

impl<'p> Lower<'p> {
    pub(super) fn subscript(&mut self, of: &'p Expr, slice: &'p Expr, expr: &'p Expr) -> LowerResult<PyValue> {
        match self.eval(of)? {
            PyValue::Array(array) => self.index_array(array, slice),
            PyValue::Shape(array) => {
                let at = self.evaluated(slice)?;
                let extents = array.extents();
                let Some(n) = self.known_int(&at) else {
                    return self.fail(
                        slice,
                        "the index of a shape must be known at compile time".into(),
                        "expected a constant",
                        None,
                    );
                };
                let axis = if n < 0 { n + 4 } else { n } as usize;
                match extents.get(axis) {
                    Some(&id) => Ok(PyValue::Rvalue(Rvalue::new(id, I32))),
                    // Sizes beyond the rank are 0, as in Warp.
                    None if axis < 4 => Ok(PyValue::Rvalue(Rvalue::new(self.int(0), I32))),
                    None => self.fail(
                        slice,
                        format!("shape index {n} is out of range: arrays have at most 4 dimensions"),
                        "",
                        None,
                    ),
                }
            }
            PyValue::Tuple(mut all) => {
                let at = self.evaluated(slice)?;
                let n = self.known_int(&at).map(|n| if n < 0 { n + all.len() as i64 } else { n });
                match n.and_then(|n| usize::try_from(n).ok()).filter(|n| *n < all.len()) {
                    Some(n) => Ok(all.swap_remove(n)),
                    None => {
                        self.fail(slice, "tuple index is out of range or not known at compile time".into(), "", None)
                    }
                }
            }
            PyValue::Element(mut element) => {
                let step = self.subscript_projection(element.ty(), slice)?;
                element.path.push(step);
                Ok(PyValue::Element(element))
            }
            PyValue::Rvalue(rvalue) => {
                let step = self.subscript_projection(rvalue.ty, slice)?;
                Ok(PyValue::Rvalue(self.project(&rvalue, &[step], expr)?))
            }
            PyValue::Const(ConstValue::List(_)) => {
                let hint = "read the element at compile time: wp.static(NAME[0])".to_owned();
                self.fail(of, "module-level lists and tuples cannot be used in a kernel".into(), "", Some(hint))
            }
            PyValue::Const(_) => match self.eval_const(expr, true) {
                Ok(constant) => self.constant_val(constant, expr),
                Err((at, what)) => self.fail(&at, what, "", None),
            },
            _ => self.fail(of, "this cannot be indexed".into(), "expected an array, vector or matrix", None),
        }
    }

    /// The value of an integer that is known at compile time.
    pub(super) fn known_int(&mut self, rvalue: &Rvalue) -> Option<i64> {
        match &rvalue.constant {
            Some(constant) => constant.int(),
            None if rvalue.ty.is_int() => self.w.b.constant_value(rvalue.id).map(|value| value.as_i64()),
            None => None,
        }
    }

    /// Evaluates an index or a tuple of indices.
    fn indices(&mut self, slice: &'p Expr) -> LowerResult<Vec<(PyValue, &'p Expr)>> {
        match slice {
            Expr::Tuple(all) => {
                let mut vals = vec![];
                for one in &all.elts {
                    vals.push((self.eval(one)?, one));
                }
                Ok(vals)
            }
            one => Ok(vec![(self.eval(one)?, one)]),
        }
    }

    /// Indexes an array: returns an element, or a slice if there are fewer indices than dimensions.
    pub(super) fn index_array(&mut self, array: Array, slice: &'p Expr) -> LowerResult<PyValue> {
        let indices = self.indices(slice)?;
        let mut rvalues = vec![];
        for (val, at) in indices {
            rvalues.push((
                match val {
                    PyValue::Slice(parts) => Err(parts),
                    other => {
                        let rvalue = self.value(other, at)?;
                        if !rvalue.ty.is_int() {
                            let what = format!("index has type {}", self.type_name(rvalue.ty));
                            let hint = "convert it: int(…)".to_owned();
                            return self.fail(at, what, "expected an integer", Some(hint));
                        }
                        Ok(rvalue)
                    }
                },
                at,
            ));
        }
        self.indexed(array, rvalues, slice)
    }

    /// Indexes an array with integers (`Ok`) and slices (`Err`).
    #[allow(clippy::type_complexity)]
    fn indexed(
        &mut self,
        array: Array,
        indices: Vec<(Result<Rvalue, Box<[Option<Rvalue>; 3]>>, &'p Expr)>,
        at: &impl Ranged,
    ) -> LowerResult<PyValue> {
        let rank = array.rank();
        if indices.len() > rank {
            return self.fail(at, wrong_index_count(indices.len(), rank), "too many", None);
        }
        let all_integers = indices.iter().all(|(one, _)| one.is_ok());
        if all_integers && indices.len() == rank {
            let extents = array.extents();
            let rvalues = indices.into_iter().filter_map(|(one, _)| one.ok());
            let at = rvalues.zip(extents).map(|(rvalue, extent)| self.wrap_negative(&rvalue, extent)).collect();
            return Ok(PyValue::Element(Element { array, indices: at, path: vec![] }));
        }
        let mut axes = array.axes.clone();
        let mut indices = indices.into_iter();
        for axis in &mut axes {
            let Some((start, step, extent)) = Self::range_parts(axis) else { continue };
            match indices.next() {
                None => break,
                Some((Ok(rvalue), _)) => {
                    let index = self.wrap_negative(&rvalue, extent);
                    *axis = ArrayAxis::Index(self.memory_index(start, step, index));
                }
                Some((Err(parts), slice)) => {
                    let bounds = self.slice_bounds(*parts, extent, slice)?;
                    let first = self.slice_start(start, step, bounds.start);
                    let step = match (step, bounds.step) {
                        (Some(step), Some(by)) => Some(self.op(Op::Mul, &[step, by])),
                        (step, by) => step.or(by),
                    };
                    *axis = ArrayAxis::Range { start: Some(first), step, extent: bounds.length };
                }
            }
        }
        Ok(PyValue::Array(Array { axes, ..array }))
    }

    /// An index; if it is known to be negative, it counts from the end.
    fn wrap_negative(&mut self, rvalue: &Rvalue, extent: ExprId) -> ExprId {
        match self.known_int(rvalue) {
            Some(n) if n < 0 => {
                let id = self.cast_id(Scalar::I32, rvalue.id);
                self.op(Op::Add, &[extent, id])
            }
            _ => rvalue.id,
        }
    }

    /// The index in memory at which a slice of a slice begins.
    fn slice_start(&mut self, start: Option<ExprId>, step: Option<ExprId>, index: ExprId) -> ExprId {
        let mut index = index;
        if let Some(step) = step {
            index = self.op(Op::Mul, &[index, step]);
        }
        match start {
            Some(start) => self.op(Op::Add, &[start, index]),
            None => index,
        }
    }

    /// The indices into the view for an element of an array.
    pub(super) fn memory_indices(&mut self, array: &Array, at: &[ExprId]) -> Vec<ExprId> {
        let mut at = at.iter();
        let mut all = vec![];
        for axis in &array.axes {
            let index = match axis {
                ArrayAxis::Index(id) => *id,
                ArrayAxis::Range { start, step, .. } => match at.next() {
                    Some(&index) => self.memory_index(*start, *step, index),
                    None => self.int(0),
                },
            };
            all.push(match self.index {
                Scalar::I32 => self.index_as_i32(index),
                wide => self.cast_id(wide, index),
            });
        }
        all
    }

    /// Loads an element or a part of it.
    pub(super) fn load(&mut self, element: &Element, at: &impl Ranged) -> LowerResult<Rvalue> {
        let has_dynamic_index = element.path.iter().any(|step| matches!(step, Projection::Index(..)));
        if has_dynamic_index || self.is_componentwise(element.array.view) {
            match self.element_part(element, at)? {
                Some(part) => return self.load_part(element, &part, at),
                None if has_dynamic_index => return self.load_dynamic(element, at),
                None => {}
            }
        } else if !element.path.is_empty() {
            self.whole_element_reads.push(element.array.view);
        }
        let args = self.memory_indices(&element.array, &element.indices);
        let Some(args) = bornite_ir::Args::new(&args) else {
            return self.fail(at, "too many indices".into(), "", None);
        };
        let id = self.w.b.load(element.array.view, args);
        let whole = Rvalue::new(id, element.array.element);
        self.project(&whole, &element.path, at)
    }

    /// The index of a field of a struct.
    pub(super) fn field_index(&mut self, n: u32, name: &str, at: &impl Ranged) -> LowerResult<u32> {
        let fields = self.fields_of(n, at)?;
        if let Some(found) = fields.iter().position(|(field, _)| field == name) {
            return Ok(found as u32);
        }
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        let hint = format!("its fields are {}", names.join(", "));
        let what = format!("'{}' has no field '{name}'", self.program.structs[n as usize].name);
        self.fail(at, what, "unknown field", Some(hint))
    }

    pub(super) fn attribute_projection(&mut self, of: Ty, name: &str, at: &impl Ranged) -> LowerResult<Projection> {
        let component = if name.len() == 1 { "xyzw".find(name) } else { None };
        match (of, component) {
            (Ty::Struct(n), _) => {
                let index = self.field_index(n, name, at)?;
                let ty = self.fields_of(n, at)?[index as usize].1.exact();
                match ty {
                    Some(ty) => Ok(Projection::Field(index, ty)),
                    None => self.fail(at, format!("field '{name}' is not a value"), "", None),
                }
            }
            (Ty::Vector(s, n), Some(component)) if component < n as usize && n <= 4 => {
                Ok(Projection::Field(component as u32, Ty::Scalar(s)))
            }
            (Ty::Quat(s), Some(component)) => Ok(Projection::Field(component as u32, Ty::Scalar(s))),
            (Ty::Transform(s), _) if name == "p" => {
                Ok(Projection::Components(ComponentGrid::row(0, 1, 3), Ty::Vector(s, 3)))
            }
            (Ty::Transform(s), _) if name == "q" => {
                Ok(Projection::Components(ComponentGrid::row(3, 1, 4), Ty::Quat(s)))
            }
            _ => {
                let ty = self.type_name(of);
                let is_swizzle = name.len() > 1 && name.chars().all(|c| "xyzwrgba".contains(c));
                let hint = is_swizzle.then(|| {
                    let parts: Vec<String> = name.chars().map(|c| format!("v.{c}")).collect();
                    format!("swizzles are not supported; use wp.vec{}({})", name.len(), parts.join(", "))
                });
                self.fail(at, format!("{ty} has no attribute '{name}'"), "unknown attribute", hint)
            }
        }
    }

    pub(super) fn subscript_projection(&mut self, of: Ty, slice: &'p Expr) -> LowerResult<Projection> {
        let mut indices = self.indices(slice)?;
        match (of, indices.len()) {
            (Ty::Matrix(s, rows, columns), 2) => {
                let (second, first) = (indices.pop(), indices.pop());
                let (Some((c, at_c)), Some((r, at_r))) = (second, first) else {
                    return self.fail(slice, "expected two indices".into(), "", None);
                };
                if matches!(r, PyValue::Slice(_)) || matches!(c, PyValue::Slice(_)) {
                    let (r0, row_by, rn) = self.component_range(r, rows, at_r)?;
                    let (c0, column_by, cn) = self.component_range(c, columns, at_c)?;
                    let first = r0 * columns as u32 + c0;
                    let stride = [row_by * columns as i32, column_by];
                    let ty = match (rn, cn) {
                        (Some(rows), Some(columns)) => Ty::Matrix(s, rows as u8, columns as u8),
                        (one, other) => Ty::Vector(s, one.or(other).unwrap_or(1) as u8),
                    };
                    let count = [rn.unwrap_or(1), cn.unwrap_or(1)];
                    return Ok(Projection::Components(ComponentGrid { first, stride, count }, ty));
                }
                let (r, c) = (self.component(r, rows, at_r)?, self.component(c, columns, at_c)?);
                match (self.known_int(&r), self.known_int(&c)) {
                    (Some(r), Some(c)) => Ok(Projection::Field((r * columns as i64 + c) as u32, Ty::Scalar(s))),
                    _ => {
                        let width = self.int(columns as i64);
                        let row = self.op(Op::Mul, &[r.id, width]);
                        Ok(Projection::Index(self.op(Op::Add, &[row, c.id]), Ty::Scalar(s)))
                    }
                }
            }
            (Ty::Matrix(s, rows, columns), 1) => {
                let Some((val, at)) = indices.pop() else { return self.fail(slice, "missing index".into(), "", None) };
                let row = Ty::Vector(s, columns);
                if matches!(val, PyValue::Slice(_)) {
                    let (first, by, n) = self.component_range(val, rows, at)?;
                    let (stride, count) = ([by * columns as i32, 1], [n.unwrap_or(1), columns as u32]);
                    let grid = ComponentGrid { first: first * columns as u32, stride, count };
                    return Ok(Projection::Components(grid, Ty::Matrix(s, count[0] as u8, columns)));
                }
                let rvalue = self.component(val, rows, at)?;
                match self.known_int(&rvalue) {
                    Some(n) => Ok(Projection::Components(
                        ComponentGrid::row(n as u32 * columns as u32, 1, columns as u32),
                        row,
                    )),
                    None => Ok(Projection::Index(rvalue.id, row)),
                }
            }
            (Ty::Vector(..) | Ty::Quat(_) | Ty::Transform(_) | Ty::FixedArray(..), 1) => {
                let (s, count) = (of.element().unwrap_or(Scalar::F32), of.count() as u8);
                let Some((val, at)) = indices.pop() else { return self.fail(slice, "missing index".into(), "", None) };
                if matches!(val, PyValue::Slice(_)) {
                    let (first, by, n) = self.component_range(val, count, at)?;
                    let n = n.unwrap_or(1);
                    return Ok(Projection::Components(ComponentGrid::row(first, by, n), Ty::Vector(s, n as u8)));
                }
                let rvalue = self.component(val, count, at)?;
                match self.known_int(&rvalue) {
                    Some(n) => Ok(Projection::Field(n as u32, Ty::Scalar(s))),
                    None => Ok(Projection::Index(rvalue.id, Ty::Scalar(s))),
                }
            }
            (Ty::Scalar(_) | Ty::Struct(_), _) => {
                let what = format!("{} cannot be indexed", self.type_name(of));
                self.fail(slice, what, "", None)
            }
            (_, n) => {
                let what = format!("found {n} {} for {}", if n == 1 { "index" } else { "indices" }, self.type_name(of));
                self.fail(slice, what, "", None)
            }
        }
    }

    /// Evaluates a component index. A constant index is checked against the bounds; a negative one
    /// counts from the end.
    fn component(&mut self, val: PyValue, count: u8, at: &'p Expr) -> LowerResult<Rvalue> {
        let rvalue = self.value(val, at)?;
        if !rvalue.ty.is_int() {
            let what = format!("index has type {}", self.type_name(rvalue.ty));
            return self.fail(at, what, "expected an integer", None);
        }
        match self.known_int(&rvalue) {
            Some(n) => {
                let index = if n < 0 { n + count as i64 } else { n };
                if !(0..count as i64).contains(&index) {
                    return self.fail(
                        at,
                        format!("component index {n} is out of range"),
                        &format!("{count} components"),
                        None,
                    );
                }
                Ok(self.const_int(index))
            }
            None => Ok(Rvalue::new(self.index_as_i32(rvalue.id), I32)),
        }
    }

    /// First component, step and count of a slice with known bounds; an index has no count.
    fn component_range(&mut self, val: PyValue, count: u8, at: &'p Expr) -> LowerResult<(u32, i32, Option<u32>)> {
        let PyValue::Slice(parts) = val else {
            let rvalue = self.component(val, count, at)?;
            return match self.known_int(&rvalue) {
                Some(n) => Ok((n as u32, 1, None)),
                None => self.fail(
                    at,
                    "an index next to a slice must be known at compile time".into(),
                    "expected a constant",
                    None,
                ),
            };
        };
        let mut known = vec![];
        for part in *parts {
            known.push(match part {
                None => None,
                Some(rvalue) => match self.known_int(&rvalue) {
                    Some(n) => Some(n),
                    None => {
                        return self.fail(
                            at,
                            "slice bounds of vectors and matrices must be known at compile time".into(),
                            "",
                            None,
                        );
                    }
                },
            });
        }
        let (count, step) = (count as i64, known[2].unwrap_or(1));
        // Python's rules: negative bounds count from the end, and all are clamped.
        let (min, max) = if step > 0 { (0, count) } else { (-1, count - 1) };
        let bound = |n: Option<i64>, default: i64| match n {
            Some(n) => (if n < 0 { n + count } else { n }).clamp(min, max),
            None => default,
        };
        let (low, high) =
            (bound(known[0], if step > 0 { 0 } else { max }), bound(known[1], if step > 0 { count } else { -1 }));
        let selected = if step == 0 { 0 } else { super::control::trip_count(low, high, step) };
        if selected == 0 {
            return self.fail(at, "the slice selects no components".into(), "", None);
        }
        // A larger step is never taken.
        Ok((low as u32, step.clamp(-count, count) as i32, Some(selected as u32)))
    }

    /// Extracts a part of a value.
    pub(super) fn project(&mut self, whole: &Rvalue, path: &[Projection], at: &impl Ranged) -> LowerResult<Rvalue> {
        let mut rvalue = whole.clone();
        for step in path {
            let id = match *step {
                Projection::Field(n, _) => self.extract(rvalue.id, n),
                Projection::Components(grid, ty) => {
                    let parts: Vec<ExprId> = grid.indices().map(|n| self.extract(rvalue.id, n)).collect();
                    let ty = self.ir_type(ty, at)?;
                    self.w.b.construct(ty, &parts)
                }
                Projection::Index(index, Ty::Vector(s, width)) => {
                    // A row of a matrix.
                    let rows = rvalue.ty.count() as u32 / width as u32;
                    let parts: Vec<ExprId> = (0..width as u32)
                        .map(|c| {
                            let column: Vec<ExprId> =
                                (0..rows).map(|r| self.extract(rvalue.id, r * width as u32 + c)).collect();
                            self.select_by_index(&column, index)
                        })
                        .collect();
                    self.w.b.construct(Type::Vector(s, width), &parts)
                }
                Projection::Index(index, _) => {
                    let parts: Vec<ExprId> =
                        (0..rvalue.ty.count() as u32).map(|n| self.extract(rvalue.id, n)).collect();
                    self.select_by_index(&parts, index)
                }
            };
            rvalue = Rvalue::new(id, step.ty());
        }
        Ok(rvalue)
    }

    pub(super) fn extract(&mut self, id: ExprId, n: u32) -> ExprId {
        self.w.b.extract(id, n)
    }

    /// Selects one of several values by a run-time index; the last if the index is out of range.
    fn select_by_index(&mut self, parts: &[ExprId], index: ExprId) -> ExprId {
        let mut chosen = parts[parts.len() - 1];
        for (n, &part) in parts.iter().enumerate().rev().skip(1) {
            let n = self.w.constant(Value::int(Scalar::I32, n as i64));
            let here = self.op(Op::Eq, &[index, n]);
            chosen = self.op(Op::Select, &[here, part, chosen]);
        }
        chosen
    }

    /// The value with a part replaced.
    pub(super) fn replace_part(
        &mut self,
        whole: &Rvalue,
        path: &[Projection],
        part: ExprId,
        at: &impl Ranged,
    ) -> LowerResult<ExprId> {
        let Some((step, rest)) = path.split_first() else { return Ok(part) };
        let part = if rest.is_empty() {
            part
        } else {
            let inner = self.project(whole, &[*step], at)?;
            self.replace_part(&inner, rest, part, at)?
        };
        Ok(match *step {
            Projection::Field(n, _) => self.w.b.insert(whole.id, n, part),
            Projection::Components(grid, _) => {
                let mut id = whole.id;
                for (n, index) in grid.indices().enumerate() {
                    let one = self.extract(part, n as u32);
                    id = self.w.b.insert(id, index, one);
                }
                id
            }
            Projection::Index(index, ty) => {
                let width = ty.count() as u32;
                let rows = whole.ty.count() as u32 / width;
                let mut id = whole.id;
                for r in 0..rows {
                    let n = self.w.constant(Value::int(Scalar::I32, r as i64));
                    let here = self.op(Op::Eq, &[index, n]);
                    for c in 0..width {
                        let new = if width == 1 { part } else { self.extract(part, c) };
                        let old = self.extract(whole.id, r * width + c);
                        let selected = self.op(Op::Select, &[here, new, old]);
                        id = self.w.b.insert(id, r * width + c, selected);
                    }
                }
                id
            }
        })
    }

    /// The array element at indices that are passed to a builtin.
    pub(super) fn element_at(&mut self, array: Array, at: Vec<Rvalue>, expr: &'p Expr) -> LowerResult<Element> {
        for rvalue in &at {
            if !rvalue.ty.is_int() {
                let what = format!("index has type {}", self.type_name(rvalue.ty));
                return self.fail(expr, what, "expected an integer", None);
            }
        }
        if at.len() != array.rank() {
            let what = wrong_index_count(at.len(), array.rank());
            return self.fail(expr, what, "expected one index per dimension", None);
        }
        Ok(Element { array, indices: at.into_iter().map(|rvalue| rvalue.id).collect(), path: vec![] })
    }
}

/// The message for `count` indices into an array of another rank.
pub(super) fn wrong_index_count(count: usize, rank: usize) -> String {
    format!("found {count} {} for a {rank}-dimensional array", if count == 1 { "index" } else { "indices" })
}
