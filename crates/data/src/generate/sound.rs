//! A first look at a program: it is drawn again if an operand cancels, if an expression of the inputs computes nothing in a few
//! instances, or if an input has no influence on what comes out. The level `run` looks at all inputs; here it must cost little:
//! the inputs of `run` are used for influence alone, and only their first instances where these show it.

use crate::evaluate::{Expected, Influence, Parameter, Reached, run, run_first, telling};
use crate::inputs::{ATTEMPTS, Input, SAME_LENGTHS, input, medium, redraws, small};
use crate::program::cancel::cancelled;
use crate::program::{Binary, Builtin, Expr, Kind, Program, Stmt, Ty, Update, Var};

/// Launches before an expression is judged, as one of numbers passed by value has one value in each.
const JUDGED_FROM: usize = 3;

/// Values of an expression before it is judged.
const VALUES: u32 = 6;

/// Rounding bounds by which few elements must move a result that many are accumulated in, as many move it less.
const MARGIN: f64 = 256.0;

/// Instances of a launch that is as long as at the level `run` which are evaluated first, as these show most influences.
const FIRST: u64 = 2;

/// Whether a program computes something of all of its inputs, as far as a first look tells; `key` is that of its row.
pub fn is_sound(program: &Program, key: [u64; 2]) -> bool {
    if cancelled(program).is_some() || has_magnitude_of_index(program) {
        return false;
    }
    let of_inputs = of_inputs(program);
    let mut reached = Reached::observing(&of_inputs);
    let mut first: Vec<Option<Expected>> = vec![];
    for (launch, number) in SAME_LENGTHS.into_iter().enumerate() {
        if reached.is_complete() {
            break;
        }
        first.push(ran(program, small(program, key, number, 0), &mut reached));
        if launch + 1 >= JUDGED_FROM && reached.has_idle(&of_inputs, VALUES) {
            return false;
        }
    }
    let many = many(program);
    let mut look = Look { program, key, reached, length: Length::Small, cases: first };
    if many == Many::Saturate || !look.moves(if accumulates(program) { MARGIN } else { 1.0 }) {
        (look.length, look.cases) = (Length::Medium, vec![]);
        if !look.moves(1.0) {
            return false;
        }
    }
    (many == Many::Alike && look.reached.is_complete() || look.tells()) && moves_at_run(program, key)
}

/// Whether every parameter has influence by the criterion of the level `run`, on the same inputs. Few elements do not show
/// that a longer loop damps what its first turns add (`acc = (acc + e) * 0.5`), that a sum outgrows what it is compared with,
/// or that no element of a window passes a threshold.
fn moves_at_run(program: &Program, key: [u64; 2]) -> bool {
    let moves = |instances: u64| {
        let case = |number: usize| {
            (0..ATTEMPTS).find_map(|attempt| {
                let input = input(program, key, number, attempt);
                let mut after = input.arrays.clone();
                run_first(program, instances, &input.sizes, &input.values, &mut after).ok()?;
                Some(Expected { input, after })
            })
        };
        // The level `run` rejects a program that rounding leaves undecided, for that reason.
        Influence::on_inputs(program, key, instances, case).is_none_or(|influence| influence.is_complete())
    };
    // No other instance stores to the elements of the first ones: what moves these moves the output of a complete launch,
    // unless other instances leave that undecided.
    let mut is_atomic = false;
    program.each_stmt(&mut |stmt| is_atomic |= matches!(stmt, Stmt::Atomic(..)));
    !is_atomic && !has_steps(program) && moves(FIRST) || moves(u64::MAX)
}

/// Whether a program compares or rounds floats, so that a launch with many elements may be undecided where few are decided.
fn has_steps(program: &Program) -> bool {
    use Builtin::{Ceil, Copysign, Floor, Frac, Normalize, Rint, Round, Sign, Tan, Trunc};
    let is_float = |e: &Expr| e.ty.element().is_some_and(|scalar| scalar.is_float());
    let mut found = false;
    program.each_expr(&mut |e| {
        found |= match &e.kind {
            Kind::Binary(_, both) => e.ty == Ty::BOOL && is_float(&both[0]),
            Kind::Cast(from) => is_float(from) && !is_float(e),
            Kind::Call(builtin, _) => {
                matches!(builtin, Ceil | Copysign | Floor | Frac | Normalize | Rint | Round | Sign | Tan | Trunc)
            }
            _ => false,
        }
    });
    found
}

/// Lengths of inputs.
#[derive(Clone, Copy, PartialEq)]
enum Length {
    /// Of [`small`].
    Small,
    /// Of [`medium`].
    Medium,
}

/// Inputs that were run so far, in the order of [`SAME_LENGTHS`], all of one kind of length.
struct Look<'p> {
    program: &'p Program,
    key: [u64; 2],
    reached: Reached<'p>,
    length: Length,
    /// `None` where rounding leaves a run undecided.
    cases: Vec<Option<Expected>>,
}

