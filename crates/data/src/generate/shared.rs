//! Kernels with tiles in shared memory.

use super::block::{BlockNames, BlockWriter, ReduceStrategy, along_x, indent, kernel_text};
use super::builder::ProgramBuilder;
use super::reduce::{Elements, reduction};
use super::term::{MIXED, Term, TermOp};
use crate::program::python::size_text;
use crate::program::{
    ArrayFill, BinaryOp, BuiltinFn, CooperativeKernel, ProgramExpr, ProgramStmt, ScalarType, SizeExpr,
};

/// Runs without binding subexpressions, since the block text needs a single expression.
pub fn without_binding<T>(m: &mut ProgramBuilder, build: impl FnOnce(&mut ProgramBuilder) -> T) -> T {
    let can_bind = std::mem::replace(&mut m.can_bind, false);
    let result = build(m);
    m.can_bind = can_bind;
    result
}

/// Kernels with tiles in shared memory.
pub fn shared_memory(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    match m.random.below(4) {
        0 => halo(m),
        1 => transposed(m),
        2 => reversed(m),
        _ => {
            let strategy =
                *m.random.pick(&[ReduceStrategy::Tree, ReduceStrategy::Unrolled, ReduceStrategy::Interleaved]);
            reduction(m, Some(strategy))
        }
    }
}

/// A 1D stencil through a tile with a halo.
fn halo(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    let scalar = *m.random.pick_weighted(&[(4, ScalarType::F32), (1, ScalarType::F64)]);
    let n = m.size("n", true, 0, 500);
    let elements = Elements::new(m, scalar, &[n]);
    let (x, range) = elements.arrays[0];
    let out = m.output(scalar, &[n]);
    let reach = m.random.in_range(1, 3);
    let zero_border = m.random.chance(50);
    let i = m.index("i", n);
    let extent = m.extent(n);
    // The source adds up the neighbourhood term by term.
    let weights: Vec<f64> = (0..=2 * reach).map(|_| *m.random.pick(&[0.25, 0.5, 0.125, 1.0, 0.75, 0.375])).collect();
    let acc = m.mutable("acc", ProgramExpr::float(scalar, 0.0));
    let mut parts = vec![];
    for (k, w) in weights.iter().enumerate() {
        let by = k as i64 - reach;
        let at = match by {
            0 => i.clone(),
            by if by > 0 => ProgramExpr::binary(BinaryOp::Add, i.clone(), ProgramExpr::int(by)),
            by => ProgramExpr::binary(BinaryOp::Sub, i.clone(), ProgramExpr::int(-by)),
        };
        let weigh = |e: ProgramExpr| {
            if *w == 1.0 { e } else { ProgramExpr::binary(BinaryOp::Mul, ProgramExpr::float(scalar, *w), e) }
        };
        if zero_border && by != 0 {
            let inside = if by > 0 {
                ProgramExpr::binary(BinaryOp::Lt, at.clone(), extent.clone())
            } else {
                ProgramExpr::binary(BinaryOp::Ge, i.clone(), ProgramExpr::int(-by))
            };
            let step = ProgramStmt::Update(acc, BinaryOp::Add, weigh(ProgramExpr::load(x, vec![at], scalar)));
            m.push(ProgramStmt::If(inside, vec![step], vec![]));
        } else {
            let at = match by {
                0 => at,
                by if by > 0 => ProgramExpr::call(
                    BuiltinFn::Min,
                    vec![at, ProgramExpr::binary(BinaryOp::Sub, extent.clone(), ProgramExpr::int(1))],
                ),
                _ => ProgramExpr::call(BuiltinFn::Max, vec![at, ProgramExpr::int(0)]),
            };
            m.push(ProgramStmt::Update(acc, BinaryOp::Add, weigh(ProgramExpr::load(x, vec![at], scalar))));
        }
        parts.push((by, *w));
    }
    let sum: f64 = weights.iter().sum();
    let now = Term::new(m.read(acc), sum * range.0.min(0.0), sum * range.1.max(0.0));
    let value = without_binding(m, |m| {
        let mut terms = vec![now];
        for (array, range) in &elements.arrays[1..] {
            terms.push(Term::new(ProgramExpr::load(*array, vec![i.clone()], scalar), range.0, range.1));
        }
        terms.extend(elements.numbers.clone());
        let unary = 1 + m.random.below(4);
        m.combine(terms, unary, 0, &MIXED)
    });
    m.push(ProgramStmt::Store(out, vec![i.clone()], value.e.clone()));
    let threads = *m.random.pick(&[32u32, 64, 128]);
    let names = BlockNames::new(m);
    let restrict = m.random.chance(60);
    let dynamic = m.random.chance(40);
    Some(Box::new(move |program| {
        let text = kernel_text(program, restrict, |p| {
            let (i_name, n_name, x_name) = (p.expr_text(&i), size_text(program, n), program.array(x).name.clone());
            let (out_name, acc_name) = (program.array(out).name.clone(), program.body.var(acc).name.clone());
            let BlockNames { t, tile, step: s, .. } = &names;
            let c = scalar.c();
            let zero = p.expr_text(&ProgramExpr::float(scalar, 0.0));
            let length = threads + 2 * reach as u32;
            let mut lines = vec![
                format!("__shared__ {c} {tile}[{length}];"),
                format!("int {t} = threadIdx.x;"),
                format!("int {i_name} = blockIdx.x * {threads} + {t};"),
                format!("for (int {s} = {t}; {s} < {length}; {s} += {threads}) {{"),
                format!("    int at = blockIdx.x * {threads} + {s} - {reach};"),
            ];
            if zero_border {
                lines.push(format!("    {tile}[{s}] = at >= 0 && at < {n_name} ? {x_name}[at] : {zero};"));
            } else {
                lines.push(format!("    if ({n_name} > 0) {tile}[{s}] = {x_name}[min(max(at, 0), {n_name} - 1)];"));
            }
            lines.push("}".into());
            lines.push("__syncthreads();".into());
            lines.push(format!("if ({i_name} < {n_name}) {{"));
            let weigh = |w: f64, e: String, p: &mut crate::program::c::Printer<'_>| {
                if w == 1.0 { e } else { format!("{} * {e}", p.expr_text(&ProgramExpr::float(scalar, w))) }
            };
            if dynamic {
                lines.push(format!("    {c} {acc_name} = {zero};"));
                for (by, w) in &parts {
                    let e = weigh(*w, format!("{tile}[{t} + {}]", by + reach), p);
                    lines.push(format!("    {acc_name} += {e};"));
                }
            } else {
                let all: Vec<String> =
                    parts.iter().map(|(by, w)| weigh(*w, format!("{tile}[{t} + {}]", by + reach), p)).collect();
                lines.push(format!("    {c} {acc_name} = {};", all.join(" + ")));
            }
            lines.push(format!("    {out_name}[{i_name}] = {};", p.expr_text(&value.e)));
            lines.push("}".into());
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads), "halo_tile")
    }))
}

