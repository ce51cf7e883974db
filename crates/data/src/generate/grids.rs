//! Kernels over neighbourhoods: 1D, 2D and 3D stencils and grids.

use super::builder::ProgramBuilder;
use super::elementwise::{float, scalars};
use super::term::{MIXED, PLAIN, Term, TermFn, TermOp};
use crate::program::{ArrayFill, ArrayId, BinaryOp, BuiltinFn, ProgramExpr, ProgramStmt, ScalarType, SizeExpr};

/// An index plus a constant.
pub fn add(a: ProgramExpr, k: i64) -> ProgramExpr {
    match k {
        0 => a,
        k if k > 0 => ProgramExpr::binary(BinaryOp::Add, a, ProgramExpr::int(k)),
        k => ProgramExpr::binary(BinaryOp::Sub, a, ProgramExpr::int(-k)),
    }
}

/// Handling of indices outside the grid.
#[derive(Clone, Copy, PartialEq)]
enum Border {
    Clamp,
    Wrap,
    Zero,
    /// Only interior instances compute; the others copy or do nothing.
    Inner,
}

/// One axis of a grid: the instance's index and the extent.
#[derive(Clone)]
struct GridAxis {
    at: ProgramExpr,
    extent: ProgramExpr,
}

impl GridAxis {
    /// Index shifted by `by`.
    fn shifted(&self, by: i64, border: Border) -> ProgramExpr {
        let last = || ProgramExpr::binary(BinaryOp::Sub, self.extent.clone(), ProgramExpr::int(1));
        match border {
            _ if by == 0 => self.at.clone(),
            Border::Clamp if by > 0 => ProgramExpr::call(BuiltinFn::Min, vec![add(self.at.clone(), by), last()]),
            Border::Clamp => ProgramExpr::call(BuiltinFn::Max, vec![add(self.at.clone(), by), ProgramExpr::int(0)]),
            Border::Wrap if by > 0 => ProgramExpr::binary(BinaryOp::Rem, add(self.at.clone(), by), self.extent.clone()),
            Border::Wrap => {
                // The extent may be smaller than the shift.
                let multiple = match by {
                    -1 => self.extent.clone(),
                    by => ProgramExpr::binary(BinaryOp::Mul, self.extent.clone(), ProgramExpr::int(-by)),
                };
                let sum = ProgramExpr::binary(BinaryOp::Add, self.at.clone(), multiple);
                ProgramExpr::binary(
                    BinaryOp::Rem,
                    ProgramExpr::binary(BinaryOp::Sub, sum, ProgramExpr::int(-by)),
                    self.extent.clone(),
                )
            }
            _ => add(self.at.clone(), by),
        }
    }

    /// Condition that the shifted index exists; `None` if it always does.
    fn inside(&self, by: i64) -> Option<ProgramExpr> {
        match by {
            0 => None,
            by if by > 0 => Some(ProgramExpr::binary(BinaryOp::Lt, add(self.at.clone(), by), self.extent.clone())),
            by => Some(ProgramExpr::binary(BinaryOp::Ge, self.at.clone(), ProgramExpr::int(-by))),
        }
    }
}

/// A grid whose elements are read relative to the instance's index.
struct Grid {
    axes: Vec<GridAxis>,
    scalar: ScalarType,
    border: Border,
}

impl Grid {
    /// Neighbour at an offset along each axis. Reads outside are 0 with [`Border::Zero`].
    fn neighbor(&self, m: &mut ProgramBuilder, array: ArrayId, offset: &[i64], range: (f64, f64)) -> Term {
        let border = self.border;
        let at: Vec<ProgramExpr> = self.axes.iter().zip(offset).map(|(axis, by)| axis.shifted(*by, border)).collect();
        if border != Border::Zero || offset.iter().all(|by| *by == 0) {
            return Term::new(ProgramExpr::load(array, at, self.scalar), range.0, range.1);
        }
        let conditions: Vec<ProgramExpr> =
            self.axes.iter().zip(offset).filter_map(|(axis, by)| axis.inside(*by)).collect();
        let condition = conditions.into_iter().reduce(|a, b| ProgramExpr::binary(BinaryOp::And, a, b));
        let zero = if self.scalar.is_float() {
            ProgramExpr::float(self.scalar, 0.0)
        } else {
            ProgramExpr::typed_int(self.scalar, 0)
        };
        let name = *m.random.pick(&["near", "side", "left_val", "next_val", "nb"]);
        let var = m.mutable(name, zero);
        let then = vec![ProgramStmt::Assign(var, ProgramExpr::load(array, at, self.scalar))];
        match condition {
            Some(condition) => m.push(ProgramStmt::If(condition, then, vec![])),
            None => then.into_iter().for_each(|stmt| m.push(stmt)),
        }
        Term::new(m.read(var), range.0.min(0.0), range.1.max(0.0))
    }
}

