//! The dialect's functions. One table says of each how it is lowered: a row of the op table, or a small function here;
//! what the table does not have, or not for those types, is a function of the prelude, written in the dialect itself.

mod math;
mod memory;
mod vector;

use std::sync::OnceLock;

use bornite_ir::Op;
use foldhash::HashMap;
use ruff_python_ast::{Expr, ExprCall, Operator};

use super::call::Given;
use super::value::{Run, Val};
use super::{Lower, Lowers};
use crate::python::program::{FuncId, Item};
use crate::python::types::Ty;

/// Makes a call; `None` if the arguments are of other types than it takes.
type Emit = for<'a, 'p> fn(&'a mut Lower<'p>, &'a Given<'p>, &'p Expr) -> Lowers<Option<Val>>;

/// How a builtin is lowered.
#[derive(Clone, Copy)]
enum How {
    /// A row of the op table, of scalars that are floats.
    Float(Op),
    /// An operator that has a name.
    Operator(Operator),
    Emit(Emit),
}

/// The table.
const TABLE: &[(&str, How)] = {
    use How::{Emit, Float, Operator as Sign};
    &[
        ("acos", Emit(math::acos)),
        ("asin", Emit(math::asin)),
        ("atan", Float(Op::Atan)),
        ("atan2", Float(Op::Atan2)),
        ("cbrt", Float(Op::Cbrt)),
        ("ceil", Float(Op::Ceil)),
        ("copysign", Float(Op::Copysign)),
        ("cos", Float(Op::Cos)),
        ("cosh", Float(Op::Cosh)),
        ("erf", Float(Op::Erf)),
        ("erfc", Float(Op::Erfc)),
        ("exp", Float(Op::Exp)),
        ("floor", Float(Op::Floor)),
        ("log", Float(Op::Log)),
        ("log10", Float(Op::Log10)),
        ("log2", Float(Op::Log2)),
        ("pow", Float(Op::Pow)),
        ("rint", Float(Op::Rint)),
        ("round", Float(Op::Round)),
        ("sin", Float(Op::Sin)),
        ("sinh", Float(Op::Sinh)),
        ("sqrt", Float(Op::Sqrt)),
        ("tan", Float(Op::Tan)),
        ("tanh", Float(Op::Tanh)),
        ("trunc", Float(Op::Trunc)),
        ("abs", Emit(math::abs)),
        ("sign", Emit(math::sign)),
        ("step", Emit(math::step)),
        ("min", Emit(math::min)),
        ("max", Emit(math::max)),
        ("clamp", Emit(math::clamp)),
        ("where", Emit(math::choose)),
        ("isnan", Emit(math::isnan)),
        ("isinf", Emit(math::isinf)),
        ("isfinite", Emit(math::isfinite)),
        ("bit_count", Emit(math::bit_count)),
        ("neg", Emit(math::neg)),
        ("pos", Emit(math::pos)),
        ("unot", Emit(math::unot)),
        ("invert", Emit(math::invert)),
        ("cast", Emit(math::cast)),
        ("add", Sign(Operator::Add)),
        ("sub", Sign(Operator::Sub)),
        ("mul", Sign(Operator::Mult)),
        ("div", Sign(Operator::Div)),
        ("mod", Sign(Operator::Mod)),
        ("floordiv", Sign(Operator::FloorDiv)),
        ("bit_and", Sign(Operator::BitAnd)),
        ("bit_or", Sign(Operator::BitOr)),
        ("bit_xor", Sign(Operator::BitXor)),
        ("lshift", Sign(Operator::LShift)),
        ("rshift", Sign(Operator::RShift)),
        ("dot", Emit(vector::dot)),
        ("cross", Emit(vector::cross)),
        ("length", Emit(vector::length)),
        ("normalize", Emit(vector::normalize)),
        ("outer", Emit(vector::outer)),
        ("transpose", Emit(vector::transpose)),
        ("cw_mul", Emit(vector::cw_mul)),
        ("cw_div", Emit(vector::cw_div)),
        ("trace", Emit(vector::trace)),
        ("diag", Emit(vector::diag)),
        ("get_diag", Emit(vector::get_diag)),
        ("lower_bound", Emit(memory::lower_bound)),
        ("identity", Emit(vector::identity)),
        ("matrix_from_rows", Emit(vector::from_rows)),
        ("matrix_from_cols", Emit(vector::from_columns)),
        ("vector", Emit(vector::vector)),
        ("matrix", Emit(vector::matrix)),
        ("quaternion", Emit(vector::quaternion)),
        ("transformation", Emit(vector::transformation)),
        ("quat_identity", Emit(vector::quat_identity)),
        ("transform_identity", Emit(vector::transform_identity)),
        ("len", Emit(memory::len)),
        ("tid", Emit(memory::tid)),
        ("block_dim", Emit(memory::block_dim)),
        ("zeros", Emit(memory::zeros)),
        ("static", Emit(memory::fixed)),
        ("constant", Emit(memory::fixed)),
        ("atomic_add", Emit(memory::atomic_add)),
        ("atomic_sub", Emit(memory::atomic_sub)),
        ("atomic_min", Emit(memory::atomic_min)),
        ("atomic_max", Emit(memory::atomic_max)),
        ("atomic_and", Emit(memory::atomic_and)),
        ("atomic_or", Emit(memory::atomic_or)),
        ("atomic_xor", Emit(memory::atomic_xor)),
        ("atomic_exch", Emit(memory::atomic_exch)),
        ("atomic_cas", Emit(memory::atomic_cas)),
        ("tile_sum", Emit(memory::tile_of_one)),
        ("tile_min", Emit(memory::tile_of_one)),
        ("tile_max", Emit(memory::tile_of_one)),
        ("untile", Emit(memory::tile_of_one)),
        ("tile_atomic_add", Emit(memory::tile_atomic_add)),
        ("print", Emit(memory::print)),
        ("printf", Emit(memory::printf)),
        ("expect_eq", Emit(memory::expect_eq)),
        ("expect_neq", Emit(memory::expect_neq)),
        ("expect_near", Emit(memory::expect_near)),
        ("breakpoint", Emit(memory::nothing)),
        ("transform_set_translation", Emit(vector::set_translation)),
        ("transform_set_rotation", Emit(vector::set_rotation)),
    ]
};

fn row(name: &str) -> Option<How> {
    static ROWS: OnceLock<HashMap<&str, How>> = OnceLock::new();
    ROWS.get_or_init(|| TABLE.iter().copied().collect()).get(name).copied()
}

/// The parameters of a row by name, where it is called with so many; `None` where it takes any, or looks at names itself.
fn names(name: &str, how: How, count: usize) -> Option<Vec<&'static str>> {
    let plain: &[&str] = match (name, how) {
        ("atan2", _) => &["y", "x"],
        ("copysign" | "pow", _) => &["x", "y"],
        (_, How::Float(_)) | ("acos" | "asin" | "abs" | "sign" | "step" | "bit_count" | "neg" | "pos", _) => &["x"],
        (_, How::Operator(_)) | ("min" | "max" | "dot" | "cross" | "outer" | "cw_mul" | "cw_div", _) => &["a", "b"],
        ("expect_eq" | "expect_neq", _) => &["a", "b"],
        ("clamp", _) => &["x", "low", "high"],
        ("where", _) => &["cond", "value_if_true", "value_if_false"],
        ("isnan" | "isinf" | "isfinite" | "unot" | "invert" | "length" | "normalize" | "transpose" | "trace", _) => {
            &["a"]
        }
        ("len" | "tile_sum" | "tile_min" | "tile_max" | "untile", _) => &["a"],
        ("transform_set_translation", _) => &["xform", "p"],
        ("transform_set_rotation", _) => &["xform", "q"],
        ("print", _) => &["value"],
        ("tid" | "block_dim" | "matrix_from_rows" | "matrix_from_cols" | "printf" | "breakpoint", _) => &[],
        _ if name.starts_with("atomic_") => {
            let last: &[&str] = if name == "atomic_cas" { &["compare", "value"] } else { &["value"] };
            let places = count.saturating_sub(1 + last.len()).min(4);
            return Some([&["arr"], &["i", "j", "k", "l"][..places], last].concat());
        }
        _ => return None,
    };
    Some(plain.to_vec())
}

