//! Calls and arithmetic of what is known.

use std::cmp::Ordering;

use bornite_ir::{Scalar, Value};
use ruff_python_ast::{Comprehension, Expr, ExprCall, Operator};

use super::{Evaluator, Fixed, Unknown, fixed_value};
use crate::python::program::Item;
use crate::python::types::{Among, Pattern, Ty};

/// Elements of a list with those of lists in it.
const MAX_LIST: usize = 1 << 16;
/// Lists within each other.
const MAX_LISTS: usize = 32;

impl Evaluator<'_, '_> {
    pub(super) fn call(&self, call: &ExprCall, at: &Expr) -> Result<Fixed, Unknown> {
        let callee = self.eval(&call.func)?;
        // Numbers of Python's own, of any size.
        if let (Fixed::Type(_), Expr::Name(name), [arg]) = (&callee, call.func.as_ref(), &call.arguments.args[..])
            && let Some(found) = python_number(name.id.as_str(), &self.eval(arg)?)
        {
            return Ok(found);
        }
        let args = |me: &Self| call.arguments.args.iter().map(|arg| me.eval(arg)).collect::<Result<Vec<_>, _>>();
        let named = |name: &str| {
            call.arguments.keywords.iter().find(|k| k.arg.as_ref().is_some_and(|arg| arg.as_str() == name))
        };
        match callee {
            // Which types a kernel is made for is said where it is asked for.
            Fixed::Builtin(name) if matches!(name.as_str(), "constant" | "static" | "overload") => {
                match call.arguments.args.first() {
                    Some(value) => self.eval(value),
                    None => self.unknown(at, format!("'{name}' takes a value")),
                }
            }
            Fixed::Type(Pattern::Array(_, rank)) => {
                let dtype = named("dtype").map(|k| &k.value).or(call.arguments.args.first());
                let rank = match named("ndim") {
                    Some(given) => self.eval(&given.value)?.extent().unwrap_or(rank),
                    None => rank,
                };
                match dtype.map(|dtype| self.eval(dtype)).transpose()? {
                    Some(Fixed::Type(inner)) => Ok(Fixed::Type(Pattern::Array(Box::new(inner), rank))),
                    None => Ok(Fixed::Type(Pattern::Array(Box::new(Pattern::Any), rank))),
                    Some(_) => self.unknown(at, "the type of an array's elements is expected"),
                }
            }
            Fixed::Type(Pattern::Foreign(name)) => Ok(Fixed::Type(Pattern::Foreign(name))),
            Fixed::Type(pattern) => {
                let Some(ty) = pattern.exact() else { return self.unknown(at, "this type cannot be made beforehand") };
                self.construct(ty, &args(self)?, at)
            }
            Fixed::Builtin(name) => {
                let keywords: Result<Vec<(&str, Fixed)>, Unknown> = (call.arguments.keywords.iter())
                    .filter_map(|k| Some((k.arg.as_ref()?.as_str(), &k.value)))
                    .map(|(name, value)| Ok((name, self.eval(value)?)))
                    .collect();
                let (args, keywords) = (args(self)?, keywords?);
                if let Some(x) = args.first().and_then(Fixed::number)
                    && let Some(result) = function_of(&name, x, args.get(1).and_then(Fixed::number))
                {
                    // Python's own give integers here.
                    return match (name.as_str(), self.is_math(&call.func)) {
                        ("floor" | "ceil" | "trunc", true) => match python_number("int", &Fixed::Float(result)) {
                            Some(found) => Ok(found),
                            None => self.unknown(at, "this number has no integer"),
                        },
                        _ if result.is_nan() && !x.is_nan() => self.unknown(at, format!("'{name}' has no such value")),
                        _ => Ok(Fixed::Float(result)),
                    };
                }
                if let Some(found) = super::vectors::function(&name, &args).filter(|_| keywords.is_empty()) {
                    return Ok(found);
                }
                self.make_type(&name, &args, &keywords, at)
            }
            Fixed::Plain(name, inner, around) => self.call_plain(call, &name, inner, around, at),
            Fixed::Python(name) => {
                let all = args(self)?;
                let ints: Option<Vec<i64>> = all.iter().map(Fixed::int).collect();
                match (name.as_str(), &all[..]) {
                    ("len", [Fixed::Dict(all)]) => Ok(Fixed::Int(all.len() as i64)),
                    ("len", [Fixed::List(list)]) => Ok(Fixed::Int(list.len() as i64)),
                    ("len", [Fixed::Typed(ty, _)]) => Ok(Fixed::Int(ty.count() as i64)),
                    ("abs", [Fixed::Int(n)]) => {
                        Ok(n.checked_abs().map_or(Fixed::Float(-(i64::MIN as f64)), Fixed::Int))
                    }
                    ("abs", [Fixed::Float(x)]) => Ok(Fixed::Float(x.abs())),
                    ("len", [Fixed::Text(text)]) => Ok(Fixed::Int(text.chars().count() as i64)),
                    ("round", [Fixed::Int(_)] | [Fixed::Int(_), Fixed::Int(0..)]) => Ok(all[0].clone()),
                    ("round", [Fixed::Float(x)]) => match python_number("int", &Fixed::Float(x.round_ties_even())) {
                        Some(found) => Ok(found),
                        None => self.unknown(at, "this number has no integer"),
                    },
                    ("round", [Fixed::Float(x), Fixed::Int(digits @ 0..=20)]) => {
                        Ok(Fixed::Float(format!("{x:.*}", *digits as usize).parse().unwrap_or(*x)))
                    }
                    ("sum", [Fixed::List(list)]) => {
                        list.iter().try_fold(Fixed::Int(0), |sum, one| self.binary(Operator::Add, &sum, one, at))
                    }
                    ("tuple" | "list", [Fixed::List(_)]) => Ok(all[0].clone()),
                    ("range", _) => match ints.as_deref() {
                        Some([n]) => self.range(0, *n, at),
                        Some([a, b]) => self.range(*a, *b, at),
                        _ => self.unknown(at, "this range is not known beforehand"),
                    },
                    ("min" | "max", [Fixed::List(list)]) if !list.is_empty() => self.picked(&name, list, at),
                    ("min" | "max", [_, _, ..]) => self.picked(&name, &all, at),
                    _ => {
                        self.unknown(at, format!("'{name}' is not evaluated: only constants, arithmetic and math are"))
                    }
                }
            }
            _ => self.unknown(at, "this cannot be called beforehand"),
        }
    }

