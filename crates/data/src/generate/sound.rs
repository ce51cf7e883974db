//! Quick check of a drawn program: it is redrawn if an operand cancels out, if an expression of the
//! inputs computes nothing in a few instances, or if an input does not influence the outputs. The
//! level `run` checks all inputs; here the check must be cheap: the inputs of `run` are only used
//! for influence, and only their first instances where those suffice.

use crate::evaluate::{
    ExecutionCoverage, Influence, Parameter, TestCase, require_informative, run, run_first_instances,
};
use crate::inputs::{ATTEMPTS, FIXED_SIZE_INPUTS, KernelInput, input, medium_input, redraws, small_input};
use crate::program::cancel::find_cancelled;
use crate::program::{AtomicOp, BinaryOp, BuiltinFn, ExprKind, Program, ProgramExpr, ProgramStmt, Ty, VarId};

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
    if find_cancelled(program).is_some() || has_magnitude_of_index(program) {
        return false;
    }
    let input_exprs = input_dependent(program);
    let mut coverage = ExecutionCoverage::observing(&input_exprs);
    let mut first: Vec<Option<TestCase>> = vec![];
    for (launch, number) in FIXED_SIZE_INPUTS.into_iter().enumerate() {
        if coverage.is_complete() {
            break;
        }
        first.push(run_input(program, small_input(program, key, number, 0), &mut coverage));
        if launch + 1 >= MIN_LAUNCHES && coverage.has_dead(&input_exprs, MIN_VALUES) {
            return false;
        }
    }
    let scaling = scaling_effect(program);
    let mut check = QuickCheck { program, key, coverage, length: Length::Small, cases: first };
    if scaling == ScalingEffect::Saturate || !check.has_influence(if accumulates(program) { MARGIN } else { 1.0 }) {
        (check.length, check.cases) = (Length::Medium, vec![]);
        if !check.has_influence(1.0) {
            return false;
        }
    }
    (scaling == ScalingEffect::None && check.coverage.is_complete() || check.check_informative())
        && has_influence_at_run(program, key)
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
                run_first_instances(program, instances, &input.sizes, &input.values, &mut after).ok()?;
                Some(TestCase { input, after })
            })
        };
        // The level `run` rejects a program that rounding leaves undecided for that reason.
        Influence::on_inputs(program, key, instances, case).is_none_or(|influence| influence.is_complete())
    };
    // No other instance stores to the elements of the first ones, so a change of these is a change
    // of the output of the complete launch, unless other instances leave that undecided.
    let mut is_atomic = false;
    program.each_stmt(&mut |stmt| is_atomic |= matches!(stmt, ProgramStmt::Atomic(..)));
    !is_atomic && !has_steps(program) && has_influence(FIRST) || has_influence(u64::MAX)
}

