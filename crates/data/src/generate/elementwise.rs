//! Elementwise kernels: arithmetic, math functions, deep expressions, scalar parameters, branches
//! and loops.

use super::builder::ProgramBuilder;
use super::names;
use super::sample::PathCondition;
use super::term::{ARITHMETIC, MATH, MIXED, OpDistribution, PLAIN, Term, TermFn, TermOp};
use crate::program::{
    ArrayFill, ArrayId, BinaryOp, BuiltinFn, ExprKind, ProgramExpr, ProgramStmt, ScalarType, SizeExpr, VarId,
};

/// Attempts to find a condition.
const MAX_ATTEMPTS: usize = 4;

/// Ranges from which inputs are drawn.
pub const RANGES: &[(f64, f64)] =
    &[(-1.0, 1.0), (-2.0, 2.0), (0.0, 1.0), (-4.0, 4.0), (0.5, 3.0), (-3.0, 5.0), (0.0, 8.0)];

/// Draws a float type.
pub fn float(m: &mut ProgramBuilder) -> ScalarType {
    *m.random.pick_weighted(&[(4, ScalarType::F32), (1, ScalarType::F64)])
}

/// Common beginning of a one-dimensional kernel.
pub struct Line {
    pub n: SizeExpr,
    pub i: ProgramExpr,
    pub terms: Vec<Term>,
    pub scalar: ScalarType,
}

/// Declares `count` arrays of `n` elements, loaded at the instance's index.
pub fn line(m: &mut ProgramBuilder, count: usize, scalar: ScalarType) -> Line {
    let name = *m.random.pick(&["n", "n", "count", "size", "num"]);
    let n = m.size(name, false, 0, 600);
    let mut arrays: Vec<(ArrayId, (f64, f64))> = vec![];
    for _ in 0..count {
        let range = *m.random.pick(RANGES);
        let range = if scalar.is_int() { ((range.0 * 20.0).round(), (range.1 * 20.0).round()) } else { range };
        let range = if scalar.is_int() && !scalar.is_signed() { (0.0, range.1.abs() + 9.0) } else { range };
        arrays.push((m.input(scalar, &[n], ArrayFill::Uniform(range.0, range.1)), range));
    }
    let name = *m.random.pick(&["i", "i", "i", "tid", "idx", "gid"]);
    let i = m.index(name, n);
    let mut terms = vec![];
    for (array, (low, high)) in arrays {
        let mut e = ProgramExpr::load(array, vec![i.clone()], scalar);
        if m.random.chance(30) {
            e = m.bind(e);
        }
        terms.push(Term::new(e, low, high));
    }
    Line { n, i, terms, scalar }
}

/// Declares scalar parameters.
pub fn scalars(m: &mut ProgramBuilder, count: usize, scalar: ScalarType) -> Vec<Term> {
    (0..count)
        .map(|_| {
            let name = *m.random.pick(names::SCALARS);
            let (low, high) = *m.random.pick(&[(0.5, 2.0), (-1.0, 1.0), (0.1, 0.9), (1.0, 4.0), (-2.0, 2.0)]);
            let (low, high) = if scalar.is_int() { (1.0, (high * 5.0 + 3.0_f64).round()) } else { (low, high) };
            let var = m.value(name, scalar, low, high);
            Term::new(ProgramExpr::var(var, scalar), low, high)
        })
        .collect()
}

/// Duplicates some terms, so that expressions have more than one leaf per input.
pub fn repeated(m: &mut ProgramBuilder, terms: &mut Vec<Term>, more: usize) {
    for _ in 0..more {
        let duplicate = m.random.pick(terms).clone();
        terms.push(duplicate);
    }
}

fn store(m: &mut ProgramBuilder, line: &Line, value: ProgramExpr) {
    let out = m.output(line.scalar, &[line.n]);
    m.push(ProgramStmt::Store(out, vec![line.i.clone()], value));
}

