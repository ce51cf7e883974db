//! Reductions and scans: loops and atomics in the source, block-cooperative algorithms in the CUDA
//! text.

use super::block::{BlockNames, BlockWriter, Reduce, ReduceStrategy, along_x, indent, kernel_text, reduction_lines};
use super::builder::ProgramBuilder;
use super::elementwise::{RANGES, scalars};
use super::term::{ARITHMETIC, MATH, MIXED, OpDistribution, PLAIN, Term};
use crate::program::{ArrayFill, ArrayId, BinaryOp, BuiltinFn, ProgramExpr, ProgramStmt, ScalarType, SizeExpr};

/// Arrays and scalars from which elements are computed.
pub struct Elements {
    pub arrays: Vec<(ArrayId, (f64, f64))>,
    pub numbers: Vec<Term>,
    pub scalar: ScalarType,
}

impl Elements {
    /// One to three arrays of a shape, and possibly a scalar parameter.
    pub fn new(m: &mut ProgramBuilder, scalar: ScalarType, shape: &[SizeExpr]) -> Elements {
        let mut arrays = vec![];
        for _ in 0..1 + m.random.chance(55) as usize + m.random.chance(25) as usize {
            let range = *m.random.pick(RANGES);
            let range = if scalar.is_float() { range } else { ((range.0 * 12.0).round(), (range.1 * 12.0).round()) };
            arrays.push((m.input(scalar, shape, ArrayFill::Uniform(range.0, range.1)), range));
        }
        let count = m.random.chance(30) as usize;
        let numbers = scalars(m, count, scalar);
        Elements { arrays, numbers, scalar }
    }

    /// An expression over the elements at an index, without intermediate variables.
    pub fn at(&self, m: &mut ProgramBuilder, at: &[ProgramExpr], max: f64) -> Term {
        let can_bind = std::mem::replace(&mut m.can_bind, false);
        let mut terms: Vec<Term> = (self.arrays.iter())
            .map(|(array, range)| Term::new(ProgramExpr::load(*array, at.to_vec(), self.scalar), range.0, range.1))
            .collect();
        for _ in 0..m.random.below(3) {
            let duplicate = m.random.pick(&terms).clone();
            terms.push(duplicate);
        }
        terms.extend(self.numbers.clone());
        let value = if self.scalar.is_float() {
            let distributions: [&OpDistribution; 4] = [&PLAIN, &MATH, &MIXED, &ARITHMETIC];
            let distribution = *m.random.pick(&distributions);
            let unary = 1 + m.random.below(4);
            let value = m.combine(terms, unary, 0, distribution);
            m.narrowed(value, max)
        } else {
            let unary = 1 + m.random.below(4);
            let value = m.combine_int(terms, unary, 0);
            if value.size() > 1e4 { m.small_int(value) } else { value }
        };
        m.can_bind = can_bind;
        value
    }
}

fn scalar(m: &mut ProgramBuilder) -> ScalarType {
    *m.random.pick_weighted(&[(5, ScalarType::F32), (3, ScalarType::I32), (1, ScalarType::F64)])
}

fn threads(m: &mut ProgramBuilder) -> u32 {
    *m.random.pick_weighted(&[(3, 64), (4, 128), (2, 256), (1, 32)])
}

/// Reductions of many elements to one.
pub fn reduction(m: &mut ProgramBuilder, only: Option<ReduceStrategy>) -> Option<BlockWriter> {
    match m.random.below(3) {
        0 => reduce_all(m, only),
        1 => reduce_segments(m, only),
        _ => reduce_rows(m, only),
    }
}

