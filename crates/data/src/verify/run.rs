//! Runs texts under the checking interpreter and compares them with the reference evaluator
//! (`evaluate/`).

use bornite_ir::interp::{ExecutionOrder, InterpreterOptions, run_printing};
use bornite_ir::{Arg, FaultKind, Kernel, Scalar as IrScalar, Value as IrValue, load_scalar, store_scalar};
use bornite_lang::cuda::CudaModule;
use bornite_lang::{LaunchRequest, Lowered, ParamRef};

use super::{Rejection, signature};
use crate::Row;
pub use crate::evaluate::TestCase;
use crate::evaluate::{
    self, ArrayContents, EvalError, EvalValue, ExecutionCoverage, Influence, Interval, require_informative,
};
use crate::inputs::{ATTEMPTS, INPUT_COUNT, input};
use crate::program::cancel::find_cancelled;
use crate::program::{Program, ScalarType, python};
use crate::row::request;

/// Maximum error bound of an element, relative to its magnitude.
const MAX_RELATIVE_BOUND: f64 = 2e-2;

/// One in this many elements may have a wider bound.
const ELEMENTS_PER_LOOSE_BOUND: usize = 100;

/// Limits of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunLimits {
    /// Statements, counted once per block.
    pub statements: u64,
}

/// Limits for generated rows, which terminate by construction.
const DEFAULT_LIMITS: RunLimits = RunLimits { statements: 2_000_000 };

/// Statistics of a check.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CheckStats {
    /// Inputs that were run.
    pub inputs: usize,
    /// Components that were compared.
    pub compared: usize,
    /// Instances (threads) of the source that were evaluated.
    pub instances: u64,
}

/// Test cases of a program: its inputs with the reference outputs.
pub fn test_cases(program: &Program, key: [u64; 2]) -> Result<Vec<TestCase>, Rejection> {
    if let Some((body, e)) = find_cancelled(program) {
        return Err(Rejection::DeadCode(format!(
            "an operand of '{}' cancels out",
            python::expression(program, body, e)
        )));
    }
    let mut coverage = ExecutionCoverage::new(program);
    let all: Result<Vec<TestCase>, Rejection> = (0..INPUT_COUNT)
        .map(|number| {
            for attempt in 0..ATTEMPTS {
                let input = input(program, key, number, attempt);
                let mut after = input.arrays.clone();
                // Coverage of a run that failed does not count.
                let mut extended = coverage.clone();
                match evaluate::run(program, &input.sizes, &input.values, &mut after, &mut extended) {
                    Ok(()) => {
                        coverage = extended;
                        return Ok(TestCase { input, after });
                    }
                    Err(EvalError::Undecided) => {}
                    Err(EvalError::Invalid(what)) => return Err(Rejection::Invalid(what)),
                }
            }
            Err(Rejection::Undecided { input: number })
        })
        .collect();
    let all = all?;
    if let Some(what) = coverage.first_gap(program) {
        return Err(Rejection::DeadCode(what));
    }
    require_tight_bounds(&all)?;
    require_informative(program, &all.iter().collect::<Vec<_>>())?;
    require_influence(program, key, &all)?;
    Ok(all)
}

/// Requires that each random parameter, changed alone, changes some output beyond rounding, and
/// that each output is changed by one of them.
fn require_influence(program: &Program, key: [u64; 2], all: &[TestCase]) -> Result<(), Rejection> {
    let Some(influence) = Influence::on_inputs(program, key, u64::MAX, |number| all.get(number)) else { return Ok(()) };
    if let Some(name) = influence.unused() {
        return Err(Rejection::UnusedInput { input: name.into() });
    }
    influence.constant().map_or(Ok(()), |name| Err(Rejection::ConstantOutput { array: name.into() }))
}

