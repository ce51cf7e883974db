//! Kernels on vectors, matrices and structs.

use super::elementwise::{float, scalars};
use super::maker::Maker;
use super::term::{ARITHMETIC, MIXED, PLAIN, Term};
use crate::program::{Array, Binary, Builtin, Expr, Fill, Kind, Scalar, Size, Stmt, Struct, Ty};

/// A vector or matrix, and the maximum magnitude of its components.
#[derive(Clone)]
pub struct Bundle {
    pub e: Expr,
    pub max: f64,
}

/// A binary operation with an explicit result type.
pub fn op(op: Binary, a: Expr, b: Expr, ty: Ty) -> Expr {
    Expr::new(Kind::Binary(op, Box::new([a, b])), ty)
}

impl Maker {
    /// A scalar computed from a vector.
    pub fn measure(&mut self, a: Bundle, others: &[Bundle]) -> Term {
        let scalar = a.e.ty.element().unwrap_or(Scalar::F32);
        let n = a.e.ty.parts() as f64;
        let call = |builtin, args| Expr::call_of(builtin, args, scalar);
        match self.random.below(5) {
            0 => {
                let b = self.random.pick(others).clone();
                let max = n * a.max * b.max;
                Term::new(call(Builtin::Dot, vec![a.e, b.e]), -max, max)
            }
            1 => Term::new(call(Builtin::Length, vec![a.e]), 0.0, a.max * n.sqrt()),
            2 => Term::new(call(Builtin::LengthSq, vec![a.e]), 0.0, a.max * a.max * n),
            3 => {
                let at = self.random.below(n as usize) as u8;
                let named = self.as_variable(a.e);
                Term::new(named.component(at), -a.max, a.max)
            }
            _ => {
                let b = self.random.pick(others).clone();
                if a.e == b.e {
                    return Term::new(call(Builtin::Length, vec![a.e]), 0.0, a.max * n.sqrt());
                }
                let distance = Expr::binary(Binary::Sub, a.e, b.e);
                Term::new(call(Builtin::Length, vec![distance]), 0.0, (a.max + b.max) * n.sqrt())
            }
        }
    }

    /// A variable for a vector expression.
    pub fn as_variable(&mut self, e: Expr) -> Expr {
        if matches!(e.kind, Kind::Var(_)) { e } else { self.bind(e) }
    }

    /// Combines two vectors.
    pub fn join_vectors(&mut self, a: Bundle, b: Bundle, numbers: &[Term]) -> Bundle {
        let ty = a.e.ty;
        let scalar = ty.element().unwrap_or(Scalar::F32);
        let large = a.max.max(b.max) > 100.0;
        match self.random.below(8) {
            0 | 1 => Bundle { max: a.max + b.max, e: Expr::binary(Binary::Add, a.e, b.e) },
            2 if a.e != b.e => Bundle { max: a.max + b.max, e: Expr::binary(Binary::Sub, a.e, b.e) },
            3 if !large => Bundle { max: a.max * b.max, e: Expr::call(Builtin::CwMul, vec![a.e, b.e]) },
            4 if ty.parts() == 3 && a.e != b.e && !large => {
                Bundle { max: 2.0 * a.max * b.max, e: Expr::call(Builtin::Cross, vec![a.e, b.e]) }
            }
            6 if a.e != b.e => {
                let min = *self.random.pick(&[0.5, 1.0, 2.0]);
                let away = Expr::new(Kind::Make(vec![Expr::float(scalar, min); ty.parts()]), ty);
                let by = Expr::binary(Binary::Add, Expr::call(Builtin::Abs, vec![b.e]), away);
                Bundle { max: a.max / min, e: Expr::call(Builtin::CwDiv, vec![a.e, by]) }
            }
            5 if a.e != b.e => {
                let builtin = *self.random.pick(&[Builtin::Min, Builtin::Max]);
                Bundle { max: a.max.max(b.max), e: Expr::call(builtin, vec![a.e, b.e]) }
            }
            _ => {
                let factor = match numbers {
                    [] => Term::new(Expr::float(scalar, *self.random.pick(&[0.5, 0.25, 1.5, 2.0, 0.75])), 0.25, 2.0),
                    _ => self.random.pick(numbers).clone(),
                };
                let factor = self.narrowed(factor, 4.0);
                let max = a.max * factor.size() + b.max;
                let scaled = if self.random.chance(50) {
                    op(Binary::Mul, a.e, factor.e, ty)
                } else {
                    op(Binary::Mul, factor.e, a.e, ty)
                };
                Bundle { max, e: Expr::binary(Binary::Add, scaled, b.e) }
            }
        }
    }

