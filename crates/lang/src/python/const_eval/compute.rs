//! Calls and arithmetic on compile-time values.

use std::cmp::Ordering;

use bornite_ir::{Scalar, Value};
use ruff_python_ast::{Comprehension, Expr, ExprCall, Operator};

use super::{ConstValue, Evaluator, Unknown, scalar_value};
use crate::python::program::Item;
use crate::python::types::{Pattern, ScalarConstraint, Ty};

/// Largest number of elements of a list, including those of nested lists.
const MAX_LIST_ELEMENTS: usize = 1 << 16;
/// Largest nesting depth of lists.
const MAX_LIST_DEPTH: usize = 32;

impl Evaluator<'_, '_> {
    pub(super) fn call(&self, call: &ExprCall, at: &Expr) -> Result<ConstValue, Unknown> {
        let callee = self.eval(&call.func)?;
        // Python numbers keep their full range and precision.
        if let (ConstValue::Type(_), Expr::Name(name), [arg]) = (&callee, call.func.as_ref(), &call.arguments.args[..])
            && let Some(found) = python_number(name.id.as_str(), &self.eval(arg)?)
        {
            return Ok(found);
        }
        let args = |me: &Self| call.arguments.args.iter().map(|arg| me.eval(arg)).collect::<Result<Vec<_>, _>>();
        let named = |name: &str| {
            call.arguments.keywords.iter().find(|k| k.arg.as_ref().is_some_and(|arg| arg.as_str() == name))
        };
        match callee {
            // `overload` is ignored: the types of a generic kernel are specified at lookup.
            ConstValue::Builtin(name) if matches!(name.as_str(), "constant" | "static" | "overload") => {
                match call.arguments.args.first() {
                    Some(value) => self.eval(value),
                    None => self.unknown(at, format!("'{name}' expects one argument")),
                }
            }
            ConstValue::Type(Pattern::Array(_, rank)) => {
                let dtype = named("dtype").map(|k| &k.value).or(call.arguments.args.first());
                let rank = match named("ndim") {
                    Some(ndim) => self.eval(&ndim.value)?.extent().unwrap_or(rank),
                    None => rank,
                };
                match dtype.map(|dtype| self.eval(dtype)).transpose()? {
                    Some(ConstValue::Type(inner)) => Ok(ConstValue::Type(Pattern::Array(Box::new(inner), rank))),
                    None => Ok(ConstValue::Type(Pattern::Array(Box::new(Pattern::Any), rank))),
                    Some(_) => self.unknown(at, "expected the element type of an array"),
                }
            }
            ConstValue::Type(Pattern::Unsupported(name)) => Ok(ConstValue::Type(Pattern::Unsupported(name))),
            ConstValue::Type(pattern) => {
                let Some(ty) = pattern.exact() else {
                    return self.unknown(at, "a value of this type cannot be constructed at compile time");
                };
                self.construct(ty, &args(self)?, at)
            }
            ConstValue::Builtin(name) => {
                let keywords: Result<Vec<(&str, ConstValue)>, Unknown> = (call.arguments.keywords.iter())
                    .filter_map(|k| Some((k.arg.as_ref()?.as_str(), &k.value)))
                    .map(|(name, value)| Ok((name, self.eval(value)?)))
                    .collect();
                let (args, keywords) = (args(self)?, keywords?);
                if let Some(x) = args.first().and_then(ConstValue::number)
                    && let Some(result) = math_function(&name, x, args.get(1).and_then(ConstValue::number))
                {
                    // `math.floor` and the like return integers in Python.
                    return match (name.as_str(), self.is_math(&call.func)) {
                        ("floor" | "ceil" | "trunc", true) => match python_number("int", &ConstValue::Float(result)) {
                            Some(found) => Ok(found),
                            None => self.unknown(at, "this number cannot be converted to an integer"),
                        },
                        _ if result.is_nan() && !x.is_nan() => {
                            self.unknown(at, format!("'{name}' is undefined for this argument"))
                        }
                        _ => Ok(ConstValue::Float(result)),
                    };
                }
                if let Some(found) = super::vectors::function(&name, &args).filter(|_| keywords.is_empty()) {
                    return Ok(found);
                }
                self.type_constructor(&name, &args, &keywords, at)
            }
            ConstValue::PlainFunction(name, inner, closure) => self.call_plain(call, &name, inner, closure, at),
            ConstValue::PythonBuiltin(name) => {
                let all = args(self)?;
                let ints: Option<Vec<i64>> = all.iter().map(ConstValue::int).collect();
                match (name.as_str(), &all[..]) {
                    ("len", [ConstValue::Dict(all)]) => Ok(ConstValue::Int(all.len() as i64)),
                    ("len", [ConstValue::List(list)]) => Ok(ConstValue::Int(list.len() as i64)),
                    ("len", [ConstValue::Typed(ty, _)]) => Ok(ConstValue::Int(ty.count() as i64)),
                    ("abs", [ConstValue::Int(n)]) => {
                        Ok(n.checked_abs().map_or(ConstValue::Float(-(i64::MIN as f64)), ConstValue::Int))
                    }
                    ("abs", [ConstValue::Float(x)]) => Ok(ConstValue::Float(x.abs())),
                    ("len", [ConstValue::Str(text)]) => Ok(ConstValue::Int(text.chars().count() as i64)),
                    ("round", [ConstValue::Int(_)] | [ConstValue::Int(_), ConstValue::Int(0..)]) => Ok(all[0].clone()),
                    ("round", [ConstValue::Float(x)]) => match python_number("int", &ConstValue::Float(x.round_ties_even())) {
                        Some(found) => Ok(found),
                        None => self.unknown(at, "this number cannot be converted to an integer"),
                    },
                    ("round", [ConstValue::Float(x), ConstValue::Int(digits @ 0..=20)]) => {
                        Ok(ConstValue::Float(format!("{x:.*}", *digits as usize).parse().unwrap_or(*x)))
                    }
                    ("sum", [ConstValue::List(list)]) => {
                        list.iter().try_fold(ConstValue::Int(0), |sum, one| self.binary(Operator::Add, &sum, one, at))
                    }
                    ("tuple" | "list", [ConstValue::List(_)]) => Ok(all[0].clone()),
                    ("range", _) => match ints.as_deref() {
                        Some([n]) => self.range(0, *n, at),
                        Some([a, b]) => self.range(*a, *b, at),
                        _ => self.unknown(at, "the bounds of this range are not known at compile time"),
                    },
                    ("min" | "max", [ConstValue::List(list)]) if !list.is_empty() => self.min_or_max(&name, list, at),
                    ("min" | "max", [_, _, ..]) => self.min_or_max(&name, &all, at),
                    _ => {
                        self.unknown(at, format!("'{name}' cannot be evaluated at compile time; only constants, arithmetic and math functions can"))
                    }
                }
            }
            _ => self.unknown(at, "this cannot be called at compile time"),
        }
    }

