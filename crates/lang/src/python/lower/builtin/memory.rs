//! Thread indices, arrays, atomics, printing and expectations.

use bornite_ir::{Atomic, ExprId, Op, PrintPiece, Scalar, Value};
use ruff_python_ast::{Expr, ExprCall};

use super::super::call::CallArgs;
use super::super::names::ReturnMode;
use super::super::value::{Binding, PyValue, Rvalue};
use super::super::{Lower, LowerResult};
use crate::python::const_eval::ConstValue;
use crate::python::types::{I32, Ty};

type BuiltinResult = LowerResult<Option<PyValue>>;

fn none() -> BuiltinResult {
    Ok(Some(PyValue::Const(ConstValue::None)))
}

pub(super) fn len<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, _: &'p Expr) -> BuiltinResult {
    let Some((val, at)) = call_args.positional.first() else { return Ok(None) };
    Ok(match val {
        PyValue::Array(array) => array.extents().first().map(|&id| PyValue::Rvalue(Rvalue::new(id, I32))),
        PyValue::Tuple(all) => Some(PyValue::Rvalue(lower.const_int(all.len() as i64))),
        PyValue::Shape(array) => Some(PyValue::Rvalue(lower.const_int(array.rank() as i64))),
        PyValue::Rvalue(_) | PyValue::Element(_) => {
            let rvalue = lower.value(val.clone(), *at)?;
            length_of(rvalue.ty).map(|n| PyValue::Rvalue(lower.const_int(n)))
        }
        _ => None,
    })
}

/// `len()` of a value: its number of components, or of rows.
fn length_of(ty: Ty) -> Option<i64> {
    match ty {
        Ty::Matrix(_, rows, _) => Some(rows.into()),
        Ty::Scalar(_) | Ty::Struct(_) => None,
        other => Some(other.count() as i64),
    }
}

impl<'p> Lower<'p> {
    /// The value of `len(x)`, if it follows from the type of a variable.
    pub(super) fn constant_len(&mut self, expr: &Expr) -> Option<i64> {
        let Expr::Call(call) = expr else { return None };
        let ([Expr::Name(name)], Expr::Name(callee)) = (&call.arguments.args[..], call.func.as_ref()) else {
            return None;
        };
        if callee.id.as_str() != "len" {
            return None;
        }
        match self.frame().names.get(name.id.as_str())? {
            Binding::Value(PyValue::Rvalue(rvalue)) => length_of(rvalue.ty),
            Binding::Local(_, ty) => length_of(*ty),
            Binding::Value(PyValue::Tuple(all)) => Some(all.len() as i64),
            _ => None,
        }
    }

    pub(in super::super) fn is_tid(&mut self, call: &ExprCall) -> bool {
        matches!(self.eval_const(&call.func, true), Ok(ConstValue::Builtin(name)) if name == "tid")
    }

    /// Lowers `wp.tid()` with `rank` results.
    pub(in super::super) fn tid_call(&mut self, rank: usize, call: &'p ExprCall) -> LowerResult<Vec<Rvalue>> {
        if !matches!(self.frame().return_mode, ReturnMode::Kernel) {
            let hint = "pass it as a parameter".to_owned();
            return self.fail(call, "wp.tid() is only available in kernels".into(), "called in a function", Some(hint));
        }
        if !(1..=4).contains(&rank) {
            return self.fail(call, format!("wp.tid() returns 1 to 4 indices, not {rank}"), "", None);
        }
        Ok(self.thread_indices(rank).into_iter().map(|id| Rvalue::new(id, I32)).collect())
    }
}

pub(super) fn tid<'p>(lower: &mut Lower<'p>, _: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    match at {
        Expr::Call(call) => Ok(lower.tid_call(1, call)?.pop().map(PyValue::Rvalue)),
        _ => Ok(None),
    }
}