    /// Applies a unary operation to a vector.
    pub fn apply_vector(&mut self, a: Bundle, numbers: &[Term]) -> Bundle {
        let ty = a.e.ty;
        let scalar = ty.element().unwrap_or(Scalar::F32);
        match self.random.below(6) {
            0 => Bundle { max: 1.0, e: Expr::call(Builtin::Normalize, vec![a.e]) },
            1 => {
                let factor = self.constant(0.1, 2.0);
                let factor = if scalar == Scalar::F32 { factor } else { (factor * 16.0).round().max(1.0) / 16.0 };
                Bundle { max: a.max * factor, e: op(Binary::Mul, a.e, Expr::float(scalar, factor), ty) }
            }
            2 => Bundle { max: a.max, e: Expr::call(Builtin::Abs, vec![a.e]) },
            3 if !numbers.is_empty() => {
                let factor = self.random.pick(numbers).clone();
                let factor = self.narrowed(factor, 4.0);
                Bundle { max: a.max * factor.size(), e: op(Binary::Mul, factor.e, a.e, ty) }
            }
            4 => {
                let b = self.divisor_of(scalar, &a);
                Bundle { max: a.max * 2.0, e: op(Binary::Div, a.e, b, ty) }
            }
            _ => Bundle { max: a.max, e: Expr::unary(crate::program::Unary::Neg, a.e) },
        }
    }

    fn divisor_of(&mut self, scalar: Scalar, a: &Bundle) -> Expr {
        let _ = a;
        Expr::float(scalar, *self.random.pick(&[0.5, 2.0, 1.5, 4.0, 3.0]))
    }

    /// Combines vectors until one is left.
    pub fn combine_vectors(&mut self, mut all: Vec<Bundle>, mut unary: usize, numbers: &[Term]) -> Bundle {
        loop {
            if all.len() == 1 && unary == 0 {
                return all.remove(0);
            }
            let at = self.random.below(all.len());
            let a = all.swap_remove(at);
            let mut combined = if unary > 0 && (all.is_empty() || self.random.chance(40)) {
                unary -= 1;
                self.apply_vector(a, numbers)
            } else {
                let at = self.random.below(all.len());
                let b = all.swap_remove(at);
                self.join_vectors(a, b, numbers)
            };
            if combined.max > 300.0 {
                combined = Bundle { max: 1.0, e: Expr::call(Builtin::Normalize, vec![combined.e]) };
            }
            if combined.e.operations() > 2 && self.random.chance(35) {
                combined.e = self.bind(combined.e);
                if self.random.chance(40) {
                    all.push(combined.clone());
                }
            }
            all.push(combined);
        }
    }
}

struct Inputs {
    n: Size,
    i: Expr,
    all: Vec<Bundle>,
    numbers: Vec<Term>,
    scalar: Scalar,
}

fn inputs(m: &mut Maker, ty: Ty, count: usize) -> Inputs {
    let scalar = ty.element().unwrap_or(Scalar::F32);
    let n = m.size("n", false, 0, 300);
    let mut arrays: Vec<(Array, f64)> = vec![];
    for _ in 0..count {
        let max = *m.random.pick(&[1.0, 2.0, 4.0]);
        let low = if m.random.chance(70) { -max } else { 0.0 };
        arrays.push((m.input(ty, &[n], Fill::Uniform(low, max)), max));
    }
    let count = m.random.below(3);
    let numbers = scalars(m, count, scalar);
    let name = *m.random.pick(&["i", "tid", "idx"]);
    let i = m.index(name, n);
    let all = (arrays.into_iter())
        .map(|(array, max)| {
            let e = Expr::load(array, vec![i.clone()], ty);
            let e = if m.random.chance(60) { m.bind(e) } else { e };
            Bundle { e, max }
        })
        .collect();
    Inputs { n, i, all, numbers, scalar }
}

