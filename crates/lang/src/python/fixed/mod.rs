//! What is known when a kernel is made: constants, types and functions, found by evaluating Python's expressions.

mod closure;
mod compute;
mod given;
mod subscript;
mod vectors;

use bornite_ir::{Scalar, Value};
use ruff_python_ast::{Expr, ExprGenerator, ExprList, ExprListComp, ExprTuple, Number, UnaryOp};
use ruff_text_size::{Ranged, TextRange, TextSize};

use crate::python::program::{FuncId, Item, Program};
use crate::python::types::{Among, Pattern, Ty, type_named};
pub(crate) use closure::Closure;
use given::OF_A_RUN;

/// A value that is known.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Fixed {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// A value of a type of the dialect, by its components.
    Typed(Ty, Vec<Value>),
    List(Vec<Fixed>),
    /// A dictionary, by its keys in order.
    Dict(Vec<(Fixed, Fixed)>),
    Type(Pattern),
    /// Overloads of a function.
    Functions(Vec<FuncId>),
    Kernel(FuncId),
    /// The dialect's module, or a part of it such as `wp.types`.
    Warp,
    /// A name of the dialect: a builtin function.
    Builtin(String),
    /// A module of Python's.
    Module(String),
    File(usize),
    Class(usize),
    /// A function of Python's own, by name.
    Python(String),
    /// An undecorated function: its name, the scope of its body, and the call around it.
    Plain(String, usize, u32),
}

/// Why a value is not known: where, and what.
pub(crate) type Unknown = (TextRange, String);

impl Fixed {
    pub fn truth(&self) -> Option<bool> {
        Some(match self {
            Fixed::None => false,
            Fixed::Bool(b) => *b,
            Fixed::Int(n) => *n != 0,
            Fixed::Float(x) => *x != 0.0,
            Fixed::Text(text) => !text.is_empty(),
            Fixed::List(all) => !all.is_empty(),
            Fixed::Dict(all) => !all.is_empty(),
            Fixed::Typed(Ty::Scalar(_), parts) => parts.first()?.as_f64() != 0.0,
            _ => return None,
        })
    }

    pub fn number(&self) -> Option<f64> {
        Some(match self {
            Fixed::Bool(b) => *b as i64 as f64,
            Fixed::Int(n) => *n as f64,
            Fixed::Float(x) => *x,
            Fixed::Typed(Ty::Scalar(_), parts) => parts.first()?.as_f64(),
            _ => return None,
        })
    }

    pub fn int(&self) -> Option<i64> {
        Some(match self {
            Fixed::Bool(b) => *b as i64,
            Fixed::Int(n) => *n,
            Fixed::Typed(Ty::Scalar(s), parts) if s.is_int() => parts.first()?.as_i64(),
            _ => return None,
        })
    }

    /// How much of it there is to copy, about.
    fn size(&self) -> usize {
        match self {
            Fixed::Text(text) => text.len(),
            Fixed::List(all) => all.iter().map(|one| 4 + one.size()).sum(),
            Fixed::Dict(all) => all.iter().map(|(key, value)| 8 + key.size() + value.size()).sum(),
            Fixed::Type(pattern) => 4 * pattern.nodes(),
            Fixed::Typed(_, parts) => parts.len(),
            _ => 1,
        }
    }

    fn extent(&self) -> Option<u8> {
        self.int().and_then(|n| u8::try_from(n).ok()).filter(|n| *n > 0)
    }
}

/// Names that are looked up before those of the program: variables of a kernel, for `wp.static`.
pub(crate) type Locals<'l> = &'l dyn Fn(&str) -> Option<Fixed>;

/// Evaluations within evaluations: constants that are defined by each other would never end.
const MAX_STEPS: u32 = 64;
/// Evaluations for one kernel.
const MAX_SPENT: u32 = 200_000;

/// Evaluates expressions in a scope of a program.
pub(crate) struct Evaluator<'p, 'l> {
    pub program: &'p Program<'p>,
    pub prelude: bool,
    pub scope: usize,
    pub locals: Locals<'l>,
    pub steps: u32,
    /// A place in a scope: what stands after it is not there yet.
    pub before: Option<(usize, TextSize)>,
    /// The call of a function around what is evaluated: [`FuncId::around`].
    pub around: u32,
}