/// Draws the offsets of a neighbourhood.
fn offsets(m: &mut ProgramBuilder, dimensions: usize) -> Vec<Vec<i64>> {
    let mut all: Vec<Vec<i64>> = vec![];
    let reach = if dimensions == 1 { 1 + m.random.below(3) as i64 } else { 1 + m.random.chance(20) as i64 };
    for axis in 0..dimensions {
        for by in [-reach, reach] {
            let mut offset = vec![0; dimensions];
            offset[axis] = by;
            all.push(offset);
        }
        if dimensions == 1 && reach > 1 {
            all.extend((1 - reach..reach).filter(|by| *by != 0).map(|by| vec![by]));
        }
    }
    if dimensions == 2 && m.random.chance(35) {
        all.extend([[-1, -1], [-1, 1], [1, -1], [1, 1]].map(Vec::from));
    }
    let total = all.len();
    for n in (1..total).rev() {
        let at = m.random.below(n + 1);
        all.swap(n, at);
    }
    let count = if m.random.chance(60) { total } else { 2 + m.random.below(total - 1) };
    all.truncate(count);
    all
}

/// Sum of terms, with or without weights.
pub fn weighted(m: &mut ProgramBuilder, scalar: ScalarType, terms: Vec<Term>) -> Term {
    let weights = m.random.below(3);
    let mut sum: Option<Term> = None;
    for term in terms {
        let term = match weights {
            0 => term,
            1 => {
                let w = *m.random.pick(&[0.25, 0.5, 0.125, 0.0625, 0.375, 1.5, 2.0]);
                let e = ProgramExpr::binary(BinaryOp::Mul, ProgramExpr::float(scalar, w), term.e);
                Term::new(e, term.low * w, term.high * w)
            }
            _ if m.random.chance(30) => m.apply(TermFn::Neg, term),
            _ => term,
        };
        sum = Some(match sum {
            None => term,
            Some(sum) => {
                let op =
                    *m.random.pick_weighted(&[(5, TermOp::Add), (2, TermOp::Sub), (1, TermOp::Max), (1, TermOp::Min)]);
                m.join(op, sum, term)
            }
        });
    }
    sum.unwrap_or(Term::new(ProgramExpr::float(scalar, 0.0), 0.0, 0.0))
}

fn neighborhood(m: &mut ProgramBuilder, dimensions: usize) {
    let scalar = float(m);
    let names: [&[&str]; 3] = [&["n"], &["rows", "cols"], &["depth", "rows", "cols"]];
    let max_size = [400, 40, 9][dimensions - 1];
    let sizes: Vec<SizeExpr> = names[dimensions - 1].iter().map(|name| m.size(name, true, 0, max_size)).collect();
    let range = *m.random.pick(super::elementwise::RANGES);
    let array = m.input(scalar, &sizes, ArrayFill::Uniform(range.0, range.1));
    let other = m.random.chance(35).then(|| (m.input(scalar, &sizes, ArrayFill::Uniform(-1.0, 1.0)), (-1.0, 1.0)));
    let out = m.output(scalar, &sizes);
    let count = m.random.below(3).min(2);
    let numbers = scalars(m, count, scalar);
    let letters: &[&str] = [&["i"][..], &["i", "j"], &["k", "i", "j"]][dimensions - 1];
    let axes: Vec<GridAxis> = (letters.iter().zip(&sizes))
        .map(|(name, size)| {
            let at = m.index(name, *size);
            let extent = m.extent(*size);
            GridAxis { at, extent }
        })
        .collect();
    let border = *m.random.pick(&[Border::Clamp, Border::Wrap, Border::Zero, Border::Inner]);
    let grid = Grid { axes, scalar, border };
    let all = offsets(m, dimensions);
    let here: Vec<ProgramExpr> = grid.axes.iter().map(|axis| axis.at.clone()).collect();
    let compute = |m: &mut ProgramBuilder| {
        let terms: Vec<Term> = all.iter().map(|offset| grid.neighbor(m, array, offset, range)).collect();
        let sum = weighted(m, scalar, terms);
        let sum = m.bind_once(sum);
        let center = Term::new(ProgramExpr::load(array, here.clone(), scalar), range.0, range.1);
        let mut terms = vec![sum, center];
        if let Some((other, range)) = other {
            terms.push(Term::new(ProgramExpr::load(other, here.clone(), scalar), range.0, range.1));
        }
        terms.extend(numbers.clone());
        let unary = 1 + m.random.below(2);
        let distribution = if m.random.chance(50) { &PLAIN } else { &MIXED };
        let value = m.combine(terms, unary, 20, distribution);
        m.push(ProgramStmt::Store(out, here.clone(), value.e));
    };
    if border != Border::Inner {
        return compute(m);
    }
    let mut conditions = vec![];
    for (n, axis) in grid.axes.iter().enumerate() {
        let min = all.iter().map(|offset| offset[n]).min().unwrap_or(0);
        let max = all.iter().map(|offset| offset[n]).max().unwrap_or(0);
        conditions.extend(axis.inside(min.min(0)));
        conditions.extend(axis.inside(max.max(0)));
    }
    let Some(inside) = conditions.into_iter().reduce(|a, b| ProgramExpr::binary(BinaryOp::And, a, b)) else {
        return compute(m);
    };
    let then = m.block(compute);
    let otherwise = if m.random.chance(60) {
        let center = Term::new(ProgramExpr::load(array, here.clone(), scalar), range.0, range.1);
        let value = if m.random.chance(50) { center } else { m.apply(TermFn::Scale, center) };
        vec![ProgramStmt::Store(out, here.clone(), value.e)]
    } else {
        vec![]
    };
    m.push(ProgramStmt::If(inside, then, otherwise));
}

