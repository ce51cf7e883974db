//! Kernels with tiles in shared memory.

use super::block::{Own, Plan, Way, along_x, indent, written};
use super::maker::Maker;
use super::reduce::{Elements, reduction};
use super::term::{MIXED, Op, Term};
use crate::program::python::size;
use crate::program::{Binary, Builtin, Cooperative, Expr, Fill, Scalar, Size, Stmt};

/// Runs without binding subexpressions, since the block text needs a single expression.
pub fn without_binding<T>(m: &mut Maker, build: impl FnOnce(&mut Maker) -> T) -> T {
    let binds = std::mem::replace(&mut m.binds, false);
    let result = build(m);
    m.binds = binds;
    result
}

/// Kernels with tiles in shared memory.
pub fn shared_memory(m: &mut Maker) -> Option<Plan> {
    match m.random.below(4) {
        0 => halo(m),
        1 => transposed(m),
        2 => reversed(m),
        _ => {
            let way = *m.random.pick(&[Way::Tree, Way::Unrolled, Way::Interleaved]);
            reduction(m, Some(way))
        }
    }
}

/// A 1D stencil through a tile with a halo.
fn halo(m: &mut Maker) -> Option<Plan> {
    let scalar = *m.random.weighted(&[(4, Scalar::F32), (1, Scalar::F64)]);
    let n = m.size("n", true, 0, 500);
    let elements = Elements::new(m, scalar, &[n]);
    let (x, range) = elements.arrays[0];
    let out = m.output(scalar, &[n]);
    let reach = m.random.within(1, 3);
    let zero_border = m.random.chance(50);
    let i = m.index("i", n);
    let extent = m.extent(n);
    // The source adds up the neighbourhood term by term.
    let weights: Vec<f64> = (0..=2 * reach).map(|_| *m.random.pick(&[0.25, 0.5, 0.125, 1.0, 0.75, 0.375])).collect();
    let acc = m.changing("acc", Expr::float(scalar, 0.0));
    let mut parts = vec![];
    for (k, w) in weights.iter().enumerate() {
        let by = k as i64 - reach;
        let at = match by {
            0 => i.clone(),
            by if by > 0 => Expr::binary(Binary::Add, i.clone(), Expr::int(by)),
            by => Expr::binary(Binary::Sub, i.clone(), Expr::int(-by)),
        };
        let weigh = |e: Expr| if *w == 1.0 { e } else { Expr::binary(Binary::Mul, Expr::float(scalar, *w), e) };
        if zero_border && by != 0 {
            let inside = if by > 0 {
                Expr::binary(Binary::Lt, at.clone(), extent.clone())
            } else {
                Expr::binary(Binary::Ge, i.clone(), Expr::int(-by))
            };
            let step = Stmt::Update(acc, Binary::Add, weigh(Expr::load(x, vec![at], scalar)));
            m.push(Stmt::If(inside, vec![step], vec![]));
        } else {
            let at = match by {
                0 => at,
                by if by > 0 => {
                    Expr::call(Builtin::Min, vec![at, Expr::binary(Binary::Sub, extent.clone(), Expr::int(1))])
                }
                _ => Expr::call(Builtin::Max, vec![at, Expr::int(0)]),
            };
            m.push(Stmt::Update(acc, Binary::Add, weigh(Expr::load(x, vec![at], scalar))));
        }
        parts.push((by, *w));
    }
    let sum: f64 = weights.iter().sum();
    let now = Term::new(m.read(acc), sum * range.0.min(0.0), sum * range.1.max(0.0));
    let value = without_binding(m, |m| {
        let mut terms = vec![now];
        for (array, range) in &elements.arrays[1..] {
            terms.push(Term::new(Expr::load(*array, vec![i.clone()], scalar), range.0, range.1));
        }
        terms.extend(elements.numbers.clone());
        let unary = 1 + m.random.below(4);
        m.combine(terms, unary, 0, &MIXED)
    });
    m.push(Stmt::Store(out, vec![i.clone()], value.e.clone()));
    let threads = *m.random.pick(&[32u32, 64, 128]);
    let own = Own::new(m);
    let restrict = m.random.chance(60);
    let dynamic = m.random.chance(40);
    Some(Box::new(move |program| {
        let text = written(program, restrict, |p| {
            let (i_name, n_name, x_name) = (p.shown(&i), size(program, n), program.array(x).name.clone());
            let (out_name, acc_name) = (program.array(out).name.clone(), program.body.var(acc).name.clone());
            let Own { t, tile, step: s, .. } = &own;
            let c = scalar.c();
            let zero = p.shown(&Expr::float(scalar, 0.0));
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
                if w == 1.0 { e } else { format!("{} * {e}", p.shown(&Expr::float(scalar, w))) }
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
            lines.push(format!("    {out_name}[{i_name}] = {};", p.shown(&value.e)));
            lines.push("}".into());
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads), "halo_tile")
    }))
}