/// True if a program compares or rounds floats, so that a launch with many elements may be
/// undecided where few are decided.
fn has_steps(program: &Program) -> bool {
    use BuiltinFn::{Ceil, Copysign, Floor, Frac, Normalize, Rint, Round, Sign, Tan, Trunc};
    let is_float = |e: &ProgramExpr| e.ty.element().is_some_and(|scalar| scalar.is_float());
    let mut found = false;
    program.each_expr(&mut |e| {
        found |= match &e.kind {
            ExprKind::Binary(_, both) => e.ty == Ty::BOOL && is_float(&both[0]),
            ExprKind::Cast(from) => is_float(from) && !is_float(e),
            ExprKind::Call(builtin, _) => {
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
    /// Sizes of [`small_input`].
    Small,
    /// Sizes of [`medium_input`].
    Medium,
}

/// Inputs that were run so far, in the order of [`FIXED_SIZE_INPUTS`], all of one size class.
struct QuickCheck<'p> {
    program: &'p Program,
    key: [u64; 2],
    coverage: ExecutionCoverage<'p>,
    length: Length,
    /// `None` where rounding leaves a run undecided.
    cases: Vec<Option<TestCase>>,
}

impl QuickCheck<'_> {
    fn input(&self, number: usize, attempt: u64) -> KernelInput {
        let draw = match self.length {
            Length::Small => small_input,
            Length::Medium => medium_input,
        };
        draw(self.program, self.key, number, attempt)
    }

    /// Runs the next input.
    fn run_next(&mut self) {
        let input = self.input(FIXED_SIZE_INPUTS[self.cases.len()], 0);
        self.cases.push(run_input(self.program, input, &mut self.coverage));
    }

    /// True if every parameter changes an output and every output is changed, by at least `bounds`
    /// times the error bounds.
    fn has_influence(&mut self, bounds: f64) -> bool {
        let mut influence = Influence::new(self.program);
        for (number, attempt) in redraws() {
            // Longer inputs than the first two are expensive, and rarely show more.
            if influence.is_complete() || number > FIXED_SIZE_INPUTS[1] && self.length != Length::Small {
                break;
            }
            let launch = number - FIXED_SIZE_INPUTS[0];
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
    fn check_informative(mut self) -> bool {
        if self.length == Length::Small {
            self.length = Length::Medium;
            self.cases.clear();
        }
        loop {
            // More inputs do not invalidate what some inputs show.
            let cases: Vec<&TestCase> = self.cases.iter().flatten().collect();
            if self.cases.len() > 1 && self.coverage.is_complete() && require_informative(self.program, &cases).is_ok()
            {
                return true;
            }
            if self.cases.len() == FIXED_SIZE_INPUTS.len() {
                return false;
            }
            self.run_next();
        }
    }
}

/// Runs an input. A run that rounding leaves undecided still contributes to the coverage.
fn run_input<'p>(program: &'p Program, input: KernelInput, coverage: &mut ExecutionCoverage<'p>) -> Option<TestCase> {
    let mut after = input.arrays.clone();
    run(program, &input.sizes, &input.values, &mut after, coverage).ok()?;
    Some(TestCase { input, after })
}

/// True if a program takes the absolute value of an index, which is never negative.
fn has_magnitude_of_index(program: &Program) -> bool {
    let mut found = false;
    program.each_expr(&mut |e| {
        if let ExprKind::Call(BuiltinFn::Abs, args) = &e.kind
            && let ExprKind::Cast(from) = &args[0].kind
        {
            found |= matches!(from.kind, ExprKind::Var(_));
        }
    });
    found
}

/// True if results are accumulated over elements.
fn accumulates(program: &Program) -> bool {
    let mut found = false;
    program.each_stmt(&mut |stmt| {
        found |= matches!(stmt, ProgramStmt::Atomic(..) | ProgramStmt::For(..) | ProgramStmt::While(..))
    });
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
    let mut sums: Vec<VarId> = vec![];
    program.each_stmt(&mut |stmt| match stmt {
        ProgramStmt::Atomic(AtomicOp::Min | AtomicOp::Max | AtomicOp::And | AtomicOp::Or, ..) => {
            effect = ScalingEffect::Saturate
        }
        ProgramStmt::Atomic(_, _, at, _)
            if effect == ScalingEffect::None && at.iter().any(|e| !matches!(e.kind, ExprKind::Int(_))) =>
        {
            effect = ScalingEffect::Spread;
        }
        // Few launches have loops as long as those of the row.
        ProgramStmt::For(_, _, high, _, body) if !matches!(high.kind, ExprKind::Int(_)) => {
            body.iter().for_each(|stmt| {
                stmt.walk(&mut |stmt| match stmt {
                    ProgramStmt::Update(_, BinaryOp::BitAnd | BinaryOp::BitOr, _) => effect = ScalingEffect::Saturate,
                    ProgramStmt::Assign(
                        var,
                        ProgramExpr { kind: ExprKind::Call(BuiltinFn::Min | BuiltinFn::Max, args), .. },
                    ) if args.iter().any(|arg| matches!(arg.kind, ExprKind::Var(other) if other == *var)) => {
                        effect = ScalingEffect::Saturate;
                    }
                    ProgramStmt::Update(var, ..) => sums.push(*var),
                    _ => {}
                });
            });
        }
        _ => {}
    });
    if !sums.is_empty() {
        let is_sum = |part: &ProgramExpr| matches!(part.kind, ExprKind::Var(var) if sums.contains(&var));
        program.each_expr(&mut |e| {
            if let ExprKind::Call(BuiltinFn::Tanh | BuiltinFn::Erf | BuiltinFn::Erfc, args) = &e.kind {
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
fn input_dependent(program: &Program) -> Vec<&ProgramExpr> {
    let mut found = vec![];
    for body in program.functions.iter().map(|function| &function.body).chain([&program.body]) {
        // Function parameters represent values that the kernel computed from its inputs.
        let mut dependent: Vec<VarId> = if std::ptr::eq(body, &program.body) {
            program.values.iter().map(|value| value.var).collect()
        } else {
            (0..body.params as u16).map(VarId).collect()
        };
        for stmt in &body.stmts {
            stmt.walk(&mut |stmt| {
                let before = found.len();
                for e in stmt.children().0 {
                    collect(e, &dependent, &mut found);
                }
                // The iteration limit of a `while` loop must apply to some elements.
                if let ProgramStmt::While(ProgramExpr { kind: ExprKind::Binary(_, both), .. }, _) = stmt {
                    found.extend(both.iter().filter(|part| part.ty == Ty::BOOL));
                }
                match stmt {
                    // Counts of elements that satisfy a condition.
                    ProgramStmt::If(_, then, otherwise) if found.len() > before => {
                        let assigned = |stmt: &ProgramStmt| match stmt {
                            ProgramStmt::Assign(var, _) | ProgramStmt::Update(var, ..) => Some(*var),
                            _ => None,
                        };
                        dependent.extend(then.iter().chain(otherwise).filter_map(assigned));
                    }
                    // Every launch has all values of a counter with a constant range.
                    ProgramStmt::For(var, low, high, ..)
                        if [low, high].iter().all(|e| matches!(e.kind, ExprKind::Int(_))) =>
                    {
                        dependent.push(*var);
                    }
                    ProgramStmt::Let(var, e) | ProgramStmt::Assign(var, e) | ProgramStmt::Update(var, _, e)
                        if found.len() > before
                            || matches!(e.kind, ExprKind::Var(other) if dependent.contains(&other)) =>
                    {
                        dependent.push(*var);
                    }
                    ProgramStmt::Draw(var, ..) => dependent.push(*var),
                    _ => {}
                }
            });
        }
    }
    found
}

/// Collects the operations and loads within an expression that depend on these variables or on an
/// array; returns true if the expression does.
fn collect<'p>(e: &'p ProgramExpr, dependent: &[VarId], found: &mut Vec<&'p ProgramExpr>) -> bool {
    let mut depends = match &e.kind {
        ExprKind::Var(var) => return dependent.contains(var),
        ExprKind::Load(..) => true,
        _ => false,
    };
    e.operands().iter().for_each(|operand| depends |= collect(operand, dependent, found));
    if depends {
        found.push(e);
    }
    depends
}
