//! Kernels of integer bit operations and of 16-bit floats.

use super::builder::ProgramBuilder;
use super::elementwise::{repeated, scalars};
use super::term::{MIXED, Term};
use crate::program::{ArrayFill, BinaryOp, BuiltinFn, ProgramExpr, ProgramStmt, ScalarType, UnaryOp};

/// Shifts, masks, hashes and bit counts; in some, integers of 8 and 16 bits.
pub fn integer_bits(m: &mut ProgramBuilder) {
    if m.random.chance(25) {
        return few_bits(m);
    }
    let scalar = *m.random.pick_weighted(&[(5, ScalarType::U32), (2, ScalarType::I32), (1, ScalarType::U64)]);
    let n = m.size("n", false, 0, 300);
    let count = 1 + m.random.below(2);
    let high = if scalar == ScalarType::I32 { 1e6 } else { 4e9 };
    let arrays: Vec<_> = (0..count)
        .map(|_| {
            let name = *m.random.pick(&["keys", "words", "codes", "bits", "flags", "values", "hashes"]);
            m.array(name, scalar, &[n], ArrayFill::Uniform(0.0, high), false)
        })
        .collect();
    let i = m.index("i", n);
    let mut terms: Vec<ProgramExpr> = arrays.iter().map(|a| ProgramExpr::load(*a, vec![i.clone()], scalar)).collect();
    if m.random.chance(30) {
        terms.push(i.clone().cast(scalar));
    }
    let name = *m.random.pick(&["h", "bits_val", "word", "mix", "key"]);
    let first = terms.remove(0);
    let key = first.clone();
    let var = m.mutable(name, first);
    let steps = 1 + m.random.below(4);
    let number = |value: i64| ProgramExpr::typed_int(scalar, value);
    for _ in 0..steps {
        let now = m.read(var);
        let mut leaves = vec![now.clone()];
        if !terms.is_empty() && m.random.chance(60) {
            leaves.push(terms.remove(0));
        }
        match m.random.below(8) {
            0 if scalar != ScalarType::I32 => {
                let k = m.random.in_range(3, 13);
                let left = ProgramExpr::binary(BinaryOp::Shl, now.clone(), number(k));
                let right = ProgramExpr::binary(BinaryOp::Shr, now, number(scalar.bits() as i64 - k));
                let rotated = ProgramExpr::binary(BinaryOp::BitOr, left, right);
                let rotated = if leaves.len() > 1 {
                    ProgramExpr::binary(BinaryOp::BitXor, rotated, leaves.remove(1))
                } else {
                    rotated
                };
                m.push(ProgramStmt::Assign(var, rotated));
            }
            1 => {
                let tested = bits(m, scalar, leaves, 1);
                let mask = number(*m.random.pick(&[1i64, 2, 4, 3, 7, 8]));
                let zero = number(0);
                let odd = ProgramExpr::binary(
                    *m.random.pick(&[BinaryOp::Ne, BinaryOp::Eq]),
                    ProgramExpr::binary(BinaryOp::BitAnd, tested, mask),
                    zero,
                );
                // Known bits may decide the condition.
                if !m.bits_have_both_outcomes(&odd) {
                    let value = bits(m, scalar, vec![now], 2);
                    m.push(ProgramStmt::Assign(var, value));
                    continue;
                }
                let then = m.block(|m| {
                    let value = bits(m, scalar, vec![now.clone()], 2);
                    m.push(ProgramStmt::Assign(var, value));
                });
                let otherwise = m.block(|m| {
                    let value = bits(m, scalar, vec![now.clone()], 1);
                    m.push(ProgramStmt::Update(var, BinaryOp::BitXor, value));
                });
                let otherwise = if m.random.chance(60) { otherwise } else { vec![] };
                m.push(ProgramStmt::If(odd, then, otherwise));
            }
            2 => {
                let iterations = ProgramExpr::int(m.random.in_range(2, 6));
                let inner = m.random.in_range(1, 2) as usize;
                m.for_range("round_id", ProgramExpr::int(0), iterations, 1, |m, k| {
                    let now = m.read(var);
                    let mut leaves = leaves.clone();
                    if m.random.chance(50) {
                        leaves.push(k.cast(scalar));
                    }
                    leaves.push(now);
                    let value = bits(m, scalar, leaves, inner);
                    m.push(ProgramStmt::Assign(var, value));
                });
            }
            3 | 4 => {
                let depth = 1 + m.random.below(3);
                let value = bits(m, scalar, leaves, depth);
                let op = *m.random.pick(&[BinaryOp::BitXor, BinaryOp::BitOr, BinaryOp::BitAnd, BinaryOp::BitXor]);
                m.push(ProgramStmt::Update(var, op, value));
            }
            _ => {
                let depth = 2 + m.random.below(3);
                let value = bits(m, scalar, leaves, depth);
                m.push(ProgramStmt::Assign(var, value));
            }
        }
    }
    for other in terms {
        let op = *m.random.pick(&[BinaryOp::BitXor, BinaryOp::BitOr]);
        m.push(ProgramStmt::Update(var, op, other));
    }
    let value = m.read(var);
    // Masks and shifts may have erased all bits of the keys.
    if m.bits_are_constant(&value) {
        m.push(ProgramStmt::Update(var, BinaryOp::BitXor, key));
    }
    match m.random.below(4) {
        0 => {
            let out = m.output(ScalarType::I32, &[n]);
            let bits = ProgramExpr::call(BuiltinFn::BitCount, vec![value]).cast(ScalarType::I32);
            let parity = m.random.chance(40);
            let bits = if parity { ProgramExpr::binary(BinaryOp::Rem, bits, ProgramExpr::int(2)) } else { bits };
            m.push(ProgramStmt::Store(out, vec![i], bits));
        }
        1 => {
            let out = m.output(ScalarType::I32, &[n]);
            let buckets = m.random.in_range(8, 1024);
            let rest = if scalar == ScalarType::I32 { ProgramExpr::call(BuiltinFn::Abs, vec![value]) } else { value };
            let rest = ProgramExpr::binary(BinaryOp::Rem, rest, number(buckets)).cast(ScalarType::I32);
            m.push(ProgramStmt::Store(out, vec![i], rest));
        }
        2 if scalar != ScalarType::I32 => {
            let out = m.output(scalar, &[n]);
            m.push(ProgramStmt::Store(out, vec![i], ProgramExpr::unary(UnaryOp::Invert, value)));
        }
        _ => {
            let out = m.output(scalar, &[n]);
            m.push(ProgramStmt::Store(out, vec![i], value));
        }
    }
}

