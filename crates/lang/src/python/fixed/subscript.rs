//! Parts of what is known, and types with arguments: `TABLE[2]`, `wp.array2d[float]`.

use ruff_python_ast::{CmpOp, Expr};

use super::{Evaluator, Fixed, Unknown, compute};
use crate::python::types::{Pattern, Ty};

impl Evaluator<'_, '_> {
    pub(super) fn subscript(&self, of: Fixed, slice: &Expr, at: &Expr) -> Result<Fixed, Unknown> {
        match of {
            Fixed::Type(Pattern::Array(_, rank)) => self.array_of(slice, rank, at),
            Fixed::Type(Pattern::Ref(_)) => match self.eval(slice)? {
                Fixed::Type(inner) => Ok(Fixed::Type(Pattern::Ref(Box::new(inner)))),
                _ => self.unknown(slice, "a type is expected"),
            },
            Fixed::Type(Pattern::Function) => Ok(Fixed::Type(Pattern::Function)),
            Fixed::Type(Pattern::Foreign(name)) => Ok(Fixed::Type(Pattern::Foreign(name))),
            Fixed::Python(name) if name == "tuple" || name == "typing.Tuple" => match self.eval(slice)? {
                Fixed::List(all) => Ok(Fixed::Type(Pattern::Tuple(
                    all.into_iter().map(|one| if let Fixed::Type(p) = one { p } else { Pattern::Any }).collect(),
                ))),
                Fixed::Type(one) => Ok(Fixed::Type(Pattern::Tuple(vec![one]))),
                _ => self.unknown(slice, "types are expected"),
            },
            // `wp.types.vector[3, float]` and its like.
            Fixed::Builtin(name) => match self.eval(slice)? {
                Fixed::List(all) => self.make_type(&name, &all, &[], at),
                one => self.make_type(&name, &[one], &[], at),
            },
            Fixed::List(all) => {
                let n = self.eval(slice)?.int();
                let place = n.map(|n| if n < 0 { n + all.len() as i64 } else { n });
                match place.and_then(|n| all.get(usize::try_from(n).ok()?)) {
                    Some(found) => Ok(found.clone()),
                    None => self.unknown(slice, format!("the list has {} elements", all.len())),
                }
            }
            Fixed::Dict(all) => {
                let key = self.eval(slice)?;
                match all.into_iter().find(|(other, _)| compute::compared(CmpOp::Eq, other, &key) == Some(true)) {
                    Some((_, value)) => Ok(value),
                    None => self.unknown(slice, "there is no such key"),
                }
            }
            Fixed::Typed(ty, parts) if !matches!(ty, Ty::Scalar(_)) => {
                let n = match (ty, self.eval(slice)?) {
                    (Ty::Matrix(_, _, columns), Fixed::List(at)) => match &at[..] {
                        [r, c] => r.int().zip(c.int()).and_then(|(r, c)| r.checked_mul(columns as i64)?.checked_add(c)),
                        _ => None,
                    },
                    (_, n) => n.int().map(|n| if n < 0 { n + parts.len() as i64 } else { n }),
                };
                match n.and_then(|n| parts.get(usize::try_from(n).ok()?)) {
                    Some(part) => Ok(Fixed::Typed(Ty::Scalar(part.scalar()), vec![*part])),
                    None => self.unknown(slice, "there is no such component"),
                }
            }
            Fixed::Type(pattern) if pattern.exact().is_some() => self.unknown(at, "this type takes no arguments"),
            _ => self.unknown(at, "this cannot be indexed beforehand"),
        }
    }

    fn array_of(&self, slice: &Expr, rank: u8, at: &Expr) -> Result<Fixed, Unknown> {
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
            Fixed::Type(inner) => Ok(Fixed::Type(Pattern::Array(Box::new(inner), rank))),
            Fixed::Builtin(name) => self.unknown(dtype, format!("'{name}' is not a type of the dialect")),
            _ => self.unknown(at, "the type of an array's elements is expected"),
        }
    }
}
