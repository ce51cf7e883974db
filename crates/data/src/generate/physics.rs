//! Simulation steps.

use super::builder::ProgramBuilder;
use super::dynamics::dynamics;
use super::elementwise::scalars;
use super::term::{MIXED, Term, TermFn};
use super::vector::{VectorTerm, op};
use crate::program::{ArrayFill, BinaryOp, BuiltinFn, ExprKind, ProgramExpr, ProgramStmt, ScalarType, Ty};

/// Steps of simulations: moving, falling, bouncing and interacting bodies.
pub fn physics(m: &mut ProgramBuilder) {
    match m.random.below(10) {
        0..=2 => return bodies(m),
        3..=6 => return dynamics(m),
        _ => {}
    }
    let size = 2 + m.random.below(2) as u8;
    let vector = Ty::Vector(ScalarType::F32, size);
    let n = m.size("n", false, 0, 300);
    let position = m.array("positions", vector, &[n], ArrayFill::Uniform(-4.0, 4.0), true);
    let velocity = m.array("velocities", vector, &[n], ArrayFill::Uniform(-2.0, 2.0), true);
    let masses =
        m.random.chance(50).then(|| m.array("masses", ScalarType::F32, &[n], ArrayFill::Uniform(0.5, 3.0), false));
    let dt = m.value("dt", ScalarType::F32, 0.01, 0.1);
    let dt = ProgramExpr::var(dt, ScalarType::F32);
    let mut numbers: Vec<Term> = vec![];
    for name in ["drag", "stiffness", "gravity"] {
        if m.random.chance(55) {
            let var = m.value(name, ScalarType::F32, 0.1, 2.0);
            numbers.push(Term::new(ProgramExpr::var(var, ScalarType::F32), 0.1, 2.0));
        }
    }
    let i = m.index("i", n);
    let p = m.bind_as("p", ProgramExpr::load(position, vec![i.clone()], vector));
    let v = m.bind_as("v", ProgramExpr::load(velocity, vec![i.clone()], vector));
    // The force is a sum of common force terms.
    let mut force: Option<ProgramExpr> = None;
    let mut more = |m: &mut ProgramBuilder, part: ProgramExpr| {
        let sum = force.take().map_or(part.clone(), |f| ProgramExpr::binary(BinaryOp::Add, f, part));
        force = Some(if m.random.chance(40) { m.bind_as("force", sum) } else { sum });
    };
    let pull = numbers.pop().map_or(ProgramExpr::float(ScalarType::F32, 1.5), |t| t.e);
    let spring = op(BinaryOp::Mul, p.clone(), ProgramExpr::unary(crate::program::UnaryOp::Neg, pull), vector);
    more(m, spring);
    for number in std::mem::take(&mut numbers) {
        let number = coefficient(m, number, &p, &v);
        let part = match m.random.below(4) {
            0 => op(BinaryOp::Mul, v.clone(), ProgramExpr::unary(crate::program::UnaryOp::Neg, number.e), vector),
            1 => {
                let speed = ProgramExpr::typed_call(BuiltinFn::Length, vec![v.clone()], ScalarType::F32);
                let drag = ProgramExpr::binary(
                    BinaryOp::Mul,
                    ProgramExpr::unary(crate::program::UnaryOp::Neg, number.e),
                    speed,
                );
                op(BinaryOp::Mul, drag, v.clone(), vector)
            }
            2 => {
                let square = ProgramExpr::typed_call(BuiltinFn::LengthSq, vec![p.clone()], ScalarType::F32);
                let soft = ProgramExpr::binary(
                    BinaryOp::Add,
                    square,
                    ProgramExpr::float(ScalarType::F32, m.constant(0.2, 2.0)),
                );
                op(
                    BinaryOp::Mul,
                    p.clone(),
                    ProgramExpr::unary(
                        crate::program::UnaryOp::Neg,
                        ProgramExpr::binary(BinaryOp::Div, number.e, soft),
                    ),
                    vector,
                )
            }
            _ => {
                let mut parts = vec![ProgramExpr::float(ScalarType::F32, 0.0); size as usize];
                parts[1] = ProgramExpr::unary(crate::program::UnaryOp::Neg, number.e);
                ProgramExpr::new(ExprKind::Construct(parts), vector)
            }
        };
        more(m, part);
    }
    if m.random.chance(50) {
        let unary = 1 + m.random.below(2);
        let some = vec![VectorTerm { e: p.clone(), max: 4.0 }, VectorTerm { e: v.clone(), max: 2.0 }];
        let part = m.combine_vectors(some, unary, &[]).e;
        more(m, part);
    }
    let force = force.unwrap_or(p.clone());
    let acceleration = match masses {
        Some(masses) => op(BinaryOp::Div, force, ProgramExpr::load(masses, vec![i.clone()], ScalarType::F32), vector),
        None => force,
    };
    let step = op(BinaryOp::Mul, acceleration, dt.clone(), vector);
    let v_next = m.mutable("v_new", ProgramExpr::binary(BinaryOp::Add, v, step));
    let moved = op(BinaryOp::Mul, m.read(v_next), dt, vector);
    let p_next = m.mutable("p_new", ProgramExpr::binary(BinaryOp::Add, p, moved));
    for at in 0..size {
        if m.random.chance(45) {
            let floor = -*m.random.pick(&[2.0, 3.0, 2.5, 1.0]);
            let bounce = m.constant(0.3, 0.9);
            let below = ProgramExpr::binary(
                BinaryOp::Lt,
                m.read(p_next).component(at),
                ProgramExpr::float(ScalarType::F32, floor),
            );
            let then = m.block(|m| {
                m.push(ProgramStmt::SetComponent(p_next, at, ProgramExpr::float(ScalarType::F32, floor)));
                let back = ProgramExpr::binary(
                    BinaryOp::Mul,
                    m.read(v_next).component(at),
                    ProgramExpr::float(ScalarType::F32, -bounce),
                );
                m.push(ProgramStmt::SetComponent(v_next, at, back));
            });
            m.push(ProgramStmt::If(below, then, vec![]));
        }
    }
    let (p_value, v_value) = (m.read(p_next), m.read(v_next));
    m.push(ProgramStmt::Store(position, vec![i.clone()], p_value));
    m.push(ProgramStmt::Store(velocity, vec![i.clone()], v_value.clone()));
    if m.random.chance(30) {
        let energy = m.array("energy", ScalarType::F32, &[n], ArrayFill::Zero, true);
        let square = ProgramExpr::typed_call(BuiltinFn::Dot, vec![v_value.clone(), v_value], ScalarType::F32);
        let e = ProgramExpr::binary(BinaryOp::Mul, ProgramExpr::float(ScalarType::F32, 0.5), square);
        m.push(ProgramStmt::Store(energy, vec![i], e));
    }
}

