//! Kernels on vectors, matrices and structs.

use super::builder::ProgramBuilder;
use super::elementwise::{float, scalars};
use super::term::{ARITHMETIC, MIXED, PLAIN, Term};
use crate::program::{
    ArrayFill, ArrayId, BinaryOp, BuiltinFn, ExprKind, ProgramExpr, ProgramStmt, ScalarType, SizeExpr, StructDef, Ty,
};

/// A vector or matrix, and the maximum magnitude of its components.
#[derive(Clone)]
pub struct VectorTerm {
    pub e: ProgramExpr,
    pub max: f64,
}

/// A binary operation with an explicit result type.
pub fn op(op: BinaryOp, a: ProgramExpr, b: ProgramExpr, ty: Ty) -> ProgramExpr {
    ProgramExpr::new(ExprKind::Binary(op, Box::new([a, b])), ty)
}

impl ProgramBuilder {
    /// A scalar computed from a vector.
    pub fn measure(&mut self, a: VectorTerm, others: &[VectorTerm]) -> Term {
        let scalar = a.e.ty.element().unwrap_or(ScalarType::F32);
        let n = a.e.ty.components() as f64;
        let call = |builtin, args| ProgramExpr::typed_call(builtin, args, scalar);
        match self.random.below(5) {
            0 => {
                let b = self.random.pick(others).clone();
                let max = n * a.max * b.max;
                Term::new(call(BuiltinFn::Dot, vec![a.e, b.e]), -max, max)
            }
            1 => Term::new(call(BuiltinFn::Length, vec![a.e]), 0.0, a.max * n.sqrt()),
            2 => Term::new(call(BuiltinFn::LengthSq, vec![a.e]), 0.0, a.max * a.max * n),
            3 => {
                let at = self.random.below(n as usize) as u8;
                let named = self.as_variable(a.e);
                Term::new(named.component(at), -a.max, a.max)
            }
            _ => {
                let b = self.random.pick(others).clone();
                if a.e == b.e {
                    return Term::new(call(BuiltinFn::Length, vec![a.e]), 0.0, a.max * n.sqrt());
                }
                let distance = ProgramExpr::binary(BinaryOp::Sub, a.e, b.e);
                Term::new(call(BuiltinFn::Length, vec![distance]), 0.0, (a.max + b.max) * n.sqrt())
            }
        }
    }

    /// A variable for a vector expression.
    pub fn as_variable(&mut self, e: ProgramExpr) -> ProgramExpr {
        if matches!(e.kind, ExprKind::Var(_)) { e } else { self.bind(e) }
    }

    /// Combines two vectors.
    pub fn join_vectors(&mut self, a: VectorTerm, b: VectorTerm, numbers: &[Term]) -> VectorTerm {
        let ty = a.e.ty;
        let scalar = ty.element().unwrap_or(ScalarType::F32);
        let large = a.max.max(b.max) > 100.0;
        match self.random.below(8) {
            0 | 1 => VectorTerm { max: a.max + b.max, e: ProgramExpr::binary(BinaryOp::Add, a.e, b.e) },
            2 if a.e != b.e => VectorTerm { max: a.max + b.max, e: ProgramExpr::binary(BinaryOp::Sub, a.e, b.e) },
            3 if !large => VectorTerm { max: a.max * b.max, e: ProgramExpr::call(BuiltinFn::CwMul, vec![a.e, b.e]) },
            4 if ty.components() == 3 && a.e != b.e && !large => {
                VectorTerm { max: 2.0 * a.max * b.max, e: ProgramExpr::call(BuiltinFn::Cross, vec![a.e, b.e]) }
            }
            6 if a.e != b.e => {
                let min = *self.random.pick(&[0.5, 1.0, 2.0]);
                let away =
                    ProgramExpr::new(ExprKind::Construct(vec![ProgramExpr::float(scalar, min); ty.components()]), ty);
                let by = ProgramExpr::binary(BinaryOp::Add, ProgramExpr::call(BuiltinFn::Abs, vec![b.e]), away);
                VectorTerm { max: a.max / min, e: ProgramExpr::call(BuiltinFn::CwDiv, vec![a.e, by]) }
            }
            5 if a.e != b.e => {
                let builtin = *self.random.pick(&[BuiltinFn::Min, BuiltinFn::Max]);
                VectorTerm { max: a.max.max(b.max), e: ProgramExpr::call(builtin, vec![a.e, b.e]) }
            }
            _ => {
                let factor = match numbers {
                    [] => Term::new(
                        ProgramExpr::float(scalar, *self.random.pick(&[0.5, 0.25, 1.5, 2.0, 0.75])),
                        0.25,
                        2.0,
                    ),
                    _ => self.random.pick(numbers).clone(),
                };
                let factor = self.narrowed(factor, 4.0);
                let max = a.max * factor.size() + b.max;
                let scaled = if self.random.chance(50) {
                    op(BinaryOp::Mul, a.e, factor.e, ty)
                } else {
                    op(BinaryOp::Mul, factor.e, a.e, ty)
                };
                VectorTerm { max, e: ProgramExpr::binary(BinaryOp::Add, scaled, b.e) }
            }
        }
    }

