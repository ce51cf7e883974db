//! Kernels about where values go: atomics, gathers, scatters, counts; and about bits, narrow floats, random numbers and
//! functions.

use super::elementwise::{RANGES, float, line, repeated, scalars};
use super::maker::Maker;
use super::names;
use super::term::{ARITHMETIC, Fun, MATH, MIXED, Op, PLAIN, Term};
use crate::program::{Binary, Builtin, Expr, Fill, Func, Scalar, Size, Stmt, Ty, Unary, Update};

/// Updates of elements that many threads share.
pub fn atomic(m: &mut Maker) {
    let ints = m.random.chance(55);
    let scalar =
        if ints { *m.random.weighted(&[(5, Scalar::I32), (2, Scalar::U32), (1, Scalar::U64)]) } else { float(m) };
    let count = 1 + m.random.below(2);
    let mut l = line(m, count, scalar);
    let mut terms = std::mem::take(&mut l.terms);
    let bins = *m.random.pick(&[1u32, 1, 4, 8, 16, 10]);
    let out = m.array(
        ["total", "result", "counts", "sums", "buckets", "best"][bins as usize % 6],
        scalar,
        &[Size::Known(bins)],
        Fill::Zero,
        true,
    );
    let more = m.random.below(3);
    let first = terms[0].clone();
    repeated(m, &mut terms, more);
    let unary = 1 + m.random.below(4);
    let value = if ints { m.combine_int(terms, unary, 15) } else { m.combine(terms, unary, 15, &MIXED) };
    let value = if ints { value } else { m.narrowed(value, 100.0) };
    let value = if ints && scalar.bits() == 32 { m.small_int(value) } else { value };
    let at = match (bins, m.random.below(2)) {
        (1, _) => Expr::int(0),
        (_, 0) => Expr::binary(Binary::Rem, l.i.clone(), Expr::int(bins as i64)),
        _ if ints && scalar.is_signed() => {
            let size = m.not_negative(first.clone());
            Expr::binary(Binary::Rem, size.e, Expr::int_of(scalar, bins as i64)).cast(Scalar::I32)
        }
        _ => {
            let by = m.random.within(2, 7);
            Expr::binary(
                Binary::Rem,
                Expr::binary(Binary::Quotient, l.i.clone(), Expr::int(by)),
                Expr::int(bins as i64),
            )
        }
    };
    let update = match scalar {
        Scalar::I32 | Scalar::U32 => {
            *m.random.pick(&[Update::Add, Update::Max, Update::Min, Update::Add, Update::Or, Update::Xor])
        }
        // Of 64 bits CUDA adds unsigned ones alone.
        Scalar::U64 => Update::Add,
        _ => Update::Add,
    };
    // Nothing is below 0 that only ever sees larger ones.
    let update = if update == Update::Min && value.low >= 0.0 { Update::Max } else { update };
    let step = Stmt::Atomic(update, out, vec![at], value.e);
    if m.random.chance(45) {
        let condition = if ints {
            let op = *m.random.pick(&[Binary::Gt, Binary::Lt, Binary::Ge]);
            let middle = ((first.low + first.high) / 2.0) as i64;
            Expr::binary(op, first.e, Expr::int_of(scalar, middle))
        } else {
            m.threshold(&first, Binary::Gt)
        };
        m.push(Stmt::If(condition, vec![step], vec![]));
    } else {
        m.push(step);
    }
}

