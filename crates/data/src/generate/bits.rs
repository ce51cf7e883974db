//! Kernels of integer bit operations and of 16-bit floats.

use super::elementwise::{repeated, scalars};
use super::maker::Maker;
use super::term::{MIXED, Term};
use crate::program::{Binary, Builtin, Expr, Fill, Scalar, Stmt, Unary};

/// Shifts, masks, hashes and bit counts; in some, integers of 8 and 16 bits.
pub fn integer_bits(m: &mut Maker) {
    if m.random.chance(25) {
        return few_bits(m);
    }
    let scalar = *m.random.weighted(&[(5, Scalar::U32), (2, Scalar::I32), (1, Scalar::U64)]);
    let n = m.size("n", false, 0, 300);
    let count = 1 + m.random.below(2);
    let high = if scalar == Scalar::I32 { 1e6 } else { 4e9 };
    let arrays: Vec<_> = (0..count)
        .map(|_| {
            let name = *m.random.pick(&["keys", "words", "codes", "bits", "flags", "values", "hashes"]);
            m.array(name, scalar, &[n], Fill::Uniform(0.0, high), false)
        })
        .collect();
    let i = m.index("i", n);
    let mut terms: Vec<Expr> = arrays.iter().map(|a| Expr::load(*a, vec![i.clone()], scalar)).collect();
    if m.random.chance(30) {
        terms.push(i.clone().cast(scalar));
    }
    let name = *m.random.pick(&["h", "bits_val", "word", "mix", "key"]);
    let first = terms.remove(0);
    let key = first.clone();
    let var = m.changing(name, first);
    let steps = 1 + m.random.below(4);
    let number = |value: i64| Expr::int_of(scalar, value);
    for _ in 0..steps {
        let now = m.read(var);
        let mut leaves = vec![now.clone()];
        if !terms.is_empty() && m.random.chance(60) {
            leaves.push(terms.remove(0));
        }
        match m.random.below(8) {
            0 if scalar != Scalar::I32 => {
                let k = m.random.within(3, 13);
                let left = Expr::binary(Binary::Shl, now.clone(), number(k));
                let right = Expr::binary(Binary::Shr, now, number(scalar.bits() as i64 - k));
                let rotated = Expr::binary(Binary::BitOr, left, right);
                let rotated =
                    if leaves.len() > 1 { Expr::binary(Binary::BitXor, rotated, leaves.remove(1)) } else { rotated };
                m.push(Stmt::Assign(var, rotated));
            }
            1 => {
                let tested = bits(m, scalar, leaves, 1);
                let mask = number(*m.random.pick(&[1i64, 2, 4, 3, 7, 8]));
                let zero = number(0);
                let odd = Expr::binary(
                    *m.random.pick(&[Binary::Ne, Binary::Eq]),
                    Expr::binary(Binary::BitAnd, tested, mask),
                    zero,
                );
                // Known bits may decide the condition.
                if !m.bits_go_both_ways(&odd) {
                    let value = bits(m, scalar, vec![now], 2);
                    m.push(Stmt::Assign(var, value));
                    continue;
                }
                let then = m.block(|m| {
                    let value = bits(m, scalar, vec![now.clone()], 2);
                    m.push(Stmt::Assign(var, value));
                });
                let otherwise = m.block(|m| {
                    let value = bits(m, scalar, vec![now.clone()], 1);
                    m.push(Stmt::Update(var, Binary::BitXor, value));
                });
                let otherwise = if m.random.chance(60) { otherwise } else { vec![] };
                m.push(Stmt::If(odd, then, otherwise));
            }
            2 => {
                let iterations = Expr::int(m.random.within(2, 6));
                let inner = m.random.within(1, 2) as usize;
                m.count("round_id", Expr::int(0), iterations, 1, |m, k| {
                    let now = m.read(var);
                    let mut leaves = leaves.clone();
                    if m.random.chance(50) {
                        leaves.push(k.cast(scalar));
                    }
                    leaves.push(now);
                    let value = bits(m, scalar, leaves, inner);
                    m.push(Stmt::Assign(var, value));
                });
            }
            3 | 4 => {
                let depth = 1 + m.random.below(3);
                let value = bits(m, scalar, leaves, depth);
                let op = *m.random.pick(&[Binary::BitXor, Binary::BitOr, Binary::BitAnd, Binary::BitXor]);
                m.push(Stmt::Update(var, op, value));
            }
            _ => {
                let depth = 2 + m.random.below(3);
                let value = bits(m, scalar, leaves, depth);
                m.push(Stmt::Assign(var, value));
            }
        }
    }
    for other in terms {
        let op = *m.random.pick(&[Binary::BitXor, Binary::BitOr]);
        m.push(Stmt::Update(var, op, other));
    }
    let value = m.read(var);
    // Masks and shifts may have erased all bits of the keys.
    if m.bits_are_fixed(&value) {
        m.push(Stmt::Update(var, Binary::BitXor, key));
    }
    match m.random.below(4) {
        0 => {
            let out = m.output(Scalar::I32, &[n]);
            let bits = Expr::call(Builtin::BitCount, vec![value]).cast(Scalar::I32);
            let parity = m.random.chance(40);
            let bits = if parity { Expr::binary(Binary::Rem, bits, Expr::int(2)) } else { bits };
            m.push(Stmt::Store(out, vec![i], bits));
        }
        1 => {
            let out = m.output(Scalar::I32, &[n]);
            let buckets = m.random.within(8, 1024);
            let rest = if scalar == Scalar::I32 { Expr::call(Builtin::Abs, vec![value]) } else { value };
            let rest = Expr::binary(Binary::Rem, rest, number(buckets)).cast(Scalar::I32);
            m.push(Stmt::Store(out, vec![i], rest));
        }
        2 if scalar != Scalar::I32 => {
            let out = m.output(scalar, &[n]);
            m.push(Stmt::Store(out, vec![i], Expr::unary(Unary::Invert, value)));
        }
        _ => {
            let out = m.output(scalar, &[n]);
            m.push(Stmt::Store(out, vec![i], value));
        }
    }
}

