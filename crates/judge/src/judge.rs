//! The judge: one candidate after the other, with cached references.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use bornite_ir::interp::ExecutionOrder;
use bornite_ir::{FaultKind, Kernel, Value};
use bornite_support::random::mix;

use crate::cheats::CandidateRun;
use crate::compare::{ShapeComparison, compare};
use crate::expected::{PreparedProblem, PreparedShape};
use crate::run::{Binding, BoundKernel, bind, memory, same_memory};
use crate::source::{SourceError, SourceKernel, SourceParamType};
use crate::task::{JudgeProblem, JudgeTask};
use crate::verdict::{Difference, JudgeOutcome, Verdict, fault_kind};

/// Problems whose references are cached.
const CACHED_PROBLEMS: usize = 64;

/// Limits and defaults of a judge.
#[derive(Clone, Copy, Debug)]
pub struct JudgeOptions {
    /// Random seed of tasks without their own.
    pub seed: u64,
    /// Maximum statements per run, each counted once per block.
    pub max_statements: u64,
}

impl Default for JudgeOptions {
    fn default() -> JudgeOptions {
        JudgeOptions { seed: 42, max_statements: 500_000 }
    }
}

/// A launch to be timed: kernel, memory of its views, and values.
pub struct TimedLaunch {
    /// The kernel.
    pub kernel: Kernel,
    /// Contents of each view.
    pub memory: Vec<Vec<u64>>,
    /// Components of each value parameter.
    pub values: Vec<Vec<Value>>,
}

/// Times a launch, in microseconds.
pub type LaunchTimer = Box<dyn Fn(&TimedLaunch) -> Result<f64, String>>;

/// Judges candidates against references.
///
/// ```
/// let task = serde_json::json!({
///     "id": 1,
///     "candidate": "__global__ void k(float* y, const float* x, int n) {
///         for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] * 2.0f;
///     }",
///     "reference": "__global__ void twice(float* y, const float* x, int n) {
///         int i = blockIdx.x * blockDim.x + threadIdx.x;
///         if (i < n) y[i] = x[i] + x[i];
///     }",
///     "sizes": {"n": "1..500"},
///     "args": {"y": "uninitialized:n", "x": "randn:n", "n": "n"},
///     "launch": {"dim": "n", "block": 128},
/// });
/// let verdict = bornite_judge::Judge::new(Default::default()).judge_json(&task.to_string());
/// assert_eq!(verdict.verdict, bornite_judge::JudgeOutcome::Fault); // four blocks write the same elements
/// assert_eq!(verdict.kind, "race");
/// ```
pub struct Judge {
    options: JudgeOptions,
    timer: Option<LaunchTimer>,
    cache: VecDeque<(String, Rc<PreparedProblem>)>,
}

impl Judge {
    /// Creates a judge.
    pub fn new(options: JudgeOptions) -> Judge {
        Judge { options, timer: None, cache: VecDeque::new() }
    }

    /// Times candidates that are right, and their references.
    pub fn with_timer(mut self, timer: LaunchTimer) -> Judge {
        self.timer = Some(timer);
        self
    }

    /// Judges a task in JSON.
    pub fn judge_json(&mut self, text: &str) -> Verdict {
        match serde_json::from_str::<JudgeTask>(text) {
            Ok(task) => self.judge(&task),
            Err(error) => {
                let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
                let id = value.and_then(|value| value.get("id").cloned()).unwrap_or_default();
                Verdict { id, ..Verdict::new(JudgeOutcome::InvalidTask, "json", format!("invalid task: {error}")) }
            }
        }
    }

    /// Judges a task.
    pub fn judge(&mut self, task: &JudgeTask) -> Verdict {
        let started = Instant::now();
        let mut verdict = self.verdict(task).unwrap_or_else(|verdict| *verdict);
        verdict.id = task.id.clone();
        verdict.seconds = started.elapsed().as_secs_f64();
        verdict
    }