/// Elements found through indices.
pub fn gather_scatter(m: &mut Maker) {
    let scalar = float(m);
    let range = *m.random.pick(RANGES);
    match m.random.below(4) {
        0 => {
            // Reads through indices.
            let n = m.size("n", false, 0, 300);
            let table = m.size("m", false, 1, 50);
            let source = m.input(scalar, &[table], Fill::Uniform(range.0, range.1));
            let several = 1 + m.random.below(2);
            let name = *m.random.pick(&["indices", "idx", "order", "links"]);
            let indices: Vec<_> =
                (0..several).map(|_| m.array(name, Scalar::I32, &[n], Fill::Below(table), false)).collect();
            let own = m.random.chance(50).then(|| m.input(scalar, &[n], Fill::Uniform(-1.0, 1.0)));
            let count = m.random.below(2);
            let numbers = scalars(m, count, scalar);
            let i = m.index("i", n);
            let mut terms: Vec<Term> = (indices.iter())
                .map(|index| {
                    let at = Expr::load(*index, vec![i.clone()], Scalar::I32);
                    let at = if m.random.chance(50) { m.bind_as("k", at) } else { at };
                    Term::new(Expr::load(source, vec![at], scalar), range.0, range.1)
                })
                .collect();
            terms.extend(own.map(|own| Term::new(Expr::load(own, vec![i.clone()], scalar), -1.0, 1.0)));
            let more = m.random.below(3);
            repeated(m, &mut terms, more);
            terms.extend(numbers);
            let unary = 1 + m.random.below(4);
            let value = m.combine(terms, unary, 20, &MIXED);
            let out = m.output(scalar, &[n]);
            m.push(Stmt::Store(out, vec![i], value.e));
        }
        1 => {
            // Writes to places that are all different.
            let n = m.size("n", false, 0, 300);
            let count = 1 + m.random.below(2);
            let inputs: Vec<_> = (0..count).map(|_| m.input(scalar, &[n], Fill::Uniform(range.0, range.1))).collect();
            let name = *m.random.pick(&["perm", "order", "slots", "targets"]);
            let places = m.array(name, Scalar::I32, &[n], Fill::Permutation(n), false);
            let out = m.output(scalar, &[n]);
            let i = m.index("i", n);
            let at = m.bind_as("slot", Expr::load(places, vec![i.clone()], Scalar::I32));
            let mut terms: Vec<Term> = vec![];
            let mut fetched = false;
            for array in inputs {
                let index = if m.random.chance(40) { at.clone() } else { i.clone() };
                fetched |= index == at;
                terms.push(Term::new(Expr::load(array, vec![index], scalar), range.0, range.1));
            }
            let more = m.random.below(3);
            repeated(m, &mut terms, more);
            let unary = 1 + m.random.below(4);
            let value = m.combine(terms, unary, 20, &MIXED);
            let to = if !fetched || m.random.chance(70) { at } else { i };
            m.push(Stmt::Store(out, vec![to], value.e));
        }
        2 => {
            // Sums at places that may be the same.
            let n = m.size("n", false, 0, 300);
            let table = m.size("m", false, 1, 40);
            let input = m.input(scalar, &[n], Fill::Uniform(range.0, range.1));
            let places = m.array("bins", Scalar::I32, &[n], Fill::Below(table), false);
            let weights = m.random.chance(50).then(|| m.input(scalar, &[table], Fill::Uniform(0.5, 2.0)));
            let out = m.output(scalar, &[table]);
            let i = m.index("i", n);
            let at = m.bind_as("b", Expr::load(places, vec![i.clone()], Scalar::I32));
            let mut terms = vec![Term::new(Expr::load(input, vec![i], scalar), range.0, range.1)];
            terms.extend(weights.map(|w| Term::new(Expr::load(w, vec![at.clone()], scalar), 0.5, 2.0)));
            let more = m.random.below(3);
            repeated(m, &mut terms, more);
            let unary = 1 + m.random.below(4);
            let value = m.combine(terms, unary, 20, &MATH);
            let value = m.narrowed(value, 50.0);
            m.push(Stmt::Atomic(Update::Add, out, vec![at], value.e));
        }
        _ => rows(m, scalar, range),
    }
}