/// 1D and 2D stencils.
pub fn stencil(m: &mut ProgramBuilder) {
    let dimensions = if m.random.chance(70) { 1 } else { 2 };
    neighborhood(m, dimensions);
}

/// 2D grids.
pub fn grid_two(m: &mut ProgramBuilder) {
    if m.random.chance(40) {
        return neighborhood(m, 2);
    }
    plane(m);
}

/// 3D grids.
pub fn grid_three(m: &mut ProgramBuilder) {
    if m.random.chance(50) {
        return neighborhood(m, 3);
    }
    let scalar = float(m);
    let names = ["depth", "rows", "cols"];
    let sizes: Vec<SizeExpr> = names.iter().map(|name| m.size(name, false, 0, 9)).collect();
    let volume = m.input(scalar, &sizes, ArrayFill::Uniform(-2.0, 2.0));
    // Lower-dimensional arrays are broadcast along the other axes.
    let axes: Vec<usize> = match m.random.below(4) {
        0 => vec![0],
        1 => vec![2],
        2 => vec![1, 2],
        _ => vec![0, 1],
    };
    let broadcast = m.input(scalar, &axes.iter().map(|n| sizes[*n]).collect::<Vec<_>>(), ArrayFill::Uniform(0.5, 3.0));
    let out = m.output(scalar, &sizes);
    let count = m.random.below(2);
    let numbers = scalars(m, count, scalar);
    let letters = ["k", "i", "j"];
    let indices: Vec<ProgramExpr> = letters.iter().zip(&sizes).map(|(name, size)| m.index(name, *size)).collect();
    let at: Vec<ProgramExpr> = axes.iter().map(|n| indices[*n].clone()).collect();
    let mut terms = vec![
        Term::new(ProgramExpr::load(volume, indices.clone(), scalar), -2.0, 2.0),
        Term::new(ProgramExpr::load(broadcast, at, scalar), 0.5, 3.0),
    ];
    let axis = m.random.below(3);
    if m.random.chance(60) {
        terms.push(Term::new(indices[axis].clone().cast(scalar), 0.0, 9.0));
    }
    terms.extend(numbers);
    let unary = 1 + m.random.below(3);
    let value = m.combine(terms, unary, 20, &MIXED);
    m.push(ProgramStmt::Store(out, indices, value.e));
}

