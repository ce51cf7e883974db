//! No dead code: conditions go both ways on the inputs of a row, and a program that has any is no row.

use bornite_data::program::{Binary, Expr, Stmt, Unary};
use bornite_data::verify::expected;
use bornite_data::{Category, Rejected};

use crate::{full, rows, seed};

#[test]
fn conditions_go_both_ways() {
    let seed = seed();
    let each = if full() { 1000 } else { 60 };
    let categories = [Category::ControlFlow, Category::Functions, Category::Nested, Category::IntegerBits];
    let mut dead = vec![];
    for category in categories {
        for row in rows(seed, category, each) {
            if let Err(Rejected::Dead(what)) = expected(&row.program, [row.seed, row.index]) {
                dead.push(format!("{what}\n{}", row.source));
            }
        }
    }
    // A number passed by value may fall on one side in all launches: that is rare, and no mistake.
    let most = 2 + each as usize * categories.len() / 100;
    assert!(dead.len() <= most, "{} of {}: {}", dead.len(), each as usize * categories.len(), dead.join("\n"));
}

/// Gives the first branch of a block another condition.
fn with_condition(stmts: &mut [Stmt], of: &dyn Fn(Expr) -> Expr) -> bool {
    for stmt in stmts {
        let found = match stmt {
            Stmt::If(condition, ..) => {
                *condition = of(condition.clone());
                true
            }
            Stmt::For(.., body) | Stmt::While(_, body) => with_condition(body, of),
            _ => false,
        };
        if found {
            return true;
        }
    }
    false
}

#[test]
fn a_condition_that_decides_nothing_is_found() {
    let seed = seed();
    let never = |c: Expr| Expr::binary(Binary::And, c.clone(), Expr::unary(Unary::Not, c));
    let always = |c: Expr| Expr::binary(Binary::Or, c.clone(), Expr::unary(Unary::Not, c));
    let mut found = 0;
    for row in rows(seed, Category::ControlFlow, 60) {
        let key = [row.seed, row.index];
        if expected(&row.program, key).is_err() {
            continue;
        }
        for (what, of) in [("fails", &never as &dyn Fn(Expr) -> Expr), ("holds", &always)] {
            let mut program = row.program.clone();
            if !with_condition(&mut program.body.stmts, of) {
                continue;
            }
            match expected(&program, key) {
                Err(Rejected::Dead(_)) => found += 1,
                // Without the branch a loop may end otherwise.
                Err(Rejected::Undecided { .. } | Rejected::Invalid(_)) => {}
                other => panic!("{what}: {:?}\n{}", other.err(), row.source),
            }
        }
    }
    assert!(found >= 40, "{found} were found");
}
