//! Building blocks of neural networks: activations, losses, optimizer steps, row normalizations.

use super::block::{BlockNames, BlockWriter, Reduce, ReduceStrategy, along_x, indent, kernel_text, reduction_lines};
use super::builder::ProgramBuilder;
use super::describe::idioms;
use super::elementwise::{line, scalars};
use super::reduce::Elements;
use super::term::{MIXED, Term, TermFn, TermOp};
use crate::program::python::size_text;
use crate::program::{ArrayFill, BinaryOp, BuiltinFn, ProgramExpr, ProgramStmt, ScalarType};

const F32: ScalarType = ScalarType::F32;

fn number(value: f64) -> ProgramExpr {
    ProgramExpr::float(F32, value)
}

fn bin(op: BinaryOp, a: ProgramExpr, b: ProgramExpr) -> ProgramExpr {
    ProgramExpr::binary(op, a, b)
}

/// Building blocks of neural networks.
pub fn ml_ops(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    match m.random.below(6) {
        0 | 1 => activation(m),
        2 => optimizer(m),
        3 => loss(m),
        _ => return rows(m),
    }
    None
}

/// A well-known activation of a term.
fn activation_of(m: &mut ProgramBuilder, x: Term) -> Term {
    let x = m.bind_once(x);
    let size = x.size();
    match m.random.below(10) {
        0 => {
            if x.low >= 0.0 {
                return m.apply(TermFn::Shift, x);
            }
            Term::new(idioms::relu(x.e), 0.0, x.high.max(0.0))
        }
        1 => {
            let negative_slope = m.constant(0.01, 0.3);
            let positive = bin(BinaryOp::Gt, x.e.clone(), number(0.0));
            if !m.has_both_outcomes(&positive) {
                return m.apply(TermFn::Sigmoid, x);
            }
            Term::new(idioms::leaky_relu(x.e, number(negative_slope)), -size, size)
        }
        2 => m.apply(TermFn::Sigmoid, x),
        3 => {
            let x = m.narrowed(x, 8.0);
            let x = m.bind_once(x);
            Term::new(idioms::silu(x.e), -1.0, size)
        }
        4 => {
            let x = m.narrowed(x, 8.0);
            let x = m.bind_once(x);
            Term::new(idioms::gelu_tanh(x.e), -0.2, 8.0)
        }
        5 => {
            let x = m.narrowed(x, 4.0);
            let x = m.bind_once(x);
            Term::new(idioms::gelu_erf(x.e), -0.2, 4.0)
        }
        6 => {
            let x = m.narrowed(x, 4.0);
            let x = m.bind_once(x);
            let alpha = m.constant(0.5, 2.0);
            let positive = bin(BinaryOp::Gt, x.e.clone(), number(0.0));
            if !m.has_both_outcomes(&positive) {
                return m.apply(TermFn::Sigmoid, x);
            }
            Term::new(idioms::elu(x.e, number(alpha)), -alpha, 4.0)
        }
        7 => {
            let x = m.narrowed(x, 8.0);
            Term::new(idioms::softplus(x.e), 0.0, 9.0)
        }
        8 => {
            let x = m.narrowed(x, 8.0);
            Term::new(ProgramExpr::call(BuiltinFn::Tanh, vec![x.e]), -1.0, 1.0)
        }
        _ => Term::new(idioms::hard_swish(x.e), -size, size),
    }
}

/// An activation of a sum, possibly gated or with a residual.
fn activation(m: &mut ProgramBuilder) {
    let count = 1 + m.random.below(3);
    let mut l = line(m, count, F32);
    let mut terms = std::mem::take(&mut l.terms);
    let count = m.random.below(2);
    terms.extend(scalars(m, count, F32));
    let first = terms[0].clone();
    let unary = m.random.below(3);
    let joined = m.combine(terms, unary, 20, &MIXED);
    let joined = m.narrowed(joined, 20.0);
    let mut value = activation_of(m, joined);
    match m.random.below(4) {
        0 => {
            let other = activation_of(m, first);
            value = m.join(TermOp::Mul, value, other);
        }
        1 => value = m.join(TermOp::Add, value, first),
        2 => {
            let scaled = m.apply(TermFn::Scale, value);
            value = m.join(TermOp::Sub, scaled, first);
        }
        _ => {}
    }
    let out = m.output(F32, &[l.n]);
    m.push(ProgramStmt::Store(out, vec![l.i], value.e));
}