    /// Applies a unary operation to a vector.
    pub fn apply_vector(&mut self, a: VectorTerm, numbers: &[Term]) -> VectorTerm {
        let ty = a.e.ty;
        let scalar = ty.element().unwrap_or(ScalarType::F32);
        match self.random.below(6) {
            0 => VectorTerm { max: 1.0, e: ProgramExpr::call(BuiltinFn::Normalize, vec![a.e]) },
            1 => {
                let factor = self.constant(0.1, 2.0);
                let factor = if scalar == ScalarType::F32 { factor } else { (factor * 16.0).round().max(1.0) / 16.0 };
                VectorTerm { max: a.max * factor, e: op(BinaryOp::Mul, a.e, ProgramExpr::float(scalar, factor), ty) }
            }
            2 => VectorTerm { max: a.max, e: ProgramExpr::call(BuiltinFn::Abs, vec![a.e]) },
            3 if !numbers.is_empty() => {
                let factor = self.random.pick(numbers).clone();
                let factor = self.narrowed(factor, 4.0);
                VectorTerm { max: a.max * factor.size(), e: op(BinaryOp::Mul, factor.e, a.e, ty) }
            }
            4 => {
                let b = self.divisor_of(scalar, &a);
                VectorTerm { max: a.max * 2.0, e: op(BinaryOp::Div, a.e, b, ty) }
            }
            _ => VectorTerm { max: a.max, e: ProgramExpr::unary(crate::program::UnaryOp::Neg, a.e) },
        }
    }

    fn divisor_of(&mut self, scalar: ScalarType, a: &VectorTerm) -> ProgramExpr {
        let _ = a;
        ProgramExpr::float(scalar, *self.random.pick(&[0.5, 2.0, 1.5, 4.0, 3.0]))
    }

    /// Combines vectors until one is left.
    pub fn combine_vectors(&mut self, mut all: Vec<VectorTerm>, mut unary: usize, numbers: &[Term]) -> VectorTerm {
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
                combined = VectorTerm { max: 1.0, e: ProgramExpr::call(BuiltinFn::Normalize, vec![combined.e]) };
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
    n: SizeExpr,
    i: ProgramExpr,
    all: Vec<VectorTerm>,
    numbers: Vec<Term>,
    scalar: ScalarType,
}

fn inputs(m: &mut ProgramBuilder, ty: Ty, count: usize) -> Inputs {
    let scalar = ty.element().unwrap_or(ScalarType::F32);
    let n = m.size("n", false, 0, 300);
    let mut arrays: Vec<(ArrayId, f64)> = vec![];
    for _ in 0..count {
        let max = *m.random.pick(&[1.0, 2.0, 4.0]);
        let low = if m.random.chance(70) { -max } else { 0.0 };
        arrays.push((m.input(ty, &[n], ArrayFill::Uniform(low, max)), max));
    }
    let count = m.random.below(3);
    let numbers = scalars(m, count, scalar);
    let name = *m.random.pick(&["i", "tid", "idx"]);
    let i = m.index(name, n);
    let all = (arrays.into_iter())
        .map(|(array, max)| {
            let e = ProgramExpr::load(array, vec![i.clone()], ty);
            let e = if m.random.chance(60) { m.bind(e) } else { e };
            VectorTerm { e, max }
        })
        .collect();
    Inputs { n, i, all, numbers, scalar }
}

/// Vectors of two to four components.
pub fn vector(m: &mut ProgramBuilder) {
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
                e = op(BinaryOp::Mul, e, number.e.clone(), ty);
            }
        }
        let out = m.output(ty, &[g.n]);
        m.push(ProgramStmt::Store(out, vec![g.i], e));
    } else {
        let parts = if all.len() > 1 && m.random.chance(60) { all.split_off(all.len() / 2) } else { all.clone() };
        let combined = m.combine_vectors(all, unary.min(2), &[]);
        let rest = m.combine_vectors(parts, 0, &[]);
        let mut terms = vec![m.measure(combined, &g.all), m.measure(rest, &g.all)];
        terms.extend(g.numbers);
        let unary = m.random.below(3);
        let value = m.combine(terms, unary, 20, &MIXED);
        let out = m.output(g.scalar, &[g.n]);
        m.push(ProgramStmt::Store(out, vec![g.i], value.e));
    }
}

