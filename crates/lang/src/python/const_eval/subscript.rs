//! Subscripts of compile-time values (`TABLE[2]`) and of generic types (`wp.array2d[float]`).

use ruff_python_ast::{CmpOp, Expr};

use super::{ConstValue, Evaluator, Unknown, compute};
use crate::python::types::{Pattern, Ty};

impl Evaluator<'_, '_> {
    pub(super) fn subscript(&self, of: ConstValue, slice: &Expr, at: &Expr) -> Result<ConstValue, Unknown> {
        match of {
            ConstValue::Type(Pattern::Array(_, rank)) => self.array_of(slice, rank, at),
            ConstValue::Type(Pattern::Ref(_)) => match self.eval(slice)? {
                ConstValue::Type(inner) => Ok(ConstValue::Type(Pattern::Ref(Box::new(inner)))),
                _ => self.unknown(slice, "expected a type"),
            },
            ConstValue::Type(Pattern::Function) => Ok(ConstValue::Type(Pattern::Function)),
            ConstValue::Type(Pattern::Unsupported(name)) => Ok(ConstValue::Type(Pattern::Unsupported(name))),
            ConstValue::PythonBuiltin(name) if name == "tuple" || name == "typing.Tuple" => match self.eval(slice)? {
                ConstValue::List(all) => Ok(ConstValue::Type(Pattern::Tuple(
                    all.into_iter().map(|one| if let ConstValue::Type(p) = one { p } else { Pattern::Any }).collect(),
                ))),
                ConstValue::Type(one) => Ok(ConstValue::Type(Pattern::Tuple(vec![one]))),
                _ => self.unknown(slice, "expected types"),
            },
            // Such as `wp.types.vector[3, float]`.
            ConstValue::Builtin(name) => match self.eval(slice)? {
                ConstValue::List(all) => self.type_constructor(&name, &all, &[], at),
                one => self.type_constructor(&name, &[one], &[], at),
            },
            ConstValue::List(all) => {
                let n = self.eval(slice)?.int();
                let index = n.map(|n| if n < 0 { n + all.len() as i64 } else { n });
                match index.and_then(|n| all.get(usize::try_from(n).ok()?)) {
                    Some(found) => Ok(found.clone()),
                    None => self.unknown(slice, format!("index out of range for a list of length {}", all.len())),
                }
            }
            ConstValue::Dict(all) => {
                let key = self.eval(slice)?;
                match all.into_iter().find(|(other, _)| compute::compared(CmpOp::Eq, other, &key) == Some(true)) {
                    Some((_, value)) => Ok(value),
                    None => self.unknown(slice, "the dictionary has no such key"),
                }
            }
            ConstValue::Typed(ty, parts) if !matches!(ty, Ty::Scalar(_)) => {
                let n = match (ty, self.eval(slice)?) {
                    (Ty::Matrix(_, _, columns), ConstValue::List(at)) => match &at[..] {
                        [r, c] => r.int().zip(c.int()).and_then(|(r, c)| r.checked_mul(columns as i64)?.checked_add(c)),
                        _ => None,
                    },
                    (_, n) => n.int().map(|n| if n < 0 { n + parts.len() as i64 } else { n }),
                };
                match n.and_then(|n| parts.get(usize::try_from(n).ok()?)) {
                    Some(part) => Ok(ConstValue::Typed(Ty::Scalar(part.scalar()), vec![*part])),
                    None => self.unknown(slice, "component index out of range"),
                }
            }
            ConstValue::Type(pattern) if pattern.exact().is_some() => {
                self.unknown(at, "this type takes no type arguments")
            }
            _ => self.unknown(at, "this cannot be indexed at compile time"),
        }
    }

    fn array_of(&self, slice: &Expr, rank: u8, at: &Expr) -> Result<ConstValue, Unknown> {
        let (dtype, rank) = match slice {
            Expr::Tuple(both) if both.elts.len() == 2 => {
                let rank = match (self.eval(&both.elts[1]), &both.elts[1]) {
                    (Ok(n), _) if n.extent().is_some() => n.extent().unwrap_or(rank),
                    // `Literal[2]`
                    (_, Expr::Subscript(literal)) => self.eval(&literal.slice)?.extent().unwrap_or(rank),
                    _ => rank,
                };
                (&both.elts[0], rank)
            }
            other => (other, rank),
        };
        match self.eval(dtype)? {
            ConstValue::Type(inner) => Ok(ConstValue::Type(Pattern::Array(Box::new(inner), rank))),
            ConstValue::Builtin(name) => self.unknown(dtype, format!("unknown type '{name}'")),
            _ => self.unknown(at, "expected the element type of an array"),
        }
    }
}
