//! Detection of operands that cancel out: terms that are added and subtracted, factors that are
//! multiplied and divided by, bits that are flipped twice. `b - (b - c)` reads `b` but does not
//! depend on it.

use super::{Binary, Body, Expr, Kind, Program, Stmt, Unary, Var};

/// Maximum operands compared: variables that double repeatedly would expand exponentially.
const MOST: usize = 64;

/// Operators whose nested operands are flattened into one list with signs.
#[derive(Clone, Copy, PartialEq)]
enum Group {
    Sums,
    Products,
    Xors,
}

/// Finds an expression with a cancelled operand, and the body that contains it.
pub fn cancelled(program: &Program) -> Option<(&Body, &Expr)> {
    let mut bodies = program.functions.iter().map(|function| &function.body).chain([&program.body]);
    bodies.find_map(|body| Some((body, cancelled_in(body)?)))
}

fn cancelled_in(body: &Body) -> Option<&Expr> {
    let mut definitions: Vec<(Var, &Expr)> = vec![];
    let mut found = None;
    for stmt in &body.stmts {
        stmt.walk(&mut |stmt| {
            if found.is_some() {
                return;
            }
            for e in stmt.contents().0 {
                e.walk(&mut |e| {
                    if found.is_none() && cancels(e, &definitions) {
                        found = Some(e);
                    }
                });
            }
            if let Stmt::Let(var, e) = stmt
                && !body.var(*var).changes
            {
                definitions.push((*var, e));
            }
        });
    }
    found
}

/// True if one operand of an expression cancels another.
fn cancels(e: &Expr, definitions: &[(Var, &Expr)]) -> bool {
    let group = match &e.kind {
        Kind::Binary(Binary::Add | Binary::Sub, _) => Group::Sums,
        Kind::Binary(Binary::Mul | Binary::Div, _) => Group::Products,
        Kind::Binary(Binary::BitXor, _) => Group::Xors,
        _ => return false,
    };
    let mut operands = vec![];
    flatten(e, group, false, definitions, &mut operands);
    // XOR is its own inverse.
    let opposed = |a: bool, b: bool| a != b || group == Group::Xors;
    operands
        .iter()
        .enumerate()
        .any(|(n, (a, inverse))| operands[..n].iter().any(|(b, other)| opposed(*inverse, *other) && a == b))
}

/// Flattens the operands of nested operators of one group, each with whether it is inverted
/// (subtracted or divided by). Variables are replaced by their definitions.
fn flatten<'p>(
    e: &'p Expr,
    group: Group,
    inverse: bool,
    definitions: &[(Var, &'p Expr)],
    operands: &mut Vec<(&'p Expr, bool)>,
) {
    if operands.len() >= MOST {
        return;
    }
    match (&e.kind, group) {
        (Kind::Binary(Binary::Add, both), Group::Sums)
        | (Kind::Binary(Binary::Mul, both), Group::Products)
        | (Kind::Binary(Binary::BitXor, both), Group::Xors) => {
            both.iter().for_each(|e| flatten(e, group, inverse, definitions, operands));
        }
        (Kind::Binary(Binary::Sub, both), Group::Sums) | (Kind::Binary(Binary::Div, both), Group::Products) => {
            flatten(&both[0], group, inverse, definitions, operands);
            flatten(&both[1], group, !inverse, definitions, operands);
        }
        (Kind::Unary(Unary::Neg, e), Group::Sums) => flatten(e, group, !inverse, definitions, operands),
        (Kind::Var(var), _) => match definitions.iter().find(|(other, _)| other == var) {
            Some((_, definition)) => flatten(definition, group, inverse, definitions, operands),
            None => operands.push((e, inverse)),
        },
        _ => operands.push((e, inverse)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Scalar;

    #[test]
    fn cancelling_operands_are_found() {
        let var = |n: u16| Expr::var(Var(n), Scalar::F32);
        let bin = Expr::binary;
        let (a, b, c) = (var(0), var(1), var(2));
        let inner = bin(Binary::Sub, b.clone(), c.clone());
        let definitions = [(Var(3), &inner)];
        for (e, expected) in [
            (bin(Binary::Sub, b.clone(), inner.clone()), true),
            (bin(Binary::Sub, b.clone(), var(3)), true),
            (bin(Binary::Add, b.clone(), var(3)), false),
            (bin(Binary::Add, Expr::unary(Unary::Neg, a.clone()), a.clone()), true),
            (bin(Binary::Sub, bin(Binary::Mul, a.clone(), b.clone()), b.clone()), false),
            (bin(Binary::Div, bin(Binary::Mul, a.clone(), b.clone()), b.clone()), true),
            (bin(Binary::Mul, b.clone(), b.clone()), false),
            (bin(Binary::BitXor, bin(Binary::BitXor, a.clone(), b), a), true),
        ] {
            assert_eq!(cancels(&e, &definitions), expected, "{e:?}");
        }
    }
}
