//! Characteristic operations of categories.

use crate::Category;
use crate::coverage::is_math;
use crate::program::{BinaryOp, ExprKind, Program, ProgramStmt, UnaryOp};

/// True if a program has an operation that is characteristic of its category. A random draw may
/// have none, for example if no condition with both outcomes is found. Other categories have theirs
/// by construction.
pub fn is_typical(program: &Program, category: Category) -> bool {
    let mut found = false;
    match category {
        Category::Arithmetic | Category::ExpressionTree => program.each_expr(&mut |e| {
            found |= match &e.kind {
                ExprKind::Binary(op, _) => {
                    use BinaryOp::{Add, Div, Mul, Quotient, Rem, Sub};
                    matches!(op, Add | Sub | Mul | Div | Quotient | Rem)
                }
                ExprKind::Unary(op, _) => *op == UnaryOp::Neg,
                _ => false,
            };
        }),
        Category::Math => program
            .each_expr(&mut |e| found |= matches!(&e.kind, ExprKind::Call(builtin, _) if is_math(builtin.name()))),
        Category::ControlFlow => {
            program.each_expr(&mut |e| found |= matches!(e.kind, ExprKind::Where(_)));
            program.each_stmt(&mut |stmt| {
                found |= matches!(stmt, ProgramStmt::If(..) | ProgramStmt::For(..) | ProgramStmt::While(..))
            });
        }
        _ => found = true,
    }
    found
}