/// An optimizer step: combinations of momentum, Adam, decay and clipping.
fn optimizer(m: &mut ProgramBuilder) {
    let n = m.size("n", false, 0, 300);
    let weights = m.array("weights", F32, &[n], ArrayFill::Uniform(-1.0, 1.0), true);
    let grads = m.array("grads", F32, &[n], ArrayFill::Uniform(-2.0, 2.0), false);
    let momentum = m.random.chance(70).then(|| m.array("momentum", F32, &[n], ArrayFill::Uniform(-1.0, 1.0), true));
    let square = m.random.chance(55).then(|| m.array("variance", F32, &[n], ArrayFill::Uniform(0.1, 1.0), true));
    let learning_rate = m.value("lr", F32, 0.001, 0.1);
    let learning_rate = ProgramExpr::var(learning_rate, F32);
    let decay = m.random.chance(45).then(|| m.value("weight_decay", F32, 0.01, 0.1));
    let beta = momentum.or(square).map(|_| m.value("beta", F32, 0.8, 0.99));
    let i = m.index("i", n);
    let at = || vec![i.clone()];
    let w = m.bind_as("w", ProgramExpr::load(weights, at(), F32));
    let mut g = m.bind_as("g", ProgramExpr::load(grads, at(), F32));
    if m.random.chance(30) {
        let limit = m.constant(0.5, 1.5);
        g = m.bind_as("g_clip", ProgramExpr::call(BuiltinFn::Clamp, vec![g, number(-limit), number(limit)]));
    }
    let decoupled = m.random.chance(50);
    if let (Some(decay), false) = (decay, decoupled) {
        g = m.bind_as("g_reg", bin(BinaryOp::Add, g, bin(BinaryOp::Mul, ProgramExpr::var(decay, F32), w.clone())));
    }
    let averaged = |m: &mut ProgramBuilder, array, value: ProgramExpr, name: &str| {
        let beta = ProgramExpr::var(beta.unwrap_or(crate::program::VarId(0)), F32);
        let rest = bin(BinaryOp::Sub, number(1.0), beta.clone());
        let old = bin(BinaryOp::Mul, beta, ProgramExpr::load(array, at(), F32));
        let new = m.bind_as(name, bin(BinaryOp::Add, old, bin(BinaryOp::Mul, rest, value)));
        m.push(ProgramStmt::Store(array, at(), new.clone()));
        new
    };
    if m.random.chance(60) {
        // An arbitrary transformation of the gradient.
        let mut terms = vec![Term::new(g, -2.0, 2.0)];
        if m.random.chance(50) {
            terms.push(Term::new(w.clone(), -1.0, 1.0));
        }
        let unary = 1 + m.random.below(3);
        let value = m.combine(terms, unary, 25, &MIXED);
        let value = m.narrowed(value, 4.0);
        g = m.bind_as("g_mod", value.e);
    }
    let direction = match momentum {
        Some(array) => averaged(m, array, g.clone(), "m_new"),
        None => g.clone(),
    };
    let direction = match square {
        Some(array) => {
            let v = averaged(m, array, bin(BinaryOp::Mul, g.clone(), g), "v_new");
            let eps = *m.random.pick(&[1e-3, 1e-4, 1e-2]);
            let root = bin(BinaryOp::Add, ProgramExpr::call(BuiltinFn::Sqrt, vec![v]), number(eps));
            bin(BinaryOp::Div, direction, root)
        }
        None if m.random.chance(25) => ProgramExpr::call(BuiltinFn::Sign, vec![direction]),
        None => direction,
    };
    let mut step = bin(BinaryOp::Mul, learning_rate.clone(), direction);
    if let (Some(decay), true) = (decay, decoupled) {
        let shrink = bin(BinaryOp::Mul, bin(BinaryOp::Mul, learning_rate, ProgramExpr::var(decay, F32)), w.clone());
        step = bin(BinaryOp::Add, step, shrink);
    }
    m.push(ProgramStmt::Store(weights, at(), bin(BinaryOp::Sub, w, step)));
}