impl Look<'_> {
    fn input(&self, number: usize, attempt: u64) -> Input {
        let of = match self.length {
            Length::Small => small,
            Length::Medium => medium,
        };
        of(self.program, self.key, number, attempt)
    }

    /// Runs the next input.
    fn next(&mut self) {
        let input = self.input(SAME_LENGTHS[self.cases.len()], 0);
        self.cases.push(ran(self.program, input, &mut self.reached));
    }

    /// Whether every parameter moves an output and every output is moved, by that many times the rounding bounds.
    fn moves(&mut self, bounds: f64) -> bool {
        let mut influence = Influence::new(self.program);
        for (number, attempt) in redraws() {
            // Longer inputs than the first two cost much, and rarely show what these do not.
            if influence.is_complete() || number > SAME_LENGTHS[1] && self.length != Length::Small {
                break;
            }
            let launch = number - SAME_LENGTHS[0];
            while self.cases.len() <= launch {
                self.next();
            }
            if let Some(case) = &self.cases[launch] {
                let other = self.input(number, attempt);
                influence.exchange(&case.input, &case.after, &other, bounds);
            }
        }
        influence.is_complete()
    }

    /// Whether outputs show what the program does and all expressions of inputs compute something, on inputs with more
    /// elements.
    fn tells(mut self) -> bool {
        if self.length == Length::Small {
            self.length = Length::Medium;
            self.cases.clear();
        }
        loop {
            // What some inputs show, more of them do not take back.
            let cases: Vec<&Expected> = self.cases.iter().flatten().collect();
            if self.cases.len() > 1 && self.reached.is_complete() && telling(self.program, &cases).is_ok() {
                return true;
            }
            if self.cases.len() == SAME_LENGTHS.len() {
                return false;
            }
            self.next();
        }
    }
}

/// An input with what the program makes of it. A run that rounding leaves undecided has shown some values all the same.
fn ran<'p>(program: &'p Program, input: Input, reached: &mut Reached<'p>) -> Option<Expected> {
    let mut after = input.arrays.clone();
    run(program, &input.sizes, &input.values, &mut after, reached).ok()?;
    Some(Expected { input, after })
}

/// Whether a program takes the magnitude of an index, which is never negative.
fn has_magnitude_of_index(program: &Program) -> bool {
    let mut found = false;
    program.each_expr(&mut |e| {
        if let Kind::Call(Builtin::Abs, args) = &e.kind
            && let Kind::Cast(from) = &args[0].kind
        {
            found |= matches!(from.kind, Kind::Var(_));
        }
    });
    found
}

/// Whether results are accumulated over elements.
fn accumulates(program: &Program) -> bool {
    let mut found = false;
    program.each_stmt(&mut |stmt| found |= matches!(stmt, Stmt::Atomic(..) | Stmt::For(..) | Stmt::While(..)));
    found
}

/// An effect of many elements that few do not show.
#[derive(Clone, Copy, PartialEq)]
enum Many {
    /// Nothing else.
    Alike,
    /// They lie in bins, or nothing goes in.
    Spread,
    /// They bring results to the largest, the smallest or all bits of them, or to the end of a function's range.
    Saturate,
}

fn many(program: &Program) -> Many {
    let mut many = if Parameter::all(program).is_empty() { Many::Spread } else { Many::Alike };
    let mut sums: Vec<Var> = vec![];
    program.each_stmt(&mut |stmt| match stmt {
        Stmt::Atomic(Update::Min | Update::Max | Update::And | Update::Or, ..) => many = Many::Saturate,
        Stmt::Atomic(_, _, at, _) if many == Many::Alike && at.iter().any(|e| !matches!(e.kind, Kind::Int(_))) => {
            many = Many::Spread;
        }
        // Few launches have loops as long as those of the row.
        Stmt::For(_, _, high, _, body) if !matches!(high.kind, Kind::Int(_)) => {
            body.iter().for_each(|stmt| {
                stmt.walk(&mut |stmt| match stmt {
                    Stmt::Update(_, Binary::BitAnd | Binary::BitOr, _) => many = Many::Saturate,
                    Stmt::Assign(var, Expr { kind: Kind::Call(Builtin::Min | Builtin::Max, args), .. })
                        if args.iter().any(|arg| matches!(arg.kind, Kind::Var(other) if other == *var)) =>
                    {
                        many = Many::Saturate;
                    }
                    Stmt::Update(var, ..) => sums.push(*var),
                    _ => {}
                });
            });
        }
        _ => {}
    });
    if !sums.is_empty() {
        let is_sum = |part: &Expr| matches!(part.kind, Kind::Var(var) if sums.contains(&var));
        program.each_expr(&mut |e| {
            if let Kind::Call(Builtin::Tanh | Builtin::Erf | Builtin::Erfc, args) = &e.kind {
                args[0].walk(&mut |part| {
                    if is_sum(part) {
                        many = Many::Saturate
                    }
                });
            }
        });
    }
    many
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
                    // Counts of what a condition holds for.
                    Stmt::If(_, then, otherwise) if found.len() > before => {
                        let assigned = |stmt: &Stmt| match stmt {
                            Stmt::Assign(var, _) | Stmt::Update(var, ..) => Some(*var),
                            _ => None,
                        };
                        moved.extend(then.iter().chain(otherwise).filter_map(assigned));
                    }
                    // Every launch has all values of a counter whose range is known.
                    Stmt::For(var, low, high, ..) if [low, high].iter().all(|e| matches!(e.kind, Kind::Int(_))) => {
                        moved.push(*var);
                    }
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
