//! Checks all kernels of a file as if launched with arrays of any shape. Kernels created by
//! functions are checked under each name assigned to them; generic kernels are checked with
//! candidate types.

use std::sync::atomic::Ordering;

use super::program::{FuncId, Program};
use super::types::{Ty, type_from_name};
use super::{PythonModule, generic_params};
use crate::{Diagnostic, Errors, LaunchRequest};

/// The result of checking one kernel.
#[derive(Debug)]
pub struct KernelCheck {
    /// Name of the Python function.
    pub kernel: String,
    /// Lookup name; for generic kernels with the types it was checked with: `scale<x:float32>`.
    pub name: String,
    /// Line of the definition.
    pub line: u32,
    /// Result of the check.
    pub outcome: CheckOutcome,
}

/// Result of checking a kernel.
#[derive(Debug)]
pub enum CheckOutcome {
    /// The kernel can be lowered.
    Valid,
    /// The kernel has errors.
    Invalid(Errors),
    /// The kernel is generic, and every candidate type failed for a different reason. Lists the
    /// candidate types.
    Undetermined(String),
}

/// Candidate types of generic parameters: each is tried for all parameters at once, and the first
/// `MAX_COMBINED_TYPES` in all combinations.
const CANDIDATE_TYPES: [&str; 10] =
    ["float32", "vec3", "int32", "mat33", "quat", "transform", "vec2", "vec4", "mat44", "float64"];
const MAX_COMBINED_TYPES: usize = 6;
/// Largest number of combinations that are tried for one kernel.
const MAX_TRIES: usize = 300;

impl PythonModule {
    /// Checks the kernels of the file.
    ///
    /// ```
    /// use bornite_lang::python::{CheckOutcome, PythonModule};
    /// let text = "import warp as wp\nfrom typing import Any\n\n@wp.kernel\ndef turn(q: wp.quat, v: wp.array(dtype=Any)):\n    v[wp.tid()] = wp.quat_rotate(q, v[wp.tid()])\n";
    /// let checked = &PythonModule::parse("turn.py", text)?.check()[0];
    /// assert!(checked.name == "turn<v:vec3>" && matches!(checked.outcome, CheckOutcome::Valid));
    /// # Ok::<(), bornite_lang::Errors>(())
    /// ```
    pub fn check(&self) -> Vec<KernelCheck> {
        let program = Program::new(&self.files);
        let instances = program.instances();
        let mut all = vec![];
        for &n in program.kernels.iter().filter(|&&n| program.functions[n as usize].file == 0) {
            let own: Vec<_> = instances.iter().filter(|(_, id)| id.n == n).cloned().collect();
            let itself = vec![(program.qualified_name(n), FuncId { prelude: false, n, closure: 0 })];
            let line = self.files[0].source.line(program.functions[n as usize].def.name.range.start().to_u32());
            for (name, id) in if own.is_empty() { itself } else { own } {
                let (name, outcome) = self.check_kernel(&program, name, id);
                let kernel = program.functions[n as usize].def.name.as_str().to_owned();
                all.push(KernelCheck { kernel, name, line, outcome });
            }
        }
        all
    }

    fn check_kernel(&self, program: &Program<'_>, name: String, id: FuncId) -> (String, CheckOutcome) {
        let request = LaunchRequest::with_dims(&[]);
        let lower = |types: &[(String, Ty)]| {
            program.eval_steps.store(0, Ordering::Relaxed);
            self.lower(program, id, types, &request)
        };
        let generic = generic_params(program, id);
        let Err(errors) = lower(&[]) else { return (name, CheckOutcome::Valid) };
        if generic.is_empty() {
            return (name, CheckOutcome::Invalid(errors));
        }
        // Errors that occur with every combination are errors of the kernel.
        let mut common: Option<Vec<Diagnostic>> = None;
        for tried in combinations(generic.len()) {
            let types = generic.iter().zip(&tried).map(|(name, ty)| Some((name.clone(), type_from_name(ty)?)));
            let Some(types) = types.collect::<Option<Vec<_>>>() else { continue };
            match lower(&types) {
                Ok(_) => {
                    let types: Vec<String> =
                        generic.iter().zip(&tried).map(|(name, ty)| format!("{name}:{ty}")).collect();
                    return (format!("{name}<{}>", types.join(", ")), CheckOutcome::Valid);
                }
                Err(errors) => {
                    let same = |a: &Diagnostic, b: &Diagnostic| (a.span, &a.message) == (b.span, &b.message);
                    let shared = common.take().map_or_else(
                        || errors.diagnostics.clone(),
                        |all| all.into_iter().filter(|a| errors.diagnostics.iter().any(|b| same(a, b))).collect(),
                    );
                    common = Some(shared);
                }
            }
        }
        match common {
            Some(all) if !all.is_empty() => (name, CheckOutcome::Invalid(Errors::new(&self.files[0].source, all))),
            _ => {
                (name, CheckOutcome::Undetermined(format!("{} for {}", CANDIDATE_TYPES.join(", "), generic.join(", "))))
            }
        }
    }
}

/// Combinations of candidate types for `count` parameters.
fn combinations(count: usize) -> Vec<Vec<&'static str>> {
    let mut all: Vec<Vec<&str>> = CANDIDATE_TYPES.iter().map(|ty| vec![*ty; count]).collect();
    let tries = |types: usize| u32::try_from(count).ok().and_then(|count| types.checked_pow(count));
    let types =
        (2..=MAX_COMBINED_TYPES).rev().find(|&types| tries(types).is_some_and(|tries| tries <= MAX_TRIES)).unwrap_or(1);
    for n in 0..tries(types).unwrap_or(0) {
        let one: Vec<&str> = (0..count as u32).map(|digit| CANDIDATE_TYPES[n / types.pow(digit) % types]).collect();
        if one.iter().any(|ty| *ty != one[0]) {
            all.push(one);
        }
    }
    all
}