/// A matrix transpose through a padded tile.
fn transposed(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    let scalar = *m.random.pick_weighted(&[(4, ScalarType::F32), (1, ScalarType::F64), (1, ScalarType::I32)]);
    let (rows, cols) = (m.size("rows", false, 0, 40), m.size("cols", false, 0, 40));
    let elements = Elements::new(m, scalar, &[rows, cols]);
    let out = m.output(scalar, &[cols, rows]);
    let (i, j) = (m.index("i", rows), m.index("j", cols));
    let value = elements.at(m, &[i.clone(), j.clone()], 1e4);
    m.push(ProgramStmt::Store(out, vec![j.clone(), i.clone()], value.e.clone()));
    let (side, deep) = *m.random.pick(&[(16u32, 16u32), (8, 8), (16, 4), (32, 8)]);
    let pad = m.random.chance(70) as u32;
    let names = BlockNames::new(m);
    let restrict = m.random.chance(60);
    Some(Box::new(move |program| {
        let text = kernel_text(program, restrict, |p| {
            let (i_name, j_name, out_name) = (p.expr_text(&i), p.expr_text(&j), program.array(out).name.clone());
            let (rows_name, cols_name) = (size_text(program, rows), size_text(program, cols));
            let (tile, s, c, e) = (&names.tile, &names.step, scalar.c(), p.expr_text(&value.e));
            let mut lines = vec![
                format!("__shared__ {c} {tile}[{side}][{}];", side + pad),
                format!("int {j_name} = blockIdx.x * {side} + threadIdx.x;"),
            ];
            let looped = deep < side;
            let (depth, row) = if looped {
                lines.push(format!("for (int {s} = threadIdx.y; {s} < {side}; {s} += {deep}) {{"));
                ("    ", s.clone())
            } else {
                ("", "threadIdx.y".to_owned())
            };
            lines.push(format!("{depth}int {i_name} = blockIdx.y * {side} + {row};"));
            lines.push(format!(
                "{depth}if ({i_name} < {rows_name} && {j_name} < {cols_name}) {tile}[{row}][threadIdx.x] = {e};"
            ));
            if looped {
                lines.push("}".into());
            }
            lines.push("__syncthreads();".into());
            lines.push(format!("int r = blockIdx.y * {side} + threadIdx.x;"));
            if looped {
                lines.push(format!("for (int {s} = threadIdx.y; {s} < {side}; {s} += {deep}) {{"));
            }
            lines.push(format!("{depth}int q = blockIdx.x * {side} + {row};"));
            lines.push(format!(
                "{depth}if (q < {cols_name} && r < {rows_name}) {out_name}[q * {rows_name} + r] = {tile}[threadIdx.x][{row}];"
            ));
            if looped {
                lines.push("}".into());
            }
            indent(1, &lines)
        });
        CooperativeKernel {
            text,
            block: [side, deep, 1],
            grid: [(cols, side), (rows, side), (SizeExpr::Constant(1), 1)],
            kind: "transpose_tile",
        }
    }))
}

