//! Runs texts under the checking interpreter and compares them with the reference evaluator
//! (`evaluate/`).

use bornite_ir::interp::{Options, Order, run_printing};
use bornite_ir::{Arg, FaultKind, Kernel, Scalar as IrScalar, Value as IrValue, peek, poke};
use bornite_lang::cuda::Module;
use bornite_lang::{Lowered, ParamRef, Request};

use super::{Rejected, signature};
use crate::Row;
pub use crate::evaluate::Expected;
use crate::evaluate::{self, Ball, Contents, Influence, Reached, Stop, Value, telling};
use crate::inputs::{ATTEMPTS, INPUTS, input};
use crate::program::cancel::cancelled;
use crate::program::{Program, Scalar, python};
use crate::row::request;

/// Maximum error bound of an element, relative to its magnitude.
const BLUNT: f64 = 2e-2;

/// One in this many elements may have a wider bound.
const BLUNT_ELEMENTS: usize = 100;

/// Limits of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Statements, counted once per block.
    pub statements: u64,
}

/// Limits for generated rows, which terminate by construction.
const OWN: Limits = Limits { statements: 2_000_000 };

/// What a check covered.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Checked {
    /// Inputs that were run.
    pub inputs: usize,
    /// Components that were compared.
    pub compared: usize,
    /// Instances (threads) of the source that were evaluated.
    pub instances: u64,
}

/// Test cases of a program: its inputs with the reference outputs.
pub fn expected(program: &Program, key: [u64; 2]) -> Result<Vec<Expected>, Rejected> {
    if let Some((body, e)) = cancelled(program) {
        return Err(Rejected::Dead(format!("an operand of '{}' cancels out", python::expression(program, body, e))));
    }
    let mut reached = Reached::new(program);
    let all: Result<Vec<Expected>, Rejected> = (0..INPUTS)
        .map(|number| {
            for attempt in 0..ATTEMPTS {
                let input = input(program, key, number, attempt);
                let mut after = input.arrays.clone();
                // Coverage of a run that failed does not count.
                let mut extended = reached.clone();
                match evaluate::run(program, &input.sizes, &input.values, &mut after, &mut extended) {
                    Ok(()) => {
                        reached = extended;
                        return Ok(Expected { input, after });
                    }
                    Err(Stop::Undecided) => {}
                    Err(Stop::Invalid(what)) => return Err(Rejected::Invalid(what)),
                }
            }
            Err(Rejected::Undecided { input: number })
        })
        .collect();
    let all = all?;
    if let Some(what) = reached.missed(program) {
        return Err(Rejected::Dead(what));
    }
    sharp(&all)?;
    telling(program, &all.iter().collect::<Vec<_>>())?;
    moved(program, key, &all)?;
    Ok(all)
}

/// Requires that each random parameter, changed alone, changes some output beyond rounding, and
/// that each output is changed by one of them.
fn moved(program: &Program, key: [u64; 2], all: &[Expected]) -> Result<(), Rejected> {
    let Some(influence) = Influence::on_inputs(program, key, u64::MAX, |number| all.get(number)) else { return Ok(()) };
    if let Some(name) = influence.idle() {
        return Err(Rejected::Unused { input: name.into() });
    }
    influence.constant().map_or(Ok(()), |name| Err(Rejected::Constant { array: name.into() }))
}

/// Requires error bounds that are narrow relative to the magnitudes they belong to, over all
/// inputs: in sum, and for nearly every element, so that one large element does not hide wide
/// bounds of the others.
fn sharp(all: &[Expected]) -> Result<(), Rejected> {
    let arrays = all.first().map_or(0, |case| case.after.len());
    for n in 0..arrays {
        let mut balls: Vec<Ball> = (all.iter().flat_map(|case| &case.after[n].cells))
            .filter_map(|cell| if let Value::Float(ball) = cell { Some(*ball) } else { None })
            .collect();
        if balls.is_empty() {
            continue;
        }
        let narrow = match all[0].after[n].scalars[0] {
            Scalar::F16 => 0.03,
            Scalar::BF16 => 0.1,
            _ => BLUNT,
        };
        let (size, bound) = balls.iter().fold((0.0, 0.0), |(s, b), ball| (s + ball.mid.abs(), b + ball.err));
        if bound > size * narrow + balls.len() as f64 * 1e-9 {
            return Err(Rejected::Blunt { bound, size });
        }
        balls.sort_unstable_by(|a, b| a.mid.abs().total_cmp(&b.mid.abs()));
        // An element near zero among larger ones results from cancellation: the median magnitude
        // counts.
        let median = balls[balls.len() / 2].mid.abs();
        let loose = |ball: &&Ball| ball.err > narrow * ball.mid.abs().max(median) + 1e-9;
        if balls.iter().filter(loose).count() > balls.len() / BLUNT_ELEMENTS {
            let first = balls.iter().find(loose).copied().unwrap_or(balls[0]);
            return Err(Rejected::Blunt { bound: first.err, size: first.mid.abs().max(median) });
        }
    }
    Ok(())
}

