//! Elements of arrays, components of vectors and matrices, fields of structs; parts of each.

use bornite_ir::{ExprId, Op, Scalar, Type, Value};
use ruff_python_ast::Expr;
use ruff_text_size::Ranged;

use super::value::{Array, Axis, Element, Run, Several, Step, Val};
use super::{Lower, Lowers};
use crate::python::fixed::Fixed;
use crate::python::types::{I32, Ty};

impl<'p> Lower<'p> {
    pub(super) fn subscript(&mut self, of: &'p Expr, slice: &'p Expr, expr: &'p Expr) -> Lowers<Val> {
        match self.eval(of)? {
            Val::Array(array) => self.index_array(array, slice),
            Val::Shape(array) => {
                let at = self.evaluated(slice)?;
                let extents = array.extents();
                let Some(n) = self.known_int(&at) else {
                    return self.fail(slice, "which size is asked for is not known".into(), "a constant", None);
                };
                let place = if n < 0 { n + 4 } else { n } as usize;
                match extents.get(place) {
                    Some(&id) => Ok(Val::Run(Run::new(id, I32))),
                    // Sizes that are not there are 0, as in the dialect.
                    None if place < 4 => Ok(Val::Run(Run::new(self.int(0), I32))),
                    None => self.fail(slice, format!("an array has at most four sizes, not {n}"), "", None),
                }
            }
            Val::Tuple(mut all) => {
                let at = self.evaluated(slice)?;
                let n = self.known_int(&at).map(|n| if n < 0 { n + all.len() as i64 } else { n });
                match n.and_then(|n| usize::try_from(n).ok()).filter(|n| *n < all.len()) {
                    Some(n) => Ok(all.swap_remove(n)),
                    None => self.fail(slice, "there is no such part of the tuple".into(), "", None),
                }
            }
            Val::Element(mut element) => {
                let step = self.subscript_step(element.ty(), slice)?;
                element.path.push(step);
                Ok(Val::Element(element))
            }
            Val::Run(run) => {
                let step = self.subscript_step(run.ty, slice)?;
                Ok(Val::Run(self.part(&run, &[step], expr)?))
            }
            Val::Fixed(Fixed::List(_)) => {
                let hint = "take the element beforehand: wp.static(NAME[0])".to_owned();
                self.fail(of, "a list or tuple of the file cannot be used in a kernel".into(), "", Some(hint))
            }
            Val::Fixed(_) => match self.fixed(expr, true) {
                Ok(fixed) => self.constant_val(fixed, expr),
                Err((at, what)) => self.fail(&at, what, "", None),
            },
            _ => self.fail(of, "this cannot be indexed".into(), "an array, vector or matrix is expected", None),
        }
    }

    pub(super) fn known_int(&mut self, run: &Run) -> Option<i64> {
        match &run.constant {
            Some(fixed) => fixed.int(),
            None if run.ty.is_int() => self.w.b.known(run.id).map(|value| value.as_i64()),
            None => None,
        }
    }

