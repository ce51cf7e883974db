//! Quick check of a drawn program: it is redrawn if an operand cancels out, if an expression of the
//! inputs computes nothing in a few instances, or if an input does not influence the outputs. The
//! level `run` checks all inputs; here the check must be cheap: the inputs of `run` are only used
//! for influence, and only their first instances where those suffice.

use crate::evaluate::{Expected, Influence, Parameter, Reached, run, run_first, telling};
use crate::inputs::{ATTEMPTS, Input, SAME_LENGTHS, input, medium, redraws, small};
use crate::program::cancel::cancelled;
use crate::program::{Binary, Builtin, Expr, Kind, Program, Stmt, Ty, Update, Var};

/// Launches before an expression is judged, since one of scalar parameters has a single value per
/// launch.
const MIN_LAUNCHES: usize = 3;

/// Evaluations before an expression is judged.
const MIN_VALUES: u32 = 6;

/// Multiple of the error bound by which few elements must change an accumulated result, since many
/// elements change it less.
const MARGIN: f64 = 256.0;

/// Instances of a full-size launch that are evaluated first, since they show most influences.
const FIRST: u64 = 2;

/// True if a program computes something from all of its inputs, as far as a quick check shows;
/// `key` is the row's seed and index.
pub fn is_sound(program: &Program, key: [u64; 2]) -> bool {
    if cancelled(program).is_some() || has_magnitude_of_index(program) {
        return false;
    }
    let input_exprs = input_dependent(program);
    let mut reached = Reached::observing(&input_exprs);
    let mut first: Vec<Option<Expected>> = vec![];
    for (launch, number) in SAME_LENGTHS.into_iter().enumerate() {
        if reached.is_complete() {
            break;
        }
        first.push(run_input(program, small(program, key, number, 0), &mut reached));
        if launch + 1 >= MIN_LAUNCHES && reached.has_idle(&input_exprs, MIN_VALUES) {
            return false;
        }
    }
    let scaling = scaling_effect(program);
    let mut check = QuickCheck { program, key, reached, length: Length::Small, cases: first };
    if scaling == ScalingEffect::Saturate || !check.has_influence(if accumulates(program) { MARGIN } else { 1.0 }) {
        (check.length, check.cases) = (Length::Medium, vec![]);
        if !check.has_influence(1.0) {
            return false;
        }
    }
    (scaling == ScalingEffect::None && check.reached.is_complete() || check.is_informative()) && has_influence_at_run(program, key)
}

/// True if every parameter has influence by the criterion of the level `run`, on the same inputs.
/// Few elements do not show that a longer loop damps what its first iterations add (`acc = (acc +
/// e) * 0.5`), that a sum outgrows the value it is compared with, or that no element of a window
/// passes a threshold.
fn has_influence_at_run(program: &Program, key: [u64; 2]) -> bool {
    let has_influence = |instances: u64| {
        let case = |number: usize| {
            (0..ATTEMPTS).find_map(|attempt| {
                let input = input(program, key, number, attempt);
                let mut after = input.arrays.clone();
                run_first(program, instances, &input.sizes, &input.values, &mut after).ok()?;
                Some(Expected { input, after })
            })
        };
        // The level `run` rejects a program that rounding leaves undecided for that reason.
        Influence::on_inputs(program, key, instances, case).is_none_or(|influence| influence.is_complete())
    };
    // No other instance stores to the elements of the first ones, so a change of these is a change
    // of the output of the complete launch, unless other instances leave that undecided.
    let mut is_atomic = false;
    program.each_stmt(&mut |stmt| is_atomic |= matches!(stmt, Stmt::Atomic(..)));
    !is_atomic && !has_steps(program) && has_influence(FIRST) || has_influence(u64::MAX)
}

/// True if a program compares or rounds floats, so that a launch with many elements may be
/// undecided where few are decided.
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

/// Size class of inputs.
#[derive(Clone, Copy, PartialEq)]
enum Length {
    /// Sizes of [`small`].
    Small,
    /// Sizes of [`medium`].
    Medium,
}

/// Inputs that were run so far, in the order of [`SAME_LENGTHS`], all of one size class.
struct QuickCheck<'p> {
    program: &'p Program,
    key: [u64; 2],
    reached: Reached<'p>,
    length: Length,
    /// `None` where rounding leaves a run undecided.
    cases: Vec<Option<Expected>>,
}

impl QuickCheck<'_> {
    fn input(&self, number: usize, attempt: u64) -> Input {
        let draw = match self.length {
            Length::Small => small,
            Length::Medium => medium,
        };
        draw(self.program, self.key, number, attempt)
    }

    /// Runs the next input.
    fn run_next(&mut self) {
        let input = self.input(SAME_LENGTHS[self.cases.len()], 0);
        self.cases.push(run_input(self.program, input, &mut self.reached));
    }

    /// True if every parameter changes an output and every output is changed, by at least `bounds`
    /// times the error bounds.
    fn has_influence(&mut self, bounds: f64) -> bool {
        let mut influence = Influence::new(self.program);
        for (number, attempt) in redraws() {
            // Longer inputs than the first two are expensive, and rarely show more.
            if influence.is_complete() || number > SAME_LENGTHS[1] && self.length != Length::Small {
                break;
            }
            let launch = number - SAME_LENGTHS[0];
            while self.cases.len() <= launch {
                self.run_next();
            }
            if let Some(case) = &self.cases[launch] {
                let other = self.input(number, attempt);
                influence.exchange(&case.input, &case.after, &other, bounds);
            }
        }
        influence.is_complete()
    }

    /// True if outputs show the program's effect and all input-dependent expressions compute
    /// something, on inputs with more elements.
    fn is_informative(mut self) -> bool {
        if self.length == Length::Small {
            self.length = Length::Medium;
            self.cases.clear();
        }
        loop {
            // More inputs do not invalidate what some inputs show.
            let cases: Vec<&Expected> = self.cases.iter().flatten().collect();
            if self.cases.len() > 1 && self.reached.is_complete() && telling(self.program, &cases).is_ok() {
                return true;
            }
            if self.cases.len() == SAME_LENGTHS.len() {
                return false;
            }
            self.run_next();
        }
    }
}