/// Integers of 8 and 16 bits, computed in 32 bits and clamped to their type.
fn few_bits(m: &mut Maker) {
    let narrow = *m.random.pick(&[Scalar::I8, Scalar::U8, Scalar::I16, Scalar::U16]);
    let (low, high) = match narrow {
        Scalar::I8 => (-128, 127),
        Scalar::U8 => (0, 255),
        Scalar::I16 => (-32768, 32767),
        _ => (0, 65535),
    };
    let n = m.size("n", false, 0, 600);
    let count = 1 + m.random.below(3);
    let arrays: Vec<_> = (0..count)
        .map(|_| {
            let name = *m.random.pick(&["samples", "codes", "levels", "quantised", "pixels", "counts", "ticks"]);
            m.array(name, narrow, &[n], Fill::Uniform(low as f64, high as f64), false)
        })
        .collect();
    let count = m.random.below(2);
    let numbers = scalars(m, count, Scalar::I32);
    let i = m.index("i", n);
    let mut terms: Vec<Term> = (arrays.into_iter())
        .map(|array| {
            let e = m.bind(Expr::load(array, vec![i.clone()], narrow).cast(Scalar::I32));
            Term::new(e, low as f64, high as f64)
        })
        .collect();
    let more = m.random.below(3);
    repeated(m, &mut terms, more);
    terms.extend(numbers);
    let unary = 1 + m.random.below(4);
    let mut value = m.combine_int(terms, unary, 25);
    if value.low < low as f64 || value.high > high as f64 {
        let bounds = vec![value.e, Expr::int(low), Expr::int(high)];
        value.e = Expr::call(Builtin::Clamp, bounds);
    }
    let out = m.output(narrow, &[n]);
    m.push(Stmt::Store(out, vec![i], value.e.cast(narrow)));
}