/// Checks a row's texts: the CUDA text on all inputs, the source on some.
pub fn check(row: &Row) -> Result<Checked, Rejected> {
    let cases = expected(&row.program, [row.seed, row.index])?;
    source_against(&row.program, &row.source, &cases[2..4])?;
    against(&row.program, &row.cuda, &cases)
}

/// Checks a Python source of a program against test cases.
pub fn source_against(program: &Program, source: &str, expected: &[Expected]) -> Result<(), Rejected> {
    let unsupported = |errors: bornite_lang::Errors| Rejected::Source(errors.to_string());
    let module = bornite_lang::python::Module::parse("kernel.py", source).map_err(unsupported)?;
    for (number, case) in expected.iter().enumerate() {
        let sizes = &case.input.sizes;
        let dims: Vec<u64> = program.grid.iter().map(|(_, size)| size.of(sizes) as u64).collect();
        let mut request = Request::over(&dims);
        for array in &program.arrays {
            let extents: Vec<u64> = array.shape.iter().map(|size| size.of(sizes) as u64).collect();
            request = request.shape(&array.name, &extents);
        }
        let lowered = module.kernel(&program.name, &request).map_err(unsupported)?;
        signature::of_source(program, &lowered).map_err(Rejected::Source)?;
        one(program, &lowered, case, number, OWN)?;
    }
    Ok(())
}

/// Checks any CUDA text of a program against test cases. It must have the program's parameters, in
/// order, by name and type; must not write to the arrays that the program only reads; and must
/// match the reference in all others.
pub fn against(program: &Program, cuda: &str, expected: &[Expected]) -> Result<Checked, Rejected> {
    against_within(program, cuda, expected, OWN)
}

/// Like [`check_cuda`], with explicit limits for untrusted texts.
pub fn against_within(
    program: &Program,
    cuda: &str,
    expected: &[Expected],
    limits: Limits,
) -> Result<Checked, Rejected> {
    let module = Module::parse("kernel.cu", cuda).map_err(|e| Rejected::Text(e.to_string()))?;
    let mut checked = Checked::default();
    for (number, case) in expected.iter().enumerate() {
        let lowered = module.kernel(&program.name, &request(program, &case.input.sizes));
        let lowered = lowered.map_err(|e| Rejected::Text(e.to_string()))?;
        signature::of_text(program, &lowered).map_err(Rejected::Text)?;
        checked.compared += one(program, &lowered, case, number, limits)?;
        checked.inputs += 1;
        checked.instances += program.grid.iter().map(|(_, s)| s.of(&case.input.sizes) as u64).product::<u64>();
    }
    Ok(checked)
}

fn value(scalar: IrScalar, from: &Value) -> IrValue {
    match from {
        Value::Float(ball) => IrValue::from_f64(scalar, ball.mid),
        Value::Int(value) => IrValue::int(scalar, *value),
        Value::Bool(truth) => IrValue::int(scalar, (*truth == Some(true)) as i64),
        Value::Many(_) => IrValue::int(scalar, 0),
    }
}

/// Runs a text whose parameters are those of the program; returns the number of compared
/// components.
fn one(
    program: &Program,
    lowered: &Lowered,
    case: &Expected,
    number: usize,
    limits: Limits,
) -> Result<usize, Rejected> {
    let kernel = &lowered.kernel;
    let mut memory: Vec<Vec<u64>> = vec![vec![]; kernel.params.len()];
    let mut values: Vec<Vec<IrValue>> = vec![vec![]; kernel.values.len()];
    for (name, param) in &lowered.params {
        match param {
            ParamRef::View(n) => {
                let Some(at) = program.arrays.iter().position(|array| array.name == *name) else { continue };
                memory[*n as usize] = packed(kernel, *n as usize, &case.input.arrays[at]);
            }
            ParamRef::Value(n) => {
                let ty = kernel.values[*n as usize].ty.components(&kernel.structs);
                let name_of = |var| &program.body.var(var).name == name;
                let passed = (program.values.iter().zip(&case.input.values))
                    .find(|(param, _)| name_of(param.var))
                    .map(|(_, passed)| passed.clone());
                let size = (program.sizes.iter().zip(&case.input.sizes))
                    .find(|(param, _)| name_of(param.var))
                    .map(|(_, size)| Value::Int(*size as i64));
                let Some(passed) = passed.or(size) else { continue };
                values[*n as usize] = vec![value(ty[0], &passed)];
            }
        }
    }
    let mut args: Vec<Arg<'_>> = (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
        .collect();
    args.extend(values.iter().map(|parts| Arg::Value(parts)));
    let order = if number.is_multiple_of(2) { Order::Forward } else { Order::Reverse };
    let options = Options { order, max_statements: Some(limits.statements), instances: true, divisions: true };
    run_printing(kernel, &mut args, options, &mut |_| {}).map_err(|fault| Rejected::Report {
        kind: kind(&fault.kind),
        input: number,
        line: lowered.line_of(&fault),
        report: fault.kind.to_string(),
    })?;
    let mut count = 0;
    for (name, param) in &lowered.params {
        let ParamRef::View(n) = param else { continue };
        let Some(at) = program.arrays.iter().position(|array| array.name == *name) else { continue };
        let found = unpacked(kernel, *n as usize, &memory[*n as usize], &case.after[at]);
        if program.arrays[at].written {
            count += compared(&found, &case.after[at], name, number)?;
        } else if packed(kernel, *n as usize, &case.input.arrays[at]) != memory[*n as usize] {
            return Err(clobbered(&found, &case.input.arrays[at], name, number));
        }
    }
    let expected: usize = (program.arrays.iter().zip(&case.after))
        .filter(|(array, _)| array.written)
        .map(|(_, after)| after.cells.len())
        .sum();
    match count == expected {
        true => Ok(count),
        false => Err(Rejected::Text(format!("the text produces {count} of the {expected} expected components"))),
    }
}