    /// Returns true if a function belongs to Python's `math` module.
    fn is_math(&self, callee: &Expr) -> bool {
        match callee {
            Expr::Attribute(of) => matches!(self.eval(&of.value), Ok(ConstValue::Module(module)) if module == "math"),
            Expr::Name(name) => {
                let found = self.program.lookup(name.id.as_str(), self.scope);
                matches!(found, Some((Item::ExternalName("math", _), _)))
            }
            _ => false,
        }
    }

    /// The smallest or largest value; the first of equal ones.
    fn min_or_max(&self, name: &str, all: &[ConstValue], at: &Expr) -> Result<ConstValue, Unknown> {
        let mut best = &all[0];
        for one in all {
            match (one.number(), best.number()) {
                (Some(x), Some(y)) if if name == "min" { x < y } else { x > y } => best = one,
                (Some(_), Some(_)) => {}
                _ => return self.unknown(at, "this expression cannot be evaluated at compile time"),
            }
        }
        Ok(best.clone())
    }

    /// `[… for name in … if …]`
    pub(super) fn comprehension(&self, of: &Expr, each: &[Comprehension], at: &Expr) -> Result<ConstValue, Unknown> {
        let [Comprehension { target: Expr::Name(name), iter, ifs, .. }] = each else {
            return self
                .unknown(at, "only comprehensions with one 'for' and one name can be evaluated at compile time");
        };
        let ConstValue::List(all) = self.eval(iter)? else { return self.unknown(iter, "expected a list") };
        let mut found = vec![];
        for one in &all {
            let locals = |other: &str| if other == name.id.as_str() { Some(one.clone()) } else { (self.locals)(other) };
            let within = Evaluator { locals: &locals, depth: self.depth + 1, ..*self };
            let mut included = true;
            for condition in ifs {
                match within.eval(condition)?.truth() {
                    Some(truth) => included &= truth,
                    None => return self.unknown(condition, "this value cannot be converted to bool"),
                }
            }
            if included {
                found.push(within.eval(of)?);
            }
        }
        self.check_list_size(ConstValue::List(found), at)
    }

