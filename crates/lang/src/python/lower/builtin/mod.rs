//! Warp builtins. `TABLE` maps each name to its lowering: a scalar op, an operator, or a function
//! of the submodules. Builtins that are not in the table, or not for the given types, are functions
//! of the prelude (`prelude/*.py`).

mod math;
mod memory;
mod vector;

use std::sync::OnceLock;

use bornite_ir::Op;
use foldhash::HashMap;
use ruff_python_ast::{Expr, ExprCall, Operator};

use super::call::CallArgs;
use super::value::{PyValue, Rvalue};
use super::{Lower, LowerResult};
use crate::python::program::{FuncId, Item};
use crate::python::types::Ty;

/// Emits a call of a builtin; returns `None` if it does not accept the types of the arguments.
type EmitFn = for<'a, 'p> fn(&'a mut Lower<'p>, &'a CallArgs<'p>, &'p Expr) -> LowerResult<Option<PyValue>>;

/// The lowering of a builtin.
#[derive(Clone, Copy)]
enum BuiltinLowering {
    /// A scalar op on floats.
    FloatOp(Op),
    /// An operator.
    Operator(Operator),
    Custom(EmitFn),
}

const TABLE: &[(&str, BuiltinLowering)] = {
    use BuiltinLowering::{Custom, FloatOp, Operator as Sign};
    &[
        ("acos", Custom(math::acos)),
        ("asin", Custom(math::asin)),
        ("atan", FloatOp(Op::Atan)),
        ("atan2", FloatOp(Op::Atan2)),
        ("cbrt", FloatOp(Op::Cbrt)),
        ("ceil", FloatOp(Op::Ceil)),
        ("copysign", FloatOp(Op::Copysign)),
        ("cos", FloatOp(Op::Cos)),
        ("cosh", FloatOp(Op::Cosh)),
        ("erf", FloatOp(Op::Erf)),
        ("erfc", FloatOp(Op::Erfc)),
        ("exp", FloatOp(Op::Exp)),
        ("floor", FloatOp(Op::Floor)),
        ("log", FloatOp(Op::Log)),
        ("log10", FloatOp(Op::Log10)),
        ("log2", FloatOp(Op::Log2)),
        ("pow", FloatOp(Op::Pow)),
        ("rint", FloatOp(Op::Rint)),
        ("round", FloatOp(Op::Round)),
        ("sin", FloatOp(Op::Sin)),
        ("sinh", FloatOp(Op::Sinh)),
        ("sqrt", FloatOp(Op::Sqrt)),
        ("tan", FloatOp(Op::Tan)),
        ("tanh", FloatOp(Op::Tanh)),
        ("trunc", FloatOp(Op::Trunc)),
        ("abs", Custom(math::abs)),
        ("sign", Custom(math::sign)),
        ("step", Custom(math::step)),
        ("min", Custom(math::min)),
        ("max", Custom(math::max)),
        ("clamp", Custom(math::clamp)),
        ("where", Custom(math::choose)),
        ("isnan", Custom(math::isnan)),
        ("isinf", Custom(math::isinf)),
        ("isfinite", Custom(math::isfinite)),
        ("bit_count", Custom(math::bit_count)),
        ("neg", Custom(math::neg)),
        ("pos", Custom(math::pos)),
        ("unot", Custom(math::unot)),
        ("invert", Custom(math::invert)),
        ("cast", Custom(math::cast)),
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
        ("dot", Custom(vector::dot)),
        ("cross", Custom(vector::cross)),
        ("length", Custom(vector::length)),
        ("normalize", Custom(vector::normalize)),
        ("outer", Custom(vector::outer)),
        ("transpose", Custom(vector::transpose)),
        ("cw_mul", Custom(vector::cw_mul)),
        ("cw_div", Custom(vector::cw_div)),
        ("trace", Custom(vector::trace)),
        ("diag", Custom(vector::diag)),
        ("get_diag", Custom(vector::get_diag)),
        ("lower_bound", Custom(memory::lower_bound)),
        ("identity", Custom(vector::identity)),
        ("matrix_from_rows", Custom(vector::from_rows)),
        ("matrix_from_cols", Custom(vector::from_columns)),
        ("vector", Custom(vector::vector)),
        ("matrix", Custom(vector::matrix)),
        ("quaternion", Custom(vector::quaternion)),
        ("transformation", Custom(vector::transformation)),
        ("quat_identity", Custom(vector::quat_identity)),
        ("transform_identity", Custom(vector::transform_identity)),
        ("len", Custom(memory::len)),
        ("tid", Custom(memory::tid)),
        ("block_dim", Custom(memory::block_dim)),
        ("zeros", Custom(memory::zeros)),
        ("static", Custom(memory::evaluated_earlier)),
        ("constant", Custom(memory::evaluated_earlier)),
        ("atomic_add", Custom(memory::atomic_add)),
        ("atomic_sub", Custom(memory::atomic_sub)),
        ("atomic_min", Custom(memory::atomic_min)),
        ("atomic_max", Custom(memory::atomic_max)),
        ("atomic_and", Custom(memory::atomic_and)),
        ("atomic_or", Custom(memory::atomic_or)),
        ("atomic_xor", Custom(memory::atomic_xor)),
        ("atomic_exch", Custom(memory::atomic_exch)),
        ("atomic_cas", Custom(memory::atomic_cas)),
        ("tile_sum", Custom(memory::single_thread_tile)),
        ("tile_min", Custom(memory::single_thread_tile)),
        ("tile_max", Custom(memory::single_thread_tile)),
        ("untile", Custom(memory::single_thread_tile)),
        ("tile_atomic_add", Custom(memory::tile_atomic_add)),
        ("print", Custom(memory::print)),
        ("printf", Custom(memory::printf)),
        ("expect_eq", Custom(memory::expect_eq)),
        ("expect_neq", Custom(memory::expect_neq)),
        ("expect_near", Custom(memory::expect_near)),
        ("breakpoint", Custom(memory::no_op)),
        ("transform_set_translation", Custom(vector::set_translation)),
        ("transform_set_rotation", Custom(vector::set_rotation)),
    ]
};

fn lookup(name: &str) -> Option<BuiltinLowering> {
    static ROWS: OnceLock<HashMap<&str, BuiltinLowering>> = OnceLock::new();
    ROWS.get_or_init(|| TABLE.iter().copied().collect()).get(name).copied()
}

/// Parameter names of a builtin that is called with `count` arguments; `None` if it handles keyword
/// arguments itself.
fn param_names(name: &str, lowering: BuiltinLowering, count: usize) -> Option<Vec<&'static str>> {
    let plain: &[&str] = match (name, lowering) {
        ("atan2", _) => &["y", "x"],
        ("copysign" | "pow", _) => &["x", "y"],
        (_, BuiltinLowering::FloatOp(_))
        | ("acos" | "asin" | "abs" | "sign" | "step" | "bit_count" | "neg" | "pos", _) => &["x"],
        (_, BuiltinLowering::Operator(_)) | ("min" | "max" | "dot" | "cross" | "outer" | "cw_mul" | "cw_div", _) => {
            &["a", "b"]
        }
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
            let indices = count.saturating_sub(1 + last.len()).min(4);
            return Some([&["arr"], &["i", "j", "k", "l"][..indices], last].concat());
        }
        _ => return None,
    };
    Some(plain.to_vec())
}

