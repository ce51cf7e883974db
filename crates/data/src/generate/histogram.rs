//! Histograms: atomics in the source, per-block counts in shared memory in the CUDA text.

use super::block::{BlockNames, BlockWriter, along_x, indent, kernel_text};
use super::builder::ProgramBuilder;
use super::term::{ARITHMETIC, MATH, MIXED, OpDistribution, Term};
use crate::program::{ArrayFill, AtomicOp, BinaryOp, BuiltinFn, ProgramExpr, ProgramStmt, ScalarType, SizeExpr};

/// Counts of values in bins.
pub fn histogram(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    let n = m.size("n", false, 0, 600);
    let bins = *m.random.pick(&[8u32, 10, 16, 20, 32, 50, 64]);
    let float = m.random.chance(55);
    let key_scalar = if float { ScalarType::F32 } else { ScalarType::I32 };
    let (low, high) = if float { *m.random.pick(&[(0.0, 1.0), (-2.0, 2.0), (0.0, 8.0)]) } else { (0.0, 1000.0) };
    let name = *m.random.pick(&["keys", "values", "samples", "data", "x"]);
    let keys = m.array(name, key_scalar, &[n], ArrayFill::Uniform(low, high), false);
    let second = m.random.chance(45).then(|| {
        let range = if float { (-1.0, 1.0) } else { (0.0, 100.0) };
        (m.input(key_scalar, &[n], ArrayFill::Uniform(range.0, range.1)), range)
    });
    let weight = *m.random.pick_weighted(&[(4, None), (3, Some(ScalarType::F32)), (3, Some(ScalarType::I32))]);
    let weights = weight.map(|scalar| {
        let fill = if scalar.is_float() { ArrayFill::Uniform(0.0, 2.0) } else { ArrayFill::Uniform(1.0, 9.0) };
        m.array("weights", scalar, &[n], fill, false)
    });
    let scalar = weight.unwrap_or(ScalarType::I32);
    let name = *m.random.pick(&["counts", "hist", "bins_out", "histogram"]);
    let out = m.array(name, scalar, &[SizeExpr::Constant(bins)], ArrayFill::Zero, true);
    let i = m.index("i", n);
    let can_bind = std::mem::replace(&mut m.can_bind, false);
    let key = ProgramExpr::load(keys, vec![i.clone()], key_scalar);
    let bin = if float {
        let mut leaves = vec![Term::new(key.clone(), low, high)];
        for _ in 0..m.random.below(3) {
            leaves.push(leaves[0].clone());
        }
        if let Some((array, range)) = second {
            leaves.push(Term::new(ProgramExpr::load(array, vec![i.clone()], key_scalar), range.0, range.1));
        }
        let distribution: &OpDistribution = if m.random.chance(50) { &MATH } else { &ARITHMETIC };
        let unary = m.random.below(5);
        let term = m.combine(leaves, unary, 0, distribution);
        let term = m.narrowed(term, 200.0);
        let (low, high) = m.typical_range(&term);
        let factor = (bins as f64 / (high - low) * 16.0).round().max(1.0) / 16.0;
        let low = (low * 16.0).round() / 16.0;
        let shifted = if low == 0.0 {
            term.e
        } else {
            let op = if low < 0.0 { BinaryOp::Add } else { BinaryOp::Sub };
            ProgramExpr::binary(op, term.e, ProgramExpr::float(ScalarType::F32, low.abs()))
        };
        let scaled = ProgramExpr::binary(BinaryOp::Mul, shifted, ProgramExpr::float(ScalarType::F32, factor));
        let bin_index = scaled.cast(ScalarType::I32);
        ProgramExpr::call(BuiltinFn::Clamp, vec![bin_index, ProgramExpr::int(0), ProgramExpr::int(bins as i64 - 1)])
    } else {
        let mut leaves = vec![Term::new(key.clone(), low, high)];
        for _ in 0..m.random.below(3) {
            leaves.push(leaves[0].clone());
        }
        if let Some((array, range)) = second {
            leaves.push(Term::new(ProgramExpr::load(array, vec![i.clone()], key_scalar), range.0, range.1));
        }
        let unary = 1 + m.random.below(4);
        let term = m.combine_int(leaves, unary, 0);
        let term = m.not_negative(term);
        ProgramExpr::binary(BinaryOp::Rem, term.e, ProgramExpr::int(bins as i64))
    };
    let mut amount = match (weights, scalar) {
        (Some(w), scalar) => Term::new(ProgramExpr::load(w, vec![i.clone()], scalar), 0.0, 9.0),
        _ => Term::new(ProgramExpr::int(1), 1.0, 1.0),
    };
    if weights.is_some() && m.random.chance(70) {
        let unary = 1 + m.random.below(3);
        amount = if scalar.is_float() {
            m.combine(vec![amount.clone(), amount], unary, 0, &MIXED)
        } else {
            m.combine_int(vec![amount], unary, 0)
        };
    }
    m.can_bind = can_bind;
    let bin = m.bind_as("bin_id", bin);
    let condition = m.random.chance(35).then(|| {
        let op = *m.random.pick(&[BinaryOp::Gt, BinaryOp::Lt]);
        if float {
            m.any_threshold(&Term::new(key, low, high), op)
        } else {
            ProgramExpr::binary(op, key, ProgramExpr::int(m.random.in_range(300, 700)))
        }
    });
    let step = ProgramStmt::Atomic(AtomicOp::Add, out, vec![bin.clone()], amount.e.clone());
    match condition.clone() {
        Some(condition) => m.push(ProgramStmt::If(condition, vec![step], vec![])),
        None => m.push(step),
    }
    if m.random.chance(25) {
        return None;
    }
    let threads = *m.random.pick(&[64u32, 128, 128, 256]);
    let each = *m.random.pick(&[1u32, 1, 2, 4]);
    let names = BlockNames::new(m);
    let restrict = m.random.chance(60);
    Some(Box::new(move |program| {
        let text = kernel_text(program, restrict, |p| {
            let (i_name, n_name) = (p.expr_text(&i), crate::program::python::size_text(program, n));
            let out_name = program.array(out).name.clone();
            let BlockNames { t, tile, step: s, .. } = &names;
            let zero = if scalar.is_float() { "0.0f" } else { "0" };
            let lets = p.lines(&program.body.stmts[..1], 2);
            let (bin, amount) = (p.expr_text(&bin), p.expr_text(&amount.e));
            let mut text = indent(
                1,
                &[
                    format!("__shared__ {} {tile}[{bins}];", scalar.c()),
                    format!("int {t} = threadIdx.x;"),
                    format!("for (int {s} = {t}; {s} < {bins}; {s} += blockDim.x) {tile}[{s}] = {zero};"),
                    "__syncthreads();".into(),
                ],
            );
            if each == 1 {
                text +=
                    &format!("    int {i_name} = blockIdx.x * blockDim.x + {t};\n    if ({i_name} < {n_name}) {{\n");
            } else {
                text += &format!(
                    "    for (int {i_name} = blockIdx.x * blockDim.x + {t}; {i_name} < {n_name}; {i_name} += blockDim.x * gridDim.x) {{\n"
                );
            }
            text += &lets;
            let add = format!("atomicAdd(&{tile}[{bin}], {amount});");
            text += &match &condition {
                Some(condition) => format!("        if ({}) {add}\n", p.expr_text(condition)),
                None => format!("        {add}\n"),
            };
            text += "    }\n    __syncthreads();\n";
            text + &indent(
                1,
                &[
                    format!("for (int {s} = {t}; {s} < {bins}; {s} += blockDim.x) {{"),
                    format!("    if ({tile}[{s}] != {zero}) atomicAdd(&{out_name}[{s}], {tile}[{s}]);"),
                    "}".into(),
                ],
            )
        });
        along_x(text, threads, (n, threads * each), "shared_histogram")
    }))
}
