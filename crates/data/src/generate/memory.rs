//! Kernels with irregular memory access (atomics, gathers, scatters), and with random numbers.

use super::builder::ProgramBuilder;
use super::elementwise::{RANGES, float, line, repeated, scalars};
use super::sample::PathCondition;
use super::term::{MATH, MIXED, Term, TermFn, TermOp};
use crate::program::{ArrayFill, AtomicOp, BinaryOp, ProgramExpr, ProgramStmt, ScalarType, SizeExpr};

/// Atomic updates of elements shared by many threads.
pub fn atomic(m: &mut ProgramBuilder) {
    let ints = m.random.chance(55);
    let scalar = if ints {
        *m.random.pick_weighted(&[(5, ScalarType::I32), (2, ScalarType::U32), (1, ScalarType::U64)])
    } else {
        float(m)
    };
    let count = 1 + m.random.below(2);
    let mut l = line(m, count, scalar);
    let mut terms = std::mem::take(&mut l.terms);
    let bins = *m.random.pick(&[1u32, 1, 4, 8, 16, 10]);
    let out = m.array(
        ["total", "result", "counts", "sums", "buckets", "best"][bins as usize % 6],
        scalar,
        &[SizeExpr::Constant(bins)],
        ArrayFill::Zero,
        true,
    );
    let more = m.random.below(3);
    let first = terms[0].clone();
    let condition = m.random.chance(45).then(|| {
        if !ints {
            return m.any_threshold(&first, BinaryOp::Gt);
        }
        let op = *m.random.pick(&[BinaryOp::Gt, BinaryOp::Lt, BinaryOp::Ge]);
        let middle = ((first.low + first.high) / 2.0) as i64;
        ProgramExpr::binary(op, first.e.clone(), ProgramExpr::typed_int(scalar, middle))
    });
    m.path_conditions.extend(condition.clone().map(|condition| PathCondition { condition, holds: true }));
    repeated(m, &mut terms, more);
    let unary = 1 + m.random.below(4);
    let value = if ints { m.combine_int(terms, unary, 15) } else { m.combine(terms, unary, 15, &MIXED) };
    let value = if ints { value } else { m.narrowed(value, 100.0) };
    let value = if ints && scalar.bits() == 32 { m.small_int(value) } else { value };
    let at = match (bins, m.random.below(2)) {
        (1, _) => ProgramExpr::int(0),
        (_, 0) => ProgramExpr::binary(BinaryOp::Rem, l.i.clone(), ProgramExpr::int(bins as i64)),
        _ if ints && scalar.is_signed() => {
            let size = m.not_negative(first.clone());
            ProgramExpr::binary(BinaryOp::Rem, size.e, ProgramExpr::typed_int(scalar, bins as i64))
                .cast(ScalarType::I32)
        }
        _ => {
            let by = m.random.in_range(2, 7);
            ProgramExpr::binary(
                BinaryOp::Rem,
                ProgramExpr::binary(BinaryOp::Quotient, l.i.clone(), ProgramExpr::int(by)),
                ProgramExpr::int(bins as i64),
            )
        }
    };
    let update = match scalar {
        ScalarType::I32 => *m.random.pick(&[
            AtomicOp::Add,
            AtomicOp::Max,
            AtomicOp::Min,
            AtomicOp::Add,
            AtomicOp::Or,
            AtomicOp::Xor,
            AtomicOp::And,
            AtomicOp::Sub,
        ]),
        ScalarType::U32 => *m.random.pick(&[AtomicOp::Add, AtomicOp::Max, AtomicOp::Or, AtomicOp::Xor, AtomicOp::And]),
        // CUDA's 64-bit atomicAdd is unsigned.
        ScalarType::U64 => AtomicOp::Add,
        _ => AtomicOp::Add,
    };
    // All bits of a single element would be set or cleared after a few updates.
    let update = if bins == 1 && matches!(update, AtomicOp::Or | AtomicOp::And) { AtomicOp::Xor } else { update };
    // A minimum with 0 of non-negative values is always 0.
    let update = if update == AtomicOp::Min && value.low >= 0.0 { AtomicOp::Max } else { update };
    // ANDing into zeros would have no effect.
    if update == AtomicOp::And {
        m.program.arrays[out.0 as usize].fill = ArrayFill::Uniform(1e4, 1e6);
    }
    m.path_conditions.clear();
    let step = ProgramStmt::Atomic(update, out, vec![at], value.e);
    match condition {
        Some(condition) => m.push(ProgramStmt::If(condition, vec![step], vec![])),
        None => m.push(step),
    }
}