/// A coefficient that depends on a body's position and velocity.
fn coefficient(m: &mut ProgramBuilder, number: Term, p: &ProgramExpr, v: &ProgramExpr) -> Term {
    let mut terms = vec![number];
    if m.random.chance(60) {
        let source = if m.random.chance(50) { p } else { v };
        let bundle = VectorTerm { e: source.clone(), max: 4.0 };
        let measured = m.measure(bundle.clone(), &[bundle]);
        terms.push(measured);
    }
    let unary = m.random.below(3);
    let value = m.combine(terms, unary, 25, &MIXED);
    m.narrowed(value, 4.0)
}

/// Pairwise interactions of all bodies.
fn bodies(m: &mut ProgramBuilder) {
    let size = 2 + m.random.below(2) as u8;
    let vector = Ty::Vector(ScalarType::F32, size);
    let n = m.size("n", true, 0, 34);
    let position = m.array("positions", vector, &[n], ArrayFill::Uniform(-4.0, 4.0), false);
    let weight = m.array("masses", ScalarType::F32, &[n], ArrayFill::Uniform(0.5, 2.0), false);
    let out = m.array("forces", vector, &[n], ArrayFill::Zero, true);
    let count = m.random.below(2);
    let numbers = scalars(m, count, ScalarType::F32);
    let i = m.index("i", n);
    let p = m.bind_as("p", ProgramExpr::load(position, vec![i.clone()], vector));
    let zero =
        ProgramExpr::new(ExprKind::Construct(vec![ProgramExpr::float(ScalarType::F32, 0.0); size as usize]), vector);
    let sum = m.mutable("acc", zero);
    let high = m.extent(n);
    let soft = m.constant(0.1, 1.0);
    let falloff_kind = *m.random.pick(&[0usize, 1, 2]);
    m.for_range("j", ProgramExpr::int(0), high, 1, |m, j| {
        let d = m.bind_as(
            "d",
            ProgramExpr::binary(BinaryOp::Sub, ProgramExpr::load(position, vec![j.clone()], vector), p.clone()),
        );
        let square = ProgramExpr::typed_call(BuiltinFn::Dot, vec![d.clone(), d.clone()], ScalarType::F32);
        let near =
            m.bind_as("r2", ProgramExpr::binary(BinaryOp::Add, square, ProgramExpr::float(ScalarType::F32, soft)));
        let near = Term::new(near, soft, 200.0);
        let falloff = match falloff_kind {
            0 => {
                let root = m.bind_as(
                    "inv",
                    ProgramExpr::binary(
                        BinaryOp::Div,
                        ProgramExpr::float(ScalarType::F32, 1.0),
                        ProgramExpr::call(BuiltinFn::Sqrt, vec![near.e]),
                    ),
                );
                Term::new(
                    ProgramExpr::binary(
                        BinaryOp::Mul,
                        ProgramExpr::binary(BinaryOp::Mul, root.clone(), root.clone()),
                        root,
                    ),
                    0.0,
                    40.0,
                )
            }
            1 => m.apply(TermFn::Reciprocal, near),
            _ => {
                let scaled = ProgramExpr::binary(BinaryOp::Mul, near.e, ProgramExpr::float(ScalarType::F32, -0.25));
                Term::new(ProgramExpr::call(BuiltinFn::Exp, vec![scaled]), 0.0, 1.0)
            }
        };
        let mass = Term::new(ProgramExpr::load(weight, vec![j.clone()], ScalarType::F32), 0.5, 2.0);
        let mass = if m.random.chance(50) { mass } else { m.combine(vec![mass], 1, 0, &MIXED) };
        let falloff = m.bind_once(falloff);
        let unary = m.random.below(3);
        let pull = m.combine(vec![mass, falloff], unary, 20, &MIXED);
        let pull = m.narrowed(pull, 20.0).e;
        let step = op(BinaryOp::Mul, d, pull, vector);
        if m.random.chance(40) {
            let other = ProgramExpr::binary(BinaryOp::Ne, j, i.clone());
            let then = m.block(|m| m.push(ProgramStmt::Update(sum, BinaryOp::Add, step)));
            m.push(ProgramStmt::If(other, then, vec![]));
        } else {
            m.push(ProgramStmt::Update(sum, BinaryOp::Add, step));
        }
    });
    let mut e = m.read(sum);
    for number in numbers {
        e = op(BinaryOp::Mul, e, number.e, vector);
    }
    m.push(ProgramStmt::Store(out, vec![i], e));
}
