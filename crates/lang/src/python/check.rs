//! Checks of all kernels of a file, as if launched with arrays of any shape: each that a function made and that has a name, and
//! those whose types are open with types that fit.

use std::sync::atomic::Ordering;

use super::program::{FuncId, Program};
use super::types::{Ty, type_named};
use super::{Module, open_parameters};
use crate::{Diagnostic, Errors, LaunchRequest};

/// A kernel that was checked.
#[derive(Debug)]
pub struct Checked {
    /// The name it is written by.
    pub kernel: String,
    /// The name it can be asked for by; with types, if some are open: `scale<x:float32>`.
    pub name: String,
    /// The line it begins in.
    pub line: u32,
    /// What was found.
    pub outcome: Outcome,
}

/// What a check found.
#[derive(Debug)]
pub enum Outcome {
    /// It can be made.
    Valid,
    /// It cannot.
    Wrong(Errors),
    /// Types are open and none of those that were tried fit, each for another reason: what was tried.
    Untold(String),
}

/// What is tried where types are open: one for all parameters, and the first of these in all combinations.
const TRIED: [&str; 10] =
    ["float32", "vec3", "int32", "mat33", "quat", "transform", "vec2", "vec4", "mat44", "float64"];
const COMBINED: usize = 6;
/// Combinations for one kernel.
const MAX_TRIES: usize = 300;

impl Module {
    /// Checks the kernels of the file.
    ///
    /// ```
    /// use bornite_lang::python::{Module, Outcome};
    /// let text = "import warp as wp\nfrom typing import Any\n\n@wp.kernel\ndef turn(q: wp.quat, v: wp.array(dtype=Any)):\n    v[wp.tid()] = wp.quat_rotate(q, v[wp.tid()])\n";
    /// let checked = &Module::parse("turn.py", text)?.check()[0];
    /// assert!(checked.name == "turn<v:vec3>" && matches!(checked.outcome, Outcome::Valid));
    /// # Ok::<(), bornite_lang::Errors>(())
    /// ```
    pub fn check(&self) -> Vec<Checked> {
        let program = Program::new(&self.files);
        let instances = program.instances();
        let mut all = vec![];
        for &n in program.kernels.iter().filter(|&&n| program.functions[n as usize].file == 0) {
            let made: Vec<_> = instances.iter().filter(|(_, id)| id.n == n).cloned().collect();
            let itself = vec![(program.path(n), FuncId { prelude: false, n, around: 0 })];
            let line = self.files[0].source.line(program.functions[n as usize].def.name.range.start().to_u32());
            for (name, id) in if made.is_empty() { itself } else { made } {
                let (name, outcome) = self.checked(&program, name, id);
                let kernel = program.functions[n as usize].def.name.as_str().to_owned();
                all.push(Checked { kernel, name, line, outcome });
            }
        }
        all
    }

    fn checked(&self, program: &Program<'_>, name: String, id: FuncId) -> (String, Outcome) {
        let request = LaunchRequest::with_dims(&[]);
        let made = |types: &[(String, Ty)]| {
            program.spent.store(0, Ordering::Relaxed);
            self.made(program, id, types, &request)
        };
        let open = open_parameters(program, id);
        let Err(errors) = made(&[]) else { return (name, Outcome::Valid) };
        if open.is_empty() {
            return (name, Outcome::Wrong(errors));
        }
        // What is wrong with all of them is wrong.
        let mut common: Option<Vec<Diagnostic>> = None;
        for tried in combinations(open.len()) {
            let types = open.iter().zip(&tried).map(|(name, ty)| Some((name.clone(), type_named(ty)?)));
            let Some(types) = types.collect::<Option<Vec<_>>>() else { continue };
            match made(&types) {
                Ok(_) => {
                    let types: Vec<String> = open.iter().zip(&tried).map(|(name, ty)| format!("{name}:{ty}")).collect();
                    return (format!("{name}<{}>", types.join(", ")), Outcome::Valid);
                }
                Err(errors) => {
                    let same = |a: &Diagnostic, b: &Diagnostic| (a.span, &a.message) == (b.span, &b.message);
                    let kept = common.take().map_or_else(
                        || errors.diagnostics.clone(),
                        |all| all.into_iter().filter(|a| errors.diagnostics.iter().any(|b| same(a, b))).collect(),
                    );
                    common = Some(kept);
                }
            }
        }
        match common {
            Some(all) if !all.is_empty() => (name, Outcome::Wrong(Errors::new(&self.files[0].source, all))),
            _ => (name, Outcome::Untold(format!("{} for {}", TRIED.join(", "), open.join(", ")))),
        }
    }
}

/// Types for so many parameters.
fn combinations(count: usize) -> Vec<Vec<&'static str>> {
    let mut all: Vec<Vec<&str>> = TRIED.iter().map(|ty| vec![*ty; count]).collect();
    let tries = |types: usize| u32::try_from(count).ok().and_then(|count| types.checked_pow(count));
    let types = (2..=COMBINED).rev().find(|&types| tries(types).is_some_and(|tries| tries <= MAX_TRIES)).unwrap_or(1);
    for n in 0..tries(types).unwrap_or(0) {
        let one: Vec<&str> = (0..count as u32).map(|place| TRIED[n / types.pow(place) % types]).collect();
        if one.iter().any(|ty| *ty != one[0]) {
            all.push(one);
        }
    }
    all
}
