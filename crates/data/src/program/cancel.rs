//! Detection of operands that cancel out: terms that are added and subtracted, factors that are
//! multiplied and divided by, bits that are flipped twice. `b - (b - c)` reads `b` but does not
//! depend on it.

use super::{BinaryOp, Body, ExprKind, Program, ProgramExpr, ProgramStmt, UnaryOp, VarId};

/// Maximum operands compared: variables that double repeatedly would expand exponentially.
const MAX_OPERANDS: usize = 64;

/// Operators whose nested operands are flattened into one list with signs.
#[derive(Clone, Copy, PartialEq)]
enum OpGroup {
    Sums,
    Products,
    Xors,
}

/// Finds an expression with a cancelled operand, and the body that contains it.
pub fn find_cancelled(program: &Program) -> Option<(&Body, &ProgramExpr)> {
    let mut bodies = program.functions.iter().map(|function| &function.body).chain([&program.body]);
    bodies.find_map(|body| Some((body, find_cancelled_in(body)?)))
}

fn find_cancelled_in(body: &Body) -> Option<&ProgramExpr> {
    let mut definitions: Vec<(VarId, &ProgramExpr)> = vec![];
    let mut found = None;
    for stmt in &body.stmts {
        stmt.walk(&mut |stmt| {
            if found.is_some() {
                return;
            }
            for e in stmt.children().0 {
                e.walk(&mut |e| {
                    if found.is_none() && cancels(e, &definitions) {
                        found = Some(e);
                    }
                });
            }
            if let ProgramStmt::Let(var, e) = stmt
                && !body.var(*var).mutable
            {
                definitions.push((*var, e));
            }
        });
    }
    found
}

/// True if one operand of an expression cancels another.
fn cancels(e: &ProgramExpr, definitions: &[(VarId, &ProgramExpr)]) -> bool {
    let group = match &e.kind {
        ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub, _) => OpGroup::Sums,
        ExprKind::Binary(BinaryOp::Mul | BinaryOp::Div, _) => OpGroup::Products,
        ExprKind::Binary(BinaryOp::BitXor, _) => OpGroup::Xors,
        _ => return false,
    };
    let mut operands = vec![];
    flatten(e, group, false, definitions, &mut operands);
    // XOR is its own inverse.
    let opposed = |a: bool, b: bool| a != b || group == OpGroup::Xors;
    operands
        .iter()
        .enumerate()
        .any(|(n, (a, inverse))| operands[..n].iter().any(|(b, other)| opposed(*inverse, *other) && a == b))
}

/// Flattens the operands of nested operators of one group, each with whether it is inverted
/// (subtracted or divided by). Variables are replaced by their definitions.
fn flatten<'p>(
    e: &'p ProgramExpr,
    group: OpGroup,
    inverse: bool,
    definitions: &[(VarId, &'p ProgramExpr)],
    operands: &mut Vec<(&'p ProgramExpr, bool)>,
) {
    if operands.len() >= MAX_OPERANDS {
        return;
    }
    match (&e.kind, group) {
        (ExprKind::Binary(BinaryOp::Add, both), OpGroup::Sums)
        | (ExprKind::Binary(BinaryOp::Mul, both), OpGroup::Products)
        | (ExprKind::Binary(BinaryOp::BitXor, both), OpGroup::Xors) => {
            both.iter().for_each(|e| flatten(e, group, inverse, definitions, operands));
        }
        (ExprKind::Binary(BinaryOp::Sub, both), OpGroup::Sums)
        | (ExprKind::Binary(BinaryOp::Div, both), OpGroup::Products) => {
            flatten(&both[0], group, inverse, definitions, operands);
            flatten(&both[1], group, !inverse, definitions, operands);
        }
        (ExprKind::Unary(UnaryOp::Neg, e), OpGroup::Sums) => flatten(e, group, !inverse, definitions, operands),
        (ExprKind::Var(var), _) => match definitions.iter().find(|(other, _)| other == var) {
            Some((_, definition)) => flatten(definition, group, inverse, definitions, operands),
            None => operands.push((e, inverse)),
        },
        _ => operands.push((e, inverse)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ScalarType;

    #[test]
    fn cancelling_operands_are_found() {
        let var = |n: u16| ProgramExpr::var(VarId(n), ScalarType::F32);
        let bin = ProgramExpr::binary;
        let (a, b, c) = (var(0), var(1), var(2));
        let inner = bin(BinaryOp::Sub, b.clone(), c.clone());
        let definitions = [(VarId(3), &inner)];
        for (e, expected) in [
            (bin(BinaryOp::Sub, b.clone(), inner.clone()), true),
            (bin(BinaryOp::Sub, b.clone(), var(3)), true),
            (bin(BinaryOp::Add, b.clone(), var(3)), false),
            (bin(BinaryOp::Add, ProgramExpr::unary(UnaryOp::Neg, a.clone()), a.clone()), true),
            (bin(BinaryOp::Sub, bin(BinaryOp::Mul, a.clone(), b.clone()), b.clone()), false),
            (bin(BinaryOp::Div, bin(BinaryOp::Mul, a.clone(), b.clone()), b.clone()), true),
            (bin(BinaryOp::Mul, b.clone(), b.clone()), false),
            (bin(BinaryOp::BitXor, bin(BinaryOp::BitXor, a.clone(), b), a), true),
        ] {
            assert_eq!(cancels(&e, &definitions), expected, "{e:?}");
        }
    }
}
