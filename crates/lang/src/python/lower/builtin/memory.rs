//! Places, arrays, atomics, printing and checking.

use bornite_ir::{Atomic, ExprId, Op, PrintPiece, Scalar, Value};
use ruff_python_ast::{Expr, ExprCall};

use super::super::call::Given;
use super::super::names::Back;
use super::super::value::{Binding, Run, Val};
use super::super::{Lower, Lowers};
use crate::python::fixed::Fixed;
use crate::python::types::{I32, Ty};

type Made = Lowers<Option<Val>>;

fn none() -> Made {
    Ok(Some(Val::Fixed(Fixed::None)))
}

pub(super) fn len<'p>(lower: &mut Lower<'p>, given: &Given<'p>, _: &'p Expr) -> Made {
    let Some((val, at)) = given.args.first() else { return Ok(None) };
    Ok(match val {
        Val::Array(array) => array.extents().first().map(|&id| Val::Run(Run::new(id, I32))),
        Val::Tuple(all) => Some(Val::Run(lower.run_int(all.len() as i64))),
        Val::Shape(array) => Some(Val::Run(lower.run_int(array.rank() as i64))),
        Val::Run(_) | Val::Element(_) => {
            let run = lower.value(val.clone(), *at)?;
            length_of(run.ty).map(|n| Val::Run(lower.run_int(n)))
        }
        _ => None,
    })
}

/// How many components a value has, or rows.
fn length_of(ty: Ty) -> Option<i64> {
    match ty {
        Ty::Matrix(_, rows, _) => Some(rows.into()),
        Ty::Scalar(_) | Ty::Struct(_) => None,
        other => Some(other.count() as i64),
    }
}

impl<'p> Lower<'p> {
    /// `len(x)` of a variable whose type alone tells it.
    pub(super) fn known_length(&mut self, expr: &Expr) -> Option<i64> {
        let Expr::Call(call) = expr else { return None };
        let ([Expr::Name(name)], Expr::Name(callee)) = (&call.arguments.args[..], call.func.as_ref()) else {
            return None;
        };
        if callee.id.as_str() != "len" {
            return None;
        }
        match self.frame().names.get(name.id.as_str())? {
            Binding::Val(Val::Run(run)) => length_of(run.ty),
            Binding::Local(_, ty) => length_of(*ty),
            Binding::Val(Val::Tuple(all)) => Some(all.len() as i64),
            _ => None,
        }
    }

    pub(in super::super) fn is_tid(&mut self, call: &ExprCall) -> bool {
        matches!(self.fixed(&call.func, true), Ok(Fixed::Builtin(name)) if name == "tid")
    }

    /// The instance's place in so many dimensions.
    pub(in super::super) fn tid_call(&mut self, rank: usize, call: &'p ExprCall) -> Lowers<Vec<Run>> {
        if !matches!(self.frame().back, Back::Kernel) {
            let hint = "pass it as a parameter".to_owned();
            return self.fail(call, "wp.tid() in a function".into(), "only kernels have a place", Some(hint));
        }
        if !(1..=4).contains(&rank) {
            return self.fail(call, format!("wp.tid() has one to four indices, not {rank}"), "", None);
        }
        Ok(self.place(rank).into_iter().map(|id| Run::new(id, I32)).collect())
    }
}

pub(super) fn tid<'p>(lower: &mut Lower<'p>, _: &Given<'p>, at: &'p Expr) -> Made {
    match at {
        Expr::Call(call) => Ok(lower.tid_call(1, call)?.pop().map(Val::Run)),
        _ => Ok(None),
    }
}

/// Threads of a block: one, as where a kernel runs on a CPU.
pub(super) fn block_dim<'p>(lower: &mut Lower<'p>, _: &Given<'p>, _: &'p Expr) -> Made {
    Ok(Some(Val::Run(Run::new(lower.int(1), I32))))
}