impl<'p> Evaluator<'p, 'static> {
    pub fn new(program: &'p Program<'p>, prelude: bool, scope: usize) -> Evaluator<'p, 'static> {
        Evaluator { program, prelude, scope, locals: &|_| None, steps: 0, before: None, around: 0 }
    }
}

impl<'p> Evaluator<'p, '_> {
    fn unknown<T>(&self, at: &impl Ranged, what: impl Into<String>) -> Result<T, Unknown> {
        Err((at.range(), what.into()))
    }

    pub fn eval(&self, expr: &Expr) -> Result<Fixed, Unknown> {
        let found = self.evaluated(expr)?;
        // What is read is copied whole.
        self.spent(found.size() / 16);
        Ok(found)
    }

    /// What an annotation says; one in quotes is read as if it had none.
    pub fn annotation(&self, expr: &Expr) -> Result<Fixed, Unknown> {
        let text = match self.eval(expr)? {
            Fixed::Text(text) => text,
            other => return Ok(other),
        };
        let read = || {
            let deep = crate::python::nesting::too_deep(&text).is_some();
            Some(ruff_python_parser::parse_expression(&text).ok().filter(|_| !deep)?.into_expr())
        };
        let said = match read() {
            Some(said) => self.eval(&said),
            None => self.unknown(expr, format!("'{text}' is no type")),
        };
        said.map_err(|(_, what)| (expr.range(), what))
    }

    fn evaluated(&self, expr: &Expr) -> Result<Fixed, Unknown> {
        let spent = self.program.spent.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if self.steps > MAX_STEPS || spent > MAX_SPENT && !self.prelude {
            return self.unknown(expr, "constants are defined by too many others");
        }
        match expr {
            Expr::NumberLiteral(number) => match &number.value {
                Number::Int(n) => match n.as_i64() {
                    Some(n) => Ok(Fixed::Int(n)),
                    None => match n.as_u64() {
                        Some(n) => Ok(Fixed::Typed(Ty::Scalar(Scalar::U64), vec![Value::from_bits(Scalar::U64, n)])),
                        None => self.unknown(expr, "the number does not fit 64 bits"),
                    },
                },
                Number::Float(x) => Ok(Fixed::Float(*x)),
                Number::Complex { .. } => self.unknown(expr, "kernels have no complex numbers"),
            },
            Expr::BooleanLiteral(b) => Ok(Fixed::Bool(b.value)),
            Expr::NoneLiteral(_) => Ok(Fixed::None),
            Expr::StringLiteral(text) => Ok(Fixed::Text(text.value.to_str().to_owned())),
            Expr::Name(name) => self.name(name.id.as_str(), expr),
            Expr::Attribute(attribute) => {
                let of = self.eval(&attribute.value)?;
                self.attribute(of, attribute.attr.as_str(), expr)
            }
            Expr::UnaryOp(unary) => {
                let value = self.eval(&unary.operand)?;
                match (unary.op, &value) {
                    (UnaryOp::Not, value) if value.truth().is_some() => Ok(Fixed::Bool(value.truth() != Some(true))),
                    (UnaryOp::USub, Fixed::Int(n)) => match n.checked_neg() {
                        Some(n) => Ok(Fixed::Int(n)),
                        None => self.unknown(expr, "the number does not fit 64 bits"),
                    },
                    // The least number is written as one that is too large by one.
                    (UnaryOp::USub, Fixed::Typed(Ty::Scalar(Scalar::U64), parts)) if parts[0].bits() == 1 << 63 => {
                        Ok(Fixed::Int(i64::MIN))
                    }
                    (UnaryOp::USub, Fixed::Bool(b)) => Ok(Fixed::Int(-(*b as i64))),
                    (UnaryOp::USub, Fixed::Float(x)) => Ok(Fixed::Float(-x)),
                    (UnaryOp::UAdd, _) => Ok(value),
                    (UnaryOp::Invert, Fixed::Int(n)) => Ok(Fixed::Int(!n)),
                    (UnaryOp::USub, Fixed::Typed(ty, parts)) => {
                        let negated = |v: &Value| {
                            if v.scalar().is_float() {
                                Value::from_f64(v.scalar(), -v.as_f64())
                            } else {
                                Value::int(v.scalar(), v.as_i64().wrapping_neg())
                            }
                        };
                        Ok(Fixed::Typed(*ty, parts.iter().map(negated).collect()))
                    }
                    _ => self.unknown(expr, "this is not a number"),
                }
            }
            Expr::BinOp(binary) => {
                let (a, b) = (self.eval(&binary.left)?, self.eval(&binary.right)?);
                self.binary(binary.op, &a, &b, expr)
            }
            Expr::BoolOp(op) => {
                let mut last = Fixed::None;
                for value in &op.values {
                    last = self.eval(value)?;
                    let Some(truth) = last.truth() else {
                        return self.unknown(value, "this is neither true nor false");
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
                        return self.unknown(expr, "this cannot be compared beforehand");
                    };
                    if !holds {
                        return Ok(Fixed::Bool(false));
                    }
                    left = right;
                }
                Ok(Fixed::Bool(true))
            }
            Expr::If(choice) => match self.eval(&choice.test)?.truth() {
                Some(true) => self.eval(&choice.body),
                Some(false) => self.eval(&choice.orelse),
                None => self.unknown(expr, "this is neither true nor false"),
            },
            Expr::Tuple(ExprTuple { elts, .. }) | Expr::List(ExprList { elts, .. }) => {
                self.counted(Fixed::List(elts.iter().map(|e| self.eval(e)).collect::<Result<_, _>>()?), expr)
            }
            Expr::Dict(dict) => {
                let mut all: Vec<(Fixed, Fixed)> = vec![];
                for item in &dict.items {
                    let Some(key) = &item.key else { return self.unknown(expr, "this cannot be computed beforehand") };
                    let (key, value) = (self.eval(key)?, self.eval(&item.value)?);
                    all.retain(|(other, _)| *other != key);
                    all.push((key, value));
                }
                self.spent(all.len() * all.len() / 16);
                self.counted(Fixed::Dict(all), expr)
            }
            Expr::Subscript(subscript) => {
                let of = self.eval(&subscript.value)?;
                self.subscript(of, &subscript.slice, expr)
            }
            Expr::Call(call) => self.call(call, expr),
            Expr::ListComp(ExprListComp { elt, generators, .. })
            | Expr::Generator(ExprGenerator { elt, generators, .. }) => self.comprehension(elt, generators, expr),
            _ => self.unknown(expr, "this cannot be computed beforehand"),
        }
    }

    fn name(&self, name: &str, at: &Expr) -> Result<Fixed, Unknown> {
        if let Some(found) = (self.locals)(name) {
            return self.counted(found, at);
        }
        match self.program.lookup(name, self.scope) {
            Some((item, scope)) => self.item(item, scope, name, at),
            None => match python_name(name) {
                Some(found) => Ok(found),
                None if self.program.scopes[self.program.scopes[self.scope].file].all_of_warp => self.warp(name, at),
                None => self.unknown(at, format!("'{name}' is not declared")),
            },
        }
    }

    /// Where a function stands.
    pub fn within_def(&self, n: u32, scope: usize) -> Evaluator<'p, 'static> {
        let start = self.program.functions[n as usize].def.range().start();
        Evaluator { before: Some((scope, start)), ..self.within(scope) }
    }

    /// Counts work that is not an evaluation of its own.
    fn spent(&self, steps: usize) {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX).min(MAX_SPENT);
        self.program.spent.fetch_add(steps, std::sync::atomic::Ordering::Relaxed);
    }

    fn within(&self, scope: usize) -> Evaluator<'p, 'static> {
        Evaluator { steps: self.steps + 1, around: self.around, ..Evaluator::new(self.program, self.prelude, scope) }
    }

    pub fn item(&self, item: &Item<'p>, scope: usize, name: &str, at: &Expr) -> Result<Fixed, Unknown> {
        if self.steps > MAX_STEPS {
            return self.unknown(at, "constants are defined by too many others");
        }
        let found = match item {
            Item::Functions(all) => {
                let mut found = vec![];
                let around = self.around_of(scope);
                for &n in all {
                    match self.within_def(n, scope).holds(&self.program.functions[n as usize].under) {
                        Some(true) => found.push(FuncId { prelude: self.prelude, n, around }),
                        Some(false) => {}
                        None => return self.unknown(at, format!("'{name}' is declared under a condition{OF_A_RUN}")),
                    }
                }
                Fixed::Functions(found)
            }
            Item::Kernels(all) => {
                let is_there = |n: &u32| {
                    self.within_def(*n, scope).holds(&self.program.functions[*n as usize].under) != Some(false)
                };
                match all.iter().copied().rev().find(is_there) {
                    Some(n) => Fixed::Kernel(FuncId { prelude: self.prelude, n, around: self.around_of(scope) }),
                    None => return self.unknown(at, format!("'{name}' has no value")),
                }
            }
            Item::Struct(n) => Fixed::Type(Pattern::Struct(*n)),
            Item::Values(all) => return self.given(all, scope, name, at),
            Item::Warp => Fixed::Warp,
            Item::WarpName(name) => return self.warp(name.rsplit('.').next().unwrap_or(name), at),
            Item::Python(module) => Fixed::Module((*module).into()),
            Item::PythonName(module, name) => return self.attribute(Fixed::Module((*module).into()), name, at),
            Item::File(file) => Fixed::File(*file),
            Item::FileName(file, name) => match self.program.lookup(name, *file) {
                Some((item, scope)) => {
                    return self.within(scope).item(item, scope, name, at);
                }
                None => return self.unknown(at, format!("'{name}' is not declared in the file it is imported from")),
            },
            Item::Plain(inner) => Fixed::Plain(name.into(), *inner, self.around_of(scope)),
            Item::Class(scope) => Fixed::Class(*scope),
        };
        Ok(found)
    }

    pub fn attribute(&self, of: Fixed, name: &str, at: &Expr) -> Result<Fixed, Unknown> {
        match of {
            Fixed::Warp => self.warp(name, at),
            Fixed::Module(module) => match (module.as_str(), name) {
                ("math" | "numpy" | "np", "pi") => Ok(Fixed::Float(std::f64::consts::PI)),
                ("math" | "numpy", "e") => Ok(Fixed::Float(std::f64::consts::E)),
                ("math", "tau") => Ok(Fixed::Float(std::f64::consts::TAU)),
                ("math" | "numpy", "inf") => Ok(Fixed::Float(f64::INFINITY)),
                ("math" | "numpy", "nan") => Ok(Fixed::Float(f64::NAN)),
                ("typing", "Any") => Ok(Fixed::Type(Pattern::Any)),
                ("typing" | "collections.abc" | "collections", "Callable") => Ok(Fixed::Type(Pattern::Function)),
                ("math" | "numpy", _) => Ok(Fixed::Builtin(name.into())),
                (package, name)
                    if let Some(file) = self.program.file_named(&format!("{package}.{name}"), self.scope) =>
                {
                    Ok(Fixed::File(file))
                }
                (package, name) if self.program.is_package(&format!("{package}.{name}."), self.scope) => {
                    Ok(Fixed::Module(format!("{package}.{name}")))
                }
                // `import package` and `import package.module` give one name.
                (package, name)
                    if let Some(file) = self.program.file_named(package, self.scope)
                        && let Some((item, scope)) = self.program.lookup(name, file) =>
                {
                    self.within(scope).item(item, scope, name, at)
                }
                ("func_native", _) => self.unknown(at, format!("'{name}' is written in C++ (func_native)")),
                (_, _) => Ok(Fixed::Python(format!("{module}.{name}"))),
            },
            Fixed::File(file) => match self.program.lookup(name, file) {
                Some((item, scope)) => self.item(item, scope, name, at),
                None => match self.program.module_of(file, name) {
                    Some(module) => Ok(Fixed::File(module)),
                    None => self.unknown(at, format!("'{name}' is not declared in the file it is imported from")),
                },
            },
            Fixed::Class(scope) => match self.program.scopes[scope].names.get(name) {
                Some(item) => self.item(item, scope, name, at),
                None => self.unknown(at, format!("the class has no '{name}'")),
            },
            // An enum's member is its value.
            Fixed::Int(_) if name == "value" => Ok(of),
            Fixed::Typed(ty, parts) => {
                let place = "xyzw".find(name).filter(|_| name.len() == 1);
                match place {
                    Some(n) if n < parts.len() && !matches!(ty, Ty::Scalar(_)) => {
                        Ok(Fixed::Typed(Ty::Scalar(parts[n].scalar()), vec![parts[n]]))
                    }
                    _ => self.unknown(at, format!("there is no '{name}'")),
                }
            }
            Fixed::Type(pattern) => match (pattern.exact(), name) {
                (Some(ty), "dtype") => match ty.element() {
                    Some(s) => Ok(Fixed::Type(Pattern::of(Ty::Scalar(s)))),
                    None => self.unknown(at, "a struct has no dtype"),
                },
                _ => self.unknown(at, format!("there is no '{name}'")),
            },
            _ => self.unknown(at, format!("there is no '{name}'")),
        }
    }

    /// A name of the dialect's module.
    fn warp(&self, name: &str, at: &Expr) -> Result<Fixed, Unknown> {
        use std::f64::consts;
        let number = |x: f64| Ok(Fixed::Float(x));
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
            "types" | "math" | "utils" | "_src" | "constants" | "fem" | "linalg" => Ok(Fixed::Warp),
            "Any" => Ok(Fixed::Type(Pattern::Any)),
            "Float" => Ok(Fixed::Type(Pattern::Scalar(Among::Float))),
            "Int" => Ok(Fixed::Type(Pattern::Scalar(Among::Int))),
            "Scalar" => Ok(Fixed::Type(Pattern::Scalar(Among::Any))),
            "Function" => Ok(Fixed::Type(Pattern::Function)),
            "array" | "array1d" => Ok(Fixed::Type(Pattern::Array(Box::new(Pattern::Any), 1))),
            "array2d" => Ok(Fixed::Type(Pattern::Array(Box::new(Pattern::Any), 2))),
            "array3d" => Ok(Fixed::Type(Pattern::Array(Box::new(Pattern::Any), 3))),
            "array4d" => Ok(Fixed::Type(Pattern::Array(Box::new(Pattern::Any), 4))),
            "ref" => Ok(Fixed::Type(Pattern::Ref(Box::new(Pattern::Any)))),
            "indexedarray" | "indexedarray1d" | "indexedarray2d" | "indexedarray3d" | "indexedarray4d"
            | "fabricarray" | "tile" | "tile_stack" | "Texture1D" | "Texture2D" | "Texture3D" | "HashGridQuery"
            | "MeshQueryAABB" | "BvhQuery" | "Mesh" | "Volume" | "Bvh" | "HashGrid" | "MeshQueryPoint"
            | "MeshQueryRay" => Ok(Fixed::Type(Pattern::Foreign(name.into()))),
            _ => match type_named(name) {
                Some(ty) => Ok(Fixed::Type(Pattern::of(ty))),
                None if name.starts_with("__") => self.unknown(at, format!("there is no '{name}'")),
                None => Ok(Fixed::Builtin(name.into())),
            },
        }
    }
}

/// A number as a scalar; integers by wrapping, from floats by cutting off.
pub(crate) fn fixed_value(s: Scalar, x: f64, n: i64) -> Value {
    if s.is_int() { Value::int(s, n) } else { Value::from_f64(s, x) }
}

/// Names of Python's own.
fn python_name(name: &str) -> Option<Fixed> {
    Some(match name {
        "int" | "float" | "bool" => Fixed::Type(Pattern::of(type_named(name)?)),
        "Any" => Fixed::Type(Pattern::Any),
        "len" | "abs" | "min" | "max" | "round" | "range" | "tuple" | "list" | "print" | "type" | "reversed"
        | "slice" | "str" | "sum" | "isinstance" | "getattr" | "hasattr" | "zip" | "enumerate" => {
            Fixed::Python(name.into())
        }
        _ => return None,
    })
}
