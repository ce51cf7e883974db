//! Expected results: computed from the reference with error bounds, or specified by the task.

use bornite_ir::interp::ExecutionOrder;
use bornite_ir::{Scalar, Value, load_scalar};
use bornite_support::random::mix;

use crate::evaluate::{Lane, NoBounds, evaluate};
use crate::expression::Sizes;
use crate::inputs::{DrawnArg, DrawnArray, draw_arg, draw_sizes};
use crate::run::{Binding, BoundKernel, bind, memory};
use crate::source::{SourceKernel, SourceParam, SourceParamType};
use crate::task::{ArgSource, JudgeProblem};
use crate::verdict::Comparison;

/// Default number of shapes.
const SHAPES: usize = 4;
/// Maximum number of shapes.
const MAX_SHAPES: usize = 64;
/// Draws of inputs until rounding decides no branch.
const ATTEMPTS: u64 = 6;

/// Expected value of one component.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ExpectedCell {
    /// Exactly this value.
    Exact(Value),
    /// Within a bound that is narrow.
    Within(f64, f64),
    /// Within a bound that is too wide to detect wrong results; the reference's own value.
    Wide(f64, f64),
    /// Within the tolerance of this value.
    Near(Value),
    /// Not written by the reference.
    Unwritten,
}

/// A problem with its shapes, inputs and expected results.
pub struct PreparedProblem {
    /// Names of the arguments, in the order of the reference's parameters.
    pub names: Vec<String>,
    /// Parameter types that a candidate must have.
    pub types: Vec<SourceParamType>,
    /// Arguments as written, in the same order.
    sources: Vec<(String, ArgSource)>,
    pub shapes: Vec<PreparedShape>,
    pub tolerance: Tolerance,
    pub reference: Option<SourceKernel>,
    pub notes: Vec<String>,
}

/// A drawn shape.
pub struct PreparedShape {
    pub sizes: Sizes,
    pub args: Vec<DrawnArg>,
    /// Expected contents of each argument that is compared.
    pub expected: Vec<Option<Vec<ExpectedCell>>>,
    /// Arguments that a candidate may write.
    pub is_writable: Vec<bool>,
    pub comparison: Comparison,
    /// Keys of the random inputs: seed, number of the shape, attempt.
    pub keys: [u64; 3],
}

/// Tolerance of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    given: Option<(f64, f64)>,
}

impl Tolerance {
    /// Maximum distance from `expected`. `scale` is the typical magnitude of the array.
    pub fn bound(&self, expected: f64, scalar: Scalar, scale: f64) -> f64 {
        match self.given {
            Some((rtol, atol)) => atol + rtol * expected.abs(),
            None => {
                let relative = match scalar {
                    Scalar::F64 => 1e-10,
                    Scalar::F16 => 1e-2,
                    Scalar::BF16 => 4e-2,
                    _ => 1e-4,
                };
                relative * expected.abs().max(scale)
            }
        }
    }
}

/// Relative width above which an error bound does not detect wrong results.
fn max_relative_bound(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::F16 => 0.05,
        Scalar::BF16 => 0.15,
        Scalar::F64 => 1e-6,
        _ => 0.01,
    }
}

/// Median magnitude of numbers.
pub fn median_magnitude(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = numbers.map(f64::abs).filter(|x| x.is_finite()).collect();
    let middle = all.len() / 2;
    if all.is_empty() { 0.0 } else { *all.select_nth_unstable_by(middle, f64::total_cmp).1 }
}