/// Integers of 8 and 16 bits, computed in 32 bits and clamped to their type.
fn few_bits(m: &mut ProgramBuilder) {
    let narrow = *m.random.pick(&[ScalarType::I8, ScalarType::U8, ScalarType::I16, ScalarType::U16]);
    let (low, high) = match narrow {
        ScalarType::I8 => (-128, 127),
        ScalarType::U8 => (0, 255),
        ScalarType::I16 => (-32768, 32767),
        _ => (0, 65535),
    };
    let n = m.size("n", false, 0, 600);
    let count = 1 + m.random.below(3);
    let arrays: Vec<_> = (0..count)
        .map(|_| {
            let name = *m.random.pick(&["samples", "codes", "levels", "quantised", "pixels", "counts", "ticks"]);
            m.array(name, narrow, &[n], ArrayFill::Uniform(low as f64, high as f64), false)
        })
        .collect();
    let count = m.random.below(2);
    let numbers = scalars(m, count, ScalarType::I32);
    let i = m.index("i", n);
    let mut terms: Vec<Term> = (arrays.into_iter())
        .map(|array| {
            let e = m.bind(ProgramExpr::load(array, vec![i.clone()], narrow).cast(ScalarType::I32));
            Term::new(e, low as f64, high as f64)
        })
        .collect();
    let more = m.random.below(3);
    repeated(m, &mut terms, more);
    terms.extend(numbers);
    let unary = 1 + m.random.below(4);
    let mut value = m.combine_int(terms, unary, 25);
    if value.low < low as f64 || value.high > high as f64 {
        let bounds = vec![value.e, ProgramExpr::int(low), ProgramExpr::int(high)];
        value.e = ProgramExpr::call(BuiltinFn::Clamp, bounds);
    }
    let out = m.output(narrow, &[n]);
    m.push(ProgramStmt::Store(out, vec![i], value.e.cast(narrow)));
}