/// Number of threads per block: 1, as in Warp on the CPU.
pub(super) fn block_dim<'p>(lower: &mut Lower<'p>, _: &CallArgs<'p>, _: &'p Expr) -> BuiltinResult {
    Ok(Some(PyValue::Rvalue(Rvalue::new(lower.int(1), I32))))
}

/// An array in registers: 1D or 2D arrays of scalars, or 1D arrays of vectors. The last two are
/// represented as matrices.
pub(super) fn zeros<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some((shape, shape_at)) = call_args.get(0, "shape") else { return Ok(None) };
    let sizes = match &shape {
        PyValue::Tuple(all) => all.clone(),
        PyValue::Const(ConstValue::List(all)) => all.iter().cloned().map(PyValue::Const).collect(),
        one => vec![one.clone()],
    };
    let mut extents = vec![];
    for size in &sizes {
        extents.push(lower.constant_size(size, shape_at)? as u8);
    }
    let dtype = match call_args.get(1, "dtype") {
        Some((PyValue::Const(ConstValue::Type(pattern)), _)) => pattern.exact(),
        None => Some(Ty::Scalar(Scalar::F32)),
        _ => None,
    };
    let ty = match (&extents[..], dtype) {
        (&[n], Some(Ty::Scalar(s))) => Ty::FixedArray(s, n),
        (&[rows, columns], Some(Ty::Scalar(s))) => Ty::Matrix(s, rows, columns),
        (&[n], Some(Ty::Vector(s, length))) => Ty::Matrix(s, n, length),
        _ => {
            let what = "a local array of this shape or type is not supported".to_owned();
            return lower.fail(at, what, "supported: 1D and 2D arrays of scalars, 1D arrays of vectors", None);
        }
    };
    let empty = CallArgs { positional: vec![], named: vec![] };
    lower.construct_value(ty, &empty, at).map(|rvalue| Some(PyValue::Rvalue(rvalue)))
}

/// Placeholder for `wp.static` and `wp.constant`, which are handled before arguments are evaluated.
pub(super) fn evaluated_earlier<'p>(_: &mut Lower<'p>, _: &CallArgs<'p>, _: &'p Expr) -> BuiltinResult {
    Ok(None)
}

pub(super) fn no_op<'p>(_: &mut Lower<'p>, _: &CallArgs<'p>, _: &'p Expr) -> BuiltinResult {
    none()
}

fn atomic_update<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr, atomic: Atomic) -> BuiltinResult {
    let Some((PyValue::Array(array), _)) = call_args.positional.first().cloned() else { return Ok(None) };
    let mut indices = vec![];
    let Some(((value, value_at), rest)) = call_args.positional[1..].split_last() else { return Ok(None) };
    for (val, expr) in rest {
        match val {
            // A tuple of indices.
            PyValue::Tuple(all) => {
                for one in all {
                    indices.push(lower.value(one.clone(), *expr)?);
                }
            }
            other => indices.push(lower.value(other.clone(), *expr)?),
        }
    }
    let element = lower.element_at(array, indices, at)?;
    let value = lower.value(value.clone(), *value_at)?;
    if value.ty != element.ty() {
        let (found, wanted) = (lower.type_name(value.ty), lower.type_name(element.ty()));
        let what = format!("mismatched types: cannot update an array of {wanted} with {found}");
        return lower.fail(*value_at, what, &format!("expected {wanted}"), Some(format!("convert it: {wanted}(…)")));
    }
    lower.atomic(atomic, &element, value, at).map(|rvalue| Some(PyValue::Rvalue(rvalue)))
}

macro_rules! atomics {
    ($($name:ident $atomic:ident),+) => { $(
        pub(super) fn $name<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
            atomic_update(lower, call_args, at, Atomic::$atomic)
        }
    )+ };
}

atomics! {
    atomic_add Add, atomic_sub Sub, atomic_min Min, atomic_max Max, atomic_and And, atomic_or Or, atomic_xor Xor,
    atomic_exch Exchange
}