/// Gathers and scatters.
pub fn gather_scatter(m: &mut ProgramBuilder) {
    let scalar = float(m);
    let range = *m.random.pick(RANGES);
    match m.random.below(4) {
        0 => {
            let n = m.size("n", false, 0, 300);
            let table = m.size("m", false, 1, 50);
            let source = m.input(scalar, &[table], ArrayFill::Uniform(range.0, range.1));
            let several = 1 + m.random.below(2);
            let name = *m.random.pick(&["indices", "idx", "order", "links"]);
            let indices: Vec<_> =
                (0..several).map(|_| m.array(name, ScalarType::I32, &[n], ArrayFill::Below(table), false)).collect();
            let extra_input = m.random.chance(50).then(|| m.input(scalar, &[n], ArrayFill::Uniform(-1.0, 1.0)));
            let count = m.random.below(2);
            let numbers = scalars(m, count, scalar);
            let i = m.index("i", n);
            let mut terms: Vec<Term> = (indices.iter())
                .map(|index| {
                    let at = ProgramExpr::load(*index, vec![i.clone()], ScalarType::I32);
                    let at = if m.random.chance(50) { m.bind_as("k", at) } else { at };
                    Term::new(ProgramExpr::load(source, vec![at], scalar), range.0, range.1)
                })
                .collect();
            terms.extend(
                extra_input
                    .map(|extra_input| Term::new(ProgramExpr::load(extra_input, vec![i.clone()], scalar), -1.0, 1.0)),
            );
            let more = m.random.below(3);
            repeated(m, &mut terms, more);
            terms.extend(numbers);
            let unary = 1 + m.random.below(4);
            let value = m.combine(terms, unary, 20, &MIXED);
            let out = m.output(scalar, &[n]);
            m.push(ProgramStmt::Store(out, vec![i], value.e));
        }
        1 => {
            let n = m.size("n", false, 0, 300);
            let count = 1 + m.random.below(2);
            let inputs: Vec<_> =
                (0..count).map(|_| m.input(scalar, &[n], ArrayFill::Uniform(range.0, range.1))).collect();
            let name = *m.random.pick(&["perm", "order", "slots", "targets"]);
            let targets = m.array(name, ScalarType::I32, &[n], ArrayFill::Permutation(n), false);
            let out = m.output(scalar, &[n]);
            let i = m.index("i", n);
            let at = m.bind_as("slot", ProgramExpr::load(targets, vec![i.clone()], ScalarType::I32));
            let mut terms: Vec<Term> = vec![];
            let (mut gathered, mut direct) = (false, false);
            for array in inputs {
                let index = if m.random.chance(40) { at.clone() } else { i.clone() };
                gathered |= index == at;
                direct |= index == i;
                terms.push(Term::new(ProgramExpr::load(array, vec![index], scalar), range.0, range.1));
            }
            let more = m.random.below(3);
            repeated(m, &mut terms, more);
            let unary = 1 + m.random.below(4);
            let value = m.combine(terms, unary, 20, &MIXED);
            // If loads and the store use the same permuted index, the result does not depend on the
            // permutation.
            let to = if !gathered || direct && m.random.chance(70) { at } else { i };
            m.push(ProgramStmt::Store(out, vec![to], value.e));
        }
        2 => {
            let n = m.size("n", false, 0, 300);
            let table = m.size("m", false, 1, 40);
            let input = m.input(scalar, &[n], ArrayFill::Uniform(range.0, range.1));
            let targets = m.array("bins", ScalarType::I32, &[n], ArrayFill::Below(table), false);
            let weights = m.random.chance(50).then(|| m.input(scalar, &[table], ArrayFill::Uniform(0.5, 2.0)));
            let out = m.output(scalar, &[table]);
            let i = m.index("i", n);
            let at = m.bind_as("b", ProgramExpr::load(targets, vec![i.clone()], ScalarType::I32));
            let mut terms = vec![Term::new(ProgramExpr::load(input, vec![i], scalar), range.0, range.1)];
            terms.extend(weights.map(|w| Term::new(ProgramExpr::load(w, vec![at.clone()], scalar), 0.5, 2.0)));
            let more = m.random.below(3);
            repeated(m, &mut terms, more);
            let unary = 1 + m.random.below(4);
            let value = m.combine(terms, unary, 20, &MATH);
            let value = m.narrowed(value, 50.0);
            m.push(ProgramStmt::Atomic(AtomicOp::Add, out, vec![at], value.e));
        }
        _ => rows(m, scalar, range),
    }
}

