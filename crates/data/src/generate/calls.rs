//! Kernels with device functions, and with nested loops.

use super::builder::ProgramBuilder;
use super::elementwise::{RANGES, any_condition, float, line, scalars};
use super::names;
use super::sample::PathCondition;
use super::term::{ARITHMETIC, MIXED, PLAIN, Term, TermOp};
use crate::program::{ArrayFill, BinaryOp, BuiltinFn, FuncId, ProgramExpr, ProgramStmt, ScalarType, Ty};

/// Defines a function of one to three scalars that the kernel calls with `call`.
fn function(m: &mut ProgramBuilder, scalar: ScalarType, earlier: &[(FuncId, usize)], call: &[Term]) -> (FuncId, usize) {
    let count = call.len();
    let arguments = call.iter().map(|arg| m.samples(&arg.e)).collect();
    let all = ["a", "b", "c"];
    let params: Vec<(&str, Ty)> = all[..count].iter().map(|name| (*name, scalar.into())).collect();
    let params = m.open_function(&params);
    m.arguments = arguments;
    // Other functions may call it with any arguments.
    let mut terms: Vec<Term> = params.iter().map(|e| Term::new(e.clone(), -4.0, 4.0)).collect();
    let op = *m.random.pick(&[BinaryOp::Lt, BinaryOp::Gt]);
    let condition = if m.random.chance(25) { m.threshold(&terms[0], op) } else { None };
    if let Some(condition) = condition {
        let then = m.block_where(&condition, true, |m| {
            let some = m.random.pick(&terms).clone();
            let value = m.combine(vec![some], 1, 0, &PLAIN);
            let value = m.narrowed(value, 4.0);
            m.push(ProgramStmt::Return(Some(value.e)));
        });
        m.path_conditions.push(PathCondition { condition: condition.clone(), holds: false });
        m.push(ProgramStmt::If(condition, then, vec![]));
    }
    if let Some((func, arity)) = earlier.last()
        && m.random.chance(45)
    {
        let args: Vec<ProgramExpr> = (0..*arity)
            .map(|_| {
                let some = m.random.pick(&terms).clone();
                m.narrowed(some, 4.0).e
            })
            .collect();
        terms.push(Term::new(ProgramExpr::function(*func, args, scalar), -4.0, 4.0));
    }
    let unary = 1 + m.random.below(2);
    let value = m.combine(terms, unary, 25, &MIXED);
    let value = m.narrowed(value, 4.0);
    m.push(ProgramStmt::Return(Some(value.e)));
    let (verb, noun) =
        (*m.random.pick(names::VERBS), *m.random.pick(&["pair", "term", "part", "value", "level", "rate", "edge"]));
    (m.close_function(&format!("{verb}_{noun}"), scalar), count)
}

/// Kernels that call device functions.
pub fn functions(m: &mut ProgramBuilder) {
    let scalar = float(m);
    let count = 1 + m.random.below(3);
    let mut l = line(m, count, scalar);
    let mut terms = std::mem::take(&mut l.terms);
    let inputs = terms.clone();
    let mut defined = vec![];
    for _ in 0..1 + m.random.below(2) {
        let count = 1 + m.random.below(3);
        let calls: Vec<Vec<Term>> = (0..1 + m.random.below(2))
            .map(|_| {
                let mut args = vec![];
                for _ in 0..count {
                    let some = m.random.pick(&inputs).clone();
                    args.push(m.narrowed(some, 4.0));
                }
                args
            })
            .collect();
        let next = function(m, scalar, &defined, &calls[0]);
        defined.push(next);
        for args in calls {
            let args = args.into_iter().map(|arg| arg.e).collect();
            terms.push(Term::new(ProgramExpr::function(next.0, args, scalar), -4.0, 4.0));
        }
    }
    let unary = m.random.below(3);
    let value = m.combine(terms, unary, 25, &ARITHMETIC);
    let out = m.output(scalar, &[l.n]);
    m.push(ProgramStmt::Store(out, vec![l.i], value.e));
}