/// Tile operations for a block with a single thread: the value of that thread.
pub(super) fn single_thread_tile<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, _: &'p Expr) -> BuiltinResult {
    let [(val, at)] = &call_args.positional[..] else { return Ok(None) };
    lower.value(val.clone(), *at).map(|rvalue| Some(PyValue::Rvalue(rvalue)))
}

pub(super) fn tile_atomic_add<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let (Some((PyValue::Array(array), _)), Some((value, value_at))) = (call_args.get(0, "a"), call_args.get(1, "t"))
    else {
        return Ok(None);
    };
    let indices = match call_args.get(2, "offset") {
        Some((PyValue::Tuple(all), expr)) => {
            all.into_iter().map(|one| lower.value(one, expr)).collect::<LowerResult<Vec<_>>>()?
        }
        Some((val, expr)) => vec![lower.value(val, expr)?],
        None => (0..array.rank()).map(|_| lower.const_int(0)).collect(),
    };
    let value = lower.value(value, value_at)?;
    let element = lower.element_at(array, indices, at)?;
    if value.ty != element.ty() {
        return Ok(None);
    }
    lower.atomic(Atomic::Add, &element, value, at).map(|rvalue| Some(PyValue::Rvalue(rvalue)))
}

/// Checks that the searched value has the element type; the prelude implements the search.
pub(super) fn lower_bound<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let value = call_args.named.iter().find(|(name, ..)| *name == "value").map(|(_, val, _)| val);
    let (Some((PyValue::Array(array), _)), Some(val)) =
        (call_args.get(0, "arr"), value.or(call_args.positional.last().map(|(val, _)| val)))
    else {
        return Ok(None);
    };
    let rvalue = lower.value(val.clone(), at)?;
    if rvalue.ty == array.element {
        return Ok(None);
    }
    let (found, wanted) = (lower.type_name(rvalue.ty), lower.type_name(array.element));
    lower.fail(
        at,
        format!("mismatched types: cannot search for {found} in an array of {wanted}"),
        &format!("expected {wanted}"),
        None,
    )
}

pub(super) fn atomic_cas<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some((PyValue::Array(array), _)) = call_args.positional.first().cloned() else { return Ok(None) };
    let rank = array.rank();
    if call_args.positional.len() != rank + 3 {
        return Ok(None);
    }
    let rvalues = {
        let mut rvalues = vec![];
        for (val, expr) in &call_args.positional[1..] {
            rvalues.push(lower.value(val.clone(), *expr)?);
        }
        rvalues
    };
    let element = lower.element_at(array, rvalues[..rank].to_vec(), at)?;
    let ty = element.ty();
    let (expected, value) = (&rvalues[rank], &rvalues[rank + 1]);
    if expected.ty != ty || value.ty != ty || ty.scalar().is_none_or(|s| s.bytes() < 4) {
        let wanted = lower.type_name(ty);
        return lower.fail(
            at,
            format!("atomic_cas does not support these values in an array of {wanted}"),
            "expected 32- or 64-bit scalars of the element type",
            None,
        );
    }
    let args = lower.memory_indices(&element.array, &element.indices);
    lower.mark_written(&element.array);
    match bornite_ir::Args::new(&args) {
        Some(args) => {
            let id = lower.w.b.compare_exchange(element.array.view, args, expected.id, value.id);
            Ok(Some(PyValue::Rvalue(Rvalue::new(id, ty))))
        }
        None => Ok(None),
    }
}

/// The scalar components of a value, for printing.
fn scalars(lower: &mut Lower<'_>, rvalue: &Rvalue) -> Vec<ExprId> {
    match rvalue.ty {
        Ty::Scalar(_) => vec![rvalue.id],
        Ty::Struct(_) => vec![],
        other => lower.components(rvalue.id, other.count() as u32),
    }
}

/// Lines to print: a format string and its values for each.
struct Lines(Vec<(String, Vec<ExprId>)>);

impl Lines {
    fn new() -> Lines {
        Lines(vec![(String::new(), vec![])])
    }