/// The feature that an unsupported builtin belongs to.
fn unsupported_group(name: &str) -> Option<&'static str> {
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
    pub(super) fn builtin(&mut self, name: &str, call: &'p ExprCall, expr: &'p Expr) -> LowerResult<PyValue> {
        let lowering = lookup(name);
        if let (None, Some(what)) = (lowering, unsupported_group(name)) {
            return self.fail(
                expr,
                format!("'{name}' is not supported: kernels cannot use {what}"),
                "not supported",
                None,
            );
        }
        if name == "select" {
            let hint =
                "use wp.where(condition, if_true, if_false), which takes the values in the opposite order".to_owned();
            return self.fail(call.func.as_ref(), "'select' was removed from Warp".into(), "", Some(hint));
        }
        let functions = self.prelude_functions(name);
        if lowering.is_none() && functions.is_empty() {
            let close = similar(name);
            let hint = close.map(|close| format!("did you mean wp.{close}?"));
            return self.fail(call.func.as_ref(), format!("unknown builtin '{name}'"), "unknown function", hint);
        }
        // The argument is evaluated at compile time only.
        if matches!(name, "static" | "constant") {
            let Some(value) = call.arguments.args.first() else {
                return self.fail(expr, format!("'{name}' expects one argument"), "", None);
            };
            return match self.eval_const(value, true) {
                Ok(constant) => self.constant_val(constant, expr),
                Err((at, what)) => match self.constant_len(value) {
                    Some(n) => Ok(PyValue::Rvalue(self.const_int(n))),
                    None => self.fail(&at, what, "must be known at compile time", None),
                },
            };
        }
        let mut call_args = self.eval_args(call)?;
        if let Some(names) = lowering
            .and_then(|lowering| param_names(name, lowering, call_args.positional.len() + call_args.named.len()))
            && !call_args.named.is_empty()
        {
            call_args = self.bind_keywords(name, call_args, &names)?;
        }
        let result = match lowering {
            Some(BuiltinLowering::FloatOp(op)) => self.float_op(op, &call_args)?,
            Some(BuiltinLowering::Operator(op)) => match &call_args.positional[..] {
                [(a, x), (b, y)] => {
                    let (a, b) = (self.value(a.clone(), *x)?, self.value(b.clone(), *y)?);
                    return self.apply_operator(op, &a, &b, expr).map(PyValue::Rvalue);
                }
                _ => None,
            },
            Some(BuiltinLowering::Custom(emit)) => emit(self, &call_args, expr)?,
            None => None,
        };
        if let Some(result) = result {
            return Ok(result);
        }
        match self.select_overload(&functions, &call_args) {
            Some(id) => self.call_function(id, call_args, expr),
            None if functions.is_empty() && matches!(lowering, Some(BuiltinLowering::FloatOp(_))) => {
                let found: Vec<String> = call_args.positional.iter().map(|(val, _)| self.describe(val)).collect();
                let what = format!("'{name}' does not take ({})", found.join(", "));
                let hint = format!("it takes floats of one type: wp.{name}(float(…))");
                self.fail(expr, what, "expected floats", Some(hint))
            }
            None => self.no_overload(name, &functions, &call_args, expr),
        }
    }

    /// Functions of the prelude with a name.
    pub(super) fn prelude_functions(&self, name: &str) -> Vec<FuncId> {
        let files = 0..self.prelude.files.len();
        let found = files.filter_map(|file| match self.prelude.scopes[file].names.get(name) {
            Some(Item::Functions(all)) => Some(all),
            _ => None,
        });
        found.flatten().map(|&n| FuncId { prelude: true, n, closure: 0 }).collect()
    }

    fn float_op(&mut self, op: Op, call_args: &CallArgs<'p>) -> LowerResult<Option<PyValue>> {
        if call_args.positional.len() != op.arity() {
            return Ok(None);
        }
        let rvalues = self.rvalues(call_args)?;
        let ty = rvalues[0].ty;
        if rvalues.iter().any(|rvalue| rvalue.ty != ty) || !ty.is_float() || ty.scalar().is_none() {
            return Ok(None);
        }
        let ids: Vec<_> = rvalues.iter().map(|rvalue| rvalue.id).collect();
        Ok(Some(PyValue::Rvalue(Rvalue::new(self.op(op, &ids), ty))))
    }

    /// All arguments as rvalues.
    fn rvalues(&mut self, call_args: &CallArgs<'p>) -> LowerResult<Vec<Rvalue>> {
        let mut rvalues = vec![];
        for (val, at) in &call_args.positional {
            rvalues.push(self.value(val.clone(), *at)?);
        }
        Ok(rvalues)
    }

    /// All arguments as rvalues, if there are `count` of them and all have the same type, which is
    /// not a struct.
    fn same_type_args(
        &mut self,
        call_args: &CallArgs<'p>,
        count: usize,
        at: &'p Expr,
    ) -> LowerResult<Option<(Vec<Rvalue>, Ty)>> {
        if call_args.positional.len() != count {
            return Ok(None);
        }
        let rvalues = self.rvalues(call_args)?;
        let ty = rvalues[0].ty;
        for rvalue in &rvalues[1..] {
            if rvalue.ty.scalar().is_some() && ty.scalar().is_some() {
                self.check_same_type(&rvalues[0].clone(), &rvalue.clone(), at)?;
            }
            if rvalue.ty != ty {
                return Ok(None);
            }
        }
        Ok(ty.element().map(|_| (rvalues, ty)))
    }
}

/// A builtin that the user may have meant.
fn similar(name: &str) -> Option<&'static str> {
    let close = |other: &str| super::expr::distance(name, other);
    let found = TABLE.iter().map(|(other, _)| *other).min_by_key(|other| close(other))?;
    (close(found) <= 1 + name.len() / 5).then_some(found)
}