/// Each segment reversed, or rotated by some elements.
fn reversed(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    let scalar = *m.random.pick_weighted(&[(4, ScalarType::F32), (2, ScalarType::I32)]);
    let threads = *m.random.pick(&[32u32, 64, 128]);
    let n = m.size("n", true, 0, 500);
    let elements = Elements::new(m, scalar, &[n]);
    let out = m.output(scalar, &[n]);
    let i = m.index("i", n);
    let extent = m.extent(n);
    let length = ProgramExpr::int(threads as i64);
    let rotation = m.random.chance(50).then(|| m.random.in_range(1, 9));
    let begin = ProgramExpr::binary(
        BinaryOp::Mul,
        ProgramExpr::binary(BinaryOp::Quotient, i.clone(), length.clone()),
        length.clone(),
    );
    let begin = m.bind_as("begin", begin);
    let left = ProgramExpr::binary(BinaryOp::Sub, extent, begin.clone());
    let here = m.bind_as("len", ProgramExpr::call(BuiltinFn::Min, vec![length, left]));
    let position = ProgramExpr::binary(BinaryOp::Sub, i.clone(), begin.clone());
    let other = match rotation {
        Some(by) => ProgramExpr::binary(
            BinaryOp::Rem,
            ProgramExpr::binary(BinaryOp::Add, position, ProgramExpr::int(by)),
            here.clone(),
        ),
        None => ProgramExpr::binary(
            BinaryOp::Sub,
            ProgramExpr::binary(BinaryOp::Sub, here.clone(), ProgramExpr::int(1)),
            position,
        ),
    };
    let j = m.bind_as("src_at", ProgramExpr::binary(BinaryOp::Add, begin.clone(), other));
    let value = elements.at(m, std::slice::from_ref(&j), 1e4);
    let mut last = value.clone();
    // A second array is read at the instance's own index, after the exchange.
    let more = m.random.chance(50).then(|| (m.input(scalar, &[n], ArrayFill::Uniform(1.0, 4.0)), (1.0, 4.0)));
    let name = m.names.unique("moved");
    let var = m.variable("got", scalar, false);
    m.push(ProgramStmt::Let(var, last.e.clone()));
    last.e = m.read(var);
    if let Some((array, range)) = more {
        let second = Term::new(ProgramExpr::load(array, vec![i.clone()], scalar), range.0, range.1);
        last = without_binding(m, |m| {
            if scalar.is_float() { m.join(TermOp::Add, last, second) } else { m.join_int(last, second) }
        });
    }
    m.push(ProgramStmt::Store(out, vec![i.clone()], last.e.clone()));
    let names = BlockNames::new(m);
    let restrict = m.random.chance(60);
    Some(Box::new(move |program| {
        let _ = name;
        let text = kernel_text(program, restrict, |p| {
            let (i_name, j_name, n_name) = (p.expr_text(&i), p.expr_text(&j), size_text(program, n));
            let (out_name, var_name) = (program.array(out).name.clone(), program.body.var(var).name.clone());
            let (begin_name, len_name) = (p.expr_text(&begin), p.expr_text(&here));
            let BlockNames { t, tile, .. } = &names;
            let c = scalar.c();
            let at = match rotation {
                Some(by) => format!("({t} + {by}) % {len_name}"),
                None => format!("{len_name} - 1 - {t}"),
            };
            let lines = [
                format!("__shared__ {c} {tile}[{threads}];"),
                format!("int {t} = threadIdx.x;"),
                format!("int {begin_name} = blockIdx.x * {threads};"),
                format!("int {i_name} = {begin_name} + {t};"),
                format!("if ({i_name} < {n_name}) {{"),
                // The value is computed at the index from which it is later read.
                format!("    int {j_name} = {i_name};"),
                format!("    {tile}[{t}] = {};", p.expr_text(&value.e)),
                "}".into(),
                "__syncthreads();".into(),
                format!("int {len_name} = min({threads}, {n_name} - {begin_name});"),
                format!("if ({t} < {len_name}) {{"),
                format!("    {c} {var_name} = {tile}[{at}];"),
                format!("    {out_name}[{i_name}] = {};", p.expr_text(&last.e)),
                "}".into(),
            ];
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads), "exchange_tile")
    }))
}