/// A bit expression over some leaves, with `more` additional operations.
fn bits(m: &mut ProgramBuilder, scalar: ScalarType, mut leaves: Vec<ProgramExpr>, mut more: usize) -> ProgramExpr {
    let number = |value: i64| ProgramExpr::typed_int(scalar, value);
    // Operations on signed numbers must not touch the sign bit.
    let signed = scalar.is_signed();
    loop {
        if leaves.len() == 1 && more == 0 {
            return leaves.remove(0);
        }
        let at = m.random.below(leaves.len());
        let a = leaves.swap_remove(at);
        let combined = if more > 0 && (leaves.is_empty() || m.random.chance(50)) {
            more -= 1;
            let shift = number(m.random.in_range(1, 15));
            match m.random.below(7) {
                0 => ProgramExpr::binary(BinaryOp::Shr, a, shift),
                1 if !signed => ProgramExpr::binary(BinaryOp::Shl, a, shift),
                2 if !signed => {
                    let factor =
                        *m.random.pick(&[0x9e37_79b1u32, 0x85eb_ca6b, 0xc2b2_ae35, 0x27d4_eb2f, 16777619, 31, 33, 5]);
                    ProgramExpr::binary(BinaryOp::Mul, a, number(factor as i64))
                }
                3 => {
                    let mask = *m.random.pick(&[0xff, 0xffff, 0x0f0f0f, 0x555555, 0x7fffff, 0xff00ff]);
                    ProgramExpr::binary(BinaryOp::BitAnd, a, number(mask))
                }
                4 => ProgramExpr::binary(BinaryOp::BitOr, a, number(*m.random.pick(&[1i64, 3, 17, 64, 256]))),
                5 if !signed => ProgramExpr::unary(UnaryOp::Invert, a),
                6 if !signed => ProgramExpr::binary(BinaryOp::Add, a, number(m.random.in_range(1, 0xffff))),
                _ => ProgramExpr::binary(BinaryOp::BitXor, a, number(m.random.in_range(1, 0xffff))),
            }
        } else {
            let at = m.random.below(leaves.len());
            let b = leaves.swap_remove(at);
            let op =
                *m.random.pick(&[BinaryOp::BitXor, BinaryOp::BitXor, BinaryOp::BitOr, BinaryOp::BitAnd, BinaryOp::Add]);
            let op = if signed && op == BinaryOp::Add { BinaryOp::BitXor } else { op };
            if a == b {
                ProgramExpr::binary(
                    BinaryOp::BitXor,
                    a,
                    ProgramExpr::binary(BinaryOp::Shr, b, number(m.random.in_range(1, 15))),
                )
            } else {
                ProgramExpr::binary(op, a, b)
            }
        };
        if m.random.chance(20) && combined.operations() > 2 {
            let named = m.bind(combined);
            if m.random.chance(40) {
                leaves.push(named.clone());
            }
            leaves.push(named);
        } else {
            leaves.push(combined);
        }
    }
}

/// 16-bit floats, computed in 32 or 16 bits.
pub fn half_precision(m: &mut ProgramBuilder) {
    let narrow = *m.random.pick(&[ScalarType::F16, ScalarType::F16, ScalarType::BF16]);
    let in_sixteen = m.random.chance(35);
    let compute = if in_sixteen { narrow } else { ScalarType::F32 };
    let n = m.size("n", false, 0, 300);
    let count = 1 + m.random.below(3);
    let arrays: Vec<_> = (0..count)
        .map(|_| {
            let range = *m.random.pick(&[(-1.0, 1.0), (0.0, 1.0), (0.5, 2.0), (-2.0, 2.0)]);
            (m.input(narrow, &[n], ArrayFill::Uniform(range.0, range.1)), range)
        })
        .collect();
    let wide_out = !in_sixteen && m.random.chance(25);
    let out = m.output(if wide_out { ScalarType::F32 } else { narrow }, &[n]);
    let count = if in_sixteen { 0 } else { m.random.below(2) };
    let numbers = scalars(m, count, ScalarType::F32);
    let i = m.index("i", n);
    let mut terms: Vec<Term> = (arrays.into_iter())
        .map(|(array, range)| {
            let e = ProgramExpr::load(array, vec![i.clone()], narrow).cast(compute);
            let e = if !in_sixteen || m.random.chance(40) { m.bind(e) } else { e };
            Term::new(e, range.0, range.1)
        })
        .collect();
    let more = m.random.below(3);
    repeated(m, &mut terms, more);
    terms.extend(numbers);
    let unary = 1 + m.random.below(3);
    let value = if in_sixteen { sixteen(m, terms, narrow) } else { m.combine(terms, unary, 25, &MIXED) };
    let value = if wide_out || in_sixteen { value } else { m.narrowed(value, 500.0) };
    let e = value.e.cast(if wide_out { ScalarType::F32 } else { narrow });
    m.push(ProgramStmt::Store(out, vec![i], e));
}

/// Sums and products in 16 bits.
fn sixteen(m: &mut ProgramBuilder, mut terms: Vec<Term>, narrow: ScalarType) -> Term {
    let extra = 1 + m.random.below(3);
    for _ in 0..extra {
        let value = *m.random.pick(&[0.5, 0.25, 2.0, 1.5, 0.75]);
        terms.push(Term::new(ProgramExpr::float(narrow, value), value, value));
    }
    for n in (1..terms.len()).rev() {
        let at = m.random.below(n + 1);
        terms.swap(n, at);
    }
    let mut result = terms.remove(0);
    for term in terms {
        let op = *m.random.pick(&[BinaryOp::Add, BinaryOp::Mul, BinaryOp::Sub, BinaryOp::Mul]);
        let (left, term) = if m.random.chance(40) { (term, result) } else { (result, term) };
        result = left;
        let op = if op == BinaryOp::Sub && result.e == term.e { BinaryOp::Add } else { op };
        let (low, high) = match op {
            BinaryOp::Add => (result.low + term.low, result.high + term.high),
            BinaryOp::Sub => (result.low - term.high, result.high - term.low),
            _ => {
                let size = result.size() * term.size();
                (-size, size)
            }
        };
        result = Term::new(ProgramExpr::binary(op, result.e, term.e), low, high);
        if result.e.operations() > 2 && m.random.chance(40) {
            result.e = m.bind(result.e);
        }
    }
    result
}