/// Nested loops, and branches within loops.
pub fn nested(m: &mut ProgramBuilder) {
    let scalar = float(m);
    let rows = m.size("rows", false, 0, 40);
    let cols = m.size("cols", true, 0, 12);
    let range = *m.random.pick(RANGES);
    let a = m.input(scalar, &[rows, cols], ArrayFill::Uniform(range.0, range.1));
    let b = m.random.chance(60).then(|| m.input(scalar, &[cols], ArrayFill::Uniform(-1.0, 1.0)));
    let out = m.output(scalar, &[rows]);
    let count = m.random.below(2);
    let numbers = scalars(m, count, scalar);
    let i = m.index("row", rows);
    let first = *m.random.pick(&[0.0, 1.0, 0.5]);
    let acc = m.mutable("acc", ProgramExpr::float(scalar, first));
    let high = m.extent(cols);
    let depth = 1 + m.random.chance(55) as usize;
    let branch = m.random.chance(70);
    let inner_iterations = m.random.in_range(2, 4);
    m.for_range("j", ProgramExpr::int(0), high.clone(), 1, |m, j| {
        let center = Term::new(ProgramExpr::load(a, vec![i.clone(), j.clone()], scalar), range.0, range.1);
        let center = Term { e: m.bind(center.e), ..center };
        let mut terms = vec![center.clone()];
        terms.extend(b.map(|b| Term::new(ProgramExpr::load(b, vec![j.clone()], scalar), -1.0, 1.0)));
        terms.extend(numbers.clone());
        let body = |m: &mut ProgramBuilder, mut terms: Vec<Term>| {
            if m.random.chance(50) {
                terms.push(Term::new(j.clone().cast(scalar), 0.0, 12.0));
            }
            let unary = 1 + m.random.below(2);
            let value = m.combine(terms, unary, 15, &MIXED);
            let value = m.narrowed(value, 4.0);
            match m.random.below(3) {
                0 => m.push(ProgramStmt::Update(acc, BinaryOp::Add, value.e)),
                1 => m.push(ProgramStmt::Update(acc, BinaryOp::Sub, value.e)),
                _ => {
                    let now = Term::new(m.read(acc), -8.0, 8.0);
                    let op = *m.random.pick(&[TermOp::Max, TermOp::Min, TermOp::Add]);
                    let combined = m.join(op, now, value);
                    let combined = m.narrowed(combined, 8.0);
                    m.push(ProgramStmt::Assign(acc, combined.e));
                }
            }
        };
        if branch {
            let others = terms.clone();
            let condition = any_condition(m, &others);
            let then = m.block_where(&condition, true, |m| {
                if depth > 1 {
                    m.for_range("k", ProgramExpr::int(0), ProgramExpr::int(inner_iterations), 1, |m, k| {
                        let mut terms = others.clone();
                        terms.push(Term::new(k.cast(scalar), 0.0, 4.0));
                        body(m, terms);
                    });
                } else {
                    body(m, others.clone());
                }
            });
            let otherwise = match m.random.chance(60) {
                true => m.block_where(&condition, false, |m| body(m, vec![center])),
                false => vec![],
            };
            m.push(ProgramStmt::If(condition, then, otherwise));
        } else {
            let counted = m.random.chance(50);
            let high = if counted {
                ProgramExpr::int(inner_iterations)
            } else {
                ProgramExpr::binary(BinaryOp::Add, j.clone(), ProgramExpr::int(1))
            };
            m.for_range("k", ProgramExpr::int(0), high, 1, |m, k| {
                let mut terms = terms.clone();
                let column =
                    if counted { ProgramExpr::call(BuiltinFn::Min, vec![k.clone(), j.clone()]) } else { k.clone() };
                let element = ProgramExpr::load(a, vec![i.clone(), column], scalar);
                if m.random.chance(60) {
                    terms.push(Term::new(element, range.0, range.1));
                } else {
                    terms.push(Term::new(k.cast(scalar), 0.0, 12.0));
                }
                body(m, terms);
            });
        }
    });
    let value = m.read(acc);
    m.push(ProgramStmt::Store(out, vec![i], value));
}