/// Requires error bounds that are narrow relative to the magnitudes they belong to, over all
/// inputs: in sum, and for nearly every element, so that one large element does not hide wide
/// bounds of the others.
fn require_tight_bounds(all: &[TestCase]) -> Result<(), Rejection> {
    let arrays = all.first().map_or(0, |case| case.after.len());
    for n in 0..arrays {
        let mut intervals: Vec<Interval> = (all.iter().flat_map(|case| &case.after[n].cells))
            .filter_map(|cell| if let EvalValue::Float(interval) = cell { Some(*interval) } else { None })
            .collect();
        if intervals.is_empty() {
            continue;
        }
        let narrow = match all[0].after[n].scalars[0] {
            ScalarType::F16 => 0.03,
            ScalarType::BF16 => 0.1,
            _ => MAX_RELATIVE_BOUND,
        };
        let (size, bound) =
            intervals.iter().fold((0.0, 0.0), |(s, b), interval| (s + interval.mid.abs(), b + interval.err));
        if bound > size * narrow + intervals.len() as f64 * 1e-9 {
            return Err(Rejection::LooseBound { bound, size });
        }
        intervals.sort_unstable_by(|a, b| a.mid.abs().total_cmp(&b.mid.abs()));
        // An element near zero among larger ones results from cancellation: the median magnitude
        // counts.
        let median = intervals[intervals.len() / 2].mid.abs();
        let loose = |interval: &&Interval| interval.err > narrow * interval.mid.abs().max(median) + 1e-9;
        if intervals.iter().filter(loose).count() > intervals.len() / ELEMENTS_PER_LOOSE_BOUND {
            let first = intervals.iter().find(loose).copied().unwrap_or(intervals[0]);
            return Err(Rejection::LooseBound { bound: first.err, size: first.mid.abs().max(median) });
        }
    }
    Ok(())
}

/// Checks a row's texts: the CUDA text on all inputs, the source on some.
pub fn check(row: &Row) -> Result<CheckStats, Rejection> {
    let cases = test_cases(&row.program, [row.seed, row.index])?;
    check_python(&row.program, &row.source, &cases[2..4])?;
    check_cuda(&row.program, &row.cuda, &cases)
}

/// Checks a Python source of a program against test cases.
pub fn check_python(program: &Program, source: &str, expected: &[TestCase]) -> Result<(), Rejection> {
    let unsupported = |errors: bornite_lang::Errors| Rejection::Python(errors.to_string());
    let module = bornite_lang::python::PythonModule::parse("kernel.py", source).map_err(unsupported)?;
    for (number, case) in expected.iter().enumerate() {
        let sizes = &case.input.sizes;
        let dims: Vec<u64> = program.grid.iter().map(|(_, size)| size.eval(sizes) as u64).collect();
        let mut request = LaunchRequest::with_dims(&dims);
        for array in &program.arrays {
            let extents: Vec<u64> = array.shape.iter().map(|size| size.eval(sizes) as u64).collect();
            request = request.shape(&array.name, &extents);
        }
        let lowered = module.kernel(&program.name, &request).map_err(unsupported)?;
        signature::check_python(program, &lowered).map_err(Rejection::Python)?;
        run_case(program, &lowered, case, number, DEFAULT_LIMITS)?;
    }
    Ok(())
}

/// Checks any CUDA text of a program against test cases. It must have the program's parameters, in
/// order, by name and type; must not write to the arrays that the program only reads; and must
/// match the reference in all others.
pub fn check_cuda(program: &Program, cuda: &str, expected: &[TestCase]) -> Result<CheckStats, Rejection> {
    check_cuda_within(program, cuda, expected, DEFAULT_LIMITS)
}

/// Like [`check_cuda`], with explicit limits for untrusted texts.
pub fn check_cuda_within(
    program: &Program,
    cuda: &str,
    expected: &[TestCase],
    limits: RunLimits,
) -> Result<CheckStats, Rejection> {
    let module = CudaModule::parse("kernel.cu", cuda).map_err(|e| Rejection::Cuda(e.to_string()))?;
    let mut checked = CheckStats::default();
    for (number, case) in expected.iter().enumerate() {
        let lowered = module.kernel(&program.name, &request(program, &case.input.sizes));
        let lowered = lowered.map_err(|e| Rejection::Cuda(e.to_string()))?;
        signature::check_cuda(program, &lowered).map_err(Rejection::Cuda)?;
        checked.compared += run_case(program, &lowered, case, number, limits)?;
        checked.inputs += 1;
        checked.instances += program.grid.iter().map(|(_, s)| s.eval(&case.input.sizes) as u64).product::<u64>();
    }
    Ok(checked)
}

