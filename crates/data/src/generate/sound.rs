//! A first look at a program: it is drawn again if an operand cancels, or if an expression of the inputs computes nothing in
//! a few instances. The level `run` looks at all inputs; here it must cost little.

use crate::evaluate::{Reached, run};
use crate::inputs::small;
use crate::program::cancel::cancelled;
use crate::program::{Expr, Kind, Program, Stmt, Ty, Var};

/// Launches that are tried until all expressions have shown that they compute something, each with other numbers.
const LAUNCHES: usize = 4;

/// Launches before an expression is judged, as one of numbers passed by value has one value in each.
const JUDGED_FROM: usize = 3;

/// Values of an expression before it is judged.
const VALUES: u32 = 6;

/// Whether a program computes something of its inputs, as far as a first look tells.
pub fn is_sound(program: &Program) -> bool {
    if cancelled(program).is_some() {
        return false;
    }
    let mut reached = Reached::observing(&of_inputs(program));
    for launch in 0..LAUNCHES {
        if reached.is_complete() {
            return true;
        }
        let mut input = small(program, launch);
        // A run that rounding leaves undecided has shown some values all the same.
        let _ = run(program, &input.sizes, &input.values, &mut input.arrays, &mut reached);
        if launch + 1 >= JUDGED_FROM && reached.has_idle(VALUES) {
            return false;
        }
    }
    true
}

/// Expressions that depend on what goes in: not on indices and lengths alone, of which few launches have too few.
fn of_inputs(program: &Program) -> Vec<&Expr> {
    let mut found = vec![];
    for body in program.functions.iter().map(|function| &function.body).chain([&program.body]) {
        // Parameters of functions stand for what the kernel made of its inputs.
        let mut moved: Vec<Var> = if std::ptr::eq(body, &program.body) {
            program.values.iter().map(|value| value.var).collect()
        } else {
            (0..body.params as u16).map(Var).collect()
        };
        for stmt in &body.stmts {
            stmt.walk(&mut |stmt| {
                let before = found.len();
                for e in stmt.contents().0 {
                    collect(e, &moved, &mut found);
                }
                // What ends a loop after so many turns must do so for some.
                if let Stmt::While(Expr { kind: Kind::Binary(_, both), .. }, _) = stmt {
                    found.extend(both.iter().filter(|part| part.ty == Ty::BOOL));
                }
                match stmt {
                    Stmt::Let(var, e) | Stmt::Assign(var, e) | Stmt::Update(var, _, e)
                        if found.len() > before || matches!(e.kind, Kind::Var(other) if moved.contains(&other)) =>
                    {
                        moved.push(*var);
                    }
                    Stmt::Draw(var, ..) => moved.push(*var),
                    _ => {}
                }
            });
        }
    }
    found
}

/// Adds the operations and loads within an expression that depend on some variables or on an array; whether it does.
fn collect<'p>(e: &'p Expr, moved: &[Var], found: &mut Vec<&'p Expr>) -> bool {
    let mut depends = match &e.kind {
        Kind::Var(var) => return moved.contains(var),
        Kind::Load(..) => true,
        _ => false,
    };
    e.operands().iter().for_each(|operand| depends |= collect(operand, moved, found));
    if depends {
        found.push(e);
    }
    depends
}