    /// Appends text. Characters that a format string cannot contain are printed as values.
    fn text(&mut self, lower: &mut Lower<'_>, text: &str) {
        for c in text.chars() {
            match c {
                '\n' => self.0.push((String::new(), vec![])),
                '\t' | '"' | '\\' => {
                    let code = lower.int(c as i64);
                    self.placeholder("{%c}", code);
                }
                '{' => self.format("{%{}"),
                c if c.is_control() => {}
                c => self.format(c.encode_utf8(&mut [0; 4])),
            }
        }
    }

    fn format(&mut self, text: &str) {
        if let Some((format, _)) = self.0.last_mut() {
            format.push_str(text);
        }
    }

    fn placeholder(&mut self, placeholder: &str, value: ExprId) {
        // A print holds at most 16 values.
        if self.0.last().is_none_or(|(_, args)| args.len() == 16) {
            self.0.push((String::new(), vec![]));
        }
        if let Some((format, args)) = self.0.last_mut() {
            format.push_str(placeholder);
            args.push(value);
        }
    }

    /// Appends numbers separated by spaces.
    fn numbers(&mut self, values: &[ExprId], placeholder: &str) {
        for (n, value) in values.iter().enumerate() {
            if n > 0 && n % 16 != 0 {
                self.format(" ");
            }
            self.placeholder(placeholder, *value);
        }
    }

    fn emit<'p>(self, lower: &mut Lower<'p>, at: &'p Expr) -> BuiltinResult {
        if self.0.iter().any(|(format, _)| format.len() > 200) {
            return lower.fail(
                at,
                "a print is limited to 200 characters per line".into(),
                "split it into several prints",
                None,
            );
        }
        for (format, args) in self.0 {
            lower.w.b.print(format, &args);
        }
        none()
    }
}

pub(super) fn print<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let mut lines = Lines::new();
    for (n, (val, at)) in call_args.positional.iter().enumerate() {
        if n > 0 {
            lines.format(" ");
        }
        if let PyValue::Const(ConstValue::Str(text)) = val {
            lines.text(lower, text);
            continue;
        }
        let rvalue = lower.value(val.clone(), *at)?;
        let placeholder = if rvalue.ty.is_float() { "{%g}" } else { "{}" };
        let parts = scalars(lower, &rvalue);
        match rvalue.ty {
            Ty::Matrix(_, _, columns) => {
                for (row, parts) in parts.chunks(columns as usize).enumerate() {
                    if row > 0 {
                        lines.text(lower, "\n");
                    }
                    lines.numbers(parts, placeholder);
                }
            }
            Ty::Transform(_) => {
                lines.format("(");
                lines.numbers(&parts[..3], placeholder);
                lines.format(") (");
                lines.numbers(&parts[3..], placeholder);
                lines.format(")");
            }
            _ => lines.numbers(&parts, placeholder),
        }
    }
    lines.emit(lower, at)
}

pub(super) fn printf<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some((PyValue::Const(ConstValue::Str(text)), _)) = call_args.positional.first() else {
        return lower.fail(at, "printf expects a format string as its first argument".into(), "", None);
    };
    let mut args = vec![];
    for (val, at) in &call_args.positional[1..] {
        args.push(lower.value(val.clone(), *at)?);
    }
    let types: Option<Vec<Scalar>> = args.iter().map(|rvalue| rvalue.ty.scalar()).collect();
    let Some(types) = types.filter(|types| types.len() <= 16) else {
        return lower.fail(at, "printf takes scalar values, at most 16".into(), "", None);
    };
    let format = match bornite_ir::print_format_from_printf(text.strip_suffix('\n').unwrap_or(text), &types) {
        Ok(format) => format,
        Err(why) => return lower.fail(at, format!("printf: {why}"), "", None),
    };
    let (mut lines, mut values) = (Lines::new(), args.iter().map(|rvalue| rvalue.id));
    for piece in bornite_ir::print_format_pieces(&format) {
        match (piece, values.len()) {
            (PrintPiece::Text(text), _) => lines.text(lower, text),
            (PrintPiece::Value(spec), 1..) => {
                let placeholder = spec.map_or("{}".to_owned(), |spec| format!("{{%{spec}}}"));
                values.by_ref().take(1).for_each(|value| lines.placeholder(&placeholder, value));
            }
            (PrintPiece::Value(_), 0) => {}
        }
    }
    lines.emit(lower, at)
}

