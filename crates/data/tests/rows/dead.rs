//! Dead code: conditions have both outcomes on the inputs of a row, and programs with dead code are
//! rejected.

use bornite_data::evaluate::{self, Reached, is_same};
use bornite_data::inputs::{INPUTS, input};
use bornite_data::program::{
    Array, Binary, Builtin, Expr, Fill, Program, Scalar, Size, Stmt, Ty, Unary, Update, python,
};
use bornite_data::verify::expected;
use bornite_data::{Category, Rejected, generate};

use crate::{full, rows, seed};

pub fn conditions_have_both_outcomes() {
    let seed = seed();
    let each = if full() { 1000 } else { 60 };
    let categories = [Category::ControlFlow, Category::Functions, Category::Nested, Category::IntegerBits];
    let mut dead = vec![];
    for category in categories {
        for row in rows(seed, category, each) {
            // Other findings concern expressions.
            if let Err(Rejected::Dead(what)) = expected(&row.program, [row.seed, row.index])
                && ["is true for", "is false for", "no input executes", "no input evaluates"].iter().any(|kind| what.contains(kind))
            {
                dead.push(format!("{what}\n{}", row.source));
            }
        }
    }
    // A scalar parameter may have the same outcome in all launches, and an operand of a condition
    // may never matter: that is rare and acceptable, since such a program is rejected.
    let max = 4 + each as usize * categories.len() / 30;
    assert!(dead.len() <= max, "{} of {}: {}", dead.len(), each as usize * categories.len(), dead.join("\n"));
}

/// Replaces the first condition of a block.
fn with_condition(stmts: &mut [Stmt], replace: &dyn Fn(Expr) -> Expr) -> bool {
    for stmt in stmts {
        let found = match stmt {
            Stmt::If(condition, ..) => {
                *condition = replace(condition.clone());
                true
            }
            Stmt::For(.., body) | Stmt::While(_, body) => with_condition(body, replace),
            _ => false,
        };
        if found {
            return true;
        }
    }
    false
}

pub fn conditions_with_one_outcome_are_found() {
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
                // Without the branch, a loop may end differently.
                Err(Rejected::Undecided { .. } | Rejected::Invalid(_)) => {}
                other => panic!("{what}: {:?}\n{}", other.err(), row.source),
            }
        }
    }
    assert!(found >= 40, "{found} were found");
}

fn load(array: u8, i: &Expr) -> Expr {
    Expr::load(Array(array), vec![i.clone()], Scalar::F32)
}

/// A program over `b` and `c` that stores one value computed from their elements.
fn storing(value: &dyn Fn(Expr, Expr) -> Expr) -> Program {
    let row = rows(1, Category::Arithmetic, 200).find(|row| {
        let [b, c, out] = &row.program.arrays[..] else { return false };
        [b, c, out].iter().all(|array| array.ty == Ty::F32) && out.written
    });
    let mut program = row.expect("a program over two arrays").program;
    for array in &mut program.arrays[..2] {
        array.fill = Fill::Uniform(-2.0, 2.0);
    }
    let i = Expr::var(program.grid[0].0, Ty::I32);
    program.body.stmts = vec![Stmt::Store(Array(2), vec![i.clone()], value(load(0, &i), load(1, &i)))];
    program
}