/// Vectors of two to four components.
pub fn vector(m: &mut Maker) {
    let scalar = float(m);
    let ty = Ty::Vector(scalar, 2 + m.random.below(3) as u8);
    let count = 1 + m.random.below(3);
    let g = inputs(m, ty, count);
    let mut all = g.all.clone();
    for _ in 0..m.random.below(2) + (g.all.len() == 1) as usize {
        let duplicate = m.random.pick(&g.all).clone();
        all.push(duplicate);
    }
    let unary = 1 + m.random.below(3);
    if m.random.chance(50) {
        let value = m.combine_vectors(all, unary, &g.numbers);
        let mut e = value.e;
        // Every scalar parameter is used.
        for number in &g.numbers {
            if !uses(m, &e, &number.e) {
                e = op(Binary::Mul, e, number.e.clone(), ty);
            }
        }
        let out = m.output(ty, &[g.n]);
        m.push(Stmt::Store(out, vec![g.i], e));
    } else {
        let parts = if all.len() > 1 && m.random.chance(60) { all.split_off(all.len() / 2) } else { all.clone() };
        let joined = m.combine_vectors(all, unary.min(2), &[]);
        let rest = m.combine_vectors(parts, 0, &[]);
        let mut terms = vec![m.measure(joined, &g.all), m.measure(rest, &g.all)];
        terms.extend(g.numbers);
        let unary = m.random.below(3);
        let value = m.combine(terms, unary, 20, &MIXED);
        let out = m.output(g.scalar, &[g.n]);
        m.push(Stmt::Store(out, vec![g.i], value.e));
    }
}

/// True if an expression, or a variable in it, reads a variable.
fn uses(m: &Maker, e: &Expr, target: &Expr) -> bool {
    let mut found = false;
    e.walk(&mut |part| found |= part == target);
    found || m.is_read(target)
}