    /// Whether a function is of Python's `math`.
    fn is_math(&self, callee: &Expr) -> bool {
        match callee {
            Expr::Attribute(of) => matches!(self.eval(&of.value), Ok(Fixed::Module(module)) if module == "math"),
            Expr::Name(name) => {
                let found = self.program.lookup(name.id.as_str(), self.scope);
                matches!(found, Some((Item::PythonName("math", _), _)))
            }
            _ => false,
        }
    }

    /// The least or greatest, as it is: the first of equals.
    fn picked(&self, name: &str, all: &[Fixed], at: &Expr) -> Result<Fixed, Unknown> {
        let mut best = &all[0];
        for one in all {
            match (one.number(), best.number()) {
                (Some(x), Some(y)) if if name == "min" { x < y } else { x > y } => best = one,
                (Some(_), Some(_)) => {}
                _ => return self.unknown(at, "this cannot be computed beforehand"),
            }
        }
        Ok(best.clone())
    }

    /// `[… for name in … if …]`
    pub(super) fn comprehension(&self, of: &Expr, each: &[Comprehension], at: &Expr) -> Result<Fixed, Unknown> {
        let [Comprehension { target: Expr::Name(name), iter, ifs, .. }] = each else {
            return self.unknown(at, "only one 'for' with one name is computed beforehand");
        };
        let Fixed::List(all) = self.eval(iter)? else { return self.unknown(iter, "a list is expected") };
        let mut found = vec![];
        for one in &all {
            let locals = |other: &str| if other == name.id.as_str() { Some(one.clone()) } else { (self.locals)(other) };
            let within = Evaluator { locals: &locals, steps: self.steps + 1, ..*self };
            let mut kept = true;
            for condition in ifs {
                match within.eval(condition)?.truth() {
                    Some(truth) => kept &= truth,
                    None => return self.unknown(condition, "this is neither true nor false"),
                }
            }
            if kept {
                found.push(within.eval(of)?);
            }
        }
        self.counted(Fixed::List(found), at)
    }

    fn range(&self, start: i64, end: i64, at: &Expr) -> Result<Fixed, Unknown> {
        let count = (end as i128 - start as i128).max(0);
        self.spend(usize::try_from(count).unwrap_or(usize::MAX), 1, at)?;
        Ok(Fixed::List((start..end).map(Fixed::Int).collect()))
    }

