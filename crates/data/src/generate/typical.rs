//! Characteristic operations of categories.

use crate::Category;
use crate::coverage::is_math;
use crate::program::{Binary, Kind, Program, Stmt, Unary};

/// True if a program has an operation that is characteristic of its category. A random draw may
/// have none, for example if no condition with both outcomes is found. Other categories have theirs
/// by construction.
pub fn is_typical(program: &Program, category: Category) -> bool {
    let mut found = false;
    match category {
        Category::Arithmetic | Category::ExpressionTree => program.each_expr(&mut |e| {
            found |= match &e.kind {
                Kind::Binary(op, _) => {
                    use Binary::{Add, Div, Mul, Quotient, Rem, Sub};
                    matches!(op, Add | Sub | Mul | Div | Quotient | Rem)
                }
                Kind::Unary(op, _) => *op == Unary::Neg,
                _ => false,
            };
        }),
        Category::Math => {
            program.each_expr(&mut |e| found |= matches!(&e.kind, Kind::Call(builtin, _) if is_math(builtin.name())))
        }
        Category::ControlFlow => {
            program.each_expr(&mut |e| found |= matches!(e.kind, Kind::Where(_)));
            program.each_stmt(&mut |stmt| found |= matches!(stmt, Stmt::If(..) | Stmt::For(..) | Stmt::While(..)));
        }
        _ => found = true,
    }
    found
}
