//! Simulation steps.

use super::dynamics::dynamics;
use super::elementwise::scalars;
use super::maker::Maker;
use super::term::{Fun, MIXED, Term};
use super::vector::{Bundle, op};
use crate::program::{Binary, Builtin, Expr, Fill, Kind, Scalar, Stmt, Ty};

/// Steps of simulations: moving, falling, bouncing and interacting bodies.
pub fn physics(m: &mut Maker) {
    match m.random.below(10) {
        0..=2 => return bodies(m),
        3..=6 => return dynamics(m),
        _ => {}
    }
    let size = 2 + m.random.below(2) as u8;
    let vector = Ty::Vector(Scalar::F32, size);
    let n = m.size("n", false, 0, 300);
    let position = m.array("positions", vector, &[n], Fill::Uniform(-4.0, 4.0), true);
    let velocity = m.array("velocities", vector, &[n], Fill::Uniform(-2.0, 2.0), true);
    let masses = m.random.chance(50).then(|| m.array("masses", Scalar::F32, &[n], Fill::Uniform(0.5, 3.0), false));
    let dt = m.value("dt", Scalar::F32, 0.01, 0.1);
    let dt = Expr::var(dt, Scalar::F32);
    let mut numbers: Vec<Term> = vec![];
    for name in ["drag", "stiffness", "gravity"] {
        if m.random.chance(55) {
            let var = m.value(name, Scalar::F32, 0.1, 2.0);
            numbers.push(Term::new(Expr::var(var, Scalar::F32), 0.1, 2.0));
        }
    }
    let i = m.index("i", n);
    let p = m.bind_as("p", Expr::load(position, vec![i.clone()], vector));
    let v = m.bind_as("v", Expr::load(velocity, vec![i.clone()], vector));
    // The force is a sum of common force terms.
    let mut force: Option<Expr> = None;
    let mut more = |m: &mut Maker, part: Expr| {
        let sum = force.take().map_or(part.clone(), |f| Expr::binary(Binary::Add, f, part));
        force = Some(if m.random.chance(40) { m.bind_as("force", sum) } else { sum });
    };
    let pull = numbers.pop().map_or(Expr::float(Scalar::F32, 1.5), |t| t.e);
    let spring = op(Binary::Mul, p.clone(), Expr::unary(crate::program::Unary::Neg, pull), vector);
    more(m, spring);
    for number in std::mem::take(&mut numbers) {
        let number = coefficient(m, number, &p, &v);
        let part = match m.random.below(4) {
            0 => op(Binary::Mul, v.clone(), Expr::unary(crate::program::Unary::Neg, number.e), vector),
            1 => {
                let speed = Expr::call_of(Builtin::Length, vec![v.clone()], Scalar::F32);
                let drag = Expr::binary(Binary::Mul, Expr::unary(crate::program::Unary::Neg, number.e), speed);
                op(Binary::Mul, drag, v.clone(), vector)
            }
            2 => {
                let square = Expr::call_of(Builtin::LengthSq, vec![p.clone()], Scalar::F32);
                let soft = Expr::binary(Binary::Add, square, Expr::float(Scalar::F32, m.constant(0.2, 2.0)));
                op(
                    Binary::Mul,
                    p.clone(),
                    Expr::unary(crate::program::Unary::Neg, Expr::binary(Binary::Div, number.e, soft)),
                    vector,
                )
            }
            _ => {
                let mut parts = vec![Expr::float(Scalar::F32, 0.0); size as usize];
                parts[1] = Expr::unary(crate::program::Unary::Neg, number.e);
                Expr::new(Kind::Make(parts), vector)
            }
        };
        more(m, part);
    }
    if m.random.chance(50) {
        let unary = 1 + m.random.below(2);
        let some = vec![Bundle { e: p.clone(), max: 4.0 }, Bundle { e: v.clone(), max: 2.0 }];
        let part = m.combine_vectors(some, unary, &[]).e;
        more(m, part);
    }
    let force = force.unwrap_or(p.clone());
    let acceleration = match masses {
        Some(masses) => op(Binary::Div, force, Expr::load(masses, vec![i.clone()], Scalar::F32), vector),
        None => force,
    };
    let step = op(Binary::Mul, acceleration, dt.clone(), vector);
    let v_next = m.changing("v_new", Expr::binary(Binary::Add, v, step));
    let moved = op(Binary::Mul, m.read(v_next), dt, vector);
    let p_next = m.changing("p_new", Expr::binary(Binary::Add, p, moved));
    for at in 0..size {
        if m.random.chance(45) {
            let floor = -*m.random.pick(&[2.0, 3.0, 2.5, 1.0]);
            let bounce = m.constant(0.3, 0.9);
            let below = Expr::binary(Binary::Lt, m.read(p_next).component(at), Expr::float(Scalar::F32, floor));
            let then = m.block(|m| {
                m.push(Stmt::SetPart(p_next, at, Expr::float(Scalar::F32, floor)));
                let back = Expr::binary(Binary::Mul, m.read(v_next).component(at), Expr::float(Scalar::F32, -bounce));
                m.push(Stmt::SetPart(v_next, at, back));
            });
            m.push(Stmt::If(below, then, vec![]));
        }
    }
    let (p_value, v_value) = (m.read(p_next), m.read(v_next));
    m.push(Stmt::Store(position, vec![i.clone()], p_value));
    m.push(Stmt::Store(velocity, vec![i.clone()], v_value.clone()));
    if m.random.chance(30) {
        let energy = m.array("energy", Scalar::F32, &[n], Fill::Zero, true);
        let square = Expr::call_of(Builtin::Dot, vec![v_value.clone(), v_value], Scalar::F32);
        let e = Expr::binary(Binary::Mul, Expr::float(Scalar::F32, 0.5), square);
        m.push(Stmt::Store(energy, vec![i], e));
    }
}

