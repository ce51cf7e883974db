//! Outputs that show what a program does: neither left as they were, nor of one value, nor updated in few elements.

use super::{Contents, is_same};
use crate::Rejected;
use crate::inputs::Input;
use crate::program::{Program, Stmt};

/// Inputs with what a program makes of them.
pub struct Expected {
    /// The input.
    pub input: Input,
    /// The arrays after the run.
    pub after: Vec<Contents>,
}

/// Elements from which on a launch counts as a large one.
const LARGE: usize = 31;

/// Every array that is written must show what the program does: over all inputs it does not stay as it was, and over the large
/// ones it does not hold one value everywhere. Bits that fill up and functions that saturate differ in small launches alone.
pub fn telling(program: &Program, all: &[&Expected]) -> Result<(), Rejected> {
    let elements = |case: &&&Expected| case.input.arrays.iter().map(|array| array.cells.len()).max().unwrap_or(0);
    let large: Vec<&Expected> = all.iter().filter(|case| elements(case) >= LARGE).copied().collect();
    let large = if large.is_empty() { all.to_vec() } else { large };
    for (n, array) in program.arrays.iter().enumerate().filter(|(_, array)| array.written) {
        let mut cells = all.iter().flat_map(|case| case.after[n].cells.iter().zip(&case.input.arrays[n].cells));
        let idle = cells.all(|(after, before)| is_same(after, before));
        let mut cells = large.iter().flat_map(|case| &case.after[n].cells);
        let uniform = cells.next().is_none_or(|first| cells.all(|other| is_same(first, other)));
        if idle || uniform {
            return Err(Rejected::Constant { array: array.name.clone() });
        }
        if is_concentrated(program, all, n) {
            return Err(Rejected::Dead(format!("'{}' is updated in few of its elements", array.name)));
        }
    }
    Ok(())
}

/// Whether atomic updates reach less than a quarter of an array's elements over all inputs, as a histogram of one bin does.
fn is_concentrated(program: &Program, all: &[&Expected], array: usize) -> bool {
    let mut atomic = false;
    program.each_stmt(&mut |stmt| atomic |= matches!(stmt, Stmt::Atomic(_, to, ..) if to.0 as usize == array));
    if !atomic {
        return false;
    }
    let cells = all.iter().map(|case| case.after[array].cells.len()).max().unwrap_or(0);
    let changed = |case: &Expected, n: usize| {
        let pair = case.after[array].cells.get(n).zip(case.input.arrays[array].cells.get(n));
        pair.is_some_and(|(after, before)| !is_same(after, before))
    };
    let reached = (0..cells).filter(|n| all.iter().any(|case| changed(case, *n))).count();
    reached * 4 < cells
}

#[cfg(test)]
mod tests {
    use super::super::{Ball, Value};
    use super::*;
    use crate::program::Scalar;

    #[test]
    fn what_fills_up_in_large_launches_shows_nothing() {
        let program = crate::generate::program(1, 0, crate::Category::Arithmetic);
        let arrays = program.arrays.len();
        let case = |length: usize, value: Ball| {
            let input =
                vec![Contents::new(vec![length as u32], vec![Scalar::F32], vec![Value::Int(0); length]); arrays];
            let after = vec![Contents::new(vec![1], vec![Scalar::F32], vec![Value::Float(value)]); arrays];
            Expected { input: Input { sizes: vec![], values: vec![], arrays: input }, after }
        };
        let exact = Ball::exact;
        // Values of a launch over one element and of three large ones.
        for (one, others, passes) in [
            (exact(1.0), [exact(7.0), exact(7.0), exact(7.0)], false),
            (exact(7.0), [exact(7.0), exact(7.0), exact(3.0)], true),
            (exact(1.0), [exact(7.0), Ball { mid: 7.0 - 1e-7, err: 1e-6 }, exact(7.0)], false),
        ] {
            let cases: Vec<Expected> =
                [(1, one)].into_iter().chain(others.map(|value| (40, value))).map(|(n, v)| case(n, v)).collect();
            assert_eq!(telling(&program, &cases.iter().collect::<Vec<_>>()).is_ok(), passes, "{one:?} {others:?}");
        }
    }
}