/// Groups of builtins that need more than a kernel is here: what they are of.
fn foreign(name: &str) -> Option<&'static str> {
    Some(match name {
        _ if name.starts_with("tile") || name == "untile" => "tiles",
        _ if name.starts_with("mesh_") => "meshes",
        _ if name.starts_with("bvh_") => "bounding volume hierarchies",
        _ if name.starts_with("hash_grid_") => "hash grids",
        _ if name.starts_with("volume_") => "volumes",
        _ if name.starts_with("texture_") => "textures",
        "grad" | "adjoint" => "gradients",
        _ => return None,
    })
}

impl<'p> Lower<'p> {
    pub(super) fn builtin(&mut self, name: &str, call: &'p ExprCall, expr: &'p Expr) -> Lowers<Val> {
        let how = row(name);
        if let (None, Some(what)) = (how, foreign(name)) {
            return self.fail(
                expr,
                format!("'{name}' is of {what}, which are not supported"),
                "not in the subset",
                None,
            );
        }
        if name == "select" {
            let hint = "write wp.where(condition, if_true, if_false): the values stand the other way round".to_owned();
            return self.fail(call.func.as_ref(), "'select' is no longer in the dialect".into(), "", Some(hint));
        }
        let functions = self.prelude_functions(name);
        if how.is_none() && functions.is_empty() {
            let close = similar(name);
            let hint = close.map(|close| format!("there is wp.{close}"));
            return self.fail(call.func.as_ref(), format!("there is no builtin '{name}'"), "unknown function", hint);
        }
        // What is known beforehand is not evaluated as a value.
        if matches!(name, "static" | "constant") {
            let Some(value) = call.arguments.args.first() else {
                return self.fail(expr, format!("'{name}' takes a value"), "", None);
            };
            return match self.fixed(value, true) {
                Ok(fixed) => self.constant_val(fixed, expr),
                Err((at, what)) => match self.known_length(value) {
                    Some(n) => Ok(Val::Run(self.run_int(n))),
                    None => self.fail(&at, what, "must be known beforehand", None),
                },
            };
        }
        let mut given = self.given(call)?;
        if let Some(names) = how.and_then(|how| names(name, how, given.args.len() + given.named.len()))
            && !given.named.is_empty()
        {
            given = self.placed(name, given, &names)?;
        }
        let made = match how {
            Some(How::Float(op)) => self.float_row(op, &given)?,
            Some(How::Operator(op)) => match &given.args[..] {
                [(a, x), (b, y)] => {
                    let (a, b) = (self.value(a.clone(), *x)?, self.value(b.clone(), *y)?);
                    return self.applied(op, &a, &b, expr).map(Val::Run);
                }
                _ => None,
            },
            Some(How::Emit(emit)) => emit(self, &given, expr)?,
            None => None,
        };
        if let Some(made) = made {
            return Ok(made);
        }
        match self.chosen_function(&functions, &given) {
            Some(id) => self.call_function(id, given, expr),
            None if functions.is_empty() && matches!(how, Some(How::Float(_))) => {
                let found: Vec<String> = given.args.iter().map(|(val, _)| self.val_name(val)).collect();
                let what = format!("'{name}' does not take ({})", found.join(", "));
                let hint = format!("it takes floats of one type: wp.{name}(float(…))");
                self.fail(expr, what, "floats are expected", Some(hint))
            }
            None => self.no_overload(name, &functions, &given, expr),
        }
    }

