//! Influence of single parameters on outputs. A parameter that changes no output beyond rounding,
//! and an output that no parameter changes, provide no evidence about a text.

use std::borrow::Borrow;

use super::{ArrayContents, EvalValue, TestCase, is_same, run_first_instances};
use crate::inputs::{FIXED_SIZE_INPUTS, KernelInput, input, redraws};
use crate::program::{ArrayFill, Program};

/// A parameter with random contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parameter {
    /// An array, by its index.
    Array(usize),
    /// A scalar parameter, by its index.
    Value(usize),
}

impl Parameter {
    /// All parameters of a program with random contents.
    pub fn all(program: &Program) -> Vec<Parameter> {
        let random = |n: &usize| !matches!(program.arrays[*n].fill, ArrayFill::Zero | ArrayFill::Constant(_));
        let arrays = (0..program.arrays.len()).filter(random).map(Parameter::Array);
        arrays.chain((0..program.values.len()).map(Parameter::Value)).collect()
    }

    /// Name in the texts.
    pub fn name(self, program: &Program) -> &str {
        match self {
            Parameter::Array(n) => &program.arrays[n].name,
            Parameter::Value(n) => &program.body.var(program.values[n].var).name,
        }
    }

    /// True if two inputs have the same contents for this parameter, as bools and small ranges
    /// often do.
    fn is_equal(self, a: &KernelInput, b: &KernelInput) -> bool {
        match self {
            Parameter::Array(n) => a.arrays[n] == b.arrays[n],
            Parameter::Value(n) => a.values[n] == b.values[n],
        }
    }

    /// Runs the first instances of a program with only this parameter taken from another input, and
    /// leaves the results in `arrays`; `None` if undecided.
    fn redrawn(
        self,
        program: &Program,
        instances: u64,
        before: &KernelInput,
        other: &KernelInput,
        arrays: &mut Vec<ArrayContents>,
    ) -> Option<()> {
        arrays.clone_from(&before.arrays);
        let replaced;
        let values = match self {
            Parameter::Array(n) => {
                arrays[n].clone_from(&other.arrays[n]);
                &before.values
            }
            Parameter::Value(n) => {
                let mut values = before.values.clone();
                values[n] = other.values[n].clone();
                replaced = values;
                &replaced
            }
        };
        run_first_instances(program, instances, &before.sizes, values, arrays).ok()
    }
}

/// Parameters that have changed no output so far, and outputs that no parameter has changed.
pub struct Influence<'p> {
    program: &'p Program,
    parameters: Vec<Parameter>,
    unused: Vec<Parameter>,
    constant: Vec<usize>,
    /// Number of instances evaluated, from the first.
    instances: u64,
}

impl<'p> Influence<'p> {
    /// All parameters and outputs of a program, before any test.
    pub fn new(program: &'p Program) -> Influence<'p> {
        let parameters = Parameter::all(program);
        let constant = (0..program.arrays.len()).filter(|n| program.arrays[*n].written).collect();
        Influence { program, unused: parameters.clone(), parameters, constant, instances: u64::MAX }
    }

    /// Tests all parameters over the first instances, on the inputs of the level `run`; `key` is
    /// the row's seed and index. `case` returns the input of a number with its reference output for
    /// these instances; `None` aborts.
    pub fn on_inputs<C: Borrow<TestCase>>(
        program: &'p Program,
        key: [u64; 2],
        instances: u64,
        case: impl Fn(usize) -> Option<C>,
    ) -> Option<Influence<'p>> {
        let mut influence = Influence { instances, ..Influence::new(program) };
        for number in FIXED_SIZE_INPUTS {
            // The first input suffices for nearly all programs.
            if influence.is_complete() {
                break;
            }
            let case = case(number)?;
            let TestCase { input: before, after } = case.borrow();
            for (_, attempt) in redraws().filter(|(other, _)| *other == number) {
                if influence.is_complete() {
                    break;
                }
                influence.exchange(before, after, &input(program, key, number, attempt), 1.0);
            }
        }
        Some(influence)
    }

    /// Replaces each still unused parameter, one at a time, with that of another input of the same
    /// sizes; `after` is the reference output of `before`. Floats count as changed if they differ
    /// by `bounds` times their error bounds.
    pub fn exchange(&mut self, before: &KernelInput, after: &[ArrayContents], other: &KernelInput, bounds: f64) {
        // Outputs that are still constant may be changed by a parameter that is known to change
        // another output.
        let tried = if self.unused.is_empty() { &self.parameters } else { &self.unused };
        let mut redrawn = vec![];
        for parameter in tried.clone() {
            if self.is_complete() || parameter.is_equal(before, other) {
                continue;
            }
            if parameter.redrawn(self.program, self.instances, before, other, &mut redrawn).is_none() {
                continue;
            }
            let is_changed = |n: usize| redrawn[n].cells.iter().zip(&after[n].cells).any(|(a, b)| differ(a, b, bounds));
            if (0..after.len()).any(|n| self.program.arrays[n].written && is_changed(n)) {
                self.unused.retain(|other| *other != parameter);
                self.constant.retain(|n| !is_changed(*n));
            }
        }
    }

    /// True if every parameter changes an output and every output is changed. Programs without
    /// parameters are complete.
    pub fn is_complete(&self) -> bool {
        self.unused.is_empty() && (self.constant.is_empty() || self.parameters.is_empty())
    }

    /// Name of the first parameter that changes no output.
    pub fn unused(&self) -> Option<&'p str> {
        self.unused.first().map(|parameter| parameter.name(self.program))
    }

    /// Name of the first output that no parameter changes.
    pub fn constant(&self) -> Option<&'p str> {
        let first = self.constant.first().filter(|_| !self.parameters.is_empty());
        first.map(|n| &*self.program.arrays[*n].name)
    }
}

/// True if two components differ, floats by `bounds` times their error bounds.
fn differ(a: &EvalValue, b: &EvalValue, bounds: f64) -> bool {
    match (a, b) {
        (EvalValue::Float(a), EvalValue::Float(b)) => (a.mid - b.mid).abs() > (a.err + b.err) * bounds,
        (a, b) => !is_same(a, b),
    }
}
