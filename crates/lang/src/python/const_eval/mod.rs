//! Compile-time evaluation of Python expressions: constants, types, functions and `wp.static`. It
//! knows nothing about the IR. Values computed by a running kernel are handled in `lower/`.

mod bindings;
mod closure;
mod compute;
mod subscript;
mod vectors;

use bornite_ir::{Scalar, Value};
use ruff_python_ast::{Expr, ExprGenerator, ExprList, ExprListComp, ExprTuple, Number, UnaryOp};
use ruff_text_size::{Ranged, TextRange, TextSize};

use crate::python::program::{FuncId, Item, Program};
use crate::python::types::{Pattern, ScalarConstraint, Ty, type_from_name};
use bindings::NOT_KNOWN;
pub(crate) use closure::Closure;

/// A value known at compile time.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ConstValue {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    /// A value of a Warp type: its components.
    Typed(Ty, Vec<Value>),
    /// A list or tuple.
    List(Vec<ConstValue>),
    /// A dictionary: keys and values, in insertion order.
    Dict(Vec<(ConstValue, ConstValue)>),
    Type(Pattern),
    /// Overloads of a function.
    Functions(Vec<FuncId>),
    Kernel(FuncId),
    /// The module `warp`, or a submodule such as `wp.types`.
    WarpModule,
    /// A Warp builtin, by name.
    Builtin(String),
    /// A module that is not among the files.
    Module(String),
    /// Another file of the program.
    File(usize),
    /// A class: the scope of its body.
    Class(usize),
    /// A function of Python or of an external module, by name.
    PythonBuiltin(String),
    /// An undecorated function: its name, the scope of its body, and its closure.
    PlainFunction(String, usize, u32),
}

/// Error of an expression that cannot be evaluated: location and message.
pub(crate) type Unknown = (TextRange, String);

impl ConstValue {
    pub fn truth(&self) -> Option<bool> {
        Some(match self {
            ConstValue::None => false,
            ConstValue::Bool(b) => *b,
            ConstValue::Int(n) => *n != 0,
            ConstValue::Float(x) => *x != 0.0,
            ConstValue::Str(text) => !text.is_empty(),
            ConstValue::List(all) => !all.is_empty(),
            ConstValue::Dict(all) => !all.is_empty(),
            ConstValue::Typed(Ty::Scalar(_), parts) => parts.first()?.as_f64() != 0.0,
            _ => return None,
        })
    }

    pub fn number(&self) -> Option<f64> {
        Some(match self {
            ConstValue::Bool(b) => *b as i64 as f64,
            ConstValue::Int(n) => *n as f64,
            ConstValue::Float(x) => *x,
            ConstValue::Typed(Ty::Scalar(_), parts) => parts.first()?.as_f64(),
            _ => return None,
        })
    }

    pub fn int(&self) -> Option<i64> {
        Some(match self {
            ConstValue::Bool(b) => *b as i64,
            ConstValue::Int(n) => *n,
            ConstValue::Typed(Ty::Scalar(s), parts) if s.is_int() => parts.first()?.as_i64(),
            _ => return None,
        })
    }

    /// Approximate cost of copying the value.
    fn copy_cost(&self) -> usize {
        match self {
            ConstValue::Str(text) => text.len(),
            ConstValue::List(all) => all.iter().map(|one| 4 + one.copy_cost()).sum(),
            ConstValue::Dict(all) => all.iter().map(|(key, value)| 8 + key.copy_cost() + value.copy_cost()).sum(),
            ConstValue::Type(pattern) => 4 * pattern.nodes(),
            ConstValue::Typed(_, parts) => parts.len(),
            _ => 1,
        }
    }

    fn extent(&self) -> Option<u8> {
        self.int().and_then(|n| u8::try_from(n).ok()).filter(|n| *n > 0)
    }
}

/// Looks up names before those of the program: variables of a kernel, for `wp.static`.
pub(crate) type Locals<'l> = &'l dyn Fn(&str) -> Option<ConstValue>;

/// Largest depth of nested evaluations; constants may be defined in terms of each other.
const MAX_EVAL_DEPTH: u32 = 64;
/// Largest number of evaluation steps for one kernel.
const MAX_EVAL_STEPS: u32 = 200_000;

/// Evaluates expressions in a scope of a program.
pub(crate) struct Evaluator<'p, 'l> {
    pub program: &'p Program<'p>,
    pub prelude: bool,
    pub scope: usize,
    pub locals: Locals<'l>,
    pub depth: u32,
    /// A position in a scope: assignments after it are not visible.
    pub before: Option<(usize, TextSize)>,
    /// The closure of the evaluated code: [`FuncId::closure`].
    pub closure: u32,
}