fn expression(
    m: &mut ProgramBuilder,
    inputs: std::ops::Range<usize>,
    more: std::ops::Range<usize>,
    unary: std::ops::Range<usize>,
    bind: usize,
    values: usize,
    distribution: &OpDistribution,
) {
    let scalar = float(m);
    let count = m.random.in_range(inputs.start as i64, inputs.end as i64) as usize;
    let mut line = line(m, count, scalar);
    let mut terms = std::mem::take(&mut line.terms);
    let values = scalars(m, values, scalar);
    let more = m.random.in_range(more.start as i64, more.end as i64) as usize;
    repeated(m, &mut terms, more);
    terms.extend(values);
    let unary = m.random.in_range(unary.start as i64, unary.end as i64) as usize;
    let value = m.combine(terms, unary, bind, distribution);
    store(m, &line, value.e);
}

/// Sums, products and quotients of floats or integers.
pub fn arithmetic(m: &mut ProgramBuilder) {
    if m.random.chance(25) {
        let scalar = *m.random.pick_weighted(&[(3, ScalarType::I32), (1, ScalarType::I64)]);
        let count = 1 + m.random.below(3);
        let mut line = line(m, count, scalar);
        let mut terms = std::mem::take(&mut line.terms);
        let more = 1 + m.random.below(3);
        repeated(m, &mut terms, more);
        let unary = 1 + m.random.below(4);
        let value = m.combine_int(terms, unary, 20);
        return store(m, &line, value.e);
    }
    expression(m, 1..3, 1..3, 1..4, 20, 0, &ARITHMETIC);
}

/// Nested math functions.
pub fn math(m: &mut ProgramBuilder) {
    expression(m, 1..3, 0..2, 2..5, 20, 0, &MATH);
}

/// A deep expression over several arrays.
pub fn expression_tree(m: &mut ProgramBuilder) {
    expression(m, 2..4, 3..7, 2..6, 4, 0, &MIXED);
}

/// Expressions with scalar parameters.
pub fn scalar_param(m: &mut ProgramBuilder) {
    let values = 1 + m.random.below(3);
    expression(m, 1..2, 0..2, 1..3, 20, values, &MIXED);
}

/// Assigns to a variable a function of its value and other terms.
pub fn step(m: &mut ProgramBuilder, var: VarId, terms: &[Term], low: f64, high: f64) {
    let now = Term::new(m.read(var), low, high);
    let other = m.random.pick(terms).clone();
    match m.random.below(4) {
        0 => {
            let value = m.join(TermOp::Mul, other.clone(), other);
            let value = m.narrowed(value, 2.0);
            m.push(ProgramStmt::Update(var, BinaryOp::Add, value.e));
        }
        1 => {
            let value = m.apply(TermFn::Scale, other);
            let value = m.narrowed(value, 2.0);
            m.push(ProgramStmt::Update(var, BinaryOp::Sub, value.e));
        }
        2 => {
            let small = m.narrowed(other, 1.0);
            let combined = m.join(TermOp::Mul, now, small);
            let value = m.narrowed(combined, 2.0);
            m.push(ProgramStmt::Assign(var, value.e));
        }
        _ => {
            let fun = *m.random.pick(&[TermFn::Scale, TermFn::Shift, TermFn::Clamp]);
            let value = m.apply(fun, now);
            let value = m.join(TermOp::Add, value, other);
            let value = m.narrowed(value, 4.0);
            m.push(ProgramStmt::Assign(var, value.e));
        }
    }
}

/// Branches, loops and early exits.
pub fn control_flow(m: &mut ProgramBuilder) {
    let scalar = float(m);
    let count = 1 + m.random.below(2);
    let mut line = line(m, count, scalar);
    let mut terms = std::mem::take(&mut line.terms);
    if m.random.chance(30) {
        let values = scalars(m, 1, scalar);
        terms.extend(values);
    }
    match m.random.below(5) {
        0 => early_exit(m, &line, &terms),
        1 => counted_loop(m, &line, &terms),
        2 => while_loop(m, &line, &terms),
        3 => if_else_chain(m, &line, &terms),
        _ => branches(m, &line, &terms),
    }
}