/// A single value over all elements, by an atomic.
fn reduce_all(m: &mut ProgramBuilder, only: Option<ReduceStrategy>) -> Option<BlockWriter> {
    let scalar = scalar(m);
    let n = m.size("n", false, 0, 600);
    let elements = Elements::new(m, scalar, &[n]);
    let reduce = if scalar == ScalarType::I32 { Reduce::pick(m, scalar) } else { Reduce::Add };
    let first = match (reduce, &reduce.identity(scalar).kind) {
        (Reduce::Max | Reduce::Min, crate::program::ExprKind::Int(value)) => ArrayFill::Constant(*value as f64),
        _ => ArrayFill::Zero,
    };
    let name = *m.random.pick(&["total", "result", "sum_out", "accum", "out"]);
    let out = m.array(name, scalar, &[SizeExpr::Constant(1)], first, true);
    let i = m.index("i", n);
    let value = elements.at(m, std::slice::from_ref(&i), 50.0);
    m.push(ProgramStmt::Atomic(reduce.update(), out, vec![ProgramExpr::int(0)], value.e.clone()));
    let (strategy, threads, names) = (only.unwrap_or(ReduceStrategy::pick(m)), threads(m), BlockNames::new(m));
    let each = *m.random.pick_weighted(&[(4, 1u32), (2, 2), (2, 4)]);
    let restrict = m.random.chance(60);
    let strided = m.random.chance(50);
    Some(Box::new(move |program| {
        let text = kernel_text(program, restrict, |p| {
            let (i_name, n_name) = (p.expr_text(&i), crate::program::python::size_text(program, n));
            let (out_name, identity) = (program.array(out).name.clone(), p.expr_text(&reduce.identity(scalar)));
            let (e, t, v) = (p.expr_text(&value.e), &names.t, &names.value);
            let c = scalar.c();
            let mut lines = vec![format!("int {t} = threadIdx.x;")];
            if each == 1 {
                lines.push(format!("int {i_name} = blockIdx.x * blockDim.x + {t};"));
                lines.push(format!("{c} {v} = {identity};"));
                lines.push(format!("if ({i_name} < {n_name}) {v} = {e};"));
            } else if strided {
                lines.push(format!("{c} {v} = {identity};"));
                lines.push(format!(
                    "for (int {i_name} = blockIdx.x * blockDim.x + {t}; {i_name} < {n_name}; {i_name} += blockDim.x * gridDim.x) {{"
                ));
                lines.push(format!("    {}", reduce.assign_text(scalar, v, &e)));
                lines.push("}".into());
            } else {
                lines.push(format!("{c} {v} = {identity};"));
                let first = format!("blockIdx.x * {} + {t}", threads * each);
                lines.push(format!("int {i_name} = {first};"));
                for k in 0..each {
                    if k > 0 {
                        lines.push(format!("{i_name} += {threads};"));
                    }
                    lines.push(format!("if ({i_name} < {n_name}) {}", reduce.assign_text(scalar, v, &e)));
                }
            }
            let (more, result) = reduction_lines(strategy, reduce, scalar, threads, &names, &identity);
            lines.extend(more);
            lines.push(format!("if ({t} == 0) {}", reduce.atomic(&format!("{out_name}[0]"), &result)));
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads * each), strategy.kind())
    }))
}