/// An array in registers: of scalars, of rows of them, or of vectors. The last two lie as a matrix does.
pub(super) fn zeros<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some((shape, shape_at)) = given.take(0, "shape") else { return Ok(None) };
    let sizes = match &shape {
        Val::Tuple(all) => all.clone(),
        Val::Fixed(Fixed::List(all)) => all.iter().cloned().map(Val::Fixed).collect(),
        one => vec![one.clone()],
    };
    let mut extents = vec![];
    for size in &sizes {
        extents.push(lower.size_of(size, shape_at)? as u8);
    }
    let dtype = match given.take(1, "dtype") {
        Some((Val::Fixed(Fixed::Type(pattern)), _)) => pattern.exact(),
        None => Some(Ty::Scalar(Scalar::F32)),
        _ => None,
    };
    let ty = match (&extents[..], dtype) {
        (&[n], Some(Ty::Scalar(s))) => Ty::Fixed(s, n),
        (&[rows, columns], Some(Ty::Scalar(s))) => Ty::Matrix(s, rows, columns),
        (&[n], Some(Ty::Vector(s, length))) => Ty::Matrix(s, n, length),
        _ => {
            let what = "a local array of this shape or type is not supported".to_owned();
            return lower.fail(at, what, "one or two dimensions of scalars, or one of vectors", None);
        }
    };
    let empty = Given { args: vec![], named: vec![] };
    lower.make(ty, &empty, at).map(|run| Some(Val::Run(run)))
}

/// `wp.static` and `wp.constant` are evaluated before their arguments are.
pub(super) fn fixed<'p>(_: &mut Lower<'p>, _: &Given<'p>, _: &'p Expr) -> Made {
    Ok(None)
}

pub(super) fn nothing<'p>(_: &mut Lower<'p>, _: &Given<'p>, _: &'p Expr) -> Made {
    none()
}

fn updated<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr, atomic: Atomic) -> Made {
    let Some((Val::Array(array), _)) = given.args.first().cloned() else { return Ok(None) };
    let mut indices = vec![];
    let Some(((value, value_at), rest)) = given.args[1..].split_last() else { return Ok(None) };
    for (val, expr) in rest {
        match val {
            // A tuple of indices.
            Val::Tuple(all) => {
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
        let what = format!("an array of {wanted} is updated with {found}");
        return lower.fail(*value_at, what, &format!("{wanted} is expected"), Some(format!("convert it: {wanted}(…)")));
    }
    lower.atomic(atomic, &element, value, at).map(|run| Some(Val::Run(run)))
}

macro_rules! atomics {
    ($($name:ident $atomic:ident),+) => { $(
        pub(super) fn $name<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
            updated(lower, given, at, Atomic::$atomic)
        }
    )+ };
}

atomics! {
    atomic_add Add, atomic_sub Sub, atomic_min Min, atomic_max Max, atomic_and And, atomic_or Or, atomic_xor Xor,
    atomic_exch Exchange
}

/// What the threads of a block have together, where there is one thread.
pub(super) fn tile_of_one<'p>(lower: &mut Lower<'p>, given: &Given<'p>, _: &'p Expr) -> Made {
    let [(val, at)] = &given.args[..] else { return Ok(None) };
    lower.value(val.clone(), *at).map(|run| Some(Val::Run(run)))
}

pub(super) fn tile_atomic_add<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let (Some((Val::Array(array), _)), Some((value, value_at))) = (given.take(0, "a"), given.take(1, "t")) else {
        return Ok(None);
    };
    let places = match given.take(2, "offset") {
        Some((Val::Tuple(all), expr)) => {
            all.into_iter().map(|one| lower.value(one, expr)).collect::<Lowers<Vec<_>>>()?
        }
        Some((val, expr)) => vec![lower.value(val, expr)?],
        None => (0..array.rank()).map(|_| lower.run_int(0)).collect(),
    };
    let value = lower.value(value, value_at)?;
    let element = lower.element_at(array, places, at)?;
    if value.ty != element.ty() {
        return Ok(None);
    }
    lower.atomic(Atomic::Add, &element, value, at).map(|run| Some(Val::Run(run)))
}

/// A search, which the prelude does: what is searched for is of the elements' type.
pub(super) fn lower_bound<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let value = given.named.iter().find(|(name, ..)| *name == "value").map(|(_, val, _)| val);
    let (Some((Val::Array(array), _)), Some(val)) =
        (given.take(0, "arr"), value.or(given.args.last().map(|(val, _)| val)))
    else {
        return Ok(None);
    };
    let run = lower.value(val.clone(), at)?;
    if run.ty == array.element {
        return Ok(None);
    }
    let (found, wanted) = (lower.type_name(run.ty), lower.type_name(array.element));
    lower.fail(at, format!("{found} is searched for in an array of {wanted}"), &format!("{wanted} is expected"), None)
}