    fn verdict(&mut self, task: &JudgeTask) -> Result<Verdict, Box<Verdict>> {
        let invalid = |why: String| Box::new(Verdict::new(JudgeOutcome::InvalidTask, "task", why));
        let problem = &task.problem;
        if problem.reference.is_some() != problem.cases.is_empty() {
            return Err(invalid("specify either 'reference' or 'cases'".into()));
        }
        let cached = match problem.reference {
            Some(_) => Some(self.prepared(problem).map_err(invalid)?),
            None => None,
        };
        let candidate = SourceKernel::parse(&task.candidate, &problem.launch).map_err(rejected)?;
        let prepared = match cached {
            Some(prepared) => prepared,
            None => Rc::new(PreparedProblem::from_cases(problem, &candidate.params).map_err(invalid)?),
        };
        let binding = signature(&candidate, &prepared)?;
        let mut verdict = Verdict::new(JudgeOutcome::Right, "", "");
        verdict.notes = prepared.notes.clone();
        let (mut depends, mut largest) = (None, None);
        for (number, shape) in prepared.shapes.iter().enumerate() {
            let order = if number % 2 == 0 { ExecutionOrder::Forward } else { ExecutionOrder::Reverse };
            verdict.shapes += 1;
            verdict.comparison = Some(match verdict.comparison {
                Some(before) if shape.comparison != crate::Comparison::DefaultTolerance => before,
                _ => shape.comparison,
            });
            let kernel = BoundKernel::new(&candidate, &binding, &shape.sizes, &shape.args).map_err(|error| {
                let mut verdict = rejected(error);
                verdict.shape = Some(shape.sizes.clone());
                verdict
            })?;
            let run = CandidateRun {
                problem: &prepared,
                shape,
                candidate: &candidate,
                binding: &binding,
                kernel: &kernel,
                order,
                max_statements: self.options.max_statements,
            };
            if let Err(failed) = check_shape(&run, number, &mut depends) {
                let mut failed = *failed;
                failed.shape = Some(shape.sizes.clone());
                failed.shapes = verdict.shapes;
                failed.notes = verdict.notes;
                failed.comparison = failed.difference.as_ref().map(|_| shape.comparison);
                return Err(Box::new(failed));
            }
            largest = Some((kernel, shape));
        }
        if depends == Some(false) {
            let what = "the outputs of all cases stay the same for other inputs";
            return Err(Box::new(Verdict::new(JudgeOutcome::Cheating, "constant_output", what)));
        }
        if let (Some(timer), Some((kernel, shape))) = (&self.timer, largest) {
            time(timer, &prepared, &kernel, shape, &mut verdict);
        }
        Ok(verdict)
    }

    /// The problem with its expected results, from the cache if it was met before.
    fn prepared(&mut self, problem: &JudgeProblem) -> Result<Rc<PreparedProblem>, String> {
        let key = serde_json::to_string(problem).map_err(|error| error.to_string())?;
        if let Some(at) = self.cache.iter().position(|(own, _)| *own == key) {
            let found = self.cache.remove(at);
            self.cache.extend(found);
        } else {
            let prepared = PreparedProblem::new(problem, self.options.seed, self.options.max_statements)?;
            self.cache.push_back((key, Rc::new(prepared)));
            if self.cache.len() > CACHED_PROBLEMS {
                self.cache.pop_front();
            }
        }
        self.cache.back().map(|(_, prepared)| prepared.clone()).ok_or_else(|| "no prepared problem".into())
    }
}

fn rejected(error: SourceError) -> Box<Verdict> {
    let outcome = if error.is_unsupported { JudgeOutcome::Unsupported } else { JudgeOutcome::DoesNotCompile };
    Box::new(Verdict { line: error.line, ..Verdict::new(outcome, "", error.message) })
}

/// Binds the arguments to a candidate's parameters, whose types must be those of the reference.
fn signature(candidate: &SourceKernel, problem: &PreparedProblem) -> Result<Binding, Box<Verdict>> {
    let wrong = |why: String| Box::new(Verdict::new(JudgeOutcome::Wrong, "signature", why));
    let binding = bind(&candidate.params, &problem.names).map_err(wrong)?;
    for (param, &at) in candidate.params.iter().zip(&binding) {
        let is_same = match (&param.ty, &problem.types[at]) {
            (SourceParamType::Array(own), SourceParamType::Array(other)) => same_memory(own, other),
            // Widths convert, as in a launch of C++.
            (SourceParamType::Value(own), SourceParamType::Value(other)) => {
                own.iter().map(|scalar| scalar.is_float()).eq(other.iter().map(|scalar| scalar.is_float()))
            }
            _ => false,
        };
        if !is_same {
            let (name, own, other) = (&param.name, type_name(&param.ty), type_name(&problem.types[at]));
            return Err(wrong(format!("parameter '{name}' is {own}; argument '{}' is {other}", problem.names[at])));
        }
    }
    Ok(binding)
}