impl<'p> Evaluator<'p, 'static> {
    pub fn new(program: &'p Program<'p>, prelude: bool, scope: usize) -> Evaluator<'p, 'static> {
        Evaluator { program, prelude, scope, locals: &|_| None, depth: 0, before: None, closure: 0 }
    }
}

impl<'p> Evaluator<'p, '_> {
    fn unknown<T>(&self, at: &impl Ranged, what: impl Into<String>) -> Result<T, Unknown> {
        Err((at.range(), what.into()))
    }

    pub fn eval(&self, expr: &Expr) -> Result<ConstValue, Unknown> {
        let found = self.evaluated(expr)?;
        // The value is copied.
        self.charge(found.copy_cost() / 16);
        Ok(found)
    }

    /// Evaluates an annotation, which may be quoted.
    pub fn annotation(&self, expr: &Expr) -> Result<ConstValue, Unknown> {
        let text = match self.eval(expr)? {
            ConstValue::Str(text) => text,
            other => return Ok(other),
        };
        let parse = || {
            let deep = crate::python::nesting::too_deep(&text).is_some();
            Some(ruff_python_parser::parse_expression(&text).ok().filter(|_| !deep)?.into_expr())
        };
        let found = match parse() {
            Some(expr) => self.eval(&expr),
            None => self.unknown(expr, format!("'{text}' is not a type")),
        };
        found.map_err(|(_, what)| (expr.range(), what))
    }

    fn evaluated(&self, expr: &Expr) -> Result<ConstValue, Unknown> {
        let spent = self.program.eval_steps.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if self.depth > MAX_EVAL_DEPTH || spent > MAX_EVAL_STEPS && !self.prelude {
            return self.unknown(expr, "constant evaluation exceeds its limit; is a definition recursive?");
        }
        match expr {
            Expr::NumberLiteral(number) => match &number.value {
                Number::Int(n) => match n.as_i64() {
                    Some(n) => Ok(ConstValue::Int(n)),
                    None => match n.as_u64() {
                        Some(n) => {
                            Ok(ConstValue::Typed(Ty::Scalar(Scalar::U64), vec![Value::from_bits(Scalar::U64, n)]))
                        }
                        None => self.unknown(expr, "the number does not fit in 64 bits"),
                    },
                },
                Number::Float(x) => Ok(ConstValue::Float(*x)),
                Number::Complex { .. } => self.unknown(expr, "complex numbers are not supported in kernels"),
            },
            Expr::BooleanLiteral(b) => Ok(ConstValue::Bool(b.value)),
            Expr::NoneLiteral(_) => Ok(ConstValue::None),
            Expr::StringLiteral(text) => Ok(ConstValue::Str(text.value.to_str().to_owned())),
            Expr::Name(name) => self.name(name.id.as_str(), expr),
            Expr::Attribute(attribute) => {
                let of = self.eval(&attribute.value)?;
                self.attribute(of, attribute.attr.as_str(), expr)
            }
            Expr::UnaryOp(unary) => {
                let value = self.eval(&unary.operand)?;
                match (unary.op, &value) {
                    (UnaryOp::Not, value) if value.truth().is_some() => {
                        Ok(ConstValue::Bool(value.truth() != Some(true)))
                    }
                    (UnaryOp::USub, ConstValue::Int(n)) => match n.checked_neg() {
                        Some(n) => Ok(ConstValue::Int(n)),
                        None => self.unknown(expr, "the number does not fit in 64 bits"),
                    },
                    // `i64::MIN` is written as the negation of 2^63, which does not fit in 64
                    // signed bits.
                    (UnaryOp::USub, ConstValue::Typed(Ty::Scalar(Scalar::U64), parts))
                        if parts[0].bits() == 1 << 63 =>
                    {
                        Ok(ConstValue::Int(i64::MIN))
                    }
                    (UnaryOp::USub, ConstValue::Bool(b)) => Ok(ConstValue::Int(-(*b as i64))),
                    (UnaryOp::USub, ConstValue::Float(x)) => Ok(ConstValue::Float(-x)),
                    (UnaryOp::UAdd, _) => Ok(value),
                    (UnaryOp::Invert, ConstValue::Int(n)) => Ok(ConstValue::Int(!n)),
                    (UnaryOp::USub, ConstValue::Typed(ty, parts)) => {
                        let negated = |v: &Value| {
                            if v.scalar().is_float() {
                                Value::from_f64(v.scalar(), -v.as_f64())
                            } else {
                                Value::int(v.scalar(), v.as_i64().wrapping_neg())
                            }
                        };
                        Ok(ConstValue::Typed(*ty, parts.iter().map(negated).collect()))
                    }
                    _ => self.unknown(expr, "expected a number"),
                }
            }
            Expr::BinOp(binary) => {
                let (a, b) = (self.eval(&binary.left)?, self.eval(&binary.right)?);
                self.binary(binary.op, &a, &b, expr)
            }
            Expr::BoolOp(op) => {
                let mut last = ConstValue::None;
                for value in &op.values {
                    last = self.eval(value)?;
                    let Some(truth) = last.truth() else {
                        return self.unknown(value, "this value cannot be converted to bool");
                    };
                    if truth == matches!(op.op, ruff_python_ast::BoolOp::Or) {
                        break;
                    }
                }
                Ok(last)
            }
            Expr::Compare(compare) => {
                let mut left = self.eval(&compare.left)?;
                for (op, right) in compare.ops.iter().zip(&compare.comparators) {
                    let right = self.eval(right)?;
                    let Some(holds) = compute::compared(*op, &left, &right) else {
                        return self.unknown(expr, "these values cannot be compared at compile time");
                    };
                    if !holds {
                        return Ok(ConstValue::Bool(false));
                    }
                    left = right;
                }
                Ok(ConstValue::Bool(true))
            }
            Expr::If(choice) => match self.eval(&choice.test)?.truth() {
                Some(true) => self.eval(&choice.body),
                Some(false) => self.eval(&choice.orelse),
                None => self.unknown(expr, "this value cannot be converted to bool"),
            },
            Expr::Tuple(ExprTuple { elts, .. }) | Expr::List(ExprList { elts, .. }) => self
                .check_list_size(ConstValue::List(elts.iter().map(|e| self.eval(e)).collect::<Result<_, _>>()?), expr),
            Expr::Dict(dict) => {
                let mut all: Vec<(ConstValue, ConstValue)> = vec![];
                for item in &dict.items {
                    let Some(key) = &item.key else {
                        return self.unknown(expr, "this expression cannot be evaluated at compile time");
                    };
                    let (key, value) = (self.eval(key)?, self.eval(&item.value)?);
                    all.retain(|(other, _)| *other != key);
                    all.push((key, value));
                }
                self.charge(all.len() * all.len() / 16);
                self.check_list_size(ConstValue::Dict(all), expr)
            }
            Expr::Subscript(subscript) => {
                let of = self.eval(&subscript.value)?;
                self.subscript(of, &subscript.slice, expr)
            }
            Expr::Call(call) => self.call(call, expr),
            Expr::ListComp(ExprListComp { elt, generators, .. })
            | Expr::Generator(ExprGenerator { elt, generators, .. }) => self.comprehension(elt, generators, expr),
            _ => self.unknown(expr, "this expression cannot be evaluated at compile time"),
        }
    }

    fn name(&self, name: &str, at: &Expr) -> Result<ConstValue, Unknown> {
        if let Some(found) = (self.locals)(name) {
            return self.check_list_size(found, at);
        }
        match self.program.lookup(name, self.scope) {
            Some((item, scope)) => self.item(item, scope, name, at),
            None => match python_name(name) {
                Some(found) => Ok(found),
                None if self.program.scopes[self.program.scopes[self.scope].file].star_imports_warp => {
                    self.warp(name, at)
                }
                None => self.unknown(at, format!("'{name}' is not defined")),
            },
        }
    }

    /// An evaluator at the position of a function's definition.
    pub fn at_definition(&self, n: u32, scope: usize) -> Evaluator<'p, 'static> {
        let start = self.program.functions[n as usize].def.range().start();
        Evaluator { before: Some((scope, start)), ..self.within(scope) }
    }

    /// Counts work other than an evaluation step against the evaluation limit.
    fn charge(&self, steps: usize) {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX).min(MAX_EVAL_STEPS);
        self.program.eval_steps.fetch_add(steps, std::sync::atomic::Ordering::Relaxed);
    }

    fn within(&self, scope: usize) -> Evaluator<'p, 'static> {
        Evaluator { depth: self.depth + 1, closure: self.closure, ..Evaluator::new(self.program, self.prelude, scope) }
    }

    pub fn item(&self, item: &Item<'p>, scope: usize, name: &str, at: &Expr) -> Result<ConstValue, Unknown> {
        if self.depth > MAX_EVAL_DEPTH {
            return self.unknown(at, "constant evaluation exceeds its limit; is a definition recursive?");
        }
        let found = match item {
            Item::Functions(all) => {
                let mut found = vec![];
                let closure = self.closure_visible_from(scope);
                for &n in all {
                    match self.at_definition(n, scope).holds(&self.program.functions[n as usize].conditions) {
                        Some(true) => found.push(FuncId { prelude: self.prelude, n, closure }),
                        Some(false) => {}
                        None => return self.unknown(at, format!("'{name}' is defined under a condition{NOT_KNOWN}")),
                    }
                }
                ConstValue::Functions(found)
            }
            Item::Kernels(all) => {
                let is_there = |n: &u32| {
                    self.at_definition(*n, scope).holds(&self.program.functions[*n as usize].conditions) != Some(false)
                };
                match all.iter().copied().rev().find(is_there) {
                    Some(n) => ConstValue::Kernel(FuncId {
                        prelude: self.prelude,
                        n,
                        closure: self.closure_visible_from(scope),
                    }),
                    None => return self.unknown(at, format!("'{name}' has no value")),
                }
            }
            Item::Struct(n) => ConstValue::Type(Pattern::Struct(*n)),
            Item::Values(all) => return self.last_value(all, scope, name, at),
            Item::WarpModule => ConstValue::WarpModule,
            Item::WarpName(name) => return self.warp(name.rsplit('.').next().unwrap_or(name), at),
            Item::ExternalModule(module) => ConstValue::Module((*module).into()),
            Item::ExternalName(module, name) => return self.attribute(ConstValue::Module((*module).into()), name, at),
            Item::ImportedFile(file) => ConstValue::File(*file),
            Item::ImportedName(file, name) => match self.program.lookup(name, *file) {
                Some((item, scope)) => {
                    return self.within(scope).item(item, scope, name, at);
                }
                None => return self.unknown(at, format!("'{name}' is not defined in the file it is imported from")),
            },
            Item::PlainFunction(inner) => {
                ConstValue::PlainFunction(name.into(), *inner, self.closure_visible_from(scope))
            }
            Item::Class(scope) => ConstValue::Class(*scope),
        };
        Ok(found)
    }

    pub fn attribute(&self, of: ConstValue, name: &str, at: &Expr) -> Result<ConstValue, Unknown> {
        match of {
            ConstValue::WarpModule => self.warp(name, at),
            ConstValue::Module(module) => match (module.as_str(), name) {
                ("math" | "numpy" | "np", "pi") => Ok(ConstValue::Float(std::f64::consts::PI)),
                ("math" | "numpy", "e") => Ok(ConstValue::Float(std::f64::consts::E)),
                ("math", "tau") => Ok(ConstValue::Float(std::f64::consts::TAU)),
                ("math" | "numpy", "inf") => Ok(ConstValue::Float(f64::INFINITY)),
                ("math" | "numpy", "nan") => Ok(ConstValue::Float(f64::NAN)),
                ("typing", "Any") => Ok(ConstValue::Type(Pattern::Any)),
                ("typing" | "collections.abc" | "collections", "Callable") => Ok(ConstValue::Type(Pattern::Function)),
                ("math" | "numpy", _) => Ok(ConstValue::Builtin(name.into())),
                (package, name)
                    if let Some(file) = self.program.file_named(&format!("{package}.{name}"), self.scope) =>
                {
                    Ok(ConstValue::File(file))
                }
                (package, name) if self.program.is_package(&format!("{package}.{name}."), self.scope) => {
                    Ok(ConstValue::Module(format!("{package}.{name}")))
                }
                // `import package` and `import package.module` bind the same name.
                (package, name)
                    if let Some(file) = self.program.file_named(package, self.scope)
                        && let Some((item, scope)) = self.program.lookup(name, file) =>
                {
                    self.within(scope).item(item, scope, name, at)
                }
                ("func_native", _) => {
                    self.unknown(at, format!("'{name}' is a native C++ function (func_native), which is not supported"))
                }
                (_, _) => Ok(ConstValue::PythonBuiltin(format!("{module}.{name}"))),
            },
            ConstValue::File(file) => match self.program.lookup(name, file) {
                Some((item, scope)) => self.item(item, scope, name, at),
                None => match self.program.module_of(file, name) {
                    Some(module) => Ok(ConstValue::File(module)),
                    None => self.unknown(at, format!("'{name}' is not defined in the file it is imported from")),
                },
            },
            ConstValue::Class(scope) => match self.program.scopes[scope].names.get(name) {
                Some(item) => self.item(item, scope, name, at),
                None => self.unknown(at, format!("the class has no attribute '{name}'")),
            },
            // `.value` of an enum member is the member itself.
            ConstValue::Int(_) if name == "value" => Ok(of),
            ConstValue::Typed(ty, parts) => {
                let component = "xyzw".find(name).filter(|_| name.len() == 1);
                match component {
                    Some(n) if n < parts.len() && !matches!(ty, Ty::Scalar(_)) => {
                        Ok(ConstValue::Typed(Ty::Scalar(parts[n].scalar()), vec![parts[n]]))
                    }
                    _ => self.unknown(at, format!("no attribute '{name}'")),
                }
            }
            ConstValue::Type(pattern) => match (pattern.exact(), name) {
                (Some(ty), "dtype") => match ty.element() {
                    Some(s) => Ok(ConstValue::Type(Pattern::of(Ty::Scalar(s)))),
                    None => self.unknown(at, "structs have no dtype"),
                },
                _ => self.unknown(at, format!("no attribute '{name}'")),
            },
            _ => self.unknown(at, format!("no attribute '{name}'")),
        }
    }

    /// A name of the module `warp`.
    fn warp(&self, name: &str, at: &Expr) -> Result<ConstValue, Unknown> {
        use std::f64::consts;
        let number = |x: f64| Ok(ConstValue::Float(x));
        match name {
            "pi" | "PI" => number(consts::PI),
            "half_pi" | "HALF_PI" => number(consts::FRAC_PI_2),
            "tau" | "TAU" => number(consts::TAU),
            "e" | "E" => number(consts::E),
            "phi" | "PHI" => number(1.618_033_988_749_895),
            "ln2" | "LN2" => number(consts::LN_2),
            "ln10" | "LN10" => number(consts::LN_10),
            "log2e" | "LOG2E" => number(consts::LOG2_E),
            "log10e" | "LOG10E" => number(consts::LOG10_E),
            "inf" | "INF" => number(f64::INFINITY),
            "nan" | "NAN" => number(f64::NAN),
            "types" | "math" | "utils" | "_src" | "constants" | "fem" | "linalg" => Ok(ConstValue::WarpModule),
            "Any" => Ok(ConstValue::Type(Pattern::Any)),
            "Float" => Ok(ConstValue::Type(Pattern::Scalar(ScalarConstraint::Float))),
            "Int" => Ok(ConstValue::Type(Pattern::Scalar(ScalarConstraint::Int))),
            "Scalar" => Ok(ConstValue::Type(Pattern::Scalar(ScalarConstraint::Any))),
            "Function" => Ok(ConstValue::Type(Pattern::Function)),
            "array" | "array1d" => Ok(ConstValue::Type(Pattern::Array(Box::new(Pattern::Any), 1))),
            "array2d" => Ok(ConstValue::Type(Pattern::Array(Box::new(Pattern::Any), 2))),
            "array3d" => Ok(ConstValue::Type(Pattern::Array(Box::new(Pattern::Any), 3))),
            "array4d" => Ok(ConstValue::Type(Pattern::Array(Box::new(Pattern::Any), 4))),
            "ref" => Ok(ConstValue::Type(Pattern::Ref(Box::new(Pattern::Any)))),
            "indexedarray" | "indexedarray1d" | "indexedarray2d" | "indexedarray3d" | "indexedarray4d"
            | "fabricarray" | "tile" | "tile_stack" | "Texture1D" | "Texture2D" | "Texture3D" | "HashGridQuery"
            | "MeshQueryAABB" | "BvhQuery" | "Mesh" | "Volume" | "Bvh" | "HashGrid" | "MeshQueryPoint"
            | "MeshQueryRay" => Ok(ConstValue::Type(Pattern::Unsupported(name.into()))),
            _ => match type_from_name(name) {
                Some(ty) => Ok(ConstValue::Type(Pattern::of(ty))),
                None if name.starts_with("__") => self.unknown(at, format!("no attribute '{name}'")),
                None => Ok(ConstValue::Builtin(name.into())),
            },
        }
    }
}

/// A number as a scalar: `n` wrapped for integer types, `x` for floats.
pub(crate) fn scalar_value(s: Scalar, x: f64, n: i64) -> Value {
    if s.is_int() { Value::int(s, n) } else { Value::from_f64(s, x) }
}

/// Python's builtin names.
fn python_name(name: &str) -> Option<ConstValue> {
    Some(match name {
        "int" | "float" | "bool" => ConstValue::Type(Pattern::of(type_from_name(name)?)),
        "Any" => ConstValue::Type(Pattern::Any),
        "len" | "abs" | "min" | "max" | "round" | "range" | "tuple" | "list" | "print" | "type" | "reversed"
        | "slice" | "str" | "sum" | "isinstance" | "getattr" | "hasattr" | "zip" | "enumerate" => {
            ConstValue::PythonBuiltin(name.into())
        }
        _ => return None,
    })
}
