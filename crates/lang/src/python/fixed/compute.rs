//! Calls and arithmetic of what is known.

use bornite_ir::{Scalar, Value};
use ruff_python_ast::{Expr, ExprCall, Operator};

use super::{Evaluator, Fixed, Unknown, fixed_value};
use crate::python::types::{Among, Pattern, Ty};

/// Elements of a list with those of lists in it.
const MAX_LIST: usize = 1 << 16;
/// Lists within each other.
const MAX_LISTS: usize = 32;

impl Evaluator<'_, '_> {
    pub(super) fn call(&self, call: &ExprCall, at: &Expr) -> Result<Fixed, Unknown> {
        let callee = self.eval(&call.func)?;
        let args = |me: &Self| call.arguments.args.iter().map(|arg| me.eval(arg)).collect::<Result<Vec<_>, _>>();
        let named = |name: &str| {
            call.arguments.keywords.iter().find(|k| k.arg.as_ref().is_some_and(|arg| arg.as_str() == name))
        };
        match callee {
            Fixed::Builtin(name) if name == "constant" || name == "static" => match call.arguments.args.first() {
                Some(value) => self.eval(value),
                None => self.unknown(at, format!("'{name}' takes a value")),
            },
            Fixed::Type(Pattern::Array(_, rank)) => {
                let dtype = named("dtype").map(|k| &k.value).or(call.arguments.args.first());
                let rank = match named("ndim") {
                    Some(given) => self.eval(&given.value)?.size().unwrap_or(rank),
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
                    return Ok(Fixed::Float(result));
                }
                self.make_type(&name, &args, &keywords, at)
            }
            Fixed::Python(name) => {
                let all = args(self)?;
                let numbers: Option<Vec<f64>> = all.iter().map(Fixed::number).collect();
                let ints: Option<Vec<i64>> = all.iter().map(Fixed::int).collect();
                match (name.as_str(), &all[..]) {
                    ("len", [Fixed::List(list)]) => Ok(Fixed::Int(list.len() as i64)),
                    ("len", [Fixed::Typed(ty, _)]) => Ok(Fixed::Int(ty.count() as i64)),
                    ("abs", [Fixed::Int(n)]) => Ok(Fixed::Int(n.wrapping_abs())),
                    ("abs", [Fixed::Float(x)]) => Ok(Fixed::Float(x.abs())),
                    ("round", [Fixed::Float(x)]) => Ok(Fixed::Int(x.round_ties_even() as i64)),
                    ("tuple" | "list", [Fixed::List(_)]) => Ok(all[0].clone()),
                    ("range", _) => match ints.as_deref() {
                        Some([n]) => self.range(0, *n, at),
                        Some([a, b]) => self.range(*a, *b, at),
                        _ => self.unknown(at, "this range is not known beforehand"),
                    },
                    ("min" | "max", _) => match (ints, numbers) {
                        (Some(ints), _) if !ints.is_empty() => {
                            let picked = if name == "min" { ints.into_iter().min() } else { ints.into_iter().max() };
                            Ok(Fixed::Int(picked.unwrap_or(0)))
                        }
                        (_, Some(numbers)) if !numbers.is_empty() => {
                            let pick = if name == "min" { f64::min } else { f64::max };
                            Ok(Fixed::Float(numbers.into_iter().reduce(pick).unwrap_or(0.0)))
                        }
                        _ => self.unknown(at, "this cannot be computed beforehand"),
                    },
                    _ => {
                        self.unknown(at, format!("'{name}' is not evaluated: only constants, arithmetic and math are"))
                    }
                }
            }
            _ => self.unknown(at, "this cannot be called beforehand"),
        }
    }

    fn range(&self, start: i64, end: i64, at: &Expr) -> Result<Fixed, Unknown> {
        let count = (end as i128 - start as i128).max(0);
        self.spend(usize::try_from(count).unwrap_or(usize::MAX), 1, at)?;
        Ok(Fixed::List((start..end).map(Fixed::Int).collect()))
    }

    /// A list, if it is not too long with the lists in it; it is counted, as it will be copied whole.
    pub(super) fn counted(&self, list: Fixed, at: &Expr) -> Result<Fixed, Unknown> {
        if let Fixed::List(all) = &list {
            let (elements, depth) = size(all);
            self.spend(elements, depth, at)?;
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
            Some(n) => match n.size() {
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
        ("radians", None) => x.to_radians(),
        ("degrees", None) => x.to_degrees(),
        ("pow", Some(y)) => x.powf(y),
        ("atan2", Some(y)) => x.atan2(y),
        _ => return None,
    })
}

/// Elements of a list with those of lists in it, and how deep these are.
fn size(list: &[Fixed]) -> (usize, usize) {
    list.iter().fold((0, 1), |(elements, depth), one| match one {
        Fixed::List(inner) => {
            let (more, deep) = size(inner);
            (elements + more + 1, depth.max(deep + 1))
        }
        _ => (elements + 1, depth),
    })
}

fn arithmetic(op: Operator, a: &Fixed, b: &Fixed) -> Option<Fixed> {
    if let (Fixed::List(a), Fixed::List(b), Operator::Add) = (a, b, op) {
        return Some(Fixed::List(a.iter().chain(b).cloned().collect()));
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
            Operator::Pow => return Some(Fixed::Float((x as f64).powf(y as f64))),
            _ => None,
        };
        return result.map(Fixed::Int);
    }
    let (x, y) = (a.number()?, b.number()?);
    Some(Fixed::Float(match op {
        Operator::Add => x + y,
        Operator::Sub => x - y,
        Operator::Mult => x * y,
        Operator::Div => x / y,
        Operator::FloorDiv => (x / y).floor(),
        Operator::Mod => x - y * (x / y).floor(),
        Operator::Pow => x.powf(y),
        _ => return None,
    }))
}

pub(super) fn compared(op: ruff_python_ast::CmpOp, a: &Fixed, b: &Fixed) -> Option<bool> {
    use ruff_python_ast::CmpOp;
    match op {
        CmpOp::Is => return Some(a == b),
        CmpOp::IsNot => return Some(a != b),
        CmpOp::In | CmpOp::NotIn => {
            let Fixed::List(all) = b else { return None };
            return Some(all.contains(a) == (op == CmpOp::In));
        }
        _ => {}
    }
    let (Some(x), Some(y)) = (a.number(), b.number()) else {
        return match op {
            CmpOp::Eq => Some(a == b),
            CmpOp::NotEq => Some(a != b),
            _ => None,
        };
    };
    Some(match op {
        CmpOp::Eq => x == y,
        CmpOp::NotEq => x != y,
        CmpOp::Lt => x < y,
        CmpOp::LtE => x <= y,
        CmpOp::Gt => x > y,
        CmpOp::GtE => x >= y,
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