/// Rows of a sparse matrix: offsets, columns, values.
fn rows(m: &mut Maker, scalar: Scalar, range: (f64, f64)) {
    let n = m.size("rows", false, 1, 40);
    let entries = m.size("nnz", false, 0, 200);
    let columns = m.size("cols", false, 1, 30);
    let Size::Param(rows) = n else { return };
    let offsets = m.array("row_start", Scalar::I32, &[Size::Plus(rows, 1)], Fill::Offsets(entries), false);
    let index = m.array("col_index", Scalar::I32, &[entries], Fill::Below(columns), false);
    let values = m.input(scalar, &[entries], Fill::Uniform(range.0, range.1));
    let x = m.input(scalar, &[columns], Fill::Uniform(-1.0, 1.0));
    let out = m.output(scalar, &[n]);
    let count = m.random.below(2);
    let numbers = scalars(m, count, scalar);
    let i = m.index("row", n);
    let sum = m.changing("acc", Expr::float(scalar, 0.0));
    let low = m.bind_as("begin", Expr::load(offsets, vec![i.clone()], Scalar::I32));
    let next = Expr::binary(Binary::Add, i.clone(), Expr::int(1));
    let high = m.bind_as("end", Expr::load(offsets, vec![next], Scalar::I32));
    m.count("k", low, high, 1, |m, k| {
        let at = Expr::load(index, vec![k.clone()], Scalar::I32);
        let mut terms = vec![
            Term::new(Expr::load(values, vec![k], scalar), range.0, range.1),
            Term::new(Expr::load(x, vec![at], scalar), -1.0, 1.0),
        ];
        let unary = m.random.below(3);
        if m.random.chance(60) {
            let (a, b) = (terms.remove(0), terms.remove(0));
            terms = vec![m.join(Op::Mul, a, b)];
        }
        let value = m.combine(terms, unary, 10, &MIXED);
        m.push(Stmt::Update(sum, Binary::Add, value.e));
    });
    let mut terms = vec![Term::new(m.read(sum), -100.0, 100.0)];
    terms.extend(numbers);
    let unary = 1 + m.random.below(3);
    let value = m.combine(terms, unary, 10, &MIXED);
    m.push(Stmt::Store(out, vec![i], value.e));
}