fn value(scalar: IrScalar, from: &EvalValue) -> IrValue {
    match from {
        EvalValue::Float(interval) => IrValue::from_f64(scalar, interval.mid),
        EvalValue::Int(value) => IrValue::int(scalar, *value),
        EvalValue::Bool(truth) => IrValue::int(scalar, (*truth == Some(true)) as i64),
        EvalValue::Composite(_) => IrValue::int(scalar, 0),
    }
}

/// Runs a text whose parameters are those of the program; returns the number of compared
/// components.
fn run_case(
    program: &Program,
    lowered: &Lowered,
    case: &TestCase,
    number: usize,
    limits: RunLimits,
) -> Result<usize, Rejection> {
    let kernel = &lowered.kernel;
    let mut memory: Vec<Vec<u64>> = vec![vec![]; kernel.params.len()];
    let mut values: Vec<Vec<IrValue>> = vec![vec![]; kernel.values.len()];
    for (name, param) in &lowered.params {
        match param {
            ParamRef::View(n) => {
                let Some(at) = program.arrays.iter().position(|array| array.name == *name) else { continue };
                memory[*n as usize] = pack(kernel, *n as usize, &case.input.arrays[at]);
            }
            ParamRef::Value(n) => {
                let ty = kernel.values[*n as usize].ty.components(&kernel.structs);
                let name_of = |var| &program.body.var(var).name == name;
                let passed = (program.values.iter().zip(&case.input.values))
                    .find(|(param, _)| name_of(param.var))
                    .map(|(_, passed)| passed.clone());
                let size = (program.sizes.iter().zip(&case.input.sizes))
                    .find(|(param, _)| name_of(param.var))
                    .map(|(_, size)| EvalValue::Int(*size as i64));
                let Some(passed) = passed.or(size) else { continue };
                values[*n as usize] = vec![value(ty[0], &passed)];
            }
        }
    }
    let mut args: Vec<Arg<'_>> = (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
        .collect();
    args.extend(values.iter().map(|parts| Arg::Value(parts)));
    let order = if number.is_multiple_of(2) { ExecutionOrder::Forward } else { ExecutionOrder::Reverse };
    let options = InterpreterOptions {
        order,
        max_statements: Some(limits.statements),
        check_instance_races: true,
        check_division: true,
    };
    run_printing(kernel, &mut args, options, &mut |_| {}).map_err(|fault| Rejection::Fault {
        kind: fault_class(&fault.kind),
        input: number,
        line: lowered.line_of(&fault),
        report: fault.kind.to_string(),
    })?;
    let mut count = 0;
    for (name, param) in &lowered.params {
        let ParamRef::View(n) = param else { continue };
        let Some(at) = program.arrays.iter().position(|array| array.name == *name) else { continue };
        let found = unpack(kernel, *n as usize, &memory[*n as usize], &case.after[at]);
        if program.arrays[at].written {
            count += compare(&found, &case.after[at], name, number)?;
        } else if pack(kernel, *n as usize, &case.input.arrays[at]) != memory[*n as usize] {
            return Err(overwritten_input(&found, &case.input.arrays[at], name, number));
        }
    }
    let expected: usize = (program.arrays.iter().zip(&case.after))
        .filter(|(array, _)| array.written)
        .map(|(_, after)| after.cells.len())
        .sum();
    match count == expected {
        true => Ok(count),
        false => Err(Rejection::Cuda(format!("the text produces {count} of the {expected} expected components"))),
    }
}

/// Rejection of a text that writes to an array which its program only reads.
fn overwritten_input(found: &[EvalValue], before: &ArrayContents, name: &str, input: usize) -> Rejection {
    let number = |value: &EvalValue| match value {
        EvalValue::Float(interval) => interval.mid,
        EvalValue::Int(value) => *value as f64,
        EvalValue::Bool(truth) => (*truth == Some(true)) as u8 as f64,
        EvalValue::Composite(_) => 0.0,
    };
    // -0 and 0 compare equal: report the first element then.
    let element = found.iter().zip(&before.cells).position(|(a, b)| number(a) != number(b)).unwrap_or(0);
    let (found, expected) = (number(&found[element]), number(&before.cells[element]));
    Rejection::Mismatch { input, array: name.to_owned(), element, found, expected, bound: 0.0 }
}