pub(super) fn atomic_cas<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some((Val::Array(array), _)) = given.args.first().cloned() else { return Ok(None) };
    let rank = array.rank();
    if given.args.len() != rank + 3 {
        return Ok(None);
    }
    let runs = {
        let mut runs = vec![];
        for (val, expr) in &given.args[1..] {
            runs.push(lower.value(val.clone(), *expr)?);
        }
        runs
    };
    let element = lower.element_at(array, runs[..rank].to_vec(), at)?;
    let ty = element.ty();
    let (expected, value) = (&runs[rank], &runs[rank + 1]);
    if expected.ty != ty || value.ty != ty || ty.scalar().is_none_or(|s| s.bytes() < 4) {
        let wanted = lower.type_name(ty);
        return lower.fail(at, format!("an exchange in an array of {wanted}"), "values of its type are expected", None);
    }
    let args = lower.places(&element.array, &element.at);
    lower.wrote(&element.array);
    match bornite_ir::Args::new(&args) {
        Some(args) => {
            let id = lower.w.b.compare_exchange(element.array.view, args, expected.id, value.id);
            Ok(Some(Val::Run(Run::new(id, ty))))
        }
        None => Ok(None),
    }
}

/// The scalars of a value, for printing.
fn scalars(lower: &mut Lower<'_>, run: &Run) -> Vec<ExprId> {
    match run.ty {
        Ty::Scalar(_) => vec![run.id],
        Ty::Struct(_) => vec![],
        other => lower.parts(run.id, other.count() as u32),
    }
}

/// Lines to be printed: their formats, and the values in them.
struct Lines(Vec<(String, Vec<ExprId>)>);

impl Lines {
    fn new() -> Lines {
        Lines(vec![(String::new(), vec![])])
    }

    /// A text; what no format holds is printed as a value.
    fn text(&mut self, lower: &mut Lower<'_>, text: &str) {
        for c in text.chars() {
            match c {
                '\n' => self.0.push((String::new(), vec![])),
                '\t' | '"' | '\\' => {
                    let letter = lower.int(c as i64);
                    self.hole("{%c}", letter);
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

    fn hole(&mut self, hole: &str, value: ExprId) {
        // A print holds at most 16 values.
        if self.0.last().is_none_or(|(_, args)| args.len() == 16) {
            self.0.push((String::new(), vec![]));
        }
        if let Some((format, args)) = self.0.last_mut() {
            format.push_str(hole);
            args.push(value);
        }
    }

    /// Numbers with spaces between them.
    fn numbers(&mut self, values: &[ExprId], hole: &str) {
        for (n, value) in values.iter().enumerate() {
            if n > 0 && n % 16 != 0 {
                self.format(" ");
            }
            self.hole(hole, *value);
        }
    }

    fn printed<'p>(self, lower: &mut Lower<'p>, at: &'p Expr) -> Made {
        if self.0.iter().any(|(format, _)| format.len() > 200) {
            return lower.fail(at, "a print of more than 200 letters".into(), "print it in parts", None);
        }
        for (format, args) in self.0 {
            lower.w.b.print(format, &args);
        }
        none()
    }
}

pub(super) fn print<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let mut lines = Lines::new();
    for (n, (val, at)) in given.args.iter().enumerate() {
        if n > 0 {
            lines.format(" ");
        }
        if let Val::Fixed(Fixed::Text(text)) = val {
            lines.text(lower, text);
            continue;
        }
        let run = lower.value(val.clone(), *at)?;
        let hole = if run.ty.is_float() { "{%g}" } else { "{}" };
        let parts = scalars(lower, &run);
        match run.ty {
            Ty::Matrix(_, _, columns) => {
                for (row, parts) in parts.chunks(columns as usize).enumerate() {
                    if row > 0 {
                        lines.text(lower, "\n");
                    }
                    lines.numbers(parts, hole);
                }
            }
            Ty::Transform(_) => {
                lines.format("(");
                lines.numbers(&parts[..3], hole);
                lines.format(") (");
                lines.numbers(&parts[3..], hole);
                lines.format(")");
            }
            _ => lines.numbers(&parts, hole),
        }
    }
    lines.printed(lower, at)
}

pub(super) fn printf<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some((Val::Fixed(Fixed::Text(text)), _)) = given.args.first() else {
        return lower.fail(at, "printf takes a string first".into(), "", None);
    };
    let mut args = vec![];
    for (val, at) in &given.args[1..] {
        args.push(lower.value(val.clone(), *at)?);
    }
    let types: Option<Vec<Scalar>> = args.iter().map(|run| run.ty.scalar()).collect();
    let Some(types) = types.filter(|types| types.len() <= 16) else {
        return lower.fail(at, "printf prints numbers, at most 16".into(), "", None);
    };
    let format = match bornite_ir::print_of_c(text.strip_suffix('\n').unwrap_or(text), &types) {
        Ok(format) => format,
        Err(why) => return lower.fail(at, format!("printf: {why}"), "", None),
    };
    let (mut lines, mut values) = (Lines::new(), args.iter().map(|run| run.id));
    for piece in bornite_ir::print_pieces(&format) {
        match (piece, values.len()) {
            (PrintPiece::Text(text), _) => lines.text(lower, text),
            (PrintPiece::Value(spec), 1..) => {
                let hole = spec.map_or("{}".to_owned(), |spec| format!("{{%{spec}}}"));
                values.by_ref().take(1).for_each(|value| lines.hole(&hole, value));
            }
            (PrintPiece::Value(_), 0) => {}
        }
    }
    lines.printed(lower, at)
}

/// Prints a line where an expectation does not hold.
fn expected<'p>(lower: &mut Lower<'p>, holds: ExprId, runs: &[Run], at: &'p Expr) -> Made {
    let line = match at {
        Expr::Call(call) => lower.source().line(call.range_start.to_u32()),
        _ => 0,
    };
    let failed = lower.op(Op::Not, &[holds]);
    let (a, b) = (scalars(lower, &runs[0]), scalars(lower, &runs[1]));
    lower.w.b.open_block();
    let fits = a.len() + b.len() <= 16;
    let places = |n: usize| vec!["{}"; n].join(" ");
    if fits {
        let format = format!("expectation in line {line} does not hold: {} and {}", places(a.len()), places(b.len()));
        lower.w.b.print(format, &[a, b].concat());
    } else {
        lower.w.b.print(format!("expectation in line {line} does not hold"), &[]);
    }
    let then = lower.w.b.close_block();
    lower.w.stmt(bornite_ir::Stmt::If { condition: failed, then, otherwise: vec![] });
    none()
}

