//! Comparison of a candidate's memory with the expected results.

use bornite_ir::load_scalar;

use crate::expected::{ExpectedCell, PreparedProblem, PreparedShape, is_same, median_magnitude};
use crate::inputs::DrawnArg;
use crate::verdict::Difference;

/// Result of comparing all outputs of a shape.
pub enum ShapeComparison {
    /// All outputs are correct.
    Same,
    /// An element is wrong.
    Different(Difference),
    /// An element lies within a bound that is too wide, but is not near the reference's value.
    Inconclusive(Difference),
    /// An array was modified that the reference does not write.
    Modified(String),
}

/// Compares the memory of all arguments after a run.
pub fn compare(
    problem: &PreparedProblem,
    shape: &PreparedShape,
    before: &[Vec<u64>],
    after: &[Vec<u64>],
) -> ShapeComparison {
    let mut inconclusive = None;
    for (at, arg) in shape.args.iter().enumerate() {
        let (DrawnArg::Array(array), name) = (arg, &problem.names[at]) else { continue };
        if !shape.is_writable[at] && before[at] != after[at] {
            return ShapeComparison::Modified(name.clone());
        }
        let Some(expected) = &shape.expected[at] else { continue };
        let scale = median_magnitude(expected.iter().map(|cell| match cell {
            ExpectedCell::Exact(value) | ExpectedCell::Near(value) => value.as_f64(),
            ExpectedCell::Within(value, _) | ExpectedCell::Wide(value, _) => *value,
            ExpectedCell::Unwritten => f64::NAN,
        }));
        for (index, ((byte, scalar), cell)) in array.cells().zip(expected).enumerate() {
            let found = load_scalar(&after[at], byte, scalar);
            let difference = |expected: f64, bound: f64| {
                let (array, found) = (name.clone(), found.as_f64());
                Difference { array, index, expected, found, bound }
            };
            match *cell {
                ExpectedCell::Unwritten => {}
                ExpectedCell::Exact(value) if scalar.is_float() => {
                    if !is_same(found.as_f64(), value.as_f64(), 0.0) {
                        return ShapeComparison::Different(difference(value.as_f64(), 0.0));
                    }
                }
                ExpectedCell::Near(value) if scalar.is_float() => {
                    let bound = problem.tolerance.bound(value.as_f64(), scalar, scale);
                    if !is_same(found.as_f64(), value.as_f64(), bound) {
                        return ShapeComparison::Different(difference(value.as_f64(), bound));
                    }
                }
                ExpectedCell::Exact(value) | ExpectedCell::Near(value) => {
                    if found != value {
                        return ShapeComparison::Different(difference(value.as_f64(), 0.0));
                    }
                }
                ExpectedCell::Within(mid, radius) => {
                    if !is_same(found.as_f64(), mid, radius) {
                        return ShapeComparison::Different(difference(mid, radius));
                    }
                }
                ExpectedCell::Wide(value, radius) => {
                    let bound = problem.tolerance.bound(value, scalar, scale);
                    if is_same(found.as_f64(), value, bound) {
                        continue;
                    }
                    // The reference's own value lies within the radius, too.
                    if !is_same(found.as_f64(), value, 2.0 * radius) {
                        return ShapeComparison::Different(difference(value, 2.0 * radius));
                    }
                    inconclusive.get_or_insert(difference(value, radius));
                }
            }
        }
    }
    inconclusive.map_or(ShapeComparison::Same, ShapeComparison::Inconclusive)
}