    /// Functions of the prelude of a name.
    pub(super) fn prelude_functions(&self, name: &str) -> Vec<FuncId> {
        let files = 0..self.prelude.files.len();
        let found = files.filter_map(|file| match self.prelude.scopes[file].names.get(name) {
            Some(Item::Functions(all)) => Some(all),
            _ => None,
        });
        found.flatten().map(|&n| FuncId { prelude: true, n, around: 0 }).collect()
    }

    fn float_row(&mut self, op: Op, given: &Given<'p>) -> Lowers<Option<Val>> {
        if given.args.len() != op.arity() {
            return Ok(None);
        }
        let runs = self.runs(given)?;
        let ty = runs[0].ty;
        if runs.iter().any(|run| run.ty != ty) || !ty.is_float() || ty.scalar().is_none() {
            return Ok(None);
        }
        let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
        Ok(Some(Val::Run(Run::new(self.op(op, &ids), ty))))
    }

    /// All arguments as values.
    fn runs(&mut self, given: &Given<'p>) -> Lowers<Vec<Run>> {
        let mut runs = vec![];
        for (val, at) in &given.args {
            runs.push(self.value(val.clone(), *at)?);
        }
        Ok(runs)
    }

    /// All arguments as values, if they are all of one type with components.
    fn alike_runs(&mut self, given: &Given<'p>, count: usize, at: &'p Expr) -> Lowers<Option<(Vec<Run>, Ty)>> {
        if given.args.len() != count {
            return Ok(None);
        }
        let runs = self.runs(given)?;
        let ty = runs[0].ty;
        for run in &runs[1..] {
            if run.ty.scalar().is_some() && ty.scalar().is_some() {
                self.alike(&runs[0].clone(), &run.clone(), at)?;
            }
            if run.ty != ty {
                return Ok(None);
            }
        }
        Ok(ty.element().map(|_| (runs, ty)))
    }
}

/// A builtin that could be meant.
fn similar(name: &str) -> Option<&'static str> {
    let close = |other: &str| super::expr::distance(name, other);
    let found = TABLE.iter().map(|(other, _)| *other).min_by_key(|other| close(other))?;
    (close(found) <= 1 + name.len() / 5).then_some(found)
}