/// Emits code that prints a line if an expectation does not hold.
fn expect<'p>(lower: &mut Lower<'p>, holds: ExprId, rvalues: &[Rvalue], at: &'p Expr) -> BuiltinResult {
    let line = match at {
        Expr::Call(call) => lower.source().line(call.range_start.to_u32()),
        _ => 0,
    };
    let failed = lower.op(Op::Not, &[holds]);
    let (a, b) = (scalars(lower, &rvalues[0]), scalars(lower, &rvalues[1]));
    lower.w.b.open_block();
    let fits = a.len() + b.len() <= 16;
    let placeholders = |n: usize| vec!["{}"; n].join(" ");
    if fits {
        let format = format!(
            "expectation in line {line} does not hold: {} and {}",
            placeholders(a.len()),
            placeholders(b.len())
        );
        lower.w.b.print(format, &[a, b].concat());
    } else {
        lower.w.b.print(format!("expectation in line {line} does not hold"), &[]);
    }
    let then = lower.w.b.close_block();
    lower.w.stmt(bornite_ir::Stmt::If { condition: failed, then, otherwise: vec![] });
    none()
}

fn all_equal(lower: &mut Lower<'_>, a: &Rvalue, b: &Rvalue) -> ExprId {
    let same = lower.op(Op::Eq, &[a.id, b.id]);
    if a.ty.scalar().is_some() {
        return same;
    }
    let parts = lower.components(same, a.ty.count() as u32);
    let mut all = parts[0];
    for part in &parts[1..] {
        all = lower.op(Op::And, &[all, *part]);
    }
    all
}

pub(super) fn expect_eq<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some((rvalues, _)) = lower.same_type_args(call_args, 2, at)? else { return Ok(None) };
    let holds = all_equal(lower, &rvalues[0], &rvalues[1]);
    expect(lower, holds, &rvalues, at)
}

pub(super) fn expect_neq<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let Some((rvalues, _)) = lower.same_type_args(call_args, 2, at)? else { return Ok(None) };
    let same = all_equal(lower, &rvalues[0], &rvalues[1]);
    let holds = lower.op(Op::Not, &[same]);
    expect(lower, holds, &rvalues, at)
}

pub(super) fn expect_near<'p>(lower: &mut Lower<'p>, call_args: &CallArgs<'p>, at: &'p Expr) -> BuiltinResult {
    let (Some((a, a_at)), Some((b, b_at))) = (call_args.get(0, "a"), call_args.get(1, "b")) else { return Ok(None) };
    let (a, b) = (lower.value(a, a_at)?, lower.value(b, b_at)?);
    let Some(s) = a.ty.element().filter(|s| s.is_float() && a.ty == b.ty) else { return Ok(None) };
    let tolerance = match call_args.get(2, "tolerance") {
        Some((val, expr)) => lower.value(val, expr)?.id,
        None => lower.w.constant(Value::from_f64(s, 1e-6)),
    };
    let tolerance = lower.cast_id(s, tolerance);
    let difference = lower.op(Op::Sub, &[a.id, b.id]);
    let distance = lower.op(Op::Abs, &[difference]);
    let tolerances = lower.splat(tolerance, a.ty);
    let close = lower.op(Op::Le, &[distance, tolerances]);
    let parts = if a.ty.scalar().is_some() { vec![close] } else { lower.components(close, a.ty.count() as u32) };
    let mut holds = parts[0];
    for part in &parts[1..] {
        holds = lower.op(Op::And, &[holds, *part]);
    }
    expect(lower, holds, &[a, b], at)
}