    /// Indices as they are written: one, or a tuple of them.
    fn indices(&mut self, slice: &'p Expr) -> Lowers<Vec<(Val, &'p Expr)>> {
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

    /// An element of an array, or a part of it with fewer dimensions.
    pub(super) fn index_array(&mut self, array: Array, slice: &'p Expr) -> Lowers<Val> {
        let indices = self.indices(slice)?;
        let mut runs = vec![];
        for (val, at) in indices {
            runs.push((
                match val {
                    Val::Slice(parts) => Err(parts),
                    other => {
                        let run = self.value(other, at)?;
                        if !run.ty.is_int() {
                            let what = format!("an index is {}", self.type_name(run.ty));
                            let hint = "convert it: int(…)".to_owned();
                            return self.fail(at, what, "an integer is expected", Some(hint));
                        }
                        Ok(run)
                    }
                },
                at,
            ));
        }
        self.indexed(array, runs, slice)
    }

    /// An array at indices; each is a number or a slice.
    #[allow(clippy::type_complexity)]
    fn indexed(
        &mut self,
        array: Array,
        indices: Vec<(Result<Run, Box<[Option<Run>; 3]>>, &'p Expr)>,
        at: &impl Ranged,
    ) -> Lowers<Val> {
        let rank = array.rank();
        if indices.len() > rank {
            let what = format!("an array of {rank} dimensions is given {} indices", indices.len());
            return self.fail(at, what, "too many", None);
        }
        let scalars = indices.iter().all(|(one, _)| one.is_ok());
        if scalars && indices.len() == rank {
            let extents = array.extents();
            let runs = indices.into_iter().filter_map(|(one, _)| one.ok());
            let at = runs.zip(extents).map(|(run, extent)| self.wrapped(&run, extent)).collect();
            return Ok(Val::Element(Element { array, at, path: vec![] }));
        }
        let mut axes = array.axes.clone();
        let mut given = indices.into_iter();
        for axis in &mut axes {
            let Some((start, step, extent)) = Self::along(axis) else { continue };
            match given.next() {
                None => break,
                Some((Ok(run), _)) => {
                    let index = self.wrapped(&run, extent);
                    *axis = Axis::At(self.index_along(start, step, index));
                }
                Some((Err(parts), slice)) => {
                    let cut = self.cut(*parts, extent, slice)?;
                    let moved = self.moved(start, step, cut.start);
                    let step = match (step, cut.step) {
                        (Some(step), Some(by)) => Some(self.op(Op::Mul, &[step, by])),
                        (step, by) => step.or(by),
                    };
                    *axis = Axis::Along { start: Some(moved), step, extent: cut.length };
                }
            }
        }
        Ok(Val::Array(Array { axes, ..array }))
    }

    /// An index that counts from the end where it is known to be negative.
    fn wrapped(&mut self, run: &Run, extent: ExprId) -> ExprId {
        match self.known_int(run) {
            Some(n) if n < 0 => {
                let id = self.cast_id(Scalar::I32, run.id);
                self.op(Op::Add, &[extent, id])
            }
            _ => run.id,
        }
    }

    /// The index in memory that a slice of a slice begins at.
    fn moved(&mut self, start: Option<ExprId>, step: Option<ExprId>, index: ExprId) -> ExprId {
        let mut index = index;
        if let Some(step) = step {
            index = self.op(Op::Mul, &[index, step]);
        }
        match start {
            Some(start) => self.op(Op::Add, &[start, index]),
            None => index,
        }
    }

    /// Indices of the memory that an element of an array lies in.
    pub(super) fn places(&mut self, array: &Array, at: &[ExprId]) -> Vec<ExprId> {
        let mut at = at.iter();
        let mut all = vec![];
        for axis in &array.axes {
            let place = match axis {
                Axis::At(id) => *id,
                Axis::Along { start, step, .. } => match at.next() {
                    Some(&index) => self.index_along(*start, *step, index),
                    None => self.int(0),
                },
            };
            all.push(match self.index {
                Scalar::I32 => self.narrow_index(place),
                wide => self.cast_id(wide, place),
            });
        }
        all
    }

    pub(super) fn load(&mut self, element: &Element, at: &impl Ranged) -> Lowers<Run> {
        let varies = element.path.iter().any(|step| matches!(step, Step::Computed(..)));
        if varies || self.is_parted(element.array.view) {
            match self.part_of(element, at)? {
                Some(part) => return self.load_part(element, &part, at),
                None if varies => return self.load_chosen(element, at),
                None => {}
            }
        } else if !element.path.is_empty() {
            self.read_whole.push(element.array.view);
        }
        let args = self.places(&element.array, &element.at);
        let Some(args) = bornite_ir::Args::new(&args) else {
            return self.fail(at, "too many indices".into(), "", None);
        };
        let id = self.w.b.load(element.array.view, args);
        let whole = Run::new(id, element.array.element);
        self.part(&whole, &element.path, at)
    }

    /// The number of a field.
    pub(super) fn field_number(&mut self, n: u32, name: &str, at: &impl Ranged) -> Lowers<u32> {
        let fields = self.fields_of(n, at)?;
        if let Some(found) = fields.iter().position(|(field, _)| field == name) {
            return Ok(found as u32);
        }
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        let hint = format!("its fields are {}", names.join(", "));
        let what = format!("'{}' has no field '{name}'", self.program.structs[n as usize].name);
        self.fail(at, what, "unknown field", Some(hint))
    }

    pub(super) fn attribute_step(&mut self, of: Ty, name: &str, at: &impl Ranged) -> Lowers<Step> {
        let place = if name.len() == 1 { "xyzw".find(name) } else { None };
        match (of, place) {
            (Ty::Struct(n), _) => {
                let number = self.field_number(n, name, at)?;
                let ty = self.fields_of(n, at)?[number as usize].1.exact();
                match ty {
                    Some(ty) => Ok(Step::Part(number, ty)),
                    None => self.fail(at, format!("field '{name}' is no value"), "", None),
                }
            }
            (Ty::Vector(s, n), Some(place)) if place < n as usize && n <= 4 => {
                Ok(Step::Part(place as u32, Ty::Scalar(s)))
            }
            (Ty::Quat(s), Some(place)) => Ok(Step::Part(place as u32, Ty::Scalar(s))),
            (Ty::Transform(s), _) if name == "p" => Ok(Step::Several(Several::row(0, 1, 3), Ty::Vector(s, 3))),
            (Ty::Transform(s), _) if name == "q" => Ok(Step::Several(Several::row(3, 1, 4), Ty::Quat(s))),
            _ => {
                let ty = self.type_name(of);
                let swizzle = name.len() > 1 && name.chars().all(|c| "xyzwrgba".contains(c));
                let hint = swizzle.then(|| {
                    let parts: Vec<String> = name.chars().map(|c| format!("v.{c}")).collect();
                    format!("name the components: wp.vec{}({})", name.len(), parts.join(", "))
                });
                self.fail(at, format!("{ty} has no '{name}'"), "unknown part", hint)
            }
        }
    }

    pub(super) fn subscript_step(&mut self, of: Ty, slice: &'p Expr) -> Lowers<Step> {
        let mut indices = self.indices(slice)?;
        match (of, indices.len()) {
            (Ty::Matrix(s, rows, columns), 2) => {
                let (second, first) = (indices.pop(), indices.pop());
                let (Some((c, at_c)), Some((r, at_r))) = (second, first) else {
                    return self.fail(slice, "two indices are expected".into(), "", None);
                };
                if matches!(r, Val::Slice(_)) || matches!(c, Val::Slice(_)) {
                    let (r0, row_by, rn) = self.span_of(r, rows, at_r)?;
                    let (c0, column_by, cn) = self.span_of(c, columns, at_c)?;
                    let first = r0 * columns as u32 + c0;
                    let by = [row_by * columns as i32, column_by];
                    let ty = match (rn, cn) {
                        (Some(rows), Some(columns)) => Ty::Matrix(s, rows as u8, columns as u8),
                        (one, other) => Ty::Vector(s, one.or(other).unwrap_or(1) as u8),
                    };
                    let count = [rn.unwrap_or(1), cn.unwrap_or(1)];
                    return Ok(Step::Several(Several { first, by, count }, ty));
                }
                let (r, c) = (self.component(r, rows, at_r)?, self.component(c, columns, at_c)?);
                match (self.known_int(&r), self.known_int(&c)) {
                    (Some(r), Some(c)) => Ok(Step::Part((r * columns as i64 + c) as u32, Ty::Scalar(s))),
                    _ => {
                        let width = self.int(columns as i64);
                        let row = self.op(Op::Mul, &[r.id, width]);
                        Ok(Step::Computed(self.op(Op::Add, &[row, c.id]), Ty::Scalar(s)))
                    }
                }
            }
            (Ty::Matrix(s, rows, columns), 1) => {
                let Some((val, at)) = indices.pop() else { return self.fail(slice, "no index".into(), "", None) };
                let row = Ty::Vector(s, columns);
                if matches!(val, Val::Slice(_)) {
                    let (first, by, n) = self.span_of(val, rows, at)?;
                    let (by, count) = ([by * columns as i32, 1], [n.unwrap_or(1), columns as u32]);
                    let part = Several { first: first * columns as u32, by, count };
                    return Ok(Step::Several(part, Ty::Matrix(s, count[0] as u8, columns)));
                }
                let run = self.component(val, rows, at)?;
                match self.known_int(&run) {
                    Some(n) => Ok(Step::Several(Several::row(n as u32 * columns as u32, 1, columns as u32), row)),
                    None => Ok(Step::Computed(run.id, row)),
                }
            }
            (Ty::Vector(..) | Ty::Quat(_) | Ty::Transform(_) | Ty::Fixed(..), 1) => {
                let (s, count) = (of.element().unwrap_or(Scalar::F32), of.count() as u8);
                let Some((val, at)) = indices.pop() else { return self.fail(slice, "no index".into(), "", None) };
                if matches!(val, Val::Slice(_)) {
                    let (first, by, n) = self.span_of(val, count, at)?;
                    let n = n.unwrap_or(1);
                    return Ok(Step::Several(Several::row(first, by, n), Ty::Vector(s, n as u8)));
                }
                let run = self.component(val, count, at)?;
                match self.known_int(&run) {
                    Some(n) => Ok(Step::Part(n as u32, Ty::Scalar(s))),
                    None => Ok(Step::Computed(run.id, Ty::Scalar(s))),
                }
            }
            (Ty::Scalar(_) | Ty::Struct(_), _) => {
                let what = format!("{} cannot be indexed", self.type_name(of));
                self.fail(slice, what, "", None)
            }
            (_, n) => {
                let what = format!("{} is given {n} indices", self.type_name(of));
                self.fail(slice, what, "", None)
            }
        }
    }

    /// An index of a component: within bounds if it is known, from the end where it is negative.
    fn component(&mut self, val: Val, count: u8, at: &'p Expr) -> Lowers<Run> {
        let run = self.value(val, at)?;
        if !run.ty.is_int() {
            let what = format!("an index is {}", self.type_name(run.ty));
            return self.fail(at, what, "an integer is expected", None);
        }
        match self.known_int(&run) {
            Some(n) => {
                let place = if n < 0 { n + count as i64 } else { n };
                if !(0..count as i64).contains(&place) {
                    return self.fail(at, format!("there is no component {n}"), &format!("{count} components"), None);
                }
                Ok(self.run_int(place))
            }
            None => Ok(Run::new(self.narrow_index(run.id), I32)),
        }
    }

    /// First component, the step and how many, of a slice with known bounds; of an index, none.
    fn span_of(&mut self, val: Val, count: u8, at: &'p Expr) -> Lowers<(u32, i32, Option<u32>)> {
        let Val::Slice(parts) = val else {
            let run = self.component(val, count, at)?;
            return match self.known_int(&run) {
                Some(n) => Ok((n as u32, 1, None)),
                None => self.fail(at, "an index beside a slice must be known".into(), "a constant", None),
            };
        };
        let mut known = vec![];
        for part in *parts {
            known.push(match part {
                None => None,
                Some(run) => match self.known_int(&run) {
                    Some(n) => Some(n),
                    None => return self.fail(at, "a slice of components needs known bounds".into(), "", None),
                },
            });
        }
        let (count, step) = (count as i64, known[2].unwrap_or(1));
        // Bounds as Python has them: from the end where negative, no further than there are components.
        let (least, most) = if step > 0 { (0, count) } else { (-1, count - 1) };
        let bound = |given: Option<i64>, default: i64| match given {
            Some(n) => (if n < 0 { n + count } else { n }).clamp(least, most),
            None => default,
        };
        let (low, high) =
            (bound(known[0], if step > 0 { 0 } else { most }), bound(known[1], if step > 0 { count } else { -1 }));
        let turns = if step == 0 { 0 } else { super::control::turns(low, high, step) };
        if turns == 0 {
            return self.fail(at, "a slice without components".into(), "", None);
        }
        // A step past the end is never taken.
        Ok((low as u32, step.clamp(-count, count) as i32, Some(turns as u32)))
    }

    /// A part of a value.
    pub(super) fn part(&mut self, whole: &Run, path: &[Step], at: &impl Ranged) -> Lowers<Run> {
        let mut run = whole.clone();
        for step in path {
            let id = match *step {
                Step::Part(n, _) => self.extracted(run.id, n),
                Step::Several(several, ty) => {
                    let parts: Vec<ExprId> = several.places().map(|n| self.extracted(run.id, n)).collect();
                    let ty = self.ir_type(ty, at)?;
                    self.w.b.construct(ty, &parts)
                }
                Step::Computed(index, Ty::Vector(s, width)) => {
                    // A row of a matrix.
                    let rows = run.ty.count() as u32 / width as u32;
                    let parts: Vec<ExprId> = (0..width as u32)
                        .map(|c| {
                            let column: Vec<ExprId> =
                                (0..rows).map(|r| self.extracted(run.id, r * width as u32 + c)).collect();
                            self.picked(&column, index)
                        })
                        .collect();
                    self.w.b.construct(Type::Vector(s, width), &parts)
                }
                Step::Computed(index, _) => {
                    let parts: Vec<ExprId> = (0..run.ty.count() as u32).map(|n| self.extracted(run.id, n)).collect();
                    self.picked(&parts, index)
                }
            };
            run = Run::new(id, step.ty());
        }
        Ok(run)
    }

    pub(super) fn extracted(&mut self, id: ExprId, n: u32) -> ExprId {
        self.w.b.extract(id, n)
    }

    /// One of several values, by an index that is only known in the run; the last where it is too large.
    fn picked(&mut self, parts: &[ExprId], index: ExprId) -> ExprId {
        let mut chosen = parts[parts.len() - 1];
        for (n, &part) in parts.iter().enumerate().rev().skip(1) {
            let n = self.w.constant(Value::int(Scalar::I32, n as i64));
            let here = self.op(Op::Eq, &[index, n]);
            chosen = self.op(Op::Select, &[here, part, chosen]);
        }
        chosen
    }

    /// The whole with a part replaced.
    pub(super) fn with_part(&mut self, whole: &Run, path: &[Step], part: ExprId, at: &impl Ranged) -> Lowers<ExprId> {
        let Some((step, rest)) = path.split_first() else { return Ok(part) };
        let part = if rest.is_empty() {
            part
        } else {
            let inner = self.part(whole, &[*step], at)?;
            self.with_part(&inner, rest, part, at)?
        };
        Ok(match *step {
            Step::Part(n, _) => self.w.b.insert(whole.id, n, part),
            Step::Several(several, _) => {
                let mut id = whole.id;
                for (n, place) in several.places().enumerate() {
                    let one = self.extracted(part, n as u32);
                    id = self.w.b.insert(id, place, one);
                }
                id
            }
            Step::Computed(index, ty) => {
                let width = ty.count() as u32;
                let rows = whole.ty.count() as u32 / width;
                let mut id = whole.id;
                for r in 0..rows {
                    let n = self.w.constant(Value::int(Scalar::I32, r as i64));
                    let here = self.op(Op::Eq, &[index, n]);
                    for c in 0..width {
                        let new = if width == 1 { part } else { self.extracted(part, c) };
                        let old = self.extracted(whole.id, r * width + c);
                        let kept = self.op(Op::Select, &[here, new, old]);
                        id = self.w.b.insert(id, r * width + c, kept);
                    }
                }
                id
            }
        })
    }

    /// An element of an array by values, for builtins that take them.
    pub(super) fn element_at(&mut self, array: Array, at: Vec<Run>, expr: &'p Expr) -> Lowers<Element> {
        for run in &at {
            if !run.ty.is_int() {
                let what = format!("an index is {}", self.type_name(run.ty));
                return self.fail(expr, what, "an integer is expected", None);
            }
        }
        if at.len() != array.rank() {
            let what = format!("an array of {} dimensions is given {} indices", array.rank(), at.len());
            return self.fail(expr, what, "one index for each dimension is expected", None);
        }
        Ok(Element { array, at: at.into_iter().map(|run| run.id).collect(), path: vec![] })
    }
}