fn small(m: &mut ProgramBuilder, terms: &[Term], unary: usize, distribution: &OpDistribution) -> Term {
    let mut chosen = vec![m.random.pick(terms).clone()];
    if m.random.chance(60) {
        chosen.push(m.random.pick(terms).clone());
    }
    m.combine(chosen, unary, 0, distribution)
}

/// Builds a condition of one or two comparisons that can be true and false at this point, if one is
/// found.
pub fn condition(m: &mut ProgramBuilder, terms: &[Term]) -> Option<ProgramExpr> {
    // Scalar parameters are uniform over a launch, unless an element is compared with them.
    let varying: Vec<&Term> = terms.iter().filter(|term| !m.is_uniform(term)).collect();
    for _ in 0..MAX_ATTEMPTS {
        let (a, b) = (*m.random.pick(&varying), m.random.pick(terms));
        let Some(mut condition) = m.comparison(a, b) else { continue };
        if m.random.chance(25) {
            let op = *m.random.pick(&[BinaryOp::Lt, BinaryOp::Gt]);
            let second = *m.random.pick(&varying);
            let join = *m.random.pick(&[BinaryOp::And, BinaryOp::Or]);
            if let Some(second) = m.threshold(second, op) {
                condition = ProgramExpr::binary(join, condition, second);
            }
        }
        if m.has_both_outcomes(&condition) {
            return Some(condition);
        }
    }
    None
}

/// Builds a condition unconditionally, falling back to a threshold in the middle of an element's
/// range.
pub fn any_condition(m: &mut ProgramBuilder, terms: &[Term]) -> ProgramExpr {
    condition(m, terms).unwrap_or_else(|| m.any_threshold(&terms[0], BinaryOp::Gt))
}

/// A variable assigned in branches.
fn branches(m: &mut ProgramBuilder, line: &Line, terms: &[Term]) {
    let first = small(m, terms, 1, &PLAIN);
    let first = m.narrowed(first, 8.0);
    let name = *m.random.pick(&["value", "res", "v", "acc", "level"]);
    let var = m.mutable(name, first.e);
    for _ in 0..1 + m.random.below(2) {
        branch(m, var, terms, 2);
    }
    let last = Term::new(m.read(var), -16.0, 16.0);
    let value = m.combine(vec![last], 1, 0, &PLAIN);
    store(m, line, value.e);
}

fn branch(m: &mut ProgramBuilder, var: VarId, terms: &[Term], depth: usize) {
    let Some(condition) = condition(m, terms) else { return step(m, var, terms, -8.0, 8.0) };
    let side = |m: &mut ProgramBuilder, holds: bool| {
        m.block_where(&condition, holds, |m| {
            if depth > 1 && m.random.chance(30) {
                branch(m, var, terms, depth - 1);
            } else {
                step(m, var, terms, -8.0, 8.0);
            }
        })
    };
    let then = side(m, true);
    let otherwise = if m.random.chance(65) { side(m, false) } else { vec![] };
    if then == otherwise {
        let value = m.random.pick(terms).clone();
        let more = m.block(|m| m.push(ProgramStmt::Update(var, BinaryOp::Add, value.e)));
        return m.push(ProgramStmt::If(condition, then.into_iter().chain(more).collect(), otherwise));
    }
    m.push(ProgramStmt::If(condition, then, otherwise));
}