fn type_name(ty: &SourceParamType) -> String {
    let list = |scalars: Vec<&str>| scalars.join(", ");
    match ty {
        SourceParamType::Array(layout) => {
            format!("an array of ({})", list(layout.offsets.iter().map(|(_, scalar)| scalar.name()).collect()))
        }
        SourceParamType::Value(scalars) => {
            format!("a value of ({})", list(scalars.iter().map(|scalar| scalar.name()).collect()))
        }
    }
}

/// Runs a candidate on a shape and compares its outputs.
fn check_shape(run: &CandidateRun<'_>, number: usize, depends: &mut Option<bool>) -> Result<(), Box<Verdict>> {
    let poison = mix(run.shape.keys[0] ^ mix(number as u64 + 77));
    let before = memory(&run.shape.args, poison);
    let mut after = before.clone();
    if let Err(fault) = run.kernel.run(&mut after, run.order, run.max_statements) {
        let outcome = match fault.kind {
            FaultKind::StatementLimit(_) => JudgeOutcome::TimeLimit,
            _ => JudgeOutcome::Fault,
        };
        let line = run.kernel.lowered.line_of(&fault);
        return Err(Box::new(Verdict {
            line,
            ..Verdict::new(outcome, fault_kind(&fault.kind), fault.kind.to_string())
        }));
    }
    let is_expected_only = run.problem.reference.is_none();
    if is_expected_only && let Some(verdict) = run.embedded_outputs() {
        return Err(Box::new(verdict));
    }
    let mut verdict = match compare(run.problem, run.shape, &before, &after) {
        ShapeComparison::Same => {
            if is_expected_only && *depends != Some(true) {
                *depends = run.depends_on_inputs(&after, poison).or(*depends);
            }
            return Ok(());
        }
        ShapeComparison::Modified(array) => {
            let what = format!("'{array}' is modified, but the reference does not write it");
            return Err(Box::new(Verdict::new(JudgeOutcome::Wrong, "modified_input", what)));
        }
        ShapeComparison::Inconclusive(difference) => {
            let (array, index, bound) = (&difference.array, difference.index, difference.bound);
            let what = format!(
                "'{array}[{index}]' differs from the reference, but rounding alone may differ by {bound:e}; specify \
                 'rtol' and 'atol'"
            );
            let verdict = Verdict::new(JudgeOutcome::Inconclusive, "wide_bound", what);
            return Err(Box::new(Verdict { difference: Some(difference), ..verdict }));
        }
        ShapeComparison::Different(difference) => {
            let Difference { array, index, expected, found, bound } = &difference;
            let what = format!("'{array}[{index}]' is {found}, expected {expected} ± {bound:e}");
            Verdict { difference: Some(difference), ..Verdict::new(JudgeOutcome::Wrong, "value", what) }
        }
    };
    if let Some(explained) = run.explain(&before, &after, poison) {
        verdict = Verdict { difference: verdict.difference, ..explained };
    }
    Err(Box::new(verdict))
}

/// Times the candidate and the reference on the last shape.
fn time(
    timer: &LaunchTimer,
    problem: &PreparedProblem,
    candidate: &BoundKernel,
    shape: &PreparedShape,
    verdict: &mut Verdict,
) {
    let memories = memory(&shape.args, 0);
    let time = |bound: &BoundKernel| {
        timer(&TimedLaunch {
            kernel: bound.kernel().clone(),
            memory: bound.views().iter().map(|&at| memories[at].clone()).collect(),
            values: bound.values.clone(),
        })
    };
    let reference = problem.reference.as_ref().map(|reference| {
        let binding: Binding = (0..shape.args.len()).collect();
        let kernel = BoundKernel::new(reference, &binding, &shape.sizes, &shape.args).map_err(|error| error.message)?;
        time(&kernel)
    });
    for (slot, timed) in [(&mut verdict.candidate_us, Some(time(candidate))), (&mut verdict.reference_us, reference)] {
        match timed {
            Some(Ok(microseconds)) => *slot = Some(microseconds),
            Some(Err(why)) => verdict.notes.push(format!("not timed: {why}")),
            None => {}
        }
    }
}