/// A coefficient that depends on a body's position and velocity.
fn coefficient(m: &mut Maker, number: Term, p: &Expr, v: &Expr) -> Term {
    let mut terms = vec![number];
    if m.random.chance(60) {
        let source = if m.random.chance(50) { p } else { v };
        let bundle = Bundle { e: source.clone(), max: 4.0 };
        let measured = m.measure(bundle.clone(), &[bundle]);
        terms.push(measured);
    }
    let unary = m.random.below(3);
    let value = m.combine(terms, unary, 25, &MIXED);
    m.narrowed(value, 4.0)
}

/// Pairwise interactions of all bodies.
fn bodies(m: &mut Maker) {
    let size = 2 + m.random.below(2) as u8;
    let vector = Ty::Vector(Scalar::F32, size);
    let n = m.size("n", true, 0, 34);
    let position = m.array("positions", vector, &[n], Fill::Uniform(-4.0, 4.0), false);
    let weight = m.array("masses", Scalar::F32, &[n], Fill::Uniform(0.5, 2.0), false);
    let out = m.array("forces", vector, &[n], Fill::Zero, true);
    let count = m.random.below(2);
    let numbers = scalars(m, count, Scalar::F32);
    let i = m.index("i", n);
    let p = m.bind_as("p", Expr::load(position, vec![i.clone()], vector));
    let zero = Expr::new(Kind::Make(vec![Expr::float(Scalar::F32, 0.0); size as usize]), vector);
    let sum = m.changing("acc", zero);
    let high = m.extent(n);
    let soft = m.constant(0.1, 1.0);
    let falloff_kind = *m.random.pick(&[0usize, 1, 2]);
    m.count("j", Expr::int(0), high, 1, |m, j| {
        let d = m.bind_as("d", Expr::binary(Binary::Sub, Expr::load(position, vec![j.clone()], vector), p.clone()));
        let square = Expr::call_of(Builtin::Dot, vec![d.clone(), d.clone()], Scalar::F32);
        let near = m.bind_as("r2", Expr::binary(Binary::Add, square, Expr::float(Scalar::F32, soft)));
        let near = Term::new(near, soft, 200.0);
        let falloff = match falloff_kind {
            0 => {
                let root = m.bind_as(
                    "inv",
                    Expr::binary(Binary::Div, Expr::float(Scalar::F32, 1.0), Expr::call(Builtin::Sqrt, vec![near.e])),
                );
                Term::new(
                    Expr::binary(Binary::Mul, Expr::binary(Binary::Mul, root.clone(), root.clone()), root),
                    0.0,
                    40.0,
                )
            }
            1 => m.apply(Fun::Reciprocal, near),
            _ => {
                let scaled = Expr::binary(Binary::Mul, near.e, Expr::float(Scalar::F32, -0.25));
                Term::new(Expr::call(Builtin::Exp, vec![scaled]), 0.0, 1.0)
            }
        };
        let own = Term::new(Expr::load(weight, vec![j.clone()], Scalar::F32), 0.5, 2.0);
        let own = if m.random.chance(50) { own } else { m.combine(vec![own], 1, 0, &MIXED) };
        let falloff = m.once(falloff);
        let unary = m.random.below(3);
        let pull = m.combine(vec![own, falloff], unary, 20, &MIXED);
        let pull = m.narrowed(pull, 20.0).e;
        let step = op(Binary::Mul, d, pull, vector);
        if m.random.chance(40) {
            let other = Expr::binary(Binary::Ne, j, i.clone());
            let then = m.block(|m| m.push(Stmt::Update(sum, Binary::Add, step)));
            m.push(Stmt::If(other, then, vec![]));
        } else {
            m.push(Stmt::Update(sum, Binary::Add, step));
        }
    });
    let mut e = m.read(sum);
    for number in numbers {
        e = op(Binary::Mul, e, number.e, vector);
    }
    m.push(Stmt::Store(out, vec![i], e));
}
