//! Requirements on outputs: not left unchanged, not constant, and not updated in only a few
//! elements.

use super::{ArrayContents, is_same};
use crate::Rejection;
use crate::inputs::KernelInput;
use crate::program::{Program, ProgramStmt};

/// A test input with the reference output.
pub struct TestCase {
    /// The input.
    pub input: KernelInput,
    /// Arrays after the run.
    pub after: Vec<ArrayContents>,
}

/// Elements from which a launch counts as large.
const LARGE: usize = 31;

/// Requires that every written array shows the program's effect: over all inputs it does not stay
/// unchanged, and over the large inputs it is not constant. Saturating bits and functions may
/// differ only in small launches.
pub fn require_informative(program: &Program, all: &[&TestCase]) -> Result<(), Rejection> {
    let elements = |case: &&&TestCase| case.input.arrays.iter().map(|array| array.cells.len()).max().unwrap_or(0);
    let large: Vec<&TestCase> = all.iter().filter(|case| elements(case) >= LARGE).copied().collect();
    let large = if large.is_empty() { all.to_vec() } else { large };
    for (n, array) in program.arrays.iter().enumerate().filter(|(_, array)| array.written) {
        let mut cells = all.iter().flat_map(|case| case.after[n].cells.iter().zip(&case.input.arrays[n].cells));
        let unchanged = cells.all(|(after, before)| is_same(after, before));
        let mut cells = large.iter().flat_map(|case| &case.after[n].cells);
        let uniform = cells.next().is_none_or(|first| cells.all(|other| is_same(first, other)));
        if unchanged || uniform {
            return Err(Rejection::ConstantOutput { array: array.name.clone() });
        }
        if is_concentrated(program, all, n) {
            return Err(Rejection::DeadCode(format!("'{}' is updated in only a few of its elements", array.name)));
        }
    }
    Ok(())
}

/// True if atomic updates reach less than a quarter of an array's elements over all inputs, as with
/// a histogram of one bin.
fn is_concentrated(program: &Program, all: &[&TestCase], array: usize) -> bool {
    let mut atomic = false;
    program.each_stmt(&mut |stmt| atomic |= matches!(stmt, ProgramStmt::Atomic(_, to, ..) if to.0 as usize == array));
    if !atomic {
        return false;
    }
    let cells = all.iter().map(|case| case.after[array].cells.len()).max().unwrap_or(0);
    let changed = |case: &TestCase, n: usize| {
        let pair = case.after[array].cells.get(n).zip(case.input.arrays[array].cells.get(n));
        pair.is_some_and(|(after, before)| !is_same(after, before))
    };
    let coverage = (0..cells).filter(|n| all.iter().any(|case| changed(case, *n))).count();
    coverage * 4 < cells
}

#[cfg(test)]
mod tests {
    use super::super::{EvalValue, Interval};
    use super::*;
    use crate::program::ScalarType;

    #[test]
    fn outputs_constant_in_large_launches_are_rejected() {
        let program = crate::generate::program(1, 0, crate::Category::Arithmetic);
        let arrays = program.arrays.len();
        let case = |length: usize, value: Interval| {
            let input =
                vec![
                    ArrayContents::new(vec![length as u32], vec![ScalarType::F32], vec![EvalValue::Int(0); length]);
                    arrays
                ];
            let after = vec![ArrayContents::new(vec![1], vec![ScalarType::F32], vec![EvalValue::Float(value)]); arrays];
            TestCase { input: KernelInput { sizes: vec![], values: vec![], arrays: input }, after }
        };
        let exact = Interval::exact;
        // Values of a launch over one element and of three large ones.
        for (one, others, passes) in [
            (exact(1.0), [exact(7.0), exact(7.0), exact(7.0)], false),
            (exact(7.0), [exact(7.0), exact(7.0), exact(3.0)], true),
            (exact(1.0), [exact(7.0), Interval { mid: 7.0 - 1e-7, err: 1e-6 }, exact(7.0)], false),
        ] {
            let cases: Vec<TestCase> =
                [(1, one)].into_iter().chain(others.map(|value| (40, value))).map(|(n, v)| case(n, v)).collect();
            assert_eq!(
                require_informative(&program, &cases.iter().collect::<Vec<_>>()).is_ok(),
                passes,
                "{one:?} {others:?}"
            );
        }
    }
}