impl PreparedProblem {
    /// Draws shapes and inputs and evaluates the reference. An error says what is wrong with the
    /// task.
    pub fn new(problem: &JudgeProblem, default_seed: u64, max_statements: u64) -> Result<PreparedProblem, String> {
        let mut prepared = PreparedProblem::empty(problem)?;
        let Some(reference) = &problem.reference else { return Err("specify 'reference' or 'cases'".into()) };
        let reference = SourceKernel::parse(reference, &problem.launch)
            .map_err(|error| format!("the reference does not compile: {}", error.message))?;
        let order = bind(&reference.params, &prepared.names).map_err(|why| format!("reference: {why}"))?;
        let sources: Vec<(String, ArgSource)> = order.iter().map(|&at| problem.args.0[at].clone()).collect();
        let types: Vec<SourceParamType> = reference.params.iter().map(|param| param.ty.clone()).collect();
        let binding: Binding = (0..order.len()).collect();
        prepared.names = sources.iter().map(|(name, _)| name.clone()).collect();
        if let Some(outputs) = &problem.outputs
            && let Some(unknown) = outputs.iter().find(|name| !prepared.names.contains(name))
        {
            return Err(format!("output '{unknown}' is not an argument"));
        }
        let seed = problem.seed.unwrap_or(default_seed);
        for shape in 0..problem.shapes.unwrap_or(SHAPES).clamp(1, MAX_SHAPES) {
            let sizes = draw_sizes(problem, seed, shape)?;
            let mut note = None;
            for attempt in 0..ATTEMPTS {
                let keys = [seed, shape as u64, attempt];
                let args = draw_args(&sources, &types, &sizes, &keys)?;
                let kernel = BoundKernel::new(&reference, &binding, &sizes, &args)
                    .map_err(|error| format!("the reference does not compile: {}", error.message))?;
                let (found, no_bounds) = prepared.shape(problem, &kernel, sizes.clone(), args, keys, max_statements)?;
                note = no_bounds.as_ref().map(|why| format!("shape {sizes:?}: default tolerance, because {why}"));
                let redraw = matches!(no_bounds, Some(NoBounds::Undecided(_))) && attempt + 1 < ATTEMPTS;
                if !redraw {
                    prepared.shapes.push(found);
                    break;
                }
            }
            prepared.notes.extend(note);
        }
        (prepared.types, prepared.sources) = (types, sources);
        prepared.reference = Some(reference);
        Ok(prepared)
    }

    /// Takes inputs and expected outputs from the task; types are those of the candidate.
    pub fn from_cases(problem: &JudgeProblem, params: &[SourceParam]) -> Result<PreparedProblem, String> {
        let mut prepared = PreparedProblem::empty(problem)?;
        let binding = bind(params, &prepared.names)?;
        let mut types = vec![SourceParamType::Value(vec![]); binding.len()];
        for (param, &at) in params.iter().zip(&binding) {
            types[at] = param.ty.clone();
        }
        for (n, case) in problem.cases.iter().take(MAX_SHAPES).enumerate() {
            let mut sources = problem.args.0.clone();
            for (name, source) in &case.args.0 {
                let own = sources.iter_mut().find(|(own, _)| own == name);
                own.ok_or_else(|| format!("case {n}: '{name}' is not an argument of the task"))?.1 = source.clone();
            }
            let keys = [problem.seed.unwrap_or(0), n as u64, 0];
            let args = draw_args(&sources, &types, &case.sizes, &keys)?;
            let mut expected = vec![None; args.len()];
            for (name, numbers) in &case.expected {
                let at = prepared.names.iter().position(|own| own == name);
                let Some((at, DrawnArg::Array(array))) = at.map(|at| (at, &args[at])) else {
                    return Err(format!("case {n}: expected '{name}' is not an array argument"));
                };
                let scalars: Vec<Scalar> = array.cells().map(|(_, scalar)| scalar).collect();
                if scalars.len() != numbers.len() {
                    let (found, wanted) = (numbers.len(), scalars.len());
                    return Err(format!("case {n}: expected '{name}' has {found} values; the array has {wanted}"));
                }
                let cell = |(&scalar, &number): (&Scalar, &f64)| ExpectedCell::Near(Value::from_f64(scalar, number));
                expected[at] = Some(scalars.iter().zip(numbers).map(cell).collect());
            }
            let is_writable = expected.iter().map(Option::is_some).collect();
            let comparison = prepared.tolerance.comparison();
            let sizes = case.sizes.clone();
            prepared.shapes.push(PreparedShape { sizes, args, expected, is_writable, comparison, keys });
        }
        prepared.types = types;
        Ok(prepared)
    }