/// A bit expression over some leaves, with `more` additional operations.
fn bits(m: &mut Maker, scalar: Scalar, mut leaves: Vec<Expr>, mut more: usize) -> Expr {
    let number = |value: i64| Expr::int_of(scalar, value);
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
            let shift = number(m.random.within(1, 15));
            match m.random.below(7) {
                0 => Expr::binary(Binary::Shr, a, shift),
                1 if !signed => Expr::binary(Binary::Shl, a, shift),
                2 if !signed => {
                    let factor =
                        *m.random.pick(&[0x9e37_79b1u32, 0x85eb_ca6b, 0xc2b2_ae35, 0x27d4_eb2f, 16777619, 31, 33, 5]);
                    Expr::binary(Binary::Mul, a, number(factor as i64))
                }
                3 => {
                    let mask = *m.random.pick(&[0xff, 0xffff, 0x0f0f0f, 0x555555, 0x7fffff, 0xff00ff]);
                    Expr::binary(Binary::BitAnd, a, number(mask))
                }
                4 => Expr::binary(Binary::BitOr, a, number(*m.random.pick(&[1i64, 3, 17, 64, 256]))),
                5 if !signed => Expr::unary(Unary::Invert, a),
                6 if !signed => Expr::binary(Binary::Add, a, number(m.random.within(1, 0xffff))),
                _ => Expr::binary(Binary::BitXor, a, number(m.random.within(1, 0xffff))),
            }
        } else {
            let at = m.random.below(leaves.len());
            let b = leaves.swap_remove(at);
            let op = *m.random.pick(&[Binary::BitXor, Binary::BitXor, Binary::BitOr, Binary::BitAnd, Binary::Add]);
            let op = if signed && op == Binary::Add { Binary::BitXor } else { op };
            if a == b {
                Expr::binary(Binary::BitXor, a, Expr::binary(Binary::Shr, b, number(m.random.within(1, 15))))
            } else {
                Expr::binary(op, a, b)
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
pub fn half_precision(m: &mut Maker) {
    let narrow = *m.random.pick(&[Scalar::F16, Scalar::F16, Scalar::BF16]);
    let in_sixteen = m.random.chance(35);
    let compute = if in_sixteen { narrow } else { Scalar::F32 };
    let n = m.size("n", false, 0, 300);
    let count = 1 + m.random.below(3);
    let arrays: Vec<_> = (0..count)
        .map(|_| {
            let range = *m.random.pick(&[(-1.0, 1.0), (0.0, 1.0), (0.5, 2.0), (-2.0, 2.0)]);
            (m.input(narrow, &[n], Fill::Uniform(range.0, range.1)), range)
        })
        .collect();
    let wide_out = !in_sixteen && m.random.chance(25);
    let out = m.output(if wide_out { Scalar::F32 } else { narrow }, &[n]);
    let count = if in_sixteen { 0 } else { m.random.below(2) };
    let numbers = scalars(m, count, Scalar::F32);
    let i = m.index("i", n);
    let mut terms: Vec<Term> = (arrays.into_iter())
        .map(|(array, range)| {
            let e = Expr::load(array, vec![i.clone()], narrow).cast(compute);
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
    let e = value.e.cast(if wide_out { Scalar::F32 } else { narrow });
    m.push(Stmt::Store(out, vec![i], e));
}

/// Sums and products in 16 bits.
fn sixteen(m: &mut Maker, mut terms: Vec<Term>, narrow: Scalar) -> Term {
    let extra = 1 + m.random.below(3);
    for _ in 0..extra {
        let value = *m.random.pick(&[0.5, 0.25, 2.0, 1.5, 0.75]);
        terms.push(Term::new(Expr::float(narrow, value), value, value));
    }
    for n in (1..terms.len()).rev() {
        let at = m.random.below(n + 1);
        terms.swap(n, at);
    }
    let mut result = terms.remove(0);
    for term in terms {
        let op = *m.random.pick(&[Binary::Add, Binary::Mul, Binary::Sub, Binary::Mul]);
        let (left, term) = if m.random.chance(40) { (term, result) } else { (result, term) };
        result = left;
        let op = if op == Binary::Sub && result.e == term.e { Binary::Add } else { op };
        let (low, high) = match op {
            Binary::Add => (result.low + term.low, result.high + term.high),
            Binary::Sub => (result.low - term.high, result.high - term.low),
            _ => {
                let size = result.size() * term.size();
                (-size, size)
            }
        };
        result = Term::new(Expr::binary(op, result.e, term.e), low, high);
        if result.e.operations() > 2 && m.random.chance(40) {
            result.e = m.bind(result.e);
        }
    }
    result
}