/// Shifts, masks, hashes and counts of bits.
pub fn integer_bits(m: &mut Maker) {
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
                let turned = Expr::binary(Binary::BitOr, left, right);
                let turned =
                    if leaves.len() > 1 { Expr::binary(Binary::BitXor, turned, leaves.remove(1)) } else { turned };
                m.push(Stmt::Assign(var, turned));
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
                let turns = Expr::int(m.random.within(2, 6));
                let inner = m.random.within(1, 2) as usize;
                m.count("round_id", Expr::int(0), turns, 1, |m, k| {
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

/// An expression of bits over some leaves, with so many operations more.
fn bits(m: &mut Maker, scalar: Scalar, mut leaves: Vec<Expr>, mut more: usize) -> Expr {
    let number = |value: i64| Expr::int_of(scalar, value);
    // Of signed numbers no bit that could be the sign is moved or made.
    let signed = scalar.is_signed();
    loop {
        if leaves.len() == 1 && more == 0 {
            return leaves.remove(0);
        }
        let at = m.random.below(leaves.len());
        let a = leaves.swap_remove(at);
        let made = if more > 0 && (leaves.is_empty() || m.random.chance(50)) {
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
        if m.random.chance(20) && made.operations() > 2 {
            let named = m.bind(made);
            if m.random.chance(40) {
                leaves.push(named.clone());
            }
            leaves.push(named);
        } else {
            leaves.push(made);
        }
    }
}

/// 16-bit floats, computed in 32 bits or in 16.
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
    let mut whole = terms.remove(0);
    for term in terms {
        let op = *m.random.pick(&[Binary::Add, Binary::Mul, Binary::Sub, Binary::Mul]);
        let (whole_before, term) = if m.random.chance(40) { (term, whole) } else { (whole, term) };
        whole = whole_before;
        let op = if op == Binary::Sub && whole.e == term.e { Binary::Add } else { op };
        let (low, high) = match op {
            Binary::Add => (whole.low + term.low, whole.high + term.high),
            Binary::Sub => (whole.low - term.high, whole.high - term.low),
            _ => {
                let size = whole.size() * term.size();
                (-size, size)
            }
        };
        whole = Term::new(Expr::binary(op, whole.e, term.e), low, high);
        if whole.e.operations() > 2 && m.random.chance(40) {
            whole.e = m.bind(whole.e);
        }
    }
    whole
}

/// Random numbers made in the kernel.
pub fn random_numbers(m: &mut Maker) {
    let n = m.size("n", false, 0, 300);
    let own = m.random.chance(60).then(|| m.input(Scalar::F32, &[n], Fill::Uniform(-2.0, 2.0)));
    let ints = own.is_none() && m.random.chance(35);
    let out = m.output(if ints { Scalar::I32 } else { Scalar::F32 }, &[n]);
    let seed = m.value("seed", Scalar::I32, 1.0, 100000.0);
    let count = m.random.below(2) * (!ints) as usize;
    let numbers = scalars(m, count, Scalar::F32);
    let i = m.index("i", n);
    let state = m.variable("state", Scalar::U32, true);
    let seed = Expr::var(seed, Scalar::I32);
    m.push(Stmt::Seed(state, seed, i.clone()));
    let draw = |m: &mut Maker, range: Option<(i64, i64)>| {
        let name = *m.random.pick(&["u", "noise_val", "roll", "jitter", "pick", "chance"]);
        let ty = if range.is_some() { Scalar::I32 } else { Scalar::F32 };
        let var = m.variable(name, ty, false);
        m.push(Stmt::Draw(var, state, range));
        match range {
            None => Term::new(Expr::var(var, ty), 0.0, 1.0),
            Some((low, high)) => Term::new(Expr::var(var, ty), low as f64, high as f64 - 1.0),
        }
    };
    if ints {
        let mut terms = vec![];
        for _ in 0..1 + m.random.below(3) {
            let low = m.random.within(-5, 5);
            let high = low + m.random.within(2, 100);
            terms.push(draw(m, Some((low, high))));
        }
        if m.random.chance(50) {
            terms.push(Term::new(i.clone(), 0.0, 1000.0));
        }
        let unary = 1 + m.random.below(3);
        let value = m.combine_int(terms, unary, 15);
        return m.push(Stmt::Store(out, vec![i], value.e));
    }
    let mut terms: Vec<Term> = vec![];
    let own = own.map(|own| Term::new(Expr::load(own, vec![i.clone()], Scalar::F32), -2.0, 2.0));
    match m.random.below(4) {
        0 => {
            // Kept or dropped.
            let u = draw(m, None);
            let p = *m.random.pick(&[0.25, 0.5, 0.1, 0.75, 0.3]);
            let kept = Expr::binary(*m.random.pick(&[Binary::Lt, Binary::Ge]), u.e, Expr::float(Scalar::F32, p));
            let value = own.clone().unwrap_or(Term::new(Expr::float(Scalar::F32, 1.0), 1.0, 1.0));
            let scaled = m.apply(Fun::Scale, value);
            let other =
                if m.random.chance(60) { Term::new(Expr::float(Scalar::F32, 0.0), 0.0, 0.0) } else { draw(m, None) };
            let (low, high) = (scaled.low.min(other.low), scaled.high.max(other.high));
            terms.push(Term::new(Expr::choose(kept, scaled.e, other.e), low, high));
        }
        1 => {
            // Points that fall into a circle.
            let hits = m.changing("hits", Expr::float(Scalar::F32, 0.0));
            let turns = Expr::int(m.random.within(4, 12));
            m.count("trial", Expr::int(0), turns, 1, |m, _| {
                let (a, b) = (draw(m, None), draw(m, None));
                let a = m.apply(Fun::Square, a);
                let b = m.apply(Fun::Square, b);
                let sum = Expr::binary(Binary::Add, a.e, b.e);
                let inside = Expr::binary(Binary::Le, sum, Expr::float(Scalar::F32, *m.random.pick(&[1.0, 0.5, 0.75])));
                let one = Expr::float(Scalar::F32, 1.0);
                let then = m.block(|m| m.push(Stmt::Update(hits, Binary::Add, one)));
                m.push(Stmt::If(inside, then, vec![]));
            });
            terms.push(Term::new(m.read(hits), 0.0, 12.0));
        }
        2 => {
            // A walk.
            let at = m.changing("walk", own.clone().map_or(Expr::float(Scalar::F32, 0.0), |t| t.e));
            let turns = Expr::int(m.random.within(3, 10));
            let half = Expr::float(Scalar::F32, *m.random.pick(&[0.5, 0.25, 0.375]));
            let menu = m.random.below(2);
            m.count("step", Expr::int(0), turns, 1, |m, _| {
                let u = draw(m, None);
                let moved = Term::new(Expr::binary(Binary::Sub, u.e, half), -0.5, 0.75);
                let moved = if menu == 0 { moved } else { m.apply(Fun::Scale, moved) };
                m.push(Stmt::Update(at, Binary::Add, moved.e));
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
    if let Some(own) = own
        && m.random.chance(70)
    {
        terms.push(own);
    }
    let more = m.random.below(2);
    repeated(m, &mut terms, more);
    terms.extend(numbers);
    let unary = 2 + m.random.below(4);
    let menu = if m.random.chance(50) { &MATH } else { &MIXED };
    let value = m.combine(terms, unary, 20, menu);
    m.push(Stmt::Store(out, vec![i], value.e));
}

/// A function of one to three numbers.
fn function(m: &mut Maker, scalar: Scalar, earlier: &[(Func, usize)]) -> (Func, usize) {
    let count = 1 + m.random.below(3);
    let all = ["a", "b", "c"];
    let params: Vec<(&str, Ty)> = all[..count].iter().map(|name| (*name, scalar.into())).collect();
    let params = m.open_function(&params);
    let mut terms: Vec<Term> = params.iter().map(|e| Term::new(e.clone(), -4.0, 4.0)).collect();
    if m.random.chance(25) {
        let op = *m.random.pick(&[Binary::Lt, Binary::Gt]);
        let first = terms[0].clone();
        let condition = m.threshold(&first, op);
        let then = m.block(|m| {
            let some = m.random.pick(&terms).clone();
            let value = m.combine(vec![some], 1, 0, &PLAIN);
            let value = m.narrowed(value, 4.0);
            m.push(Stmt::Return(Some(value.e)));
        });
        m.push(Stmt::If(condition, then, vec![]));
    }
    if let Some((func, arity)) = earlier.last()
        && m.random.chance(45)
    {
        let args: Vec<Expr> = (0..*arity)
            .map(|_| {
                let some = m.random.pick(&terms).clone();
                m.narrowed(some, 4.0).e
            })
            .collect();
        terms.push(Term::new(Expr::function(*func, args, scalar), -4.0, 4.0));
    }
    let unary = 1 + m.random.below(2);
    let value = m.combine(terms, unary, 25, &MIXED);
    let value = m.narrowed(value, 4.0);
    m.push(Stmt::Return(Some(value.e)));
    let (verb, noun) =
        (*m.random.pick(names::VERBS), *m.random.pick(&["pair", "term", "part", "value", "level", "rate", "edge"]));
    (m.close_function(&format!("{verb}_{noun}"), scalar), count)
}

/// Kernels that call functions.
pub fn functions(m: &mut Maker) {
    let scalar = float(m);
    let mut made = vec![];
    for _ in 0..1 + m.random.below(2) {
        let next = function(m, scalar, &made);
        made.push(next);
    }
    let count = 1 + m.random.below(3);
    let mut l = line(m, count, scalar);
    let mut terms = std::mem::take(&mut l.terms);
    let inputs = terms.clone();
    for (func, arity) in &made {
        for _ in 0..1 + m.random.below(2) {
            let args: Vec<Expr> = (0..*arity)
                .map(|_| {
                    let some = m.random.pick(&inputs).clone();
                    m.narrowed(some, 4.0).e
                })
                .collect();
            terms.push(Term::new(Expr::function(*func, args, scalar), -4.0, 4.0));
        }
    }
    let unary = m.random.below(3);
    let value = m.combine(terms, unary, 25, &ARITHMETIC);
    let out = m.output(scalar, &[l.n]);
    m.push(Stmt::Store(out, vec![l.i], value.e));
}

/// Loops within loops and branches within loops.
pub fn nested(m: &mut Maker) {
    let scalar = float(m);
    let rows = m.size("rows", false, 0, 40);
    let cols = m.size("cols", true, 0, 12);
    let range = *m.random.pick(RANGES);
    let a = m.input(scalar, &[rows, cols], Fill::Uniform(range.0, range.1));
    let b = m.random.chance(60).then(|| m.input(scalar, &[cols], Fill::Uniform(-1.0, 1.0)));
    let out = m.output(scalar, &[rows]);
    let count = m.random.below(2);
    let numbers = scalars(m, count, scalar);
    let i = m.index("row", rows);
    let first = *m.random.pick(&[0.0, 1.0, 0.5]);
    let acc = m.changing("acc", Expr::float(scalar, first));
    let high = m.extent(cols);
    let depth = 1 + m.random.chance(55) as usize;
    let branch = m.random.chance(70);
    let inner_turns = m.random.within(2, 4);
    m.count("j", Expr::int(0), high.clone(), 1, |m, j| {
        let own = Term::new(Expr::load(a, vec![i.clone(), j.clone()], scalar), range.0, range.1);
        let own = Term { e: m.bind(own.e), ..own };
        let mut terms = vec![own.clone()];
        terms.extend(b.map(|b| Term::new(Expr::load(b, vec![j.clone()], scalar), -1.0, 1.0)));
        terms.extend(numbers.clone());
        let body = |m: &mut Maker, mut terms: Vec<Term>| {
            if m.random.chance(50) {
                terms.push(Term::new(j.clone().cast(scalar), 0.0, 12.0));
            }
            let unary = 1 + m.random.below(2);
            let value = m.combine(terms, unary, 15, &MIXED);
            let value = m.narrowed(value, 4.0);
            match m.random.below(3) {
                0 => m.push(Stmt::Update(acc, Binary::Add, value.e)),
                1 => m.push(Stmt::Update(acc, Binary::Sub, value.e)),
                _ => {
                    let now = Term::new(m.read(acc), -8.0, 8.0);
                    let op = *m.random.pick(&[Op::Max, Op::Min, Op::Add]);
                    let joined = m.join(op, now, value);
                    let joined = m.narrowed(joined, 8.0);
                    m.push(Stmt::Assign(acc, joined.e));
                }
            }
        };
        if branch {
            let others = terms.clone();
            let condition = super::elementwise::condition(m, &others);
            let then = m.block(|m| {
                if depth > 1 {
                    m.count("k", Expr::int(0), Expr::int(inner_turns), 1, |m, k| {
                        let mut terms = others.clone();
                        terms.push(Term::new(k.cast(scalar), 0.0, 4.0));
                        body(m, terms);
                    });
                } else {
                    body(m, others.clone());
                }
            });
            let otherwise = if m.random.chance(60) { m.block(|m| body(m, vec![own])) } else { vec![] };
            m.push(Stmt::If(condition, then, otherwise));
        } else {
            let high = if m.random.chance(50) {
                Expr::int(inner_turns)
            } else {
                Expr::binary(Binary::Add, j.clone(), Expr::int(1))
            };
            m.count("k", Expr::int(0), high, 1, |m, k| {
                let mut terms = terms.clone();
                let place =
                    Expr::load(a, vec![i.clone(), Expr::call(Builtin::Min, vec![k.clone(), j.clone()])], scalar);
                if m.random.chance(60) {
                    terms.push(Term::new(place, range.0, range.1));
                } else {
                    terms.push(Term::new(k.cast(scalar), 0.0, 12.0));
                }
                body(m, terms);
            });
        }
    });
    let value = m.read(acc);
    m.push(Stmt::Store(out, vec![i], value));
}