/// One value per segment of elements.
fn reduce_segments(m: &mut ProgramBuilder, only: Option<ReduceStrategy>) -> Option<BlockWriter> {
    let scalar = scalar(m);
    let n = m.size("n", true, 0, 600);
    let SizeExpr::Param(number) = n else { return None };
    let elements = Elements::new(m, scalar, &[n]);
    let reduce = Reduce::pick(m, scalar);
    let threads = threads(m);
    let each = *m.random.pick_weighted(&[(4, 1u32), (3, 2)]);
    let length = threads * each;
    let blocks = SizeExpr::DivCeil(number, length);
    let out = m.output(scalar, &[blocks]);
    let b = m.index("b", blocks);
    let begin = m.bind_as("begin", ProgramExpr::binary(BinaryOp::Mul, b.clone(), ProgramExpr::int(length as i64)));
    let extent = m.extent(n);
    let end = ProgramExpr::binary(BinaryOp::Add, begin.clone(), ProgramExpr::int(length as i64));
    let end = m.bind_as("end", ProgramExpr::call(BuiltinFn::Min, vec![end, extent]));
    let acc = m.mutable("acc", reduce.identity(scalar));
    let mut value = None;
    let mut counter = None;
    m.for_range("i", begin, end, 1, |m, i| {
        let element = elements.at(m, std::slice::from_ref(&i), 50.0);
        let now = m.read(acc);
        m.push(reduce.step(acc, now, element.e.clone()));
        (value, counter) = (Some(element), Some(i));
    });
    let (value, i) = (value?, counter?);
    let result = m.read(acc);
    m.push(ProgramStmt::Store(out, vec![b], result));
    let (strategy, names) = (only.unwrap_or(ReduceStrategy::pick(m)), BlockNames::new(m));
    let restrict = m.random.chance(60);
    Some(Box::new(move |program| {
        let text = kernel_text(program, restrict, |p| {
            let (i_name, n_name) = (p.expr_text(&i), crate::program::python::size_text(program, n));
            let (out_name, identity) = (program.array(out).name.clone(), p.expr_text(&reduce.identity(scalar)));
            let (e, t, v) = (p.expr_text(&value.e), &names.t, &names.value);
            let c = scalar.c();
            let mut lines = vec![format!("int {t} = threadIdx.x;"), format!("{c} {v} = {identity};")];
            if each == 1 {
                lines.push(format!("int {i_name} = blockIdx.x * {length} + {t};"));
                lines.push(format!("if ({i_name} < {n_name}) {v} = {e};"));
            } else {
                let s = &names.step;
                lines.push(format!("for (int {s} = {t}; {s} < {length}; {s} += {threads}) {{"));
                lines.push(format!("    int {i_name} = blockIdx.x * {length} + {s};"));
                lines.push(format!("    if ({i_name} < {n_name}) {}", reduce.assign_text(scalar, v, &e)));
                lines.push("}".into());
            }
            let (more, result) = reduction_lines(strategy, reduce, scalar, threads, &names, &identity);
            lines.extend(more);
            // The last block of an empty array has no output element.
            lines.push(format!("if ({t} == 0 && blockIdx.x * {length} < {n_name}) {out_name}[blockIdx.x] = {result};"));
            indent(1, &lines)
        });
        along_x(text, threads, (n, length), strategy.kind())
    }))
}

/// One value per row.
fn reduce_rows(m: &mut ProgramBuilder, only: Option<ReduceStrategy>) -> Option<BlockWriter> {
    let scalar = scalar(m);
    let (rows, cols) = (m.size("rows", false, 0, 9), m.size("cols", true, 1, 140));
    let elements = Elements::new(m, scalar, &[rows, cols]);
    let reduce = Reduce::pick(m, scalar);
    let out = m.output(scalar, &[rows]);
    let row = m.index("row", rows);
    let acc = m.mutable("acc", reduce.identity(scalar));
    let high = m.extent(cols);
    let (mut value, mut counter) = (None, None);
    m.for_range("j", ProgramExpr::int(0), high.clone(), 1, |m, j| {
        let element = elements.at(m, &[row.clone(), j.clone()], 50.0);
        let now = m.read(acc);
        m.push(reduce.step(acc, now, element.e.clone()));
        (value, counter) = (Some(element), Some(j));
    });
    let (value, j) = (value?, counter?);
    // 140 times the bound of `Elements::at`.
    let max = match (reduce, scalar.is_float()) {
        (Reduce::Add, true) => 7e3,
        (Reduce::Add, false) => 1.4e6,
        (_, true) => 50.0,
        (_, false) => 2e4,
    };
    let mut last = Term::new(m.read(acc), -max, max);
    if scalar.is_float() && reduce == Reduce::Add && m.random.chance(50) {
        // A mean, or a root of it.
        let mean = ProgramExpr::binary(BinaryOp::Div, last.e, high.cast(scalar));
        last = Term::new(mean, -50.0, 50.0);
    }
    let can_bind = std::mem::replace(&mut m.can_bind, false);
    if m.random.chance(60) {
        let unary = 1 + m.random.below(3);
        last = if scalar.is_float() {
            m.combine(vec![last], unary, 0, &MIXED)
        } else {
            m.combine_int(vec![last], unary, 0)
        };
    }
    m.can_bind = can_bind;
    m.push(ProgramStmt::Store(out, vec![row.clone()], last.e.clone()));
    let (strategy, names) = (only.unwrap_or(ReduceStrategy::pick(m)), BlockNames::new(m));
    let threads = *m.random.pick_weighted(&[(3, 32u32), (4, 64), (3, 128)]);
    let restrict = m.random.chance(60);
    Some(Box::new(move |program| {
        let text = kernel_text(program, restrict, |p| {
            let (j_name, row_name) = (p.expr_text(&j), p.expr_text(&row));
            let (cols_name, rows_name) =
                (crate::program::python::size_text(program, cols), crate::program::python::size_text(program, rows));
            let (out_name, identity) = (program.array(out).name.clone(), p.expr_text(&reduce.identity(scalar)));
            let (e, t, v) = (p.expr_text(&value.e), &names.t, &names.value);
            let (c, acc_name) = (scalar.c(), program.body.var(acc).name.clone());
            let mut lines = vec![
                format!("int {row_name} = blockIdx.x;"),
                format!("int {t} = threadIdx.x;"),
                format!("if ({row_name} >= {rows_name}) return;"),
                format!("{c} {v} = {identity};"),
                format!("for (int {j_name} = {t}; {j_name} < {cols_name}; {j_name} += {threads}) {{"),
                format!("    {}", reduce.assign_text(scalar, v, &e)),
                "}".into(),
            ];
            let (more, result) = reduction_lines(strategy, reduce, scalar, threads, &names, &identity);
            lines.extend(more);
            let last = p.expr_text(&last.e);
            lines.push(format!("if ({t} == 0) {{"));
            lines.push(format!("    {c} {acc_name} = {result};"));
            lines.push(format!("    {out_name}[{row_name}] = {last};"));
            lines.push("}".into());
            indent(1, &lines)
        });
        along_x(text, threads, (rows, 1), strategy.kind())
    }))
}