/// A matrix transpose through a padded tile.
fn transposed(m: &mut Maker) -> Option<Plan> {
    let scalar = *m.random.weighted(&[(4, Scalar::F32), (1, Scalar::F64), (1, Scalar::I32)]);
    let (rows, cols) = (m.size("rows", false, 0, 40), m.size("cols", false, 0, 40));
    let elements = Elements::new(m, scalar, &[rows, cols]);
    let out = m.output(scalar, &[cols, rows]);
    let (i, j) = (m.index("i", rows), m.index("j", cols));
    let value = elements.at(m, &[i.clone(), j.clone()], 1e4);
    m.push(Stmt::Store(out, vec![j.clone(), i.clone()], value.e.clone()));
    let (side, deep) = *m.random.pick(&[(16u32, 16u32), (8, 8), (16, 4), (32, 8)]);
    let pad = m.random.chance(70) as u32;
    let own = Own::new(m);
    let restrict = m.random.chance(60);
    Some(Box::new(move |program| {
        let text = written(program, restrict, |p| {
            let (i_name, j_name, out_name) = (p.shown(&i), p.shown(&j), program.array(out).name.clone());
            let (rows_name, cols_name) = (size(program, rows), size(program, cols));
            let (tile, s, c, e) = (&own.tile, &own.step, scalar.c(), p.shown(&value.e));
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
        Cooperative {
            text,
            block: [side, deep, 1],
            grid: [(cols, side), (rows, side), (Size::Known(1), 1)],
            kind: "transpose_tile",
        }
    }))
}

/// Each segment reversed, or rotated by some elements.
fn reversed(m: &mut Maker) -> Option<Plan> {
    let scalar = *m.random.weighted(&[(4, Scalar::F32), (2, Scalar::I32)]);
    let threads = *m.random.pick(&[32u32, 64, 128]);
    let n = m.size("n", true, 0, 500);
    let elements = Elements::new(m, scalar, &[n]);
    let out = m.output(scalar, &[n]);
    let i = m.index("i", n);
    let extent = m.extent(n);
    let length = Expr::int(threads as i64);
    let rotation = m.random.chance(50).then(|| m.random.within(1, 9));
    let begin = Expr::binary(Binary::Mul, Expr::binary(Binary::Quotient, i.clone(), length.clone()), length.clone());
    let begin = m.bind_as("begin", begin);
    let left = Expr::binary(Binary::Sub, extent, begin.clone());
    let here = m.bind_as("len", Expr::call(Builtin::Min, vec![length, left]));
    let position = Expr::binary(Binary::Sub, i.clone(), begin.clone());
    let other = match rotation {
        Some(by) => Expr::binary(Binary::Rem, Expr::binary(Binary::Add, position, Expr::int(by)), here.clone()),
        None => Expr::binary(Binary::Sub, Expr::binary(Binary::Sub, here.clone(), Expr::int(1)), position),
    };
    let j = m.bind_as("src_at", Expr::binary(Binary::Add, begin.clone(), other));
    let value = elements.at(m, std::slice::from_ref(&j), 1e4);
    let mut last = value.clone();
    // A second array is read at the instance's own index, after the exchange.
    let more = m.random.chance(50).then(|| (m.input(scalar, &[n], Fill::Uniform(1.0, 4.0)), (1.0, 4.0)));
    let name = m.names.free("moved");
    let var = m.variable("got", scalar, false);
    m.push(Stmt::Let(var, last.e.clone()));
    last.e = m.read(var);
    if let Some((array, range)) = more {
        let own = Term::new(Expr::load(array, vec![i.clone()], scalar), range.0, range.1);
        last = without_binding(m, |m| if scalar.is_float() { m.join(Op::Add, last, own) } else { m.join_int(last, own) });
    }
    m.push(Stmt::Store(out, vec![i.clone()], last.e.clone()));
    let own = Own::new(m);
    let restrict = m.random.chance(60);
    Some(Box::new(move |program| {
        let _ = name;
        let text = written(program, restrict, |p| {
            let (i_name, j_name, n_name) = (p.shown(&i), p.shown(&j), size(program, n));
            let (out_name, var_name) = (program.array(out).name.clone(), program.body.var(var).name.clone());
            let (begin_name, len_name) = (p.shown(&begin), p.shown(&here));
            let Own { t, tile, .. } = &own;
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
                format!("    {tile}[{t}] = {};", p.shown(&value.e)),
                "}".into(),
                "__syncthreads();".into(),
                format!("int {len_name} = min({threads}, {n_name} - {begin_name});"),
                format!("if ({t} < {len_name}) {{"),
                format!("    {c} {var_name} = {tile}[{at}];"),
                format!("    {out_name}[{i_name}] = {};", p.shown(&last.e)),
                "}".into(),
            ];
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads), "exchange_tile")
    }))
}