/// Rejection of a text that writes to an array which its program only reads.
fn clobbered(found: &[Value], before: &Contents, name: &str, input: usize) -> Rejected {
    let number = |value: &Value| match value {
        Value::Float(ball) => ball.mid,
        Value::Int(value) => *value as f64,
        Value::Bool(truth) => (*truth == Some(true)) as u8 as f64,
        Value::Many(_) => 0.0,
    };
    // -0 and 0 compare equal: report the first element then.
    let element = found.iter().zip(&before.cells).position(|(a, b)| number(a) != number(b)).unwrap_or(0);
    let (found, expected) = (number(&found[element]), number(&before.cells[element]));
    Rejected::Differs { input, array: name.to_owned(), element, found, expected, bound: 0.0 }
}

/// Memory words of a view.
fn packed(kernel: &Kernel, view: usize, contents: &Contents) -> Vec<u64> {
    let layout = kernel.params[view].ty.layout(&kernel.structs);
    let elements = contents.cells.len() / contents.scalars.len();
    let mut words = vec![0; (elements * layout.bytes).div_ceil(8)];
    for (n, cell) in contents.cells.iter().enumerate() {
        let (offset, scalar) = layout.offsets[n % layout.offsets.len()];
        poke(&mut words, n / layout.offsets.len() * layout.bytes + offset, value(scalar, cell));
    }
    words
}

fn kind(kind: &FaultKind) -> &'static str {
    match kind {
        FaultKind::OutOfBounds { .. } => "bounds",
        FaultKind::Misaligned { .. } => "misaligned",
        FaultKind::Uninitialised { .. } => "uninitialised",
        FaultKind::Race { .. } => "race",
        FaultKind::DivergentBarrier { .. } => "barrier",
        FaultKind::PartialWarp { .. } => "warp",
        FaultKind::Claim { .. } => "claim",
        FaultKind::Division { .. } => "division",
        FaultKind::TooLong(_) => "too long",
        FaultKind::BadCall(_) => "bad call",
    }
}

/// Components in the memory of a view.
fn unpacked(kernel: &Kernel, view: usize, words: &[u64], like: &Contents) -> Vec<Value> {
    let layout = kernel.params[view].ty.layout(&kernel.structs);
    (0..like.cells.len())
        .map(|n| {
            let (offset, scalar) = layout.offsets[n % layout.offsets.len()];
            let found = peek(words, n / layout.offsets.len() * layout.bytes + offset, scalar);
            match scalar {
                scalar if scalar.is_float() => Value::Float(Ball::exact(found.as_f64())),
                IrScalar::Bool => Value::Bool(Some(found.bits() != 0)),
                _ => Value::Int(found.as_i64()),
            }
        })
        .collect()
}

/// Compares results with the reference; returns the number of components.
pub fn compared(found: &[Value], after: &Contents, name: &str, input: usize) -> Result<usize, Rejected> {
    for (n, (found, cell)) in found.iter().zip(&after.cells).enumerate() {
        let scalar = after.scalars[n % after.scalars.len()];
        let (right, found, expected, bound) = match (found, cell) {
            (Value::Float(found), Value::Float(ball)) => {
                let ball = ball.to(scalar);
                ((found.mid - ball.mid).abs() <= ball.err, found.mid, ball.mid, ball.err)
            }
            (Value::Int(found), Value::Int(value)) => (found == value, *found as f64, *value as f64, 0.0),
            (found, cell) => (found == cell, 0.0, 0.0, 0.0),
        };
        if !right {
            return Err(Rejected::Differs { input, array: name.to_owned(), element: n, found, expected, bound });
        }
    }
    Ok(after.cells.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Input;

    #[test]
    fn one_large_element_does_not_hide_wide_bounds_of_others() {
        let case = |large: usize, wide: usize, bound: f64| {
            let cell =
                |n: usize| Ball { mid: if n < large { 1e6 } else { 1.0 }, err: if n < wide { bound } else { 1e-6 } };
            let cells = (0..1000).rev().map(|n| Value::Float(cell(n))).collect();
            let after = vec![Contents::new(vec![1000], vec![Scalar::F32], cells)];
            vec![Expected { input: Input { sizes: vec![], values: vec![], arrays: vec![] }, after }]
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
            let found = sharp(&case(large, wide, bound));
            assert_eq!(found.is_ok(), passes, "{large} large, {wide} wide by {bound}: {found:?}");
        }
    }
}