    /// A list, if it is not too long with the lists in it; it is counted, as it will be copied whole.
    pub(super) fn counted(&self, list: Fixed, at: &Expr) -> Result<Fixed, Unknown> {
        if let Fixed::List(_) | Fixed::Dict(_) = &list {
            let (elements, depth) = size(std::slice::from_ref(&list));
            self.spend(elements - 1, depth - 1, at)?;
        }
        Ok(list)
    }

    fn spend(&self, elements: usize, depth: usize, at: &Expr) -> Result<(), Unknown> {
        if elements > MAX_LIST {
            return self.unknown(at, format!("a list of {elements} elements; {MAX_LIST} are the most"));
        }
        if depth > MAX_LISTS {
            return self.unknown(at, format!("a list in {depth} others; {MAX_LISTS} are the most"));
        }
        // An element costs much less than an evaluation.
        self.program.spent.fetch_add(elements as u32 / 16, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn binary(&self, op: Operator, a: &Fixed, b: &Fixed, at: &Expr) -> Result<Fixed, Unknown> {
        if let (Fixed::List(a), Fixed::List(b), Operator::Add) = (a, b, op) {
            let (a, b) = (size(a), size(b));
            self.spend(a.0 + b.0, a.1.max(b.1), at)?;
        }
        match arithmetic(op, a, b) {
            Some(result) => Ok(result),
            None => self.unknown(at, "this cannot be computed beforehand"),
        }
    }

    /// `wp.types.vector(length=3, dtype=float)` and its like.
    pub(super) fn make_type(
        &self,
        name: &str,
        args: &[Fixed],
        keywords: &[(&str, Fixed)],
        at: &Expr,
    ) -> Result<Fixed, Unknown> {
        let given = |keyword: &str, n: usize| {
            keywords.iter().find(|(name, _)| *name == keyword).map(|(_, value)| value).or(args.get(n))
        };
        let among = |n: usize| match given("dtype", n) {
            None => Ok(Among::Only(Scalar::F32)),
            Some(Fixed::Type(Pattern::Scalar(among))) => Ok(*among),
            Some(Fixed::Type(Pattern::Any)) => Ok(Among::Any),
            Some(_) => self.unknown(at, "a scalar type is expected"),
        };
        // `Any` stands for any length.
        let size = |value: Option<&Fixed>| match value {
            None | Some(Fixed::Type(_)) => Ok(None),
            Some(n) => match n.extent() {
                Some(n) => Ok(Some(n)),
                None => self.unknown(at, "a size of 1 to 64 is expected"),
            },
        };
        let pattern = match name {
            "vector" | "vec" | "vec_t" => Pattern::Vector(among(1)?, size(given("length", 0))?),
            "matrix" | "mat" | "mat_t" => match given("shape", 0) {
                Some(Fixed::List(shape)) => Pattern::Matrix(among(1)?, size(shape.first())?, size(shape.get(1))?),
                None | Some(Fixed::Type(_)) => Pattern::Matrix(among(1)?, None, None),
                Some(_) => return self.unknown(at, "a shape such as (2, 3) is expected"),
            },
            "quaternion" | "quat" | "quat_t" => Pattern::Quat(among(0)?),
            "transformation" | "transform" | "transform_t" => Pattern::Transform(among(0)?),
            _ => return self.unknown(at, format!("'{name}' is not evaluated beforehand")),
        };
        Ok(Fixed::Type(pattern))
    }

    /// A value of a type, of known numbers.
    fn construct(&self, ty: Ty, args: &[Fixed], at: &Expr) -> Result<Fixed, Unknown> {
        let (Some(s), count) = (ty.element(), ty.count()) else {
            return self.unknown(at, "a struct is not made beforehand");
        };
        let mut parts = vec![];
        for arg in args {
            if !numbers(arg, s, &mut parts, 0) {
                return self.unknown(at, "numbers are expected");
            }
        }
        let parts = match parts.len() {
            0 => vec![Value::int(s, 0); count],
            1 => vec![parts[0]; count],
            n if n == count => parts,
            n => return self.unknown(at, format!("{count} components are expected, {n} are given")),
        };
        Ok(Fixed::Typed(ty, parts))
    }
}

/// What `int`, `float` and `bool` of Python make of a number.
fn python_number(name: &str, of: &Fixed) -> Option<Fixed> {
    match (name, of) {
        ("int", Fixed::Float(x)) => {
            // Below 2^63, which is no number of 64 bits any more.
            let fits = (i64::MIN as f64..i64::MAX as f64).contains(&x.trunc());
            fits.then(|| Fixed::Int(x.trunc() as i64))
        }
        ("int", _) => of.int().map(Fixed::Int),
        ("float", _) => of.number().map(Fixed::Float),
        ("bool", _) => of.truth().map(Fixed::Bool),
        _ => None,
    }
}

/// Python's quotient, rounded down, and what remains of it.
fn quotient(x: f64, y: f64) -> (f64, f64) {
    let mut rest = x % y;
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) {
        rest += y;
    }
    // Nearly whole: it may have been rounded to either side.
    let whole = (x - rest) / y;
    let down = whole.floor();
    (if whole - down > 0.5 { down + 1.0 } else { down }, if rest == 0.0 { 0f64.copysign(y) } else { rest })
}

fn function_of(name: &str, x: f64, y: Option<f64>) -> Option<f64> {
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

/// Elements of a list with those of lists in it, and how deep these are.
fn size(list: &[Fixed]) -> (usize, usize) {
    list.iter().fold((0, 1), |(elements, depth), one| {
        let (more, deep) = match one {
            Fixed::List(inner) => size(inner),
            Fixed::Dict(all) => all.iter().fold((0, 1), |(elements, depth), (key, value)| {
                let pair = [size(std::slice::from_ref(key)), size(std::slice::from_ref(value))];
                (elements + pair[0].0 + pair[1].0, depth.max(pair[0].1).max(pair[1].1))
            }),
            _ => (0, 0),
        };
        (elements + more + 1, depth.max(deep + 1))
    })
}

fn arithmetic(op: Operator, a: &Fixed, b: &Fixed) -> Option<Fixed> {
    if let (Fixed::List(a), Fixed::List(b), Operator::Add) = (a, b, op) {
        return Some(Fixed::List(a.iter().chain(b).cloned().collect()));
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
            Operator::Div if y != 0 => return Some(Fixed::Float(x as f64 / y as f64)),
            Operator::Pow if y < 0 && x != 0 => return Some(Fixed::Float((x as f64).powf(y as f64))),
            _ => None,
        };
        return result.map(Fixed::Int);
    }
    let (x, y) = (a.number()?, b.number()?);
    Some(Fixed::Float(match op {
        Operator::Add => x + y,
        Operator::Sub => x - y,
        Operator::Mult => x * y,
        Operator::Div if y != 0.0 => x / y,
        Operator::FloorDiv if y != 0.0 => quotient(x, y).0,
        Operator::Mod if y != 0.0 => quotient(x, y).1,
        Operator::Pow if (x > 0.0 || y.trunc() == y) && (x != 0.0 || y >= 0.0) => x.powf(y),
        _ => return None,
    }))
}

pub(super) fn compared(op: ruff_python_ast::CmpOp, a: &Fixed, b: &Fixed) -> Option<bool> {
    use ruff_python_ast::CmpOp;
    match op {
        CmpOp::Is => return Some(a == b),
        CmpOp::IsNot => return Some(a != b),
        CmpOp::In | CmpOp::NotIn => {
            let is_one = |one: &Fixed| compared(CmpOp::Eq, a, one) == Some(true);
            let is_in = match b {
                Fixed::List(all) => all.iter().any(is_one),
                Fixed::Dict(all) => all.iter().any(|(key, _)| is_one(key)),
                _ => return None,
            };
            return Some(is_in == (op == CmpOp::In));
        }
        _ => {}
    }
    // Integers as they are: floats would not tell large ones apart.
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

/// The numbers of a value, of lists of lists too; whether it is nothing but numbers.
fn numbers(of: &Fixed, s: Scalar, parts: &mut Vec<Value>, depth: usize) -> bool {
    match of {
        Fixed::Typed(_, inner) => parts.extend(inner.iter().map(|v| fixed_value(s, v.as_f64(), v.as_i64()))),
        Fixed::List(all) => return depth < 4 && all.iter().all(|one| numbers(one, s, parts, depth + 1)),
        one => match (one.int(), one.number()) {
            (Some(n), _) => parts.push(fixed_value(s, n as f64, n)),
            (None, Some(x)) => parts.push(fixed_value(s, x, x as i64)),
            _ => return false,
        },
    }
    true
}