    fn empty(problem: &JudgeProblem) -> Result<PreparedProblem, String> {
        let given = (problem.rtol.is_some() || problem.atol.is_some())
            .then(|| (problem.rtol.unwrap_or(0.0), problem.atol.unwrap_or(0.0)));
        if given.is_some_and(|(rtol, atol)| !(rtol >= 0.0 && atol >= 0.0)) {
            return Err("'rtol' and 'atol' must not be negative".into());
        }
        Ok(PreparedProblem {
            names: problem.args.0.iter().map(|(name, _)| name.clone()).collect(),
            types: vec![],
            sources: vec![],
            shapes: vec![],
            tolerance: Tolerance { given },
            reference: None,
            notes: vec![],
        })
    }

    /// Runs the reference in both orders, and evaluates it with error bounds.
    fn shape(
        &self,
        problem: &JudgeProblem,
        kernel: &BoundKernel,
        sizes: Sizes,
        args: Vec<DrawnArg>,
        keys: [u64; 3],
        max_statements: u64,
    ) -> Result<(PreparedShape, Option<NoBounds>), String> {
        let run = |order: ExecutionOrder, poison: u64| {
            let before = memory(&args, poison);
            let mut after = before.clone();
            let outcome = kernel.run(&mut after, order, max_statements);
            outcome.map_err(|fault| format!("the reference fails for sizes {sizes:?}: {}", fault.kind))?;
            Ok::<_, String>((before, after))
        };
        let poison = [1, 2].map(|n| mix(keys[0] ^ mix(keys[1] + 64 * keys[2]) ^ n));
        let (before, after) = run(ExecutionOrder::Forward, poison[0])?;
        let (other_before, other_after) = run(ExecutionOrder::Reverse, poison[1])?;
        let mut no_bounds = None;
        let mut lanes: Vec<Vec<Lane>> = vec![];
        if self.tolerance.given.is_none() {
            lanes = kernel.views().iter().map(|&at| exact_lanes(&args[at], &before[at])).collect();
            no_bounds = evaluate(kernel.kernel(), &mut lanes, &kernel.values).err();
        }
        let (mut expected, mut is_writable) = (vec![None; args.len()], vec![false; args.len()]);
        let mut comparison =
            if no_bounds.is_some() { Comparison::DefaultTolerance } else { self.tolerance.comparison() };
        if self.tolerance.given.is_none() && no_bounds.is_none() {
            comparison = Comparison::Bounds;
        }
        for ((n, &at), param) in kernel.views().iter().enumerate().zip(&kernel.kernel().params) {
            let DrawnArg::Array(array) = &args[at] else { continue };
            is_writable[at] = param.access.writes();
            let name = &self.names[at];
            if !problem.outputs.as_ref().map_or(is_writable[at], |outputs| outputs.contains(name)) {
                continue;
            }
            let bounds = (comparison == Comparison::Bounds).then(|| &lanes[n][..]);
            let memories = [&before[at], &after[at], &other_before[at], &other_after[at]];
            let cells = expected_cells(array, memories, bounds)
                .map_err(|index| format!("the reference's '{name}[{index}]' depends on the order of threads"))?;
            if cells.iter().any(|cell| matches!(cell, ExpectedCell::Wide(..))) {
                comparison = Comparison::DefaultTolerance;
            }
            expected[at] = Some(cells);
        }
        if expected.iter().all(Option::is_none) {
            return Err("the reference writes no output".into());
        }
        Ok((PreparedShape { sizes, args, expected, is_writable, comparison, keys }, no_bounds))
    }