/// Running sums and extrema of segments.
pub fn scan(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    let scalar = scalar(m);
    let n = m.size("n", true, 0, 600);
    let SizeExpr::Param(number) = n else { return None };
    let elements = Elements::new(m, scalar, &[n]);
    let reduce = Reduce::pick(m, scalar);
    let reduce = if matches!(reduce, Reduce::Xor | Reduce::Or) && m.random.chance(50) { Reduce::Add } else { reduce };
    let strategy = m.random.below(4);
    let threads = if strategy == 3 { 32 } else { threads(m) };
    let exclusive = m.random.chance(35);
    let out = m.output(scalar, &[n]);
    let blocks = SizeExpr::DivCeil(number, threads);
    let name = *m.random.pick(&["b", "seg", "chunk"]);
    let b = m.index(name, blocks);
    let begin = m.bind_as("begin", ProgramExpr::binary(BinaryOp::Mul, b, ProgramExpr::int(threads as i64)));
    let extent = m.extent(n);
    let end = ProgramExpr::binary(BinaryOp::Add, begin.clone(), ProgramExpr::int(threads as i64));
    let end = m.bind_as("end", ProgramExpr::call(BuiltinFn::Min, vec![end, extent]));
    let acc = m.mutable("running", reduce.identity(scalar));
    let (mut value, mut counter) = (None, None);
    m.for_range("i", begin, end, 1, |m, i| {
        let element = elements.at(m, std::slice::from_ref(&i), 20.0);
        let now = m.read(acc);
        if exclusive {
            m.push(ProgramStmt::Store(out, vec![i.clone()], now.clone()));
        }
        m.push(reduce.step(acc, now.clone(), element.e.clone()));
        if !exclusive {
            m.push(ProgramStmt::Store(out, vec![i.clone()], now));
        }
        (value, counter) = (Some(element), Some(i));
    });
    let (value, i) = (value?, counter?);
    let names = BlockNames::new(m);
    let (total, restrict) = (m.names.unique("add_v"), m.random.chance(60));
    Some(Box::new(move |program| {
        let kind = if strategy >= 2 { "warp_scan" } else { "shared_scan" };
        let text = kernel_text(program, restrict, |p| {
            let (i_name, n_name) = (p.expr_text(&i), crate::program::python::size_text(program, n));
            let (out_name, identity) = (program.array(out).name.clone(), p.expr_text(&reduce.identity(scalar)));
            let (e, c) = (p.expr_text(&value.e), scalar.c());
            let BlockNames { t, tile, value: v, step: s } = &names;
            let combined = |a: &str, b: &str| reduce.combine_text(scalar, a, b);
            let mut lines = vec![
                format!("int {t} = threadIdx.x;"),
                format!("int {i_name} = blockIdx.x * {threads} + {t};"),
                format!("{c} {v} = {identity};"),
                format!("if ({i_name} < {n_name}) {v} = {e};"),
            ];
            match strategy {
                0 | 1 => {
                    let double = strategy == 1;
                    let size = if double { threads * 2 } else { threads };
                    lines.insert(0, format!("__shared__ {c} {tile}[{size}];"));
                    lines.push(format!("{tile}[{t}] = {v};"));
                    lines.push("__syncthreads();".into());
                    if double {
                        lines.push("int from = 0;".into());
                        lines.push(format!("for (int {s} = 1; {s} < {threads}; {s} *= 2) {{"));
                        lines.push(format!("    int to = {threads} - from;"));
                        let sum = combined(&format!("{tile}[from + {t} - {s}]"), &format!("{tile}[from + {t}]"));
                        lines.push(format!("    {tile}[to + {t}] = {t} >= {s} ? {sum} : {tile}[from + {t}];"));
                        lines.push("    __syncthreads();".into());
                        lines.push("    from = to;".into());
                        lines.push("}".into());
                        let last = if exclusive {
                            format!("{t} > 0 ? {tile}[from + {t} - 1] : {identity}")
                        } else {
                            format!("{tile}[from + {t}]")
                        };
                        lines.push(format!("if ({i_name} < {n_name}) {out_name}[{i_name}] = {last};"));
                    } else {
                        lines.push(format!("for (int {s} = 1; {s} < {threads}; {s} *= 2) {{"));
                        lines.push(format!("    {c} {total} = {identity};"));
                        lines.push(format!("    if ({t} >= {s}) {total} = {tile}[{t} - {s}];"));
                        lines.push("    __syncthreads();".into());
                        lines.push(format!("    {tile}[{t}] = {};", combined(&total, &format!("{tile}[{t}]"))));
                        lines.push("    __syncthreads();".into());
                        lines.push("}".into());
                        let last = if exclusive {
                            format!("{t} > 0 ? {tile}[{t} - 1] : {identity}")
                        } else {
                            format!("{tile}[{t}]")
                        };
                        lines.push(format!("if ({i_name} < {n_name}) {out_name}[{i_name}] = {last};"));
                    }
                }
                _ => {
                    lines.push(format!("for (int {s} = 1; {s} < 32; {s} *= 2) {{"));
                    lines.push(format!("    {c} {total} = __shfl_up_sync(0xffffffff, {v}, {s});"));
                    lines.push(format!("    if ({t} % 32 >= {s}) {v} = {};", combined(&total, v)));
                    lines.push("}".into());
                    let warps = threads / 32;
                    if warps > 1 {
                        lines.insert(0, format!("__shared__ {c} {tile}[{warps}];"));
                        lines.push(format!("if ({t} % 32 == 31) {tile}[{t} / 32] = {v};"));
                        lines.push("__syncthreads();".into());
                        lines.push(format!("{c} base = {identity};"));
                        lines.push(format!(
                            "for (int w = 0; w < {t} / 32; ++w) {}",
                            reduce.assign_text(scalar, "base", &format!("{tile}[w]"))
                        ));
                        lines.push(format!("{v} = {};", combined("base", v)));
                    }
                    if exclusive {
                        lines.push(format!("{c} {total}_x = __shfl_up_sync(0xffffffff, {v}, 1);"));
                        let first = if warps > 1 { "base".to_owned() } else { identity.clone() };
                        lines.push(format!("if ({t} % 32 == 0) {total}_x = {first};"));
                        lines.push(format!("if ({i_name} < {n_name}) {out_name}[{i_name}] = {total}_x;"));
                    } else {
                        lines.push(format!("if ({i_name} < {n_name}) {out_name}[{i_name}] = {v};"));
                    }
                }
            }
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads), kind)
    }))
}