/// Rows of a sparse matrix (CSR): offsets, columns, values.
fn rows(m: &mut ProgramBuilder, scalar: ScalarType, range: (f64, f64)) {
    let n = m.size("rows", false, 1, 40);
    let entries = m.size("nnz", false, 0, 200);
    let columns = m.size("cols", false, 1, 30);
    let SizeExpr::Param(rows) = n else { return };
    let offsets = m.array("row_start", ScalarType::I32, &[SizeExpr::Plus(rows, 1)], ArrayFill::Offsets(entries), false);
    let index = m.array("col_index", ScalarType::I32, &[entries], ArrayFill::Below(columns), false);
    let values = m.input(scalar, &[entries], ArrayFill::Uniform(range.0, range.1));
    let x = m.input(scalar, &[columns], ArrayFill::Uniform(-1.0, 1.0));
    let out = m.output(scalar, &[n]);
    let count = m.random.below(2);
    let numbers = scalars(m, count, scalar);
    let i = m.index("row", n);
    let sum = m.mutable("acc", ProgramExpr::float(scalar, 0.0));
    let low = m.bind_as("begin", ProgramExpr::load(offsets, vec![i.clone()], ScalarType::I32));
    let next = ProgramExpr::binary(BinaryOp::Add, i.clone(), ProgramExpr::int(1));
    let high = m.bind_as("end", ProgramExpr::load(offsets, vec![next], ScalarType::I32));
    m.for_range("k", low, high, 1, |m, k| {
        let at = ProgramExpr::load(index, vec![k.clone()], ScalarType::I32);
        let mut terms = vec![
            Term::new(ProgramExpr::load(values, vec![k], scalar), range.0, range.1),
            Term::new(ProgramExpr::load(x, vec![at], scalar), -1.0, 1.0),
        ];
        let unary = m.random.below(3);
        if m.random.chance(60) {
            let (a, b) = (terms.remove(0), terms.remove(0));
            terms = vec![m.join(TermOp::Mul, a, b)];
        }
        let value = m.combine(terms, unary, 10, &MIXED);
        m.push(ProgramStmt::Update(sum, BinaryOp::Add, value.e));
    });
    let mut terms = vec![Term::new(m.read(sum), -100.0, 100.0)];
    terms.extend(numbers);
    let unary = 1 + m.random.below(3);
    let value = m.combine(terms, unary, 10, &MIXED);
    m.push(ProgramStmt::Store(out, vec![i], value.e));
}