    /// Draws other inputs of a shape; returns them with the memory of the reference after a run on
    /// them.
    pub fn redraw(&self, shape: &PreparedShape, max_statements: u64) -> Option<(Vec<DrawnArg>, Vec<Vec<u64>>)> {
        let [seed, number, attempt] = shape.keys;
        let reference = self.reference.as_ref()?;
        let args = draw_args(&self.sources, &self.types, &shape.sizes, &[seed, number, attempt + 1000]).ok()?;
        let binding: Binding = (0..args.len()).collect();
        let kernel = BoundKernel::new(reference, &binding, &shape.sizes, &args).ok()?;
        let mut after = memory(&args, seed);
        kernel.run(&mut after, ExecutionOrder::Forward, max_statements).ok()?;
        Some((args, after))
    }
}

impl Tolerance {
    fn comparison(&self) -> Comparison {
        if self.given.is_some() { Comparison::Tolerance } else { Comparison::DefaultTolerance }
    }
}

fn draw_args(
    sources: &[(String, ArgSource)],
    types: &[SourceParamType],
    sizes: &Sizes,
    keys: &[u64],
) -> Result<Vec<DrawnArg>, String> {
    sources.iter().zip(types).map(|((name, source), ty)| draw_arg(name, source, ty, sizes, keys)).collect()
}

fn exact_lanes(arg: &DrawnArg, words: &[u64]) -> Vec<Lane> {
    match arg {
        DrawnArg::Array(array) => {
            array.cells().map(|(byte, scalar)| Lane::exact(load_scalar(words, byte, scalar))).collect()
        }
        DrawnArg::Value(_) => vec![],
    }
}

/// Expected components of an array, from its memory before and after two runs and its evaluation
/// with error bounds. `Err` has the index of a component that depends on the order of threads.
fn expected_cells(
    array: &DrawnArray,
    [before, after, other_before, other_after]: [&Vec<u64>; 4],
    bounds: Option<&[Lane]>,
) -> Result<Vec<ExpectedCell>, usize> {
    let median = median_magnitude(array.cells().map(|(byte, scalar)| load_scalar(after, byte, scalar).as_f64()));
    let mut cells = vec![];
    for (n, (byte, scalar)) in array.cells().enumerate() {
        let load = |words: &Vec<u64>| load_scalar(words, byte, scalar);
        let (value, other) = (load(after), load(other_after));
        if array.words.is_none() && value == load(before) && other == load(other_before) {
            cells.push(ExpectedCell::Unwritten);
            continue;
        }
        cells.push(match bounds.map(|lanes| lanes[n]) {
            Some(Lane::Float(ball)) => {
                let radius = ball.result_radius(scalar);
                let is_inside = |value: Value| is_same(value.as_f64(), ball.mid, radius);
                if !is_inside(value) || !is_inside(other) {
                    // Not a bound of this reference: its mathematics is not that of sums and products.
                    ExpectedCell::Wide(value.as_f64(), f64::INFINITY)
                } else if radius == 0.0 {
                    ExpectedCell::Exact(value)
                } else if radius <= max_relative_bound(scalar) * ball.mid.abs().max(median) {
                    ExpectedCell::Within(ball.mid, radius)
                } else {
                    ExpectedCell::Wide(value.as_f64(), radius)
                }
            }
            Some(Lane::Undecided) => ExpectedCell::Wide(value.as_f64(), f64::INFINITY),
            Some(Lane::Bits(_)) if value != other => return Err(n),
            None if !scalar.is_float() && value != other => return Err(n),
            Some(Lane::Bits(_)) => ExpectedCell::Exact(value),
            None => ExpectedCell::Near(value),
        });
    }
    Ok(cells)
}

/// Returns true if a value is within `bound` of the expected one; NaNs and equal infinities are the
/// same.
pub fn is_same(found: f64, expected: f64, bound: f64) -> bool {
    found == expected || found.is_nan() && expected.is_nan() || (found - expected).abs() <= bound
}
