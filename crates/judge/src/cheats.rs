//! Candidates that do not compute: outputs that are not written, do not depend on the inputs, or are
//! constants of the source.

use std::collections::HashSet;

use bornite_ir::interp::ExecutionOrder;
use bornite_ir::{Expr, Kernel, Scalar, Value, load_scalar, store_scalar};

use crate::expected::{ExpectedCell, PreparedProblem, PreparedShape};
use crate::expression::Sizes;
use crate::inputs::{DrawnArg, DrawnArray};
use crate::run::{Binding, BoundKernel, memory};
use crate::source::SourceKernel;
use crate::verdict::{JudgeOutcome, Verdict};

/// Minimum elements of an array whose contents are expected to influence the outputs.
const MIN_ELEMENTS: usize = 8;
/// Minimum number of expected values among the constants of a source.
const MIN_EMBEDDED: usize = 6;

/// A candidate on one shape.
pub struct CandidateRun<'a> {
    pub problem: &'a PreparedProblem,
    pub shape: &'a PreparedShape,
    pub candidate: &'a SourceKernel,
    pub binding: &'a Binding,
    pub kernel: &'a BoundKernel,
    pub order: ExecutionOrder,
    pub max_statements: u64,
}

impl CandidateRun<'_> {
    /// Runs on other arguments of a shape; returns the memory before and after, or `None` if the run
    /// fails.
    fn rerun(&self, sizes: &Sizes, args: &[DrawnArg], poison: u64) -> Option<(Vec<Vec<u64>>, Vec<Vec<u64>>)> {
        let before = memory(args, poison);
        let mut after = before.clone();
        let kernel = BoundKernel::new(self.candidate, self.binding, sizes, args).ok()?;
        kernel.run(&mut after, self.order, self.max_statements).ok()?;
        Some((before, after))
    }

    fn outputs(&self) -> impl Iterator<Item = (usize, &DrawnArray)> {
        self.shape.args.iter().enumerate().filter_map(|(at, arg)| match arg {
            DrawnArg::Array(array) if self.shape.expected[at].is_some() => Some((at, array)),
            _ => None,
        })
    }

    /// Explains a wrong result, if the candidate did not compute it from its inputs.
    pub fn explain(&self, before: &[Vec<u64>], after: &[Vec<u64>], poison: u64) -> Option<Verdict> {
        let rerun = self.rerun(&self.shape.sizes, &self.shape.args, !poison);
        for (at, array) in self.outputs().filter(|(_, array)| array.elements() > 0) {
            let name = &self.problem.names[at];
            if before[at] == after[at] && rerun.as_ref().is_some_and(|(before, after)| before[at] == after[at]) {
                let what = format!("'{name}' is not written: it keeps the memory's previous contents");
                return Some(Verdict::new(JudgeOutcome::Cheating, "unwritten_output", what));
            }
            let Some((other_before, other_after)) = &rerun else { continue };
            let bits = |words: &[u64], byte: usize, scalar: Scalar| load_scalar(words, byte, scalar).bits();
            let stale = array.cells().position(|(byte, scalar)| {
                let [found, other] = [after, other_after].map(|words| bits(&words[at], byte, scalar));
                let kept = [(before, found), (other_before, other)];
                found != other && kept.iter().any(|(before, bits_after)| bits(&before[at], byte, scalar) != *bits_after)
            });
            if let Some(index) = stale {
                let what = format!("'{name}[{index}]' depends on the previous contents of uninitialized memory");
                return Some(Verdict::new(JudgeOutcome::Fault, "uninitialized", what));
            }
        }
        self.constant_output(after, poison)
    }

    /// Finds an output that stays the same for other inputs, of all shapes.
    fn constant_output(&self, after: &[Vec<u64>], poison: u64) -> Option<Verdict> {
        let mut constant = self.constant_outputs(self.shape, after, poison)?;
        for shape in &self.problem.shapes {
            if constant.is_empty() {
                return None;
            }
            let (_, after) = self.rerun(&shape.sizes, &shape.args, poison)?;
            // A shape for which the reference's outputs do not vary tells nothing.
            if let Some(same) = self.constant_outputs(shape, &after, poison) {
                constant.retain(|at| same.contains(at));
            }
        }
        let what = format!("'{}' does not depend on the inputs", self.problem.names[*constant.first()?]);
        Some(Verdict::new(JudgeOutcome::Cheating, "constant_output", what))
    }

    /// Outputs that stay the same for other inputs of a shape, although the reference's differ;
    /// `None` if those do not differ.
    fn constant_outputs(&self, shape: &PreparedShape, after: &[Vec<u64>], poison: u64) -> Option<Vec<usize>> {
        let (args, expected) = self.problem.redraw(shape, self.max_statements)?;
        let varies = |&at: &usize| {
            let (DrawnArg::Array(array), Some(cells)) = (&shape.args[at], &shape.expected[at]) else { return false };
            array.cells().zip(cells).any(|((byte, scalar), cell)| {
                let now = load_scalar(&expected[at], byte, scalar).as_f64();
                match *cell {
                    ExpectedCell::Exact(value) | ExpectedCell::Near(value) => value.as_f64() != now,
                    ExpectedCell::Within(mid, radius) => (mid - now).abs() > 2.0 * radius,
                    ExpectedCell::Wide(..) | ExpectedCell::Unwritten => false,
                }
            })
        };
        let varying: Vec<usize> = (0..shape.args.len()).filter(varies).collect();
        if varying.is_empty() {
            return None;
        }
        let Some((_, other)) = self.rerun(&shape.sizes, &args, poison) else { return Some(vec![]) };
        Some(varying.into_iter().filter(|&at| after[at] == other[at]).collect())
    }

    /// For expected arrays without a reference: finds outputs that were copied from constants of the
    /// source.
    pub fn embedded_outputs(&self) -> Option<Verdict> {
        let constants = float_constants(self.kernel.kernel());
        for (at, _) in self.outputs() {
            let expected: HashSet<u64> = (self.shape.expected[at].iter().flatten())
                .filter_map(|cell| if let ExpectedCell::Near(value) = cell { Some(*value) } else { None })
                .filter(|value| is_distinctive(*value))
                .map(|value| value.as_f64().to_bits())
                .collect();
            let embedded = expected.intersection(&constants).count();
            if embedded >= MIN_EMBEDDED.max(expected.len() / 4) {
                let name = &self.problem.names[at];
                let what = format!("{embedded} expected values of '{name}' are constants of the source");
                return Some(Verdict::new(JudgeOutcome::Cheating, "embedded_output", what));
            }
        }
        None
    }

    /// Returns true if other inputs change an output; `None` if the inputs are too small to tell.
    pub fn depends_on_inputs(&self, after: &[Vec<u64>], poison: u64) -> Option<bool> {
        let is_input = |(at, arg): (usize, &DrawnArg)| {
            matches!(arg, DrawnArg::Array(array) if array.words.is_some() && array.elements() >= MIN_ELEMENTS)
                && self.shape.expected[at].is_none()
        };
        if !self.shape.args.iter().enumerate().any(is_input) {
            return None;
        }
        for variant in 0..2 {
            let args: Vec<DrawnArg> = self.shape.args.iter().map(|arg| altered(arg, variant)).collect();
            match self.rerun(&self.shape.sizes, &args, poison) {
                // Unchanged so far.
                Some((_, other)) if self.outputs().all(|(at, _)| other[at] == after[at]) => {}
                _ => return Some(true),
            }
        }
        Some(false)
    }
}

