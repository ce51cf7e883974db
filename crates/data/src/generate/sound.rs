//! A first look at a program: drawn anew if an operand cancels, or if a few instances show an expression of the inputs that
//! computes nothing. The level `run` looks at all inputs; here it must cost little.

use crate::evaluate::{Reached, run};
use crate::inputs::small;
use crate::program::cancel::cancelled;
use crate::program::{Expr, Kind, Program, Stmt, Var};

/// Launches that are tried, with other numbers passed by value.
const LAUNCHES: usize = 3;

/// Values of an expression before it is judged.
const VALUES: u32 = 6;

/// Whether a program computes something of its inputs, as far as a first look tells.
pub fn is_sound(program: &Program) -> bool {
    if cancelled(program).is_some() {
        return false;
    }
    let mut reached = Reached::new(program);
    for launch in 0..LAUNCHES {
        let mut input = small(program, launch);
        // A run that rounding leaves undecided has shown some values all the same.
        let _ = run(program, &input.sizes, &input.values, &mut input.arrays, &mut reached);
    }
    let mut sound = true;
    for body in program.functions.iter().map(|function| &function.body).chain([&program.body]) {
        // Parameters of functions stand for what the kernel made of its inputs.
        let is_function = !std::ptr::eq(body, &program.body);
        let parameters = if is_function { body.params } else { 0 };
        let mut moved: Vec<Var> = (0..parameters as u16).map(Var).collect();
        if !is_function {
            moved.extend(program.values.iter().map(|value| value.var));
        }
        for stmt in &body.stmts {
            stmt.walk(&mut |stmt| {
                let exprs = stmt.contents().0;
                let depends = exprs.iter().any(|e| is_moved(e, &moved));
                if let (true, Stmt::Let(var, _) | Stmt::Assign(var, _) | Stmt::Update(var, ..)) = (depends, stmt) {
                    moved.push(*var);
                }
                if let Stmt::Draw(var, ..) = stmt {
                    moved.push(*var);
                }
                for e in exprs {
                    e.walk(&mut |e| sound &= !reached.is_idle(e, VALUES) || !is_moved(e, &moved));
                }
            });
        }
    }
    sound
}

/// Whether an expression reads an array or a variable of some.
fn is_moved(e: &Expr, by: &[Var]) -> bool {
    let mut found = false;
    e.walk(&mut |part| {
        found |= match &part.kind {
            Kind::Load(..) => true,
            Kind::Var(var) => by.contains(var),
            _ => false,
        }
    });
    found
}