/// `if … elif … else`.
fn if_else_chain(m: &mut ProgramBuilder, line: &Line, terms: &[Term]) {
    let scalar = line.scalar;
    let name = *m.random.pick(&["value", "res", "band", "gain_val", "mode"]);
    let var = m.mutable(name, ProgramExpr::float(scalar, 0.0));
    // A scalar parameter would take the same branch in the complete launch.
    let varying: Vec<&Term> = terms.iter().filter(|term| !m.is_uniform(term)).collect();
    let chosen = (*m.random.pick(&varying)).clone();
    let steps = 2 + m.random.below(3);
    let mut cuts: Vec<f64> = vec![];
    let width = chosen.high - chosen.low;
    for n in 1..=steps {
        let at = chosen.low + width * n as f64 / (steps + 1) as f64;
        cuts.push((at * 16.0).round() / 16.0);
    }
    cuts.dedup();
    let below = |cut: f64| ProgramExpr::binary(BinaryOp::Lt, chosen.e.clone(), ProgramExpr::float(scalar, cut));
    let outer = m.path_conditions.len();
    m.path_conditions.extend(cuts.iter().map(|cut| PathCondition { condition: below(*cut), holds: false }));
    let mut tail = m.block(|m| {
        let value = small(m, terms, 1, &PLAIN);
        m.push(ProgramStmt::Assign(var, value.e));
    });
    for cut in cuts.into_iter().rev() {
        let condition = below(cut);
        m.path_conditions.pop();
        let then = m.block_where(&condition, true, |m| {
            let value = small(m, terms, 1, &MIXED);
            m.push(ProgramStmt::Assign(var, value.e));
        });
        tail = vec![ProgramStmt::If(condition, then, tail)];
    }
    m.path_conditions.truncate(outer);
    tail.into_iter().for_each(|stmt| m.push(stmt));
    let value = m.read(var);
    store(m, line, value);
}

/// An instance that writes another value and exits early.
fn early_exit(m: &mut ProgramBuilder, line: &Line, terms: &[Term]) {
    let out = m.output(line.scalar, &[line.n]);
    let condition = any_condition(m, terms);
    let then = m.block_where(&condition, true, |m| {
        let value = small(m, terms, 1, &PLAIN);
        m.push(ProgramStmt::Store(out, vec![line.i.clone()], value.e));
        m.push(ProgramStmt::Return(None));
    });
    m.path_conditions.push(PathCondition { condition: condition.clone(), holds: false });
    m.push(ProgramStmt::If(condition, then, vec![]));
    let unary = 1 + m.random.below(3);
    let value = m.combine(terms.to_vec(), unary, 20, &MIXED);
    m.push(ProgramStmt::Store(out, vec![line.i.clone()], value.e));
}

/// A loop with a constant or element-dependent number of iterations.
fn counted_loop(m: &mut ProgramBuilder, line: &Line, terms: &[Term]) {
    let scalar = line.scalar;
    let first = m.random.pick(terms).clone();
    let first = if m.random.chance(50) { ProgramExpr::float(scalar, 0.0) } else { m.narrowed(first, 4.0).e };
    let name = *m.random.pick(&["acc", "total_sum", "state", "value"]);
    let var = m.mutable(name, first);
    let iterations = m.random.in_range(2, 8);
    let element_dependent = m.random.chance(40);
    let high = if element_dependent {
        let chosen = m.random.pick(terms).clone();
        let wide = m.narrowed(chosen, 4.0);
        let size = ProgramExpr::call(BuiltinFn::Abs, vec![wide.e]);
        let rounded = ProgramExpr::call(BuiltinFn::Floor, vec![size]).cast(ScalarType::I32);
        ProgramExpr::binary(BinaryOp::Add, rounded, ProgramExpr::int(iterations.min(4)))
    } else {
        ProgramExpr::int(iterations)
    };
    let exits = m.random.chance(35);
    m.for_range("k", ProgramExpr::int(0), high, 1, |m, k| {
        let k_float = Term::new(k.clone().cast(scalar), 0.0, 8.0);
        let mut inner: Vec<Term> = terms.to_vec();
        inner.push(Term::new(m.read(var), -4.0, 4.0));
        let mut chosen = vec![m.random.pick(&inner).clone(), k_float];
        if m.random.chance(40) {
            chosen.push(m.random.pick(&inner).clone());
        }
        let value = m.combine(chosen, 1, 15, &MIXED);
        let value = m.narrowed(value, 2.0);
        if m.random.chance(50) {
            m.push(ProgramStmt::Update(var, BinaryOp::Add, value.e));
        } else {
            let now = Term::new(m.read(var), -4.0, 4.0);
            let value = m.join(TermOp::Add, now, value);
            let value = m.narrowed(value, 4.0);
            m.push(ProgramStmt::Assign(var, value.e));
        }
        // Iterations that every element executes.
        let guaranteed = if element_dependent { iterations.min(4) } else { iterations } as usize;
        let exit =
            if let (true, ExprKind::Var(k)) = (exits, &k.kind) { m.exit_condition(var, *k, guaranteed) } else { None };
        if let Some(condition) = exit {
            let stop = if m.random.chance(70) { ProgramStmt::Break } else { ProgramStmt::Continue };
            if stop == ProgramStmt::Continue {
                let body = m.block(|m| m.push(ProgramStmt::Continue));
                m.push(ProgramStmt::If(condition, body, vec![]));
                let c = m.constant(0.1, 2.0);
                let c = ProgramExpr::float(scalar, (c * 16.0).round() / 16.0);
                m.push(ProgramStmt::Update(var, BinaryOp::Sub, c));
            } else {
                m.push(ProgramStmt::If(condition, vec![ProgramStmt::Break], vec![]));
            }
        }
    });
    let value = m.read(var);
    store(m, line, value);
}

