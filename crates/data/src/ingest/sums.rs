//! How far sums of floats may be apart whose order is open.
//!
//! Each addition may round by the size of all that is added, as the independent evaluator has it for rows of the generator.
//! How much and how often a kernel adds to an element, two of its likes tell: one adds sizes in place of numbers, the
//! other ones. Elements that nothing is added to have no bound, so what a kernel makes of an unfinished sum (a place in a
//! list, say) still has to be the same in every order.

use bornite_ir::interp::Order;
use bornite_ir::{Args, Atomic, Code, Expr, ExprId, Kernel, Op, Scalar, Stmt, Value, View};
use bornite_lang::Lowered;

use super::launch::{Contents, ran};

/// Half a unit in the last place of 1.
fn unit(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::F16 => 2f64.powi(-11),
        Scalar::BF16 => 2f64.powi(-8),
        Scalar::F64 => 2f64.powi(-53),
        _ => 2f64.powi(-24),
    }
}

/// What is added in place of a number.
#[derive(Clone, Copy, PartialEq)]
enum Weight {
    Size,
    One,
}

/// For each array, how far each component may be apart in two orders; nothing where all must be the same.
pub(super) fn bounds(lowered: &Lowered, given: &Contents) -> Vec<Vec<f64>> {
    let kernel = &lowered.kernel;
    let summed: Vec<bool> =
        (0..kernel.params.len()).map(|n| kernel.code.exprs.iter().any(|e| adds_to(kernel, e) == Some(n))).collect();
    let mut bounds = vec![vec![]; kernel.params.len()];
    if !summed.contains(&true) {
        return bounds;
    }
    let weighed = |weight: Weight| {
        let mut given = given.clone();
        for (cells, _) in given.arrays.iter_mut().zip(&summed).filter(|(_, summed)| **summed) {
            for cell in cells.iter_mut().filter(|cell| cell.scalar().is_float()) {
                let size = if weight == Weight::Size { cell.as_f64().abs() } else { 0.0 };
                *cell = Value::from_f64(cell.scalar(), size);
            }
        }
        let lowered = Lowered { kernel: adding(kernel, weight), ..lowered.clone() };
        ran(&lowered, &given, Order::Forward)
    };
    // One that does not run, because it goes by its own sums, has no bounds: then all must be the same.
    let (Ok(sizes), Ok(counts)) = (weighed(Weight::Size), weighed(Weight::One)) else { return bounds };
    for n in (0..kernel.params.len()).filter(|n| summed[*n]) {
        bounds[n] = (sizes[n].iter().zip(&counts[n]))
            .map(|(size, count)| match size.scalar() {
                // Each of the two orders may be that far from the sum.
                scalar if scalar.is_float() => 2.02 * count.as_f64() * size.as_f64() * unit(scalar),
                _ => 0.0,
            })
            .map(|bound| if bound.is_finite() { bound } else { 0.0 })
            .collect();
    }
    bounds
}

/// The array that an expression adds floats to.
fn adds_to(kernel: &Kernel, expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Atomic { atomic: Atomic::Add | Atomic::Sub, view: View::Param(id), value, .. } => {
            let added = kernel.code.ty(*value).element();
            added.is_some_and(Scalar::is_float).then_some(id.0 as usize)
        }
        _ => None,
    }
}

/// The kernel that adds weights.
fn adding(kernel: &Kernel, weight: Weight) -> Kernel {
    let mut made = kernel.clone();
    let body = std::mem::take(&mut made.code.body);
    made.code.body = block(kernel, &mut made.code, body, weight);
    made
}

fn block(kernel: &Kernel, code: &mut Code, stmts: Vec<Stmt>, weight: Weight) -> Vec<Stmt> {
    let mut all = vec![];
    for stmt in stmts {
        let made = match stmt {
            Stmt::Let(id) if adds_to(kernel, code.expr(id)).is_some() => {
                all.extend(weighed(code, id, weight).into_iter().map(Stmt::Let));
                stmt
            }
            Stmt::For { counter, end, body } => Stmt::For { counter, end, body: block(kernel, code, body, weight) },
            Stmt::Loop { body } => Stmt::Loop { body: block(kernel, code, body, weight) },
            Stmt::If { condition, then, otherwise } => Stmt::If {
                condition,
                then: block(kernel, code, then, weight),
                otherwise: block(kernel, code, otherwise, weight),
            },
            other => other,
        };
        all.push(made);
    }
    all
}

/// Makes an update add the weight of its operand; what has to be evaluated before.
fn weighed(code: &mut Code, update: ExprId, weight: Weight) -> Vec<ExprId> {
    let Expr::Atomic { view, at, value, .. } = code.expr(update).clone() else { return vec![] };
    let ty = code.ty(value);
    let mut steps = vec![];
    let mut add = |expr: Option<Expr>, ty| {
        code.exprs.push(expr?);
        code.types.push(ty);
        steps.push(ExprId(code.exprs.len() as u32 - 1));
        steps.last().copied()
    };
    let made = match weight {
        Weight::Size => add(Args::new(&[value]).map(|args| Expr::Op(Op::Abs, args)), ty),
        Weight::One => {
            let same = Args::new(&[value, value]).map(|args| Expr::Op(Op::Eq, args));
            let truth = add(same, ty.with_element(Scalar::Bool));
            let to = ty.element().unwrap_or(Scalar::F32);
            truth.and_then(|truth| add(Some(Expr::Cast(to, truth)), ty))
        }
    };
    let value = made.unwrap_or(value);
    code.exprs[update.0 as usize] = Expr::Atomic { atomic: Atomic::Add, view, at, value };
    steps
}