/// Memory words of a view.
fn pack(kernel: &Kernel, view: usize, contents: &ArrayContents) -> Vec<u64> {
    let layout = kernel.params[view].ty.layout(&kernel.structs);
    let elements = contents.cells.len() / contents.scalars.len();
    let mut words = vec![0; (elements * layout.bytes).div_ceil(8)];
    for (n, cell) in contents.cells.iter().enumerate() {
        let (offset, scalar) = layout.offsets[n % layout.offsets.len()];
        store_scalar(&mut words, n / layout.offsets.len() * layout.bytes + offset, value(scalar, cell));
    }
    words
}

fn fault_class(kind: &FaultKind) -> &'static str {
    match kind {
        FaultKind::OutOfBounds { .. } => "bounds",
        FaultKind::Misaligned { .. } => "misaligned",
        FaultKind::Uninitialized { .. } => "uninitialised",
        FaultKind::Race { .. } => "race",
        FaultKind::DivergentBarrier { .. } => "barrier",
        FaultKind::PartialWarp { .. } => "warp",
        FaultKind::AssertionFailed { .. } => "claim",
        FaultKind::Division { .. } => "division",
        FaultKind::StatementLimit(_) => "too long",
        FaultKind::InvalidCall(_) => "bad call",
    }
}

/// Components in the memory of a view.
fn unpack(kernel: &Kernel, view: usize, words: &[u64], like: &ArrayContents) -> Vec<EvalValue> {
    let layout = kernel.params[view].ty.layout(&kernel.structs);
    (0..like.cells.len())
        .map(|n| {
            let (offset, scalar) = layout.offsets[n % layout.offsets.len()];
            let found = load_scalar(words, n / layout.offsets.len() * layout.bytes + offset, scalar);
            match scalar {
                scalar if scalar.is_float() => EvalValue::Float(Interval::exact(found.as_f64())),
                IrScalar::Bool => EvalValue::Bool(Some(found.bits() != 0)),
                _ => EvalValue::Int(found.as_i64()),
            }
        })
        .collect()
}

/// Compares results with the reference; returns the number of components.
pub fn compare(found: &[EvalValue], after: &ArrayContents, name: &str, input: usize) -> Result<usize, Rejection> {
    for (n, (found, cell)) in found.iter().zip(&after.cells).enumerate() {
        let scalar = after.scalars[n % after.scalars.len()];
        let (right, found, expected, bound) = match (found, cell) {
            (EvalValue::Float(found), EvalValue::Float(interval)) => {
                let interval = interval.to(scalar);
                ((found.mid - interval.mid).abs() <= interval.err, found.mid, interval.mid, interval.err)
            }
            (EvalValue::Int(found), EvalValue::Int(value)) => (found == value, *found as f64, *value as f64, 0.0),
            (found, cell) => (found == cell, 0.0, 0.0, 0.0),
        };
        if !right {
            return Err(Rejection::Mismatch { input, array: name.to_owned(), element: n, found, expected, bound });
        }
    }
    Ok(after.cells.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::KernelInput;

    #[test]
    fn one_large_element_does_not_hide_wide_bounds_of_others() {
        let case = |large: usize, wide: usize, bound: f64| {
            let cell = |n: usize| Interval {
                mid: if n < large { 1e6 } else { 1.0 },
                err: if n < wide { bound } else { 1e-6 },
            };
            let cells = (0..1000).rev().map(|n| EvalValue::Float(cell(n))).collect();
            let after = vec![ArrayContents::new(vec![1000], vec![ScalarType::F32], cells)];
            vec![TestCase { input: KernelInput { sizes: vec![], values: vec![], arrays: vec![] }, after }]
        };
        // The large element is among the wide ones, but not wide relative to its own magnitude.
        for (large, wide, bound, passes) in [
            (0, 0, 0.0, true),
            (1, 1000, 0.5, false),
            (1, 12, 0.5, false),
            (1, 11, 0.5, true),
            (0, 1000, 0.5, false),
            (1, 1000, 0.01, true),
        ] {
            let found = require_tight_bounds(&case(large, wide, bound));
            assert_eq!(found.is_ok(), passes, "{large} large, {wide} wide by {bound}: {found:?}");
        }
    }
}