    fn range(&self, start: i64, end: i64, at: &Expr) -> Result<ConstValue, Unknown> {
        let count = (end as i128 - start as i128).max(0);
        self.charge_list(usize::try_from(count).unwrap_or(usize::MAX), 1, at)?;
        Ok(ConstValue::List((start..end).map(ConstValue::Int).collect()))
    }

    /// Returns the list unless it is too long or too deeply nested. Its size counts against the
    /// evaluation limit, since it will be copied.
    pub(super) fn check_list_size(&self, list: ConstValue, at: &Expr) -> Result<ConstValue, Unknown> {
        if let ConstValue::List(_) | ConstValue::Dict(_) = &list {
            let (elements, depth) = size(std::slice::from_ref(&list));
            self.charge_list(elements - 1, depth - 1, at)?;
        }
        Ok(list)
    }

    fn charge_list(&self, elements: usize, depth: usize, at: &Expr) -> Result<(), Unknown> {
        if elements > MAX_LIST_ELEMENTS {
            return self.unknown(at, format!("list has {elements} elements; the limit is {MAX_LIST_ELEMENTS}"));
        }
        if depth > MAX_LIST_DEPTH {
            return self.unknown(at, format!("lists are nested {depth} deep; the limit is {MAX_LIST_DEPTH}"));
        }
        // An element costs much less than an evaluation step.
        self.program.eval_steps.fetch_add(elements as u32 / 16, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn binary(
        &self,
        op: Operator,
        a: &ConstValue,
        b: &ConstValue,
        at: &Expr,
    ) -> Result<ConstValue, Unknown> {
        if let (ConstValue::List(a), ConstValue::List(b), Operator::Add) = (a, b, op) {
            let (a, b) = (size(a), size(b));
            self.charge_list(a.0 + b.0, a.1.max(b.1), at)?;
        }
        match arithmetic(op, a, b) {
            Some(result) => Ok(result),
            None => self.unknown(at, "this expression cannot be evaluated at compile time"),
        }
    }

    /// Evaluates a type constructor such as `wp.types.vector(length=3, dtype=float)`.
    pub(super) fn type_constructor(
        &self,
        name: &str,
        args: &[ConstValue],
        keywords: &[(&str, ConstValue)],
        at: &Expr,
    ) -> Result<ConstValue, Unknown> {
        let argument = |keyword: &str, n: usize| {
            keywords.iter().find(|(name, _)| *name == keyword).map(|(_, value)| value).or(args.get(n))
        };
        let scalar = |n: usize| match argument("dtype", n) {
            None => Ok(ScalarConstraint::Exactly(Scalar::F32)),
            Some(ConstValue::Type(Pattern::Scalar(scalar))) => Ok(*scalar),
            Some(ConstValue::Type(Pattern::Any)) => Ok(ScalarConstraint::Any),
            Some(_) => self.unknown(at, "expected a scalar type"),
        };
        // `Any` matches every length.
        let size = |value: Option<&ConstValue>| match value {
            None | Some(ConstValue::Type(_)) => Ok(None),
            Some(n) => match n.extent() {
                Some(n) => Ok(Some(n)),
                None => self.unknown(at, "expected a size from 1 to 64"),
            },
        };
        let pattern = match name {
            "vector" | "vec" | "vec_t" => Pattern::Vector(scalar(1)?, size(argument("length", 0))?),
            "matrix" | "mat" | "mat_t" => match argument("shape", 0) {
                Some(ConstValue::List(shape)) => Pattern::Matrix(scalar(1)?, size(shape.first())?, size(shape.get(1))?),
                None | Some(ConstValue::Type(_)) => Pattern::Matrix(scalar(1)?, None, None),
                Some(_) => return self.unknown(at, "expected a shape such as (2, 3)"),
            },
            "quaternion" | "quat" | "quat_t" => Pattern::Quat(scalar(0)?),
            "transformation" | "transform" | "transform_t" => Pattern::Transform(scalar(0)?),
            _ => return self.unknown(at, format!("'{name}' cannot be evaluated at compile time")),
        };
        Ok(ConstValue::Type(pattern))
    }

    /// Constructs a value of a type from numbers.
    fn construct(&self, ty: Ty, args: &[ConstValue], at: &Expr) -> Result<ConstValue, Unknown> {
        let (Some(s), count) = (ty.element(), ty.count()) else {
            return self.unknown(at, "structs cannot be constructed at compile time");
        };
        let mut parts = vec![];
        for arg in args {
            if !append_numbers(arg, s, &mut parts, 0) {
                return self.unknown(at, "expected numbers");
            }
        }
        let parts = match parts.len() {
            0 => vec![Value::int(s, 0); count],
            1 => vec![parts[0]; count],
            n if n == count => parts,
            n => return self.unknown(at, format!("expected {count} components, found {n}")),
        };
        Ok(ConstValue::Typed(ty, parts))
    }
}

/// Converts a number with Python's `int`, `float` or `bool`.
fn python_number(name: &str, of: &ConstValue) -> Option<ConstValue> {
    match (name, of) {
        ("int", ConstValue::Float(x)) => {
            // `i64::MAX as f64` is 2^63, which does not fit in 64 bits.
            let fits = (i64::MIN as f64..i64::MAX as f64).contains(&x.trunc());
            fits.then(|| ConstValue::Int(x.trunc() as i64))
        }
        ("int", _) => of.int().map(ConstValue::Int),
        ("float", _) => of.number().map(ConstValue::Float),
        ("bool", _) => of.truth().map(ConstValue::Bool),
        _ => None,
    }
}

/// Python's `divmod` for floats: the quotient rounded down, and the remainder.
fn divmod(x: f64, y: f64) -> (f64, f64) {
    let mut rest = x % y;
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) {
        rest += y;
    }
    // Close to an integer, but possibly rounded to either side of it.
    let quotient = (x - rest) / y;
    let down = quotient.floor();
    (if quotient - down > 0.5 { down + 1.0 } else { down }, if rest == 0.0 { 0f64.copysign(y) } else { rest })
}

fn math_function(name: &str, x: f64, y: Option<f64>) -> Option<f64> {
    Some(match (name, y) {
        ("sqrt", None) => x.sqrt(),
        ("sin", None) => x.sin(),
        ("cos", None) => x.cos(),
        ("tan", None) => x.tan(),
        ("exp", None) => x.exp(),
        ("log", None) => x.ln(),
        ("floor", None) => x.floor(),
        ("ceil", None) => x.ceil(),
        ("trunc", None) => x.trunc(),
        ("asin", None) => x.asin(),
        ("acos", None) => x.acos(),
        ("atan", None) => x.atan(),
        ("sinh", None) => x.sinh(),
        ("cosh", None) => x.cosh(),
        ("tanh", None) => x.tanh(),
        ("log2", None) => x.log2(),
        ("log10", None) => x.log10(),
        ("fabs", None) => x.abs(),
        ("hypot", Some(y)) => x.hypot(y),
        ("radians", None) => x.to_radians(),
        ("degrees", None) => x.to_degrees(),
        ("pow", Some(y)) => x.powf(y),
        ("atan2", Some(y)) => x.atan2(y),
        _ => return None,
    })
}

/// Number of elements of a list including nested lists, and the nesting depth.
fn size(list: &[ConstValue]) -> (usize, usize) {
    list.iter().fold((0, 1), |(elements, depth), one| {
        let (more, deep) = match one {
            ConstValue::List(inner) => size(inner),
            ConstValue::Dict(all) => all.iter().fold((0, 1), |(elements, depth), (key, value)| {
                let pair = [size(std::slice::from_ref(key)), size(std::slice::from_ref(value))];
                (elements + pair[0].0 + pair[1].0, depth.max(pair[0].1).max(pair[1].1))
            }),
            _ => (0, 0),
        };
        (elements + more + 1, depth.max(deep + 1))
    })
}

fn arithmetic(op: Operator, a: &ConstValue, b: &ConstValue) -> Option<ConstValue> {
    if let (ConstValue::List(a), ConstValue::List(b), Operator::Add) = (a, b, op) {
        return Some(ConstValue::List(a.iter().chain(b).cloned().collect()));
    }
    if let Some(found) = super::vectors::arithmetic(op, a, b) {
        return Some(found);
    }
    if let (Some(x), Some(y)) = (a.int(), b.int()) {
        let result = match op {
            Operator::Add => x.checked_add(y),
            Operator::Sub => x.checked_sub(y),
            Operator::Mult => x.checked_mul(y),
            Operator::FloorDiv if y != 0 => {
                let rest = x.wrapping_rem(y);
                let lower = rest != 0 && (rest < 0) != (y < 0);
                Some(x.wrapping_div(y).wrapping_sub(lower as i64))
            }
            Operator::Mod if y != 0 => {
                let rest = x.wrapping_rem(y);
                Some(if rest != 0 && (rest < 0) != (y < 0) { rest.wrapping_add(y) } else { rest })
            }
            Operator::Pow if (0..64).contains(&y) => x.checked_pow(y as u32),
            Operator::LShift if (0..63).contains(&y) => x.checked_mul(1i64.checked_shl(y as u32)?),
            Operator::RShift if (0..64).contains(&y) => Some(x >> y),
            Operator::BitAnd => Some(x & y),
            Operator::BitOr => Some(x | y),
            Operator::BitXor => Some(x ^ y),
            Operator::Div if y != 0 => return Some(ConstValue::Float(x as f64 / y as f64)),
            Operator::Pow if y < 0 && x != 0 => return Some(ConstValue::Float((x as f64).powf(y as f64))),
            _ => None,
        };
        return result.map(ConstValue::Int);
    }
    let (x, y) = (a.number()?, b.number()?);
    Some(ConstValue::Float(match op {
        Operator::Add => x + y,
        Operator::Sub => x - y,
        Operator::Mult => x * y,
        Operator::Div if y != 0.0 => x / y,
        Operator::FloorDiv if y != 0.0 => divmod(x, y).0,
        Operator::Mod if y != 0.0 => divmod(x, y).1,
        Operator::Pow if (x > 0.0 || y.trunc() == y) && (x != 0.0 || y >= 0.0) => x.powf(y),
        _ => return None,
    }))
}

pub(super) fn compared(op: ruff_python_ast::CmpOp, a: &ConstValue, b: &ConstValue) -> Option<bool> {
    use ruff_python_ast::CmpOp;
    match op {
        CmpOp::Is => return Some(a == b),
        CmpOp::IsNot => return Some(a != b),
        CmpOp::In | CmpOp::NotIn => {
            let is_one = |one: &ConstValue| compared(CmpOp::Eq, a, one) == Some(true);
            let is_in = match b {
                ConstValue::List(all) => all.iter().any(is_one),
                ConstValue::Dict(all) => all.iter().any(|(key, _)| is_one(key)),
                _ => return None,
            };
            return Some(is_in == (op == CmpOp::In));
        }
        _ => {}
    }
    // Integers are compared exactly: large ones may be equal as floats.
    let order = match (a.int().zip(b.int()), a.number().zip(b.number())) {
        (Some((x, y)), _) => Some(x.cmp(&y)),
        (None, Some((x, y))) => x.partial_cmp(&y),
        (None, None) => {
            return match op {
                CmpOp::Eq => Some(a == b),
                CmpOp::NotEq => Some(a != b),
                _ => None,
            };
        }
    };
    Some(match op {
        CmpOp::Eq => order == Some(Ordering::Equal),
        CmpOp::NotEq => order != Some(Ordering::Equal),
        CmpOp::Lt => order == Some(Ordering::Less),
        CmpOp::LtE => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        CmpOp::Gt => order == Some(Ordering::Greater),
        CmpOp::GtE => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        _ => return None,
    })
}

/// Appends the numbers of a value, which may be a nested list. Returns false if it contains
/// anything else.
fn append_numbers(of: &ConstValue, s: Scalar, parts: &mut Vec<Value>, depth: usize) -> bool {
    match of {
        ConstValue::Typed(_, inner) => parts.extend(inner.iter().map(|v| scalar_value(s, v.as_f64(), v.as_i64()))),
        ConstValue::List(all) => return depth < 4 && all.iter().all(|one| append_numbers(one, s, parts, depth + 1)),
        one => match (one.int(), one.number()) {
            (Some(n), _) => parts.push(scalar_value(s, n as f64, n)),
            (None, Some(x)) => parts.push(scalar_value(s, x, x as i64)),
            _ => return false,
        },
    }
    true
}