/// True if an expression, or a variable in it, reads a variable.
fn uses(m: &ProgramBuilder, e: &ProgramExpr, target: &ProgramExpr) -> bool {
    let mut found = false;
    e.walk(&mut |part| found |= part == target);
    found || m.is_read(target)
}

/// Small matrices.
pub fn matrix(m: &mut ProgramBuilder) {
    let scalar = float(m);
    let size = 2 + m.random.below(2) as u8 + m.random.chance(15) as u8;
    let (ty, vector) = (Ty::Matrix(scalar, size), Ty::Vector(scalar, size));
    let count = 1 + m.random.below(2);
    let mut g = inputs(m, ty, count);
    let with_vector = m.random.chance(60);
    let mut vectors = vec![];
    if with_vector {
        let array = m.input(vector, &[g.n], ArrayFill::Uniform(-2.0, 2.0));
        let e = ProgramExpr::load(array, vec![g.i.clone()], vector);
        let e = if m.random.chance(50) { m.bind(e) } else { e };
        vectors.push(VectorTerm { e, max: 2.0 });
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
                let v: &VectorTerm = &vectors[0];
                let product = ProgramExpr::typed_call(BuiltinFn::Outer, vec![v.e.clone(), v.e.clone()], ty);
                VectorTerm { max: a.max + v.max * v.max, e: ProgramExpr::binary(BinaryOp::Add, a.e, product) }
            }
            0 | 1 if small => VectorTerm { max: a.max * b.max * size as f64, e: op(BinaryOp::Mul, a.e, b.e, ty) },
            2 => VectorTerm { max: a.max, e: ProgramExpr::call(BuiltinFn::Transpose, vec![a.e]) },
            3 if a.e != b.e => VectorTerm { max: a.max + b.max, e: ProgramExpr::binary(BinaryOp::Sub, a.e, b.e) },
            4 => {
                let factor = match &g.numbers[..] {
                    [] => Term::new(ProgramExpr::float(scalar, *m.random.pick(&[0.5, 2.0, 0.25, 1.5])), 0.0, 2.0),
                    some => m.random.pick(some).clone(),
                };
                VectorTerm { max: a.max * factor.size(), e: op(BinaryOp::Mul, a.e, factor.e, ty) }
            }
            _ => VectorTerm { max: a.max + b.max, e: ProgramExpr::binary(BinaryOp::Add, a.e, b.e) },
        };
        let e = m.bind(combined.e);
        all[at] = VectorTerm { e, max: combined.max };
    }
    let mut sum = all.remove(0);
    for other in all {
        sum = VectorTerm { max: sum.max + other.max, e: ProgramExpr::binary(BinaryOp::Add, sum.e, other.e) };
    }
    if let Some(v) = vectors.pop() {
        let max = sum.max * v.max * size as f64;
        let mut product = VectorTerm { e: op(BinaryOp::Mul, sum.e, v.e.clone(), vector), max };
        let unary = m.random.below(3);
        product = m.combine_vectors(vec![product, v], unary, &g.numbers);
        let mut e = product.e;
        for number in &g.numbers {
            if !uses(m, &e, &number.e) {
                e = op(BinaryOp::Mul, number.e.clone(), e, vector);
            }
        }
        let out = m.output(vector, &[g.n]);
        return m.push(ProgramStmt::Store(out, vec![g.i], e));
    }
    let mut e = sum.e;
    for number in &g.numbers {
        if !uses(m, &e, &number.e) {
            e = op(BinaryOp::Mul, e, number.e.clone(), ty);
        }
    }
    if size <= 3 && m.random.chance(40) {
        let builtin = *m.random.pick(&[BuiltinFn::Determinant, BuiltinFn::Trace]);
        let max = if builtin == BuiltinFn::Trace { sum.max * 3.0 } else { 6.0 * sum.max.powi(size as i32) };
        let e = m.as_variable(e);
        let mut terms =
            vec![Term::new(ProgramExpr::typed_call(builtin, vec![e.clone()], scalar), -max.min(4e3), max.min(4e3))];
        let at = m.random.below(size as usize * size as usize) as u8;
        terms.push(Term::new(e.component(at), -sum.max, sum.max));
        let unary = 1 + m.random.below(2);
        let value = m.combine(terms, unary, 0, &PLAIN);
        let out = m.output(scalar, &[g.n]);
        return m.push(ProgramStmt::Store(out, vec![g.i], value.e));
    }
    let out = m.output(ty, &[g.n]);
    m.push(ProgramStmt::Store(out, vec![g.i], e));
}

