//! Influence of single parameters: a parameter that moves no output beyond rounding, and an output that no parameter moves, say
//! nothing about a text.

use std::borrow::Borrow;

use super::{Contents, Expected, Value, is_same, run_first};
use crate::inputs::{Input, SAME_LENGTHS, input, redraws};
use crate::program::{Fill, Program};

/// A parameter whose contents are random.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parameter {
    /// An array, by its number.
    Array(usize),
    /// A number that is passed by value, by its number.
    Value(usize),
}

impl Parameter {
    /// All parameters of a program with random contents.
    pub fn all(program: &Program) -> Vec<Parameter> {
        let random = |n: &usize| !matches!(program.arrays[*n].fill, Fill::Zero | Fill::All(_));
        let arrays = (0..program.arrays.len()).filter(random).map(Parameter::Array);
        arrays.chain((0..program.values.len()).map(Parameter::Value)).collect()
    }

    /// The name in the texts.
    pub fn name(self, program: &Program) -> &str {
        match self {
            Parameter::Array(n) => &program.arrays[n].name,
            Parameter::Value(n) => &program.body.var(program.values[n].var).name,
        }
    }

    /// Whether two inputs hold the same contents, as bools and small ranges often do.
    fn is_equal(self, a: &Input, b: &Input) -> bool {
        match self {
            Parameter::Array(n) => a.arrays[n] == b.arrays[n],
            Parameter::Value(n) => a.values[n] == b.values[n],
        }
    }

    /// Runs the first instances of a program with this parameter alone that of another input; `arrays` is what it leaves,
    /// `None` where it is undecided.
    fn redrawn(
        self,
        program: &Program,
        instances: u64,
        before: &Input,
        other: &Input,
        arrays: &mut Vec<Contents>,
    ) -> Option<()> {
        arrays.clone_from(&before.arrays);
        let exchanged;
        let values = match self {
            Parameter::Array(n) => {
                arrays[n].clone_from(&other.arrays[n]);
                &before.values
            }
            Parameter::Value(n) => {
                let mut values = before.values.clone();
                values[n] = other.values[n].clone();
                exchanged = values;
                &exchanged
            }
        };
        run_first(program, instances, &before.sizes, values, arrays).ok()
    }
}

/// Parameters that have moved no output so far, and outputs that no parameter has moved.
pub struct Influence<'p> {
    program: &'p Program,
    parameters: Vec<Parameter>,
    idle: Vec<Parameter>,
    constant: Vec<usize>,
    /// Instances that are evaluated, from the first.
    instances: u64,
}

impl<'p> Influence<'p> {
    /// All parameters and outputs of a program, before any of them is tried.
    pub fn new(program: &'p Program) -> Influence<'p> {
        let parameters = Parameter::all(program);
        let constant = (0..program.arrays.len()).filter(|n| program.arrays[*n].written).collect();
        Influence { program, idle: parameters.clone(), parameters, constant, instances: u64::MAX }
    }

    /// Influence of all parameters in the first instances, on the inputs that the level `run` uses; `key` is that of the
    /// program's row. `case` returns the input of a number with what these instances make of it; `None` if it does.
    pub fn on_inputs<C: Borrow<Expected>>(
        program: &'p Program,
        key: [u64; 2],
        instances: u64,
        case: impl Fn(usize) -> Option<C>,
    ) -> Option<Influence<'p>> {
        let mut influence = Influence { instances, ..Influence::new(program) };
        for number in SAME_LENGTHS {
            // The first is enough for nearly all.
            if influence.is_complete() {
                break;
            }
            let case = case(number)?;
            let Expected { input: before, after } = case.borrow();
            for (_, attempt) in redraws().filter(|(of, _)| *of == number) {
                if influence.is_complete() {
                    break;
                }
                influence.exchange(before, after, &input(program, key, number, attempt), 1.0);
            }
        }
        Some(influence)
    }

    /// Exchanges each parameter that is still idle, alone, by that of another input of the same sizes; `after` is what the
    /// program makes of `before`. Floats are moved if they differ by `bounds` times their rounding bounds.
    pub fn exchange(&mut self, before: &Input, after: &[Contents], other: &Input, bounds: f64) {
        // Outputs that nothing has moved may still be moved by a parameter that is known to move another.
        let tried = if self.idle.is_empty() { &self.parameters } else { &self.idle };
        let mut redrawn = vec![];
        for parameter in tried.clone() {
            if self.is_complete() || parameter.is_equal(before, other) {
                continue;
            }
            if parameter.redrawn(self.program, self.instances, before, other, &mut redrawn).is_none() {
                continue;
            }
            let is_moved = |n: usize| redrawn[n].cells.iter().zip(&after[n].cells).any(|(a, b)| differ(a, b, bounds));
            if (0..after.len()).any(|n| self.program.arrays[n].written && is_moved(n)) {
                self.idle.retain(|other| *other != parameter);
                self.constant.retain(|n| !is_moved(*n));
            }
        }
    }

    /// Whether every parameter moves an output and every output is moved. Nothing is asked of a program without parameters.
    pub fn is_complete(&self) -> bool {
        self.idle.is_empty() && (self.constant.is_empty() || self.parameters.is_empty())
    }

    /// The name of the first parameter that moves no output.
    pub fn idle(&self) -> Option<&'p str> {
        self.idle.first().map(|parameter| parameter.name(self.program))
    }

    /// The name of the first output that no parameter moves.
    pub fn constant(&self) -> Option<&'p str> {
        let of = self.constant.first().filter(|_| !self.parameters.is_empty());
        of.map(|n| &*self.program.arrays[*n].name)
    }
}

/// Whether components of arrays differ, floats by that many times their rounding bounds.
fn differ(a: &Value, b: &Value, bounds: f64) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => (a.mid - b.mid).abs() > (a.err + b.err) * bounds,
        (a, b) => !is_same(a, b),
    }
}