fn all_equal(lower: &mut Lower<'_>, a: &Run, b: &Run) -> ExprId {
    let same = lower.op(Op::Eq, &[a.id, b.id]);
    if a.ty.scalar().is_some() {
        return same;
    }
    let parts = lower.parts(same, a.ty.count() as u32);
    let mut all = parts[0];
    for part in &parts[1..] {
        all = lower.op(Op::And, &[all, *part]);
    }
    all
}

pub(super) fn expect_eq<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some((runs, _)) = lower.alike_runs(given, 2, at)? else { return Ok(None) };
    let holds = all_equal(lower, &runs[0], &runs[1]);
    expected(lower, holds, &runs, at)
}

pub(super) fn expect_neq<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let Some((runs, _)) = lower.alike_runs(given, 2, at)? else { return Ok(None) };
    let same = all_equal(lower, &runs[0], &runs[1]);
    let holds = lower.op(Op::Not, &[same]);
    expected(lower, holds, &runs, at)
}

pub(super) fn expect_near<'p>(lower: &mut Lower<'p>, given: &Given<'p>, at: &'p Expr) -> Made {
    let (Some((a, a_at)), Some((b, b_at))) = (given.take(0, "a"), given.take(1, "b")) else { return Ok(None) };
    let (a, b) = (lower.value(a, a_at)?, lower.value(b, b_at)?);
    let Some(s) = a.ty.element().filter(|s| s.is_float() && a.ty == b.ty) else { return Ok(None) };
    let tolerance = match given.take(2, "tolerance") {
        Some((val, expr)) => lower.value(val, expr)?.id,
        None => lower.w.constant(Value::from_f64(s, 1e-6)),
    };
    let tolerance = lower.cast_id(s, tolerance);
    let apart = lower.op(Op::Sub, &[a.id, b.id]);
    let size = lower.op(Op::Abs, &[apart]);
    let many = lower.splat(tolerance, a.ty);
    let close = lower.op(Op::Le, &[size, many]);
    let parts = if a.ty.scalar().is_some() { vec![close] } else { lower.parts(close, a.ty.count() as u32) };
    let mut holds = parts[0];
    for part in &parts[1..] {
        holds = lower.op(Op::And, &[holds, *part]);
    }
    expected(lower, holds, &[a, b], at)
}