/// Small matrices.
pub fn matrix(m: &mut Maker) {
    let scalar = float(m);
    let size = 2 + m.random.below(2) as u8 + m.random.chance(15) as u8;
    let (ty, vector) = (Ty::Matrix(scalar, size), Ty::Vector(scalar, size));
    let count = 1 + m.random.below(2);
    let mut g = inputs(m, ty, count);
    let with_vector = m.random.chance(60);
    let mut vectors = vec![];
    if with_vector {
        let array = m.input(vector, &[g.n], Fill::Uniform(-2.0, 2.0));
        let e = Expr::load(array, vec![g.i.clone()], vector);
        let e = if m.random.chance(50) { m.bind(e) } else { e };
        vectors.push(Bundle { e, max: 2.0 });
    }
    // Matrices first.
    let steps = 1 + m.random.below(3);
    let mut all = std::mem::take(&mut g.all);
    for _ in 0..steps {
        let at = m.random.below(all.len());
        let a = all[at].clone();
        let b = m.random.pick(&all).clone();
        let small = a.max * b.max * size as f64 <= 400.0;
        let combined = match m.random.below(7) {
            6 if !vectors.is_empty() => {
                let v: &Bundle = &vectors[0];
                let product = Expr::call_of(Builtin::Outer, vec![v.e.clone(), v.e.clone()], ty);
                Bundle { max: a.max + v.max * v.max, e: Expr::binary(Binary::Add, a.e, product) }
            }
            0 | 1 if small => Bundle { max: a.max * b.max * size as f64, e: op(Binary::Mul, a.e, b.e, ty) },
            2 => Bundle { max: a.max, e: Expr::call(Builtin::Transpose, vec![a.e]) },
            3 if a.e != b.e => Bundle { max: a.max + b.max, e: Expr::binary(Binary::Sub, a.e, b.e) },
            4 => {
                let factor = match &g.numbers[..] {
                    [] => Term::new(Expr::float(scalar, *m.random.pick(&[0.5, 2.0, 0.25, 1.5])), 0.0, 2.0),
                    some => m.random.pick(some).clone(),
                };
                Bundle { max: a.max * factor.size(), e: op(Binary::Mul, a.e, factor.e, ty) }
            }
            _ => Bundle { max: a.max + b.max, e: Expr::binary(Binary::Add, a.e, b.e) },
        };
        let e = m.bind(combined.e);
        all[at] = Bundle { e, max: combined.max };
    }
    let mut sum = all.remove(0);
    for other in all {
        sum = Bundle { max: sum.max + other.max, e: Expr::binary(Binary::Add, sum.e, other.e) };
    }
    if let Some(v) = vectors.pop() {
        let max = sum.max * v.max * size as f64;
        let mut product = Bundle { e: op(Binary::Mul, sum.e, v.e.clone(), vector), max };
        let unary = m.random.below(3);
        product = m.combine_vectors(vec![product, v], unary, &g.numbers);
        let mut e = product.e;
        for number in &g.numbers {
            if !uses(m, &e, &number.e) {
                e = op(Binary::Mul, number.e.clone(), e, vector);
            }
        }
        let out = m.output(vector, &[g.n]);
        return m.push(Stmt::Store(out, vec![g.i], e));
    }
    let mut e = sum.e;
    for number in &g.numbers {
        if !uses(m, &e, &number.e) {
            e = op(Binary::Mul, e, number.e.clone(), ty);
        }
    }
    if size <= 3 && m.random.chance(40) {
        let builtin = *m.random.pick(&[Builtin::Determinant, Builtin::Trace]);
        let max = if builtin == Builtin::Trace { sum.max * 3.0 } else { 6.0 * sum.max.powi(size as i32) };
        let e = m.as_variable(e);
        let mut terms = vec![Term::new(Expr::call_of(builtin, vec![e.clone()], scalar), -max.min(4e3), max.min(4e3))];
        let at = m.random.below(size as usize * size as usize) as u8;
        terms.push(Term::new(e.component(at), -sum.max, sum.max));
        let unary = 1 + m.random.below(2);
        let value = m.combine(terms, unary, 0, &PLAIN);
        let out = m.output(scalar, &[g.n]);
        return m.push(Stmt::Store(out, vec![g.i], value.e));
    }
    let out = m.output(ty, &[g.n]);
    m.push(Stmt::Store(out, vec![g.i], e));
}

