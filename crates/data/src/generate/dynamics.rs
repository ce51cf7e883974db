//! Small dynamical systems, one per instance: a few state variables, a rate of change for each, and
//! some time steps.

use super::builder::ProgramBuilder;
use super::elementwise::{repeated, scalars};
use super::term::{MIXED, Term};
use crate::program::{ArrayFill, ArrayId, BinaryOp, ProgramExpr, ProgramStmt, ScalarType, VarId};

const F32: ScalarType = ScalarType::F32;
/// Initial range of the states.
const INITIAL_RANGE: f64 = 2.0;
/// Maximum rate of change.
const MAX_RATE: f64 = 4.0;
/// Maximum number and length of steps: states grow by at most their product with the rate.
const MAX_STEPS: i64 = 8;
const MAX_STEP: f64 = 0.1;

/// Names of state variables and of their arrays.
const SYSTEMS: &[&[(&str, &str)]] = &[
    &[("angle", "angles"), ("omega", "omegas")],
    &[("prey", "preys"), ("hunters", "predators")],
    &[("u", "activator"), ("v", "inhibitor")],
    &[("x", "xs"), ("y", "ys"), ("z", "zs")],
    &[("charge", "charges"), ("current", "currents")],
    &[("temp", "temperatures"), ("fuel", "fuels")],
    &[("s", "susceptible"), ("inf", "infected"), ("rec", "recovered")],
    &[("height", "heights"), ("speed", "speeds")],
    &[("potential", "potentials")],
];

/// Time steps of a system with one to three states.
pub fn dynamics(m: &mut ProgramBuilder) {
    let names = *m.random.pick(SYSTEMS);
    let n = m.size("n", false, 0, 300);
    let arrays: Vec<ArrayId> = names
        .iter()
        .map(|(_, name)| m.array(name, F32, &[n], ArrayFill::Uniform(-INITIAL_RANGE, INITIAL_RANGE), true))
        .collect();
    let forcing = m.random.chance(35).then(|| m.array("forcing", F32, &[n], ArrayFill::Uniform(-1.0, 1.0), false));
    let dt = m.value("dt", F32, 0.01, MAX_STEP);
    let count = 1 + m.random.below(3);
    let mut known = scalars(m, count, F32);
    let i = m.index("i", n);
    if let Some(forcing) = forcing {
        let e = m.bind_as("push", ProgramExpr::load(forcing, vec![i.clone()], F32));
        known.push(Term::new(e, -1.0, 1.0));
    }
    let states: Vec<VarId> = (names.iter().zip(&arrays))
        .map(|((name, _), array)| m.mutable(name, ProgramExpr::load(*array, vec![i.clone()], F32)))
        .collect();
    // Either all rates are computed before the first state changes (explicit Euler), or each after
    // the previous state has changed.
    let sequential = m.random.chance(40);
    let step = |m: &mut ProgramBuilder| {
        let mut rates = vec![];
        for (at, (name, _)) in names.iter().enumerate() {
            let rate = rate(m, at, &states, &known);
            let rate = m.bind_as(&format!("d_{name}"), rate);
            if sequential {
                change(m, states[at], rate, dt);
            } else {
                rates.push(rate);
            }
        }
        for (state, rate) in states.iter().zip(rates) {
            change(m, *state, rate, dt);
        }
    };
    if m.random.chance(60) {
        let steps = m.random.in_range(2, MAX_STEPS);
        m.for_range("step", ProgramExpr::int(0), ProgramExpr::int(steps), 1, |m, _| step(m));
    } else {
        step(m);
    }
    for (state, array) in states.into_iter().zip(arrays) {
        let value = m.read(state);
        m.push(ProgramStmt::Store(array, vec![i.clone()], value));
    }
}

fn change(m: &mut ProgramBuilder, state: VarId, rate: ProgramExpr, dt: VarId) {
    m.push(ProgramStmt::Update(
        state,
        BinaryOp::Add,
        ProgramExpr::binary(BinaryOp::Mul, rate, ProgramExpr::var(dt, F32)),
    ));
}

/// Rate of change of a state: a function of itself, other states and known values.
fn rate(m: &mut ProgramBuilder, at: usize, states: &[VarId], known: &[Term]) -> ProgramExpr {
    let max = INITIAL_RANGE + MAX_STEPS as f64 * MAX_STEP * MAX_RATE;
    let mut terms: Vec<Term> = vec![];
    for (other, state) in states.iter().enumerate() {
        if other == at || m.random.chance(60) {
            terms.push(Term::new(m.read(*state), -max, max));
        }
    }
    for term in known {
        if m.random.chance(60) {
            terms.push(term.clone());
        }
    }
    let more = m.random.below(2);
    repeated(m, &mut terms, more);
    let unary = 1 + m.random.below(3);
    let value = m.combine(terms, unary, 20, &MIXED);
    m.narrowed(value, MAX_RATE).e
}