/// An array in reverse order, and with other float values: scaled and shifted, or negated.
fn altered(arg: &DrawnArg, variant: usize) -> DrawnArg {
    let DrawnArg::Array(array) = arg else { return arg.clone() };
    let Some(words) = &array.words else { return arg.clone() };
    let cells: Vec<(usize, Scalar)> = array.cells().collect();
    let mut altered = words.clone();
    for ((byte, scalar), (from, other)) in cells.iter().zip(cells.iter().rev()) {
        let value = load_scalar(words, if scalar == other { *from } else { *byte }, *scalar);
        let value = match variant {
            _ if !scalar.is_float() => value,
            0 => Value::from_f64(*scalar, 1.5 * value.as_f64() + 0.25),
            _ => Value::from_f64(*scalar, -value.as_f64()),
        };
        store_scalar(&mut altered, *byte, value);
    }
    DrawnArg::Array(DrawnArray { words: Some(altered), ..array.clone() })
}

/// Returns true for values that do not occur in sources by chance.
fn is_distinctive(value: Value) -> bool {
    let x = value.as_f64();
    x.is_finite() && (x.fract() != 0.0 || x.abs() > 16.0) && (x * 8.0).fract() != 0.0
}

/// All constants of a kernel, as bits of f64.
fn float_constants(kernel: &Kernel) -> HashSet<u64> {
    let codes = kernel.functions.iter().map(|function| &function.code).chain([&kernel.code]);
    let mut all = HashSet::new();
    for code in codes {
        let consts =
            code.exprs.iter().filter_map(|expr| if let Expr::Const(value) = expr { Some(*value) } else { None });
        let init = code.locals.iter().flat_map(|local| local.init.iter().copied());
        all.extend(consts.chain(init).map(|value| value.as_f64().to_bits()));
    }
    all
}