/// Runs an input. A run that rounding leaves undecided still contributes to the coverage.
fn run_input<'p>(program: &'p Program, input: Input, reached: &mut Reached<'p>) -> Option<Expected> {
    let mut after = input.arrays.clone();
    run(program, &input.sizes, &input.values, &mut after, reached).ok()?;
    Some(Expected { input, after })
}

/// True if a program takes the absolute value of an index, which is never negative.
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

/// True if results are accumulated over elements.
fn accumulates(program: &Program) -> bool {
    let mut found = false;
    program.each_stmt(&mut |stmt| found |= matches!(stmt, Stmt::Atomic(..) | Stmt::For(..) | Stmt::While(..)));
    found
}

/// Effect of many elements that few do not show.
#[derive(Clone, Copy, PartialEq)]
enum ScalingEffect {
    /// None.
    None,
    /// Elements fall into bins, or there are no inputs.
    Spread,
    /// Many elements drive results to an extremum, to all bits set or cleared, or to the end of a
    /// function's range.
    Saturate,
}

fn scaling_effect(program: &Program) -> ScalingEffect {
    let mut effect = if Parameter::all(program).is_empty() { ScalingEffect::Spread } else { ScalingEffect::None };
    let mut sums: Vec<Var> = vec![];
    program.each_stmt(&mut |stmt| match stmt {
        Stmt::Atomic(Update::Min | Update::Max | Update::And | Update::Or, ..) => effect = ScalingEffect::Saturate,
        Stmt::Atomic(_, _, at, _) if effect == ScalingEffect::None && at.iter().any(|e| !matches!(e.kind, Kind::Int(_))) => {
            effect = ScalingEffect::Spread;
        }
        // Few launches have loops as long as those of the row.
        Stmt::For(_, _, high, _, body) if !matches!(high.kind, Kind::Int(_)) => {
            body.iter().for_each(|stmt| {
                stmt.walk(&mut |stmt| match stmt {
                    Stmt::Update(_, Binary::BitAnd | Binary::BitOr, _) => effect = ScalingEffect::Saturate,
                    Stmt::Assign(var, Expr { kind: Kind::Call(Builtin::Min | Builtin::Max, args), .. })
                        if args.iter().any(|arg| matches!(arg.kind, Kind::Var(other) if other == *var)) =>
                    {
                        effect = ScalingEffect::Saturate;
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
                        effect = ScalingEffect::Saturate
                    }
                });
            }
        });
    }
    effect
}

/// Expressions that depend on inputs, and not only on indices and sizes, of which few launches have
/// too few values.
fn input_dependent(program: &Program) -> Vec<&Expr> {
    let mut found = vec![];
    for body in program.functions.iter().map(|function| &function.body).chain([&program.body]) {
        // Function parameters represent values that the kernel computed from its inputs.
        let mut dependent: Vec<Var> = if std::ptr::eq(body, &program.body) {
            program.values.iter().map(|value| value.var).collect()
        } else {
            (0..body.params as u16).map(Var).collect()
        };
        for stmt in &body.stmts {
            stmt.walk(&mut |stmt| {
                let before = found.len();
                for e in stmt.contents().0 {
                    collect(e, &dependent, &mut found);
                }
                // The iteration limit of a `while` loop must apply to some elements.
                if let Stmt::While(Expr { kind: Kind::Binary(_, both), .. }, _) = stmt {
                    found.extend(both.iter().filter(|part| part.ty == Ty::BOOL));
                }
                match stmt {
                    // Counts of elements that satisfy a condition.
                    Stmt::If(_, then, otherwise) if found.len() > before => {
                        let assigned = |stmt: &Stmt| match stmt {
                            Stmt::Assign(var, _) | Stmt::Update(var, ..) => Some(*var),
                            _ => None,
                        };
                        dependent.extend(then.iter().chain(otherwise).filter_map(assigned));
                    }
                    // Every launch has all values of a counter with a constant range.
                    Stmt::For(var, low, high, ..) if [low, high].iter().all(|e| matches!(e.kind, Kind::Int(_))) => {
                        dependent.push(*var);
                    }
                    Stmt::Let(var, e) | Stmt::Assign(var, e) | Stmt::Update(var, _, e)
                        if found.len() > before || matches!(e.kind, Kind::Var(other) if dependent.contains(&other)) =>
                    {
                        dependent.push(*var);
                    }
                    Stmt::Draw(var, ..) => dependent.push(*var),
                    _ => {}
                }
            });
        }
    }
    found
}

/// Collects the operations and loads within an expression that depend on these variables or on an
/// array; returns true if the expression does.
fn collect<'p>(e: &'p Expr, dependent: &[Var], found: &mut Vec<&'p Expr>) -> bool {
    let mut depends = match &e.kind {
        Kind::Var(var) => return dependent.contains(var),
        Kind::Load(..) => true,
        _ => false,
    };
    e.operands().iter().for_each(|operand| depends |= collect(operand, dependent, found));
    if depends {
        found.push(e);
    }
    depends
}