/// Arrays of structs.
pub fn structs(m: &mut ProgramBuilder) {
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
            (true, _) => Ty::Vector(ScalarType::F32, size),
            _ => Ty::F32,
        };
        field_types.push(((*field).to_owned(), ty));
    }
    m.program.structs.push(StructDef { name: name.into(), fields: field_types.clone() });
    m.names.unique(name);
    let ty = Ty::Struct(0);
    let n = m.size("n", false, 0, 300);
    let scalars_of: usize = field_types.iter().map(|(_, ty)| ty.components()).sum();
    let mut fills = vec![];
    for _ in 0..scalars_of {
        fills.push(if m.random.chance(60) { ArrayFill::Uniform(-2.0, 2.0) } else { ArrayFill::Uniform(0.5, 3.0) });
    }
    let plural = format!("{}s", name.to_lowercase());
    let in_place = m.random.chance(45);
    let array = m.array(&plural, ty, &[n], ArrayFill::Fields(fills.clone()), in_place);
    let count = m.random.below(2) + in_place as usize;
    let mut numbers = scalars(m, count, ScalarType::F32);
    let i = m.index("i", n);
    let short = name[..1].to_lowercase();
    let element = m.bind_as(&short, ProgramExpr::load(array, vec![i.clone()], ty));
    let mut at = 0;
    let (mut vectors, mut parts) = (vec![], vec![]);
    for (k, (_, field_ty)) in field_types.iter().enumerate() {
        let e = ProgramExpr::new(ExprKind::Component(Box::new(element.clone()), k as u8), *field_ty);
        match field_ty {
            Ty::Vector(..) => vectors.push((k, VectorTerm { e, max: 3.0 })),
            _ => {
                let range = if let ArrayFill::Uniform(low, high) = fills[at] { (low, high) } else { (0.0, 1.0) };
                parts.push((k, Term::new(e, range.0, range.1)));
            }
        }
        at += field_ty.components();
    }
    if in_place {
        // Every field is recomputed: vectors from vectors, scalars from scalars.
        let mut fields = vec![];
        for (k, (_, field_ty)) in field_types.iter().enumerate() {
            let e = match field_ty {
                Ty::Vector(..) => {
                    let mut all: Vec<VectorTerm> =
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
        return m.push(ProgramStmt::Store(array, vec![i], ProgramExpr::new(ExprKind::Construct(fields), ty)));
    }
    let mut terms: Vec<Term> = parts.into_iter().map(|(_, term)| term).collect();
    let bundles: Vec<VectorTerm> = vectors.into_iter().map(|(_, bundle)| bundle).collect();
    for bundle in &bundles {
        let same: Vec<VectorTerm> = bundles.iter().filter(|b| b.e.ty == bundle.e.ty).cloned().collect();
        let measured = m.measure(bundle.clone(), &same);
        terms.push(measured);
    }
    terms.extend(numbers);
    let unary = 1 + m.random.below(3);
    let value = m.combine(terms, unary, 25, &MIXED);
    let out = m.output(ScalarType::F32, &[n]);
    m.push(ProgramStmt::Store(out, vec![i], value.e));
}