/// Random numbers generated in the kernel.
pub fn random_numbers(m: &mut ProgramBuilder) {
    let n = m.size("n", false, 0, 300);
    let extra_input = m.random.chance(60).then(|| m.input(ScalarType::F32, &[n], ArrayFill::Uniform(-2.0, 2.0)));
    let ints = extra_input.is_none() && m.random.chance(35);
    let out = m.output(if ints { ScalarType::I32 } else { ScalarType::F32 }, &[n]);
    let seed = m.value("seed", ScalarType::I32, 1.0, 100000.0);
    let count = m.random.below(2) * (!ints) as usize;
    let numbers = scalars(m, count, ScalarType::F32);
    let i = m.index("i", n);
    let state = m.variable("state", ScalarType::U32, true);
    let seed = ProgramExpr::var(seed, ScalarType::I32);
    m.push(ProgramStmt::Seed(state, seed, i.clone()));
    let draw = |m: &mut ProgramBuilder, range: Option<(i64, i64)>| {
        let name = *m.random.pick(&["u", "noise_val", "roll", "jitter", "pick", "chance"]);
        let ty = if range.is_some() { ScalarType::I32 } else { ScalarType::F32 };
        let var = m.variable(name, ty, false);
        m.push(ProgramStmt::Draw(var, state, range));
        match range {
            None => Term::new(ProgramExpr::var(var, ty), 0.0, 1.0),
            Some((low, high)) => Term::new(ProgramExpr::var(var, ty), low as f64, high as f64 - 1.0),
        }
    };
    if ints {
        let mut terms = vec![];
        for _ in 0..1 + m.random.below(3) {
            let low = m.random.in_range(-5, 5);
            let high = low + m.random.in_range(2, 100);
            terms.push(draw(m, Some((low, high))));
        }
        if m.random.chance(50) {
            terms.push(Term::new(i.clone(), 0.0, 1000.0));
        }
        let unary = 1 + m.random.below(3);
        let value = m.combine_int(terms, unary, 15);
        return m.push(ProgramStmt::Store(out, vec![i], value.e));
    }
    let mut terms: Vec<Term> = vec![];
    let extra_input = extra_input
        .map(|extra_input| Term::new(ProgramExpr::load(extra_input, vec![i.clone()], ScalarType::F32), -2.0, 2.0));
    match m.random.below(4) {
        0 => {
            let u = draw(m, None);
            let p = *m.random.pick(&[0.25, 0.5, 0.1, 0.75, 0.3]);
            let condition = ProgramExpr::binary(
                *m.random.pick(&[BinaryOp::Lt, BinaryOp::Ge]),
                u.e,
                ProgramExpr::float(ScalarType::F32, p),
            );
            let value = extra_input.clone().unwrap_or(Term::new(ProgramExpr::float(ScalarType::F32, 1.0), 1.0, 1.0));
            let scaled = m.apply(TermFn::Scale, value);
            let other = if m.random.chance(60) {
                Term::new(ProgramExpr::float(ScalarType::F32, 0.0), 0.0, 0.0)
            } else {
                draw(m, None)
            };
            let (low, high) = (scaled.low.min(other.low), scaled.high.max(other.high));
            terms.push(Term::new(ProgramExpr::choose(condition, scaled.e, other.e), low, high));
        }
        1 => {
            let hits = m.mutable("hits", ProgramExpr::float(ScalarType::F32, 0.0));
            let iterations = ProgramExpr::int(m.random.in_range(4, 12));
            m.for_range("trial", ProgramExpr::int(0), iterations, 1, |m, _| {
                let (a, b) = (draw(m, None), draw(m, None));
                let a = m.apply(TermFn::Square, a);
                let b = m.apply(TermFn::Square, b);
                let sum = ProgramExpr::binary(BinaryOp::Add, a.e, b.e);
                let inside = ProgramExpr::binary(
                    BinaryOp::Le,
                    sum,
                    ProgramExpr::float(ScalarType::F32, *m.random.pick(&[1.0, 0.5, 0.75])),
                );
                let one = ProgramExpr::float(ScalarType::F32, 1.0);
                let then = m.block(|m| m.push(ProgramStmt::Update(hits, BinaryOp::Add, one)));
                m.push(ProgramStmt::If(inside, then, vec![]));
            });
            terms.push(Term::new(m.read(hits), 0.0, 12.0));
        }
        2 => {
            let at = m.mutable("walk", extra_input.clone().map_or(ProgramExpr::float(ScalarType::F32, 0.0), |t| t.e));
            let iterations = ProgramExpr::int(m.random.in_range(3, 10));
            let half = ProgramExpr::float(ScalarType::F32, *m.random.pick(&[0.5, 0.25, 0.375]));
            let variant = m.random.below(2);
            m.for_range("step", ProgramExpr::int(0), iterations, 1, |m, _| {
                let u = draw(m, None);
                let moved = Term::new(ProgramExpr::binary(BinaryOp::Sub, u.e, half), -0.5, 0.75);
                let moved = if variant == 0 { moved } else { m.apply(TermFn::Scale, moved) };
                m.push(ProgramStmt::Update(at, BinaryOp::Add, moved.e));
            });
            terms.push(Term::new(m.read(at), -12.0, 12.0));
        }
        _ => {
            for _ in 0..1 + m.random.below(3) {
                let drawn = draw(m, None);
                terms.push(drawn);
            }
        }
    }
    if let Some(extra_input) = extra_input
        && m.random.chance(70)
    {
        terms.push(extra_input);
    }
    let more = m.random.below(2);
    repeated(m, &mut terms, more);
    terms.extend(numbers);
    let unary = 2 + m.random.below(4);
    let distribution = if m.random.chance(50) { &MATH } else { &MIXED };
    let value = m.combine(terms, unary, 20, distribution);
    m.push(ProgramStmt::Store(out, vec![i], value.e));
}
