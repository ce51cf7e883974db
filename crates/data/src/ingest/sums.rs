//! Error bounds of float sums whose order is unspecified.
//!
//! Each addition may round by the magnitude of everything that is added, as in the reference
//! evaluator. Two modified kernels measure how much and how often the kernel adds to an element:
//! one adds magnitudes instead of values, the other adds ones. Elements without atomic additions
//! have no bound, so a value derived from an unfinished sum (such as a position in a list) must
//! still be the same in every order.

use bornite_ir::interp::ExecutionOrder;
use bornite_ir::{Args, Atomic, Code, Expr, ExprId, Kernel, Op, Scalar, Stmt, Value, View};
use bornite_lang::Lowered;

use super::launch::{LaunchData, run_launch};

/// Half a unit in the last place of 1.
fn unit(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::F16 => 2f64.powi(-11),
        Scalar::BF16 => 2f64.powi(-8),
        Scalar::F64 => 2f64.powi(-53),
        _ => 2f64.powi(-24),
    }
}

/// Value that is added instead of the operand.
#[derive(Clone, Copy, PartialEq)]
enum Weight {
    Magnitude,
    One,
}

/// Error bound of each component of each array between two orders; empty for arrays without float
/// sums.
pub(super) fn bounds(lowered: &Lowered, inputs: &LaunchData) -> Vec<Vec<f64>> {
    let kernel = &lowered.kernel;
    let summed: Vec<bool> =
        (0..kernel.params.len()).map(|n| kernel.code.exprs.iter().any(|e| adds_to(kernel, e) == Some(n))).collect();
    let mut bounds = vec![vec![]; kernel.params.len()];
    if !summed.contains(&true) {
        return bounds;
    }
    let run_weighted = |weight: Weight| {
        let mut inputs = inputs.clone();
        for (cells, _) in inputs.arrays.iter_mut().zip(&summed).filter(|(_, summed)| **summed) {
            for cell in cells.iter_mut().filter(|cell| cell.scalar().is_float()) {
                let size = if weight == Weight::Magnitude { cell.as_f64().abs() } else { 0.0 };
                *cell = Value::from_f64(cell.scalar(), size);
            }
        }
        let lowered = Lowered { kernel: with_weights(kernel, weight), ..lowered.clone() };
        run_launch(&lowered, &inputs, ExecutionOrder::Forward)
    };
    // A kernel whose control flow depends on its sums may fail here; then all results must be
    // equal.
    let (Ok(sizes), Ok(counts)) = (run_weighted(Weight::Magnitude), run_weighted(Weight::One)) else { return bounds };
    for n in (0..kernel.params.len()).filter(|n| summed[*n]) {
        bounds[n] = (sizes[n].iter().zip(&counts[n]))
            .map(|(size, count)| match size.scalar() {
                // Each of the two orders may be this far from the exact sum.
                scalar if scalar.is_float() => 2.02 * count.as_f64() * size.as_f64() * unit(scalar),
                _ => 0.0,
            })
            .map(|bound| if bound.is_finite() { bound } else { 0.0 })
            .collect();
    }
    bounds
}

/// Array to which an expression atomically adds floats.
fn adds_to(kernel: &Kernel, expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Atomic { atomic: Atomic::Add | Atomic::Sub, view: View::Param(id), value, .. } => {
            let added = kernel.code.ty(*value).element();
            added.is_some_and(Scalar::is_float).then_some(id.0 as usize)
        }
        _ => None,
    }
}

/// The kernel with every atomic addition replaced by one of weights.
fn with_weights(kernel: &Kernel, weight: Weight) -> Kernel {
    let mut weighted = kernel.clone();
    let body = std::mem::take(&mut weighted.code.body);
    weighted.code.body = block(kernel, &mut weighted.code, body, weight);
    weighted
}

fn block(kernel: &Kernel, code: &mut Code, stmts: Vec<Stmt>, weight: Weight) -> Vec<Stmt> {
    let mut all = vec![];
    for stmt in stmts {
        let rewritten = match stmt {
            Stmt::Let(id) if adds_to(kernel, code.expr(id)).is_some() => {
                all.extend(weight_update(code, id, weight).into_iter().map(Stmt::Let));
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
        all.push(rewritten);
    }
    all
}

/// Makes an atomic update add the weight of its operand; returns the expressions to evaluate before
/// it.
fn weight_update(code: &mut Code, update: ExprId, weight: Weight) -> Vec<ExprId> {
    let Expr::Atomic { view, indices: at, value, .. } = code.expr(update).clone() else { return vec![] };
    let ty = code.ty(value);
    let mut steps = vec![];
    let mut add = |expr: Option<Expr>, ty| {
        code.exprs.push(expr?);
        code.types.push(ty);
        steps.push(ExprId(code.exprs.len() as u32 - 1));
        steps.last().copied()
    };
    let weighted = match weight {
        Weight::Magnitude => add(Args::new(&[value]).map(|args| Expr::Op(Op::Abs, args)), ty),
        Weight::One => {
            let same = Args::new(&[value, value]).map(|args| Expr::Op(Op::Eq, args));
            let truth = add(same, ty.with_element(Scalar::Bool));
            let to = ty.element().unwrap_or(Scalar::F32);
            truth.and_then(|truth| add(Some(Expr::Cast(to, truth)), ty))
        }
    };
    let value = weighted.unwrap_or(value);
    code.exprs[update.0 as usize] = Expr::Atomic { atomic: Atomic::Add, view, indices: at, value };
    steps
}