/// A loop that ends when a value has shrunk or grown enough, or after a maximum number of
/// iterations.
fn while_loop(m: &mut ProgramBuilder, line: &Line, terms: &[Term]) {
    let scalar = line.scalar;
    let chosen = m.random.pick(terms).clone();
    let start = m.narrowed(chosen, 4.0);
    let first = start.e.clone();
    let var = m.mutable("value", start.e);
    let name = *m.random.pick(&["steps", "turns", "iterations"]);
    let count = m.mutable(name, ProgramExpr::int(0));
    // Few enough that some elements reach the last iteration.
    let max_iterations = m.random.in_range(2, 5);
    let size = ProgramExpr::call(BuiltinFn::Abs, vec![m.read(var)]);
    let grows = m.random.chance(50);
    let op = if grows { BinaryOp::Lt } else { BinaryOp::Gt };
    // Some elements enter the loop, whether it shrinks or grows.
    let entry =
        m.dividing_value(&Term::new(ProgramExpr::call(BuiltinFn::Abs, vec![first]), 0.0, 4.0)).filter(|at| *at > 0.0);
    let limit = match (entry, grows) {
        (Some(at), true) => at * *m.random.pick(&[1.0, 2.0, 4.0]),
        (Some(at), false) => at,
        (None, true) => 6.0,
        (None, false) => 0.25,
    };
    let limit = ProgramExpr::float(scalar, limit);
    let below = ProgramExpr::binary(BinaryOp::Lt, m.read(count), ProgramExpr::int(max_iterations));
    let condition = ProgramExpr::binary(BinaryOp::And, ProgramExpr::binary(op, size, limit), below);
    let body = m.block(|m| {
        let now = Term::new(m.read(var), -8.0, 8.0);
        let other = m.random.pick(terms).clone();
        let other = m.narrowed(other, 1.0);
        let value = if grows {
            let scaled = m.apply(TermFn::Scale, now);
            m.join(TermOp::Add, scaled, other)
        } else {
            let half = ProgramExpr::float(scalar, *m.random.pick(&[0.5, 0.25, 0.75, 0.625]));
            let shrunk = Term::new(ProgramExpr::binary(BinaryOp::Mul, now.e, half), -4.0, 4.0);
            let quarter = Term::new(
                ProgramExpr::binary(BinaryOp::Mul, other.e, ProgramExpr::float(scalar, 0.125)),
                -0.125,
                0.125,
            );
            m.join(TermOp::Add, shrunk, quarter)
        };
        let value = m.narrowed(value, 8.0);
        m.push(ProgramStmt::Assign(var, value.e));
        m.push(ProgramStmt::Update(count, BinaryOp::Add, ProgramExpr::int(1)));
    });
    m.push(ProgramStmt::While(condition, body));
    let iterations = Term::new(m.read(count).cast(scalar), 0.0, max_iterations as f64);
    let value = Term::new(m.read(var), -16.0, 16.0);
    let value = if m.random.chance(50) {
        m.join(TermOp::Add, value, iterations)
    } else {
        m.join(TermOp::Mul, value, iterations)
    };
    store(m, line, value.e);
}