/// An elementwise loss, in some kernels with its derivative.
fn loss(m: &mut ProgramBuilder) {
    let n = m.size("n", false, 0, 300);
    let names = *m.random.pick(&[["pred", "target"], ["logits", "labels"], ["output_vals", "truth"]]);
    let unit = m.random.chance(50);
    let (low, high) = if unit { (0.1, 0.9) } else { (-3.0, 3.0) };
    let pred = m.array(names[0], F32, &[n], ArrayFill::Uniform(low, high), false);
    let target = m.array(
        names[1],
        F32,
        &[n],
        ArrayFill::Uniform(if unit { 0.0 } else { -3.0 }, if unit { 1.0 } else { 3.0 }),
        false,
    );
    let weights = m.random.chance(30).then(|| m.array("class_weights", F32, &[n], ArrayFill::Uniform(0.5, 2.0), false));
    let out = m.array("loss", F32, &[n], ArrayFill::Zero, true);
    let gradient = m.random.chance(45).then(|| m.array("grad", F32, &[n], ArrayFill::Zero, true));
    let i = m.index("i", n);
    let p = m.bind_as("p", ProgramExpr::load(pred, vec![i.clone()], F32));
    let y = m.bind_as("y", ProgramExpr::load(target, vec![i.clone()], F32));
    let p_again = p.clone();
    let d = Term::new(bin(BinaryOp::Sub, p.clone(), y.clone()), low - 3.0, high + 3.0);
    let size_of_d = d.size();
    // A stored derivative is that of the stored loss, unmodified.
    let kind = match m.random.below(4) {
        0 if !unit => 2,
        3 if gradient.is_some() => 2,
        kind => kind,
    };
    let ((mut value, mut grad), range) = match kind {
        0 => {
            let d = m.bind_as("d", d.e);
            let loss = idioms::binary_cross_entropy(p.clone(), y.clone());
            ((loss, idioms::binary_cross_entropy_derivative(d, p)), (0.0, 3.0))
        }
        1 => {
            let d = m.bind_as("d", d.e);
            let size = m.bind_as("size_val", ProgramExpr::call(BuiltinFn::Abs, vec![d.clone()]));
            // Some elements are on each side of delta.
            let far = m.dividing_value(&Term::new(size.clone(), 0.0, size_of_d)).unwrap_or(1.0);
            let delta = m.constant(0.7 * far, 1.3 * far);
            let loss = idioms::huber(d.clone(), size, number(delta), number(0.5 * delta));
            let grad = ProgramExpr::call(BuiltinFn::Clamp, vec![d, number(-delta), number(delta)]);
            ((loss, grad), (0.0, 2.0 * size_of_d))
        }
        2 => {
            let d = m.bind_as("d", d.e);
            ((idioms::square(d.clone()), bin(BinaryOp::Mul, number(2.0), d)), (0.0, size_of_d * size_of_d))
        }
        _ => {
            let d = Term { e: m.bind_as("d", d.e.clone()), ..d };
            let unary = 1 + m.random.below(2);
            let value = m.combine(vec![d.clone()], unary, 20, &MIXED);
            let grad = m.apply(TermFn::Scale, d);
            ((value.e, grad.e), (value.low, value.high))
        }
    };
    if gradient.is_none() && m.random.chance(60) {
        let loss = Term::new(m.bind_as("raw", value), range.0, range.1);
        let mut terms = vec![loss];
        if m.random.chance(50) {
            terms.push(Term::new(p_again, low, high));
        }
        let unary = 1 + m.random.below(2);
        value = m.combine(terms, unary, 20, &MIXED).e;
    }
    if let Some(weights) = weights {
        let w = m.bind_as("cw", ProgramExpr::load(weights, vec![i.clone()], F32));
        value = bin(BinaryOp::Mul, w.clone(), value);
        grad = bin(BinaryOp::Mul, w, grad);
    }
    m.push(ProgramStmt::Store(out, vec![i.clone()], value));
    if let Some(gradient) = gradient {
        m.push(ProgramStmt::Store(gradient, vec![i], grad));
    }
}

