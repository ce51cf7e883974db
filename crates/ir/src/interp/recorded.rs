//! Second run of a kernel that has a race: finds the statement of the earlier access.
//!
//! The access history of the first run holds threads but no statements, which keeps it small and
//! the run fast. Runs are deterministic, so a second run on the same arguments meets the same race;
//! it records the statement of each access that the history reported as the earlier one.

use super::races::Conflict;
use super::{InterpreterOptions, Tracer, launch};
use crate::{Arg, Fault, Kernel, LaunchMode, Stmt, Value, View};

/// The earlier access of a race, and the statement that performed it last in this run.
pub(super) struct RecordedAccess<'k> {
    pub view: View,
    pub cell: usize,
    pub access: Conflict,
    pub stmt: Option<&'k Stmt>,
}

/// Runs a kernel on checked arguments. If it has a race, restores the arguments and runs it again,
/// without debug output, to find the line of the earlier access.
pub(super) fn run_recorded(
    kernel: &Kernel,
    args: &mut [Arg<'_>],
    values: &[Value],
    options: InterpreterOptions,
    print: &mut dyn FnMut(&str),
    tracer: Option<&mut dyn Tracer>,
) -> Result<(), Fault> {
    let tracked = matches!(kernel.launch, LaunchMode::Blocks { .. }) || options.check_instance_races;
    let copy = |arg: &Arg| if let Arg::Write(words) = arg { Some(words.to_vec()) } else { None };
    let before: Vec<Option<Vec<u64>>> = args.iter().filter(|_| tracked).map(copy).collect();
    let (fault, race) = match launch(kernel, args, values, options, print, None, tracer) {
        Ok(()) => return Ok(()),
        Err(error) => *error,
    };
    if race.is_none() {
        return Err(fault);
    }
    for (arg, words) in args.iter_mut().zip(before) {
        if let (Arg::Write(arg), Some(words)) = (arg, words) {
            arg.copy_from_slice(&words);
        }
    }
    Err(launch(kernel, args, values, options, &mut |_| {}, race, None).err().map_or(fault, |error| error.0))
}