/// Programs that compute less than they seem to, each with the expected finding.
pub fn degenerate_programs_are_found() {
    let bin = Expr::binary;
    let number = |value: f64| Expr::float(Scalar::F32, value);
    let call = |builtin, args: Vec<Expr>| Expr::call(builtin, args);
    type Of<'a> = &'a dyn Fn(Expr, Expr) -> Expr;
    let cases: [(&str, Of<'_>); 9] = [
        ("cancels", &|b, c| bin(Binary::Sub, b.clone(), bin(Binary::Sub, b, c))),
        ("cancels", &|b, c| bin(Binary::Div, bin(Binary::Mul, b, c.clone()), c)),
        ("the same value", &|b, c| {
            bin(Binary::Add, call(Builtin::Floor, vec![bin(Binary::Mul, call(Builtin::Abs, vec![b]), number(0.25))]), c)
        }),
        ("equals '", &|b, c| bin(Binary::Mul, call(Builtin::Max, vec![b, number(-3.0)]), c)),
        ("equals '", &|b, c| bin(Binary::Mul, call(Builtin::Clamp, vec![b, number(-2.5), number(2.5)]), c)),
        ("equals '", &|b, c| call(Builtin::Max, vec![b.clone(), call(Builtin::Min, vec![b, c])])),
        ("the same value", &|b, c| bin(Binary::Add, call(Builtin::Max, vec![b, number(3.0)]), c)),
        ("is true", &|b, c| Expr::choose(bin(Binary::Lt, b.clone(), number(5.0)), bin(Binary::Mul, b, c.clone()), c)),
        ("'b' changes no output", &|b, c| {
            // (b + c)² - b² - 2bc
            let sum = bin(Binary::Add, b.clone(), c.clone());
            let rest = bin(Binary::Sub, bin(Binary::Mul, sum.clone(), sum), bin(Binary::Mul, b.clone(), b.clone()));
            bin(Binary::Sub, rest, bin(Binary::Mul, bin(Binary::Mul, number(2.0), b), c))
        }),
    ];
    for (what, of) in cases {
        let mut program = storing(of);
        program.arrays[0].name = "b".into();
        let found = expected(&program, [1, 1]).err().map(|why| why.to_string()).unwrap_or_default();
        assert!(found.contains(what), "{what}: {found:?} of {}", python::print(&program));
    }
    // A program that does depend on both.
    let sound = storing(&|b, c| bin(Binary::Mul, call(Builtin::Max, vec![b, number(0.5)]), c));
    assert!(expected(&sound, [1, 1]).is_ok(), "{:?}", expected(&sound, [1, 1]).err());
}

/// A maximum that every launch of some size reaches provides no evidence about a text.
pub fn saturated_outputs_are_found() {
    let number = |value: f64| Expr::float(Scalar::F32, value);
    let sum = |b: Expr, c: Expr| Expr::binary(Binary::Mul, Expr::binary(Binary::Add, b, c), number(100.0));
    let rejection_of_max = |transform: &dyn Fn(Expr) -> Expr| {
        let mut program = storing(&sum);
        program.arrays[2].shape = vec![Size::Known(1)];
        (program.arrays[2].ty, program.arrays[2].fill) = (Ty::I32, Fill::Zero);
        let Stmt::Store(out, _, e) = program.body.stmts.remove(0) else { panic!("a store") };
        program.body.stmts = vec![Stmt::Atomic(Update::Max, out, vec![Expr::int(0)], transform(e).cast(Scalar::I32))];
        expected(&program, [1, 1]).err()
    };
    let clipped = |e: Expr| Expr::call(Builtin::Min, vec![e, number(50.0)]);
    let found = rejection_of_max(&clipped);
    assert!(matches!(found, Some(Rejected::Constant { .. })), "{found:?}");
    assert_eq!(rejection_of_max(&|e| e), None);
}

/// Programs as returned by the generator, which nothing else runs at the level `types`.
pub fn every_program_input_has_influence() {
    let seed = seed();
    let count = if full() { 12_000 } else { 900 };
    let mut faults = vec![];
    for index in 0..count {
        let category = generate::category(seed, index, Category::ALL);
        let program = generate::program(seed, index, category);
        match expected(&program, [seed, index]) {
            Err(why @ Rejected::Unused { .. }) => {
                panic!("{} {index}: {why}\n{}", category.name(), python::print(&program))
            }
            Err(why @ (Rejected::Constant { .. } | Rejected::Dead(_))) => {
                faults.push(format!("{} {index}: {why}", category.name()));
            }
            _ => {}
        }
    }
    // One in a thousand has a finding; a few more in an unlucky run.
    assert!(faults.len() <= 4 + count as usize / 500, "{} of {count}:\n{}", faults.len(), faults.join("\n"));
}

/// Indices whose first sound draw on a few elements has an input without influence in launches as
/// long as those of the level `run`: loops that damp or saturate, a sum that outgrows the value it
/// is compared with, a threshold that nothing passes.
pub fn programs_with_influence_only_in_short_launches_are_redrawn() {
    let nested = [(1_794_847_725, 296), (1020, 9), (1022, 329), (1027, 232), (1055, 62), (1090, 653), (1177, 476)];
    // The last one is undecided in nearly all launches in which its scalar parameter matters.
    let others = [(1136, 600), (1177, 273), (1205, 570), (2062, 784), (2006, 223)];
    for (seed, index) in nested.into_iter().chain(others) {
        let program = generate::program(seed, index, generate::category(seed, index, Category::ALL));
        let found = expected(&program, [seed, index]).err();
        let text = python::print(&program);
        assert!(!matches!(found, Some(Rejected::Unused { .. })), "{seed} {index}: {found:?}\n{text}");
    }
}

/// Every array of a row changes an output beyond rounding, on other draws than those that the row
/// was checked with.
pub fn every_input_changes_an_output() {
    let seed = seed();
    let mut tried = 0;
    for category in Category::ALL {
        for row in rows(seed, *category, if full() { 60 } else { 3 }) {
            let Ok(cases) = expected(&row.program, [row.seed, row.index]) else { continue };
            for n in 0..row.program.arrays.len() {
                if matches!(row.program.arrays[n].fill, Fill::Zero | Fill::All(_)) {
                    continue;
                }
                // The same array from another draw; some inputs are too short to show a change.
                let changes = (2..INPUTS).any(|number| {
                    (20..24).any(|attempt| {
                        let case = &cases[number];
                        let other = input(&row.program, [row.seed, row.index], number, attempt);
                        let mut after = case.input.arrays.clone();
                        if other.sizes != case.input.sizes {
                            return false;
                        }
                        after[n] = other.arrays[n].clone();
                        let mut reached = Reached::default();
                        let run =
                            evaluate::run(&row.program, &other.sizes, &case.input.values, &mut after, &mut reached);
                        let written = || {
                            row.program
                                .arrays
                                .iter()
                                .zip(after.iter().zip(&case.after))
                                .filter(|(array, _)| array.written)
                        };
                        run.is_ok()
                            && written().any(|(_, (a, b))| a.cells.iter().zip(&b.cells).any(|(a, b)| !is_same(a, b)))
                    })
                });
                assert!(changes, "'{}' changes nothing:\n{}", row.program.arrays[n].name, row.source);
                tried += 1;
            }
        }
    }
    assert!(tried > 60, "{tried}");
}