/// Row normalizations: softmax, layer norm, RMS norm and similar.
fn rows(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    let (rows, cols) = (m.size("rows", false, 0, 9), m.size("cols", true, 1, 140));
    let elements = Elements::new(m, F32, &[rows, cols]);
    let scale = m.random.chance(50).then(|| m.array("gamma_w", F32, &[cols], ArrayFill::Uniform(0.5, 2.0), false));
    let shift = m.random.chance(40).then(|| m.array("beta_w", F32, &[cols], ArrayFill::Uniform(-1.0, 1.0), false));
    let out = m.output(F32, &[rows, cols]);
    let row = m.index("row", rows);
    let high = m.extent(cols);
    let kind = m.random.below(3);
    let j = m.variable("j", ScalarType::I32, false);
    let j_expr = ProgramExpr::var(j, ScalarType::I32);
    let element = elements.at(m, &[row.clone(), j_expr.clone()], 8.0);
    let count = high.clone().cast(F32);
    let eps = *m.random.pick(&[1e-3, 1e-2, 1e-4]);
    // Up to two passes over the row, each with the summed expression and the variable computed from
    // the sum.
    struct Pass {
        reduce: Reduce,
        part: ProgramExpr,
        acc: crate::program::VarId,
        derived: Option<(crate::program::VarId, ProgramExpr)>,
    }
    let mut passes: Vec<Pass> = vec![];
    let mut pass = |m: &mut ProgramBuilder,
                    reduce: Reduce,
                    name: &str,
                    part: ProgramExpr,
                    derived: Option<(&str, &dyn Fn(ProgramExpr) -> ProgramExpr)>| {
        let acc = m.mutable(name, reduce.identity(F32));
        let now = m.read(acc);
        m.push(ProgramStmt::For(
            j,
            ProgramExpr::int(0),
            high.clone(),
            1,
            vec![reduce.step(acc, now.clone(), part.clone())],
        ));
        let derived = derived.map(|(name, compute)| {
            let e = compute(now.clone());
            let bound = m.bind_as(name, e.clone());
            let crate::program::ExprKind::Var(var) = bound.kind else { return (acc, e) };
            (var, e)
        });
        let value = derived.as_ref().map_or(now, |(var, _)| m.read(*var));
        passes.push(Pass { reduce, part, acc, derived });
        value
    };
    let normal = match kind {
        0 => {
            let top = pass(m, Reduce::Max, "top", element.e.clone(), None);
            let exp = ProgramExpr::call(BuiltinFn::Exp, vec![bin(BinaryOp::Sub, element.e.clone(), top)]);
            let sum = pass(m, Reduce::Add, "total", exp.clone(), None);
            bin(BinaryOp::Div, exp, sum)
        }
        1 => {
            let mean = pass(
                m,
                Reduce::Add,
                "total",
                element.e.clone(),
                Some(("mean", &|sum| bin(BinaryOp::Div, sum, count.clone()))),
            );
            let d = bin(BinaryOp::Sub, element.e.clone(), mean);
            let square = bin(BinaryOp::Mul, d.clone(), d.clone());
            let root = |sum: ProgramExpr| {
                let variance = bin(BinaryOp::Add, bin(BinaryOp::Div, sum, count.clone()), number(eps));
                ProgramExpr::call(BuiltinFn::Sqrt, vec![variance])
            };
            let deviation = pass(m, Reduce::Add, "spread", square, Some(("dev", &root)));
            bin(BinaryOp::Div, d, deviation)
        }
        _ => {
            let power = m.random.chance(60);
            let part = if power {
                bin(BinaryOp::Mul, element.e.clone(), element.e.clone())
            } else {
                ProgramExpr::call(BuiltinFn::Abs, vec![element.e.clone()])
            };
            let root = |sum: ProgramExpr| {
                let mean = bin(BinaryOp::Add, bin(BinaryOp::Div, sum, count.clone()), number(eps));
                if power { ProgramExpr::call(BuiltinFn::Sqrt, vec![mean]) } else { mean }
            };
            let norm = pass(m, Reduce::Add, "total", part, Some(("norm", &root)));
            bin(BinaryOp::Div, element.e.clone(), norm)
        }
    };
    let can_bind = std::mem::replace(&mut m.can_bind, false);
    let mut last = Term::new(normal, -12.0, 12.0);
    if let Some(scale) = scale {
        let by = ProgramExpr::load(scale, vec![j_expr.clone()], F32);
        last = Term::new(bin(BinaryOp::Mul, last.e, by), -24.0, 24.0);
    }
    if let Some(shift) = shift {
        let by = ProgramExpr::load(shift, vec![j_expr.clone()], F32);
        last = Term::new(bin(BinaryOp::Add, last.e, by), -25.0, 25.0);
    }
    if m.random.chance(60) {
        let unary = 1 + m.random.below(3);
        last = m.combine(vec![last], unary, 0, &MIXED);
    }
    m.can_bind = can_bind;
    let store = ProgramStmt::Store(out, vec![row.clone(), j_expr.clone()], last.e.clone());
    m.push(ProgramStmt::For(j, ProgramExpr::int(0), high, 1, vec![store.clone()]));
    if m.random.chance(25) {
        return None;
    }
    let threads = *m.random.pick_weighted(&[(3, 32u32), (4, 64), (2, 128)]);
    let strategy = ReduceStrategy::pick(m);
    let pass_names: Vec<(BlockNames, String)> =
        passes.iter().map(|_| (BlockNames::new(m), m.names.unique("shared_total"))).collect();
    let t = pass_names[0].0.t.clone();
    let restrict = m.random.chance(60);
    Some(Box::new(move |program| {
        let text = kernel_text(program, restrict, |p| {
            let (row_name, j_name) = (p.expr_text(&row), program.body.var(j).name.clone());
            let (rows_name, cols_name) = (size_text(program, rows), size_text(program, cols));
            let mut lines = vec![
                format!("int {row_name} = blockIdx.x;"),
                format!("int {t} = threadIdx.x;"),
                format!("if ({row_name} >= {rows_name}) return;"),
            ];
            let over = format!("for (int {j_name} = {t}; {j_name} < {cols_name}; {j_name} += {threads}) {{");
            for (pass, (names, shared)) in passes.iter().zip(pass_names) {
                let names = BlockNames { t: t.clone(), ..names };
                let (v, identity) = (&names.value, p.expr_text(&pass.reduce.identity(F32)));
                lines.push(format!("float {v} = {identity};"));
                lines.push(over.clone());
                lines.push(format!("    {}", pass.reduce.assign_text(F32, v, &p.expr_text(&pass.part))));
                lines.push("}".into());
                let (more, result) = reduction_lines(strategy, pass.reduce, F32, threads, &names, &identity);
                lines.extend(more);
                lines.push(format!("__shared__ float {shared};"));
                lines.push(format!("if ({t} == 0) {shared} = {result};"));
                lines.push("__syncthreads();".into());
                lines.push(format!("float {} = {shared};", program.body.var(pass.acc).name));
                if let Some((var, derived)) = &pass.derived {
                    lines.push(format!("float {} = {};", program.body.var(*var).name, p.expr_text(derived)));
                }
            }
            lines.push(over);
            let stored = p.lines(std::slice::from_ref(&store), 0);
            lines.push(format!("    {}", stored.trim_end()));
            lines.push("}".into());
            indent(1, &lines)
        });
        along_x(text, threads, (rows, 1), strategy.kind())
    }))
}