/// A 2D grid computed from rows, columns, transposes and sums along an axis.
fn plane(m: &mut ProgramBuilder) {
    let scalar = float(m);
    let (rows, cols) = (m.size("rows", false, 0, 40), m.size("cols", false, 0, 40));
    let a = m.input(scalar, &[rows, cols], ArrayFill::Uniform(-2.0, 2.0));
    let kind = m.random.below(4);
    let row = m.random.chance(50).then(|| m.input(scalar, &[rows], ArrayFill::Uniform(0.5, 2.0)));
    let column = m.random.chance(50).then(|| m.input(scalar, &[cols], ArrayFill::Uniform(-1.0, 1.0)));
    let count = m.random.below(3).min(2);
    let numbers = scalars(m, count, scalar);
    if kind == 0 {
        let out = m.output(scalar, &[cols, rows]);
        let (i, j) = (m.index("i", rows), m.index("j", cols));
        let mut terms = vec![Term::new(ProgramExpr::load(a, vec![i.clone(), j.clone()], scalar), -2.0, 2.0)];
        terms.extend(row.map(|r| Term::new(ProgramExpr::load(r, vec![i.clone()], scalar), 0.5, 2.0)));
        terms.extend(column.map(|c| Term::new(ProgramExpr::load(c, vec![j.clone()], scalar), -1.0, 1.0)));
        terms.extend(numbers);
        let unary = 1 + m.random.below(2);
        let value = m.combine(terms, unary, 15, &MIXED);
        return m.push(ProgramStmt::Store(out, vec![j, i], value.e));
    }
    if kind == 1 {
        // A product over an inner dimension.
        let inner = m.size("inner", true, 0, 12);
        let (left, right) = (
            m.input(scalar, &[rows, inner], ArrayFill::Uniform(-1.0, 1.0)),
            m.input(scalar, &[inner, cols], ArrayFill::Uniform(-1.0, 1.0)),
        );
        let out = m.output(scalar, &[rows, cols]);
        let (i, j) = (m.index("i", rows), m.index("j", cols));
        let sum = m.mutable("acc", ProgramExpr::float(scalar, 0.0));
        let high = m.extent(inner);
        m.for_range("k", ProgramExpr::int(0), high, 1, |m, k| {
            let x = Term::new(ProgramExpr::load(left, vec![i.clone(), k.clone()], scalar), -1.0, 1.0);
            let y = Term::new(ProgramExpr::load(right, vec![k, j.clone()], scalar), -1.0, 1.0);
            let op =
                *m.random.pick_weighted(&[(4, TermOp::Mul), (1, TermOp::AbsDiff), (1, TermOp::Sub), (1, TermOp::Min)]);
            let mut value = m.join(op, x, y);
            if m.random.chance(35) {
                value = m.apply(TermFn::Square, value);
            }
            m.push(ProgramStmt::Update(sum, BinaryOp::Add, value.e));
        });
        let mut terms = vec![
            Term::new(m.read(sum), -12.0, 12.0),
            Term::new(ProgramExpr::load(a, vec![i.clone(), j.clone()], scalar), -2.0, 2.0),
        ];
        terms.extend(row.map(|r| Term::new(ProgramExpr::load(r, vec![i.clone()], scalar), 0.5, 2.0)));
        terms.extend(column.map(|c| Term::new(ProgramExpr::load(c, vec![j.clone()], scalar), -1.0, 1.0)));
        terms.extend(numbers);
        let unary = m.random.below(3);
        let value = m.combine(terms, unary, 15, &PLAIN);
        return m.push(ProgramStmt::Store(out, vec![i, j], value.e));
    }
    let out = m.output(scalar, &[rows, cols]);
    let (i, j) = (m.index("i", rows), m.index("j", cols));
    let mut terms = vec![Term::new(ProgramExpr::load(a, vec![i.clone(), j.clone()], scalar), -2.0, 2.0)];
    terms.extend(row.map(|r| Term::new(ProgramExpr::load(r, vec![i.clone()], scalar), 0.5, 2.0)));
    terms.extend(column.map(|c| Term::new(ProgramExpr::load(c, vec![j.clone()], scalar), -1.0, 1.0)));
    if kind == 2 {
        let sum = ProgramExpr::binary(BinaryOp::Add, i.clone(), j.clone());
        let even = ProgramExpr::binary(
            BinaryOp::Eq,
            ProgramExpr::binary(BinaryOp::Rem, sum, ProgramExpr::int(m.random.in_range(2, 3))),
            ProgramExpr::int(0),
        );
        let picked = m.random.pick(&terms).clone();
        let other = m.apply(TermFn::Shift, picked.clone());
        let (low, high) = (picked.low.min(other.low), picked.high.max(other.high));
        terms.push(Term::new(ProgramExpr::choose(even, picked.e, other.e), low, high));
    } else {
        terms.push(Term::new(i.clone().cast(scalar), 0.0, 40.0));
        terms.push(Term::new(j.clone().cast(scalar), 0.0, 40.0));
    }
    terms.extend(numbers);
    let unary = 1 + m.random.below(3);
    let value = m.combine(terms, unary, 20, &MIXED);
    m.push(ProgramStmt::Store(out, vec![i, j], value.e));
}