/// Arrays of structs.
pub fn structs(m: &mut Maker) {
    const KINDS: &[(&str, &[&str])] = &[
        ("Particle", &["position", "velocity", "mass", "charge", "radius"]),
        ("Sample", &["value", "weight", "origin", "level", "age"]),
        ("Body", &["center", "momentum", "inertia", "density", "spin"]),
        ("Cell", &["pressure", "flow", "temperature", "height", "moisture"]),
        ("Ray", &["origin", "direction", "reach", "energy", "spread"]),
        ("Record", &["price", "volume", "spread", "fee", "drift"]),
        ("Joint", &["anchor", "axis", "limit_low", "limit_high", "torque"]),
    ];
    let (name, fields) = *m.random.pick(KINDS);
    let count = 2 + m.random.below(3);
    let mut field_types: Vec<(String, Ty)> = vec![];
    for (n, field) in fields.iter().take(count).enumerate() {
        let size = 2 + m.random.below(3) as u8;
        let vector = n < 2 && m.random.chance(50);
        let ty = match (vector, field_types.first()) {
            // Vectors of one struct have the same type, so that they can be combined.
            (true, Some((_, first @ Ty::Vector(..)))) => *first,
            (true, _) => Ty::Vector(Scalar::F32, size),
            _ => Ty::F32,
        };
        field_types.push(((*field).to_owned(), ty));
    }
    m.program.structs.push(Struct { name: name.into(), fields: field_types.clone() });
    m.names.free(name);
    let ty = Ty::Struct(0);
    let n = m.size("n", false, 0, 300);
    let scalars_of: usize = field_types.iter().map(|(_, ty)| ty.parts()).sum();
    let mut fills = vec![];
    for _ in 0..scalars_of {
        fills.push(if m.random.chance(60) { Fill::Uniform(-2.0, 2.0) } else { Fill::Uniform(0.5, 3.0) });
    }
    let plural = format!("{}s", name.to_lowercase());
    let in_place = m.random.chance(45);
    let array = m.array(&plural, ty, &[n], Fill::Fields(fills.clone()), in_place);
    let count = m.random.below(2) + in_place as usize;
    let mut numbers = scalars(m, count, Scalar::F32);
    let i = m.index("i", n);
    let short = name[..1].to_lowercase();
    let element = m.bind_as(&short, Expr::load(array, vec![i.clone()], ty));
    let mut at = 0;
    let (mut vectors, mut parts) = (vec![], vec![]);
    for (k, (_, field_ty)) in field_types.iter().enumerate() {
        let e = Expr::new(Kind::Part(Box::new(element.clone()), k as u8), *field_ty);
        match field_ty {
            Ty::Vector(..) => vectors.push((k, Bundle { e, max: 3.0 })),
            _ => {
                let range = if let Fill::Uniform(low, high) = fills[at] { (low, high) } else { (0.0, 1.0) };
                parts.push((k, Term::new(e, range.0, range.1)));
            }
        }
        at += field_ty.parts();
    }
    if in_place {
        // Every field is recomputed: vectors from vectors, scalars from scalars.
        let mut fields = vec![];
        for (k, (_, field_ty)) in field_types.iter().enumerate() {
            let e = match field_ty {
                Ty::Vector(..) => {
                    let mut all: Vec<Bundle> =
                        vectors.iter().map(|(_, b)| b.clone()).filter(|b| b.e.ty == *field_ty).collect();
                    if m.random.chance(40) {
                        let duplicate = m.random.pick(&all).clone();
                        all.push(duplicate);
                    }
                    let unary = 1 + m.random.below(2);
                    m.combine_vectors(all, unary, &numbers).e
                }
                _ => {
                    let mut chosen: Vec<Term> =
                        (parts.iter()).filter(|(n, _)| *n == k).map(|(_, t)| t.clone()).collect();
                    if let Some(number) = numbers.pop() {
                        chosen.push(number.clone());
                        numbers.insert(0, number);
                    }
                    if let Some((_, v)) = vectors.first()
                        && m.random.chance(50)
                    {
                        let measured = m.measure(v.clone(), std::slice::from_ref(v));
                        chosen.push(measured);
                    }
                    let unary = 1 + m.random.below(2);
                    m.combine(chosen, unary, 20, &ARITHMETIC).e
                }
            };
            fields.push(if e.operations() > 3 { m.bind(e) } else { e });
        }
        return m.push(Stmt::Store(array, vec![i], Expr::new(Kind::Make(fields), ty)));
    }
    let mut terms: Vec<Term> = parts.into_iter().map(|(_, term)| term).collect();
    let bundles: Vec<Bundle> = vectors.into_iter().map(|(_, bundle)| bundle).collect();
    for bundle in &bundles {
        let same: Vec<Bundle> = bundles.iter().filter(|b| b.e.ty == bundle.e.ty).cloned().collect();
        let measured = m.measure(bundle.clone(), &same);
        terms.push(measured);
    }
    terms.extend(numbers);
    let unary = 1 + m.random.below(3);
    let value = m.combine(terms, unary, 25, &MIXED);
    let out = m.output(Scalar::F32, &[n]);
    m.push(Stmt::Store(out, vec![i], value.e));
}
