//! Shared tiles, shuffles and tiled products.

use super::block::{Own, Plan, Reduce, Way, along_x, indent, written};
use super::elementwise::scalars;
use super::maker::Maker;
use super::reduce::{Elements, reduction};
use super::term::{ARITHMETIC, MATH, MIXED, Op, PLAIN, Term};
use crate::program::python::size;
use crate::program::{Binary, Builtin, Cooperative, Expr, Fill, Scalar, Size, Stmt};

/// Runs without naming parts, since the text needs one expression.
fn whole<T>(m: &mut Maker, make: impl FnOnce(&mut Maker) -> T) -> T {
    let binds = std::mem::replace(&mut m.binds, false);
    let made = make(m);
    m.binds = binds;
    made
}

/// Tiles that the threads of a block share.
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

/// Neighbours along a line, through a tile with a border.
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
    // The plain source adds up the neighbourhood in a loop or term by term.
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
    let value = whole(m, |m| {
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

/// A transposed matrix through a padded tile.
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

/// Each stretch the other way round, or turned by some places.
fn reversed(m: &mut Maker) -> Option<Plan> {
    let scalar = *m.random.weighted(&[(4, Scalar::F32), (2, Scalar::I32)]);
    let threads = *m.random.pick(&[32u32, 64, 128]);
    let n = m.size("n", true, 0, 500);
    let elements = Elements::new(m, scalar, &[n]);
    let out = m.output(scalar, &[n]);
    let i = m.index("i", n);
    let extent = m.extent(n);
    let length = Expr::int(threads as i64);
    let turn = m.random.chance(50).then(|| m.random.within(1, 9));
    let begin = Expr::binary(Binary::Mul, Expr::binary(Binary::Quotient, i.clone(), length.clone()), length.clone());
    let begin = m.bind_as("begin", begin);
    let left = Expr::binary(Binary::Sub, extent, begin.clone());
    let here = m.bind_as("len", Expr::call(Builtin::Min, vec![length, left]));
    let place = Expr::binary(Binary::Sub, i.clone(), begin.clone());
    let other = match turn {
        Some(by) => Expr::binary(Binary::Rem, Expr::binary(Binary::Add, place, Expr::int(by)), here.clone()),
        None => Expr::binary(Binary::Sub, Expr::binary(Binary::Sub, here.clone(), Expr::int(1)), place),
    };
    let j = m.bind_as("src_at", Expr::binary(Binary::Add, begin.clone(), other));
    let value = elements.at(m, std::slice::from_ref(&j), 1e4);
    let mut last = value.clone();
    // A second array is read at the own place, after the exchange.
    let more = m.random.chance(50).then(|| (m.input(scalar, &[n], Fill::Uniform(1.0, 4.0)), (1.0, 4.0)));
    let name = m.names.free("moved");
    let var = m.variable("got", scalar, false);
    m.push(Stmt::Let(var, last.e.clone()));
    last.e = m.read(var);
    if let Some((array, range)) = more {
        let own = Term::new(Expr::load(array, vec![i.clone()], scalar), range.0, range.1);
        last = whole(m, |m| if scalar.is_float() { m.join(Op::Add, last, own) } else { m.join_int(last, own) });
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
            let at = match turn {
                Some(by) => format!("({t} + {by}) % {len_name}"),
                None => format!("{len_name} - 1 - {t}"),
            };
            let lines = [
                format!("__shared__ {c} {tile}[{threads}];"),
                format!("int {t} = threadIdx.x;"),
                format!("int {begin_name} = blockIdx.x * {threads};"),
                format!("int {i_name} = {begin_name} + {t};"),
                format!("if ({i_name} < {n_name}) {{"),
                // The value is computed at the place that it is later fetched from.
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

/// Values handed from lane to lane.
pub fn warp_shuffle(m: &mut Maker) -> Option<Plan> {
    match m.random.below(4) {
        0 => {
            let way = *m.random.pick(&[Way::Warps, Way::WarpsThenOne]);
            reduction(m, Some(way))
        }
        1 => broadcast(m),
        2 => butterfly(m),
        _ => lanes(m),
    }
}

/// What each lane combines its own value with: that of a lane further up or down the warp, if there is one.
fn lanes(m: &mut Maker) -> Option<Plan> {
    let scalar = *m.random.weighted(&[(4, Scalar::F32), (2, Scalar::I32), (1, Scalar::F64)]);
    let n = m.size("n", true, 0, 500);
    let elements = Elements::new(m, scalar, &[n]);
    let out = m.output(scalar, &[n]);
    let i = m.index("i", n);
    let extent = m.extent(n);
    let by = *m.random.pick(&[1i64, 1, 2, 4, 8, 3]);
    let down = m.random.chance(50);
    let element = elements.at(m, std::slice::from_ref(&i), 100.0);
    let mine = m.bind_as("mine", element.e.clone());
    let lane = m.bind_as("lane", Expr::binary(Binary::Rem, i.clone(), Expr::int(32)));
    let identity = if scalar.is_float() { Expr::float(scalar, 0.0) } else { Expr::int_of(scalar, 0) };
    let other = m.changing("other", identity.clone());
    let at = if down {
        Expr::binary(Binary::Add, i.clone(), Expr::int(by))
    } else {
        Expr::binary(Binary::Sub, i.clone(), Expr::int(by))
    };
    let inside = if down {
        let lane_ok = Expr::binary(Binary::Lt, Expr::binary(Binary::Add, lane.clone(), Expr::int(by)), Expr::int(32));
        Expr::binary(Binary::And, lane_ok, Expr::binary(Binary::Lt, at.clone(), extent))
    } else {
        Expr::binary(Binary::Ge, lane.clone(), Expr::int(by))
    };
    let far = replaced(&element.e, &i, &at);
    m.push(Stmt::If(inside, vec![Stmt::Assign(other, far)], vec![]));
    let joined = whole(m, |m| {
        let (a, b) = (
            Term::new(mine.clone(), element.low, element.high),
            Term::new(m.read(other), element.low.min(0.0), element.high.max(0.0)),
        );
        if scalar.is_float() {
            let menu = if m.random.chance(50) { &PLAIN } else { &ARITHMETIC };
            m.combine(vec![a, b], 1, 0, menu)
        } else {
            let joined = m.join_int(a, b);
            m.apply_int(joined)
        }
    });
    m.push(Stmt::Store(out, vec![i.clone()], joined.e.clone()));
    let threads = *m.random.pick(&[32u32, 64, 128]);
    let restrict = m.random.chance(60);
    let got = m.names.free("got");
    Some(Box::new(move |program| {
        let text = written(program, restrict, |p| {
            let (i_name, n_name) = (p.shown(&i), size(program, n));
            let (out_name, other_name) = (program.array(out).name.clone(), program.body.var(other).name.clone());
            let (mine_name, lane_name, c, zero) = (p.shown(&mine), p.shown(&lane), scalar.c(), p.shown(&identity));
            let shuffle = if down { "__shfl_down_sync" } else { "__shfl_up_sync" };
            let exists = if down {
                format!("{lane_name} + {by} < 32 && {i_name} + {by} < {n_name}")
            } else {
                format!("{lane_name} >= {by}")
            };
            let lines = [
                format!("int {i_name} = blockIdx.x * blockDim.x + threadIdx.x;"),
                format!("int {lane_name} = threadIdx.x % 32;"),
                format!("{c} {mine_name} = {zero};"),
                format!("if ({i_name} < {n_name}) {mine_name} = {};", p.shown(&element.e)),
                format!("{c} {got} = {shuffle}(0xffffffff, {mine_name}, {by});"),
                format!("{c} {other_name} = {exists} ? {got} : {zero};"),
                format!("if ({i_name} < {n_name}) {out_name}[{i_name}] = {};", p.shown(&joined.e)),
            ];
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads), "shuffle_shift")
    }))
}

/// An expression with one variable replaced.
fn replaced(e: &Expr, what: &Expr, by: &Expr) -> Expr {
    use crate::program::Kind::*;
    if e == what {
        return by.clone();
    }
    let all = |args: &[Expr]| args.iter().map(|arg| replaced(arg, what, by)).collect::<Vec<_>>();
    let kind = match &e.kind {
        Float(_) | Int(_) | Var(_) => return e.clone(),
        Load(array, at) => Load(*array, all(at)),
        Unary(op, a) => Unary(*op, Box::new(replaced(a, what, by))),
        Binary(op, both) => Binary(*op, Box::new([replaced(&both[0], what, by), replaced(&both[1], what, by)])),
        Call(builtin, args) => Call(*builtin, all(args)),
        Function(func, args) => Function(*func, all(args)),
        Where(three) => Where(Box::new([0, 1, 2].map(|n| replaced(&three[n], what, by)))),
        Cast(a) => Cast(Box::new(replaced(a, what, by))),
        Part(a, at) => Part(Box::new(replaced(a, what, by)), *at),
        Make(args) => Make(all(args)),
    };
    Expr::new(kind, e.ty)
}

/// Every lane combines its value with that of one lane of its warp.
fn broadcast(m: &mut Maker) -> Option<Plan> {
    let scalar = *m.random.weighted(&[(4, Scalar::F32), (2, Scalar::I32)]);
    let n = m.size("n", false, 0, 500);
    let elements = Elements::new(m, scalar, &[n]);
    let out = m.output(scalar, &[n]);
    let i = m.index("i", n);
    let base = Expr::binary(Binary::Mul, Expr::binary(Binary::Quotient, i.clone(), Expr::int(32)), Expr::int(32));
    let first = m.bind_as("first", base);
    let element = elements.at(m, std::slice::from_ref(&i), 100.0);
    let mine = m.bind_as("mine", element.e.clone());
    let far = replaced(&element.e, &i, &first);
    let lead = m.bind_as("lead", far);
    let joined = whole(m, |m| {
        let (a, b) =
            (Term::new(mine.clone(), element.low, element.high), Term::new(lead.clone(), element.low, element.high));
        if scalar.is_float() {
            let unary = m.random.below(3);
            m.combine(vec![a, b], unary, 0, &MIXED)
        } else {
            let joined = m.join_int(a, b);
            m.apply_int(joined)
        }
    });
    m.push(Stmt::Store(out, vec![i.clone()], joined.e.clone()));
    let threads = *m.random.pick(&[32u32, 64, 128]);
    let restrict = m.random.chance(60);
    Some(Box::new(move |program| {
        let text = written(program, restrict, |p| {
            let (i_name, n_name) = (p.shown(&i), size(program, n));
            let (mine_name, lead_name, c) = (p.shown(&mine), p.shown(&lead), scalar.c());
            let out_name = program.array(out).name.clone();
            let zero = if scalar.is_float() { "0.0f" } else { "0" };
            let lines = [
                format!("int {i_name} = blockIdx.x * blockDim.x + threadIdx.x;"),
                format!("{c} {mine_name} = {zero};"),
                format!("if ({i_name} < {n_name}) {mine_name} = {};", p.shown(&element.e)),
                format!("{c} {lead_name} = __shfl_sync(0xffffffff, {mine_name}, 0);"),
                format!("if ({i_name} < {n_name}) {out_name}[{i_name}] = {};", p.shown(&joined.e)),
            ];
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads), "shuffle_broadcast")
    }))
}

/// Each element against the whole of its group of lanes.
fn butterfly(m: &mut Maker) -> Option<Plan> {
    let scalar = *m.random.weighted(&[(4, Scalar::F32), (2, Scalar::I32)]);
    let n = m.size("n", true, 0, 500);
    let elements = Elements::new(m, scalar, &[n]);
    let out = m.output(scalar, &[n]);
    let group = *m.random.pick(&[32i64, 32, 16, 8, 4]);
    let reduce = *m.random.pick(&[Reduce::Add, Reduce::Max, Reduce::Min]);
    let i = m.index("i", n);
    let extent = m.extent(n);
    let begin =
        Expr::binary(Binary::Mul, Expr::binary(Binary::Quotient, i.clone(), Expr::int(group)), Expr::int(group));
    let begin = m.bind_as("begin", begin);
    let end = Expr::call(Builtin::Min, vec![Expr::binary(Binary::Add, begin.clone(), Expr::int(group)), extent]);
    let end = m.bind_as("end", end);
    let acc = m.changing("acc", reduce.identity(scalar));
    let (mut value, mut counter) = (None, None);
    m.count("k", begin, end, 1, |m, k| {
        let made = elements.at(m, std::slice::from_ref(&k), 50.0);
        let now = m.read(acc);
        m.push(reduce.step(acc, now, made.e.clone()));
        (value, counter) = (Some(made), Some(k));
    });
    let (value, k): (Term, Expr) = (value?, counter?);
    let own_value = replaced(&value.e, &k, &i);
    let mine = m.bind_as("mine", own_value.clone());
    let joined = whole(m, |m| {
        let most = if reduce == Reduce::Add { value.size() * group as f64 } else { value.size() };
        let (a, b) = (Term::new(mine.clone(), value.low, value.high), Term::new(m.read(acc), -most, most));
        if scalar.is_float() {
            let unary = m.random.below(2);
            m.combine(vec![a, b], unary, 0, &PLAIN)
        } else {
            m.join_int(a, b)
        }
    });
    m.push(Stmt::Store(out, vec![i.clone()], joined.e.clone()));
    let threads = *m.random.pick(&[32u32, 64, 128]);
    let restrict = m.random.chance(60);
    let own = Own::new(m);
    Some(Box::new(move |program| {
        let text = written(program, restrict, |p| {
            let (i_name, n_name) = (p.shown(&i), size(program, n));
            let (mine_name, acc_name, c) = (p.shown(&mine), program.body.var(acc).name.clone(), scalar.c());
            let (out_name, identity, s) =
                (program.array(out).name.clone(), p.shown(&reduce.identity(scalar)), &own.step);
            let other = format!("__shfl_xor_sync(0xffffffff, {acc_name}, {s})");
            let lines = [
                format!("int {i_name} = blockIdx.x * blockDim.x + threadIdx.x;"),
                format!("{c} {mine_name} = {identity};"),
                format!("if ({i_name} < {n_name}) {mine_name} = {};", p.shown(&own_value)),
                format!("{c} {acc_name} = {mine_name};"),
                format!("for (int {s} = {}; {s} > 0; {s} >>= 1) {{", group / 2),
                format!("    {}", reduce.into(scalar, &acc_name, &other)),
                "}".into(),
                format!("if ({i_name} < {n_name}) {out_name}[{i_name}] = {};", p.shown(&joined.e)),
            ];
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads), "shuffle_butterfly")
    }))
}

/// Products of matrices through tiles.
pub fn tiled_matmul(m: &mut Maker) -> Option<Plan> {
    let scalar = *m.random.weighted(&[(5, Scalar::F32), (1, Scalar::F64), (1, Scalar::I32)]);
    let names =
        *m.random.pick(&[["m_rows", "n_cols", "k_dim"], ["rows", "cols", "inner"], ["height", "width", "depth"]]);
    let (rows, cols, inner) =
        (m.size(names[0], false, 0, 24), m.size(names[1], false, 0, 24), m.size(names[2], true, 0, 24));
    let fill = if scalar.is_float() { Fill::Uniform(-1.0, 1.0) } else { Fill::Uniform(-9.0, 9.0) };
    let letters = *m.random.pick(&[["a", "b", "c"], ["lhs", "rhs", "out"], ["left", "right", "prod"], ["x", "w", "y"]]);
    let (flip_a, flip_b) = (m.random.chance(25), m.random.chance(35));
    let a = m.array(letters[0], scalar, &if flip_a { [inner, rows] } else { [rows, inner] }, fill.clone(), false);
    let b = m.array(letters[1], scalar, &if flip_b { [cols, inner] } else { [inner, cols] }, fill, false);
    let bias = m.random.chance(30).then(|| m.array("bias", scalar, &[cols], Fill::Uniform(-1.0, 1.0), false));
    let c = m.array(letters[2], scalar, &[rows, cols], Fill::Zero, true);
    let count = if scalar.is_float() { m.random.below(2) } else { 0 };
    let numbers = scalars(m, count, scalar);
    let (i, j) = (m.index("i", rows), m.index("j", cols));
    let zero = if scalar.is_float() { Expr::float(scalar, 0.0) } else { Expr::int_of(scalar, 0) };
    let acc = m.changing("acc", zero.clone());
    let high = m.extent(inner);
    let k = m.variable("k", Scalar::I32, false);
    let k_expr = Expr::var(k, Scalar::I32);
    let at_a = if flip_a { vec![k_expr.clone(), i.clone()] } else { vec![i.clone(), k_expr.clone()] };
    let at_b = if flip_b { vec![j.clone(), k_expr.clone()] } else { vec![k_expr.clone(), j.clone()] };
    let most = if scalar.is_float() { 1.0 } else { 9.0 };
    let (load_a, load_b) = (Expr::load(a, at_a, scalar), Expr::load(b, at_b, scalar));
    // What is done to an element before it goes into its tile.
    let treated = |m: &mut Maker, e: Expr| {
        whole(m, |m| {
            let term = Term::new(e, -most, most);
            if !m.random.chance(55) {
                term
            } else if scalar.is_float() {
                let unary = 1 + m.random.below(3);
                let value = m.combine(vec![term], unary, 0, &MATH);
                m.narrowed(value, 4.0)
            } else {
                m.apply_int(term)
            }
        })
    };
    let (value_a, value_b) = (treated(m, load_a), treated(m, load_b));
    let product = Expr::binary(Binary::Mul, value_a.e.clone(), value_b.e.clone());
    m.push(Stmt::For(k, Expr::int(0), high, 1, vec![Stmt::Update(acc, Binary::Add, product)]));
    let total = 24.0 * value_a.size() * value_b.size();
    let last = whole(m, |m| {
        let mut terms = vec![Term::new(m.read(acc), -total, total)];
        terms.extend(bias.map(|bias| Term::new(Expr::load(bias, vec![j.clone()], scalar), -1.0, 1.0)));
        terms.extend(numbers);
        if scalar.is_float() {
            let again = terms[0].clone();
            if m.random.chance(40) {
                terms.push(again);
            }
            let unary = 1 + m.random.below(4);
            m.combine(terms, unary, 0, &MIXED)
        } else {
            let unary = m.random.below(3);
            m.combine_int(terms, unary, 0)
        }
    });
    m.push(Stmt::Store(c, vec![i.clone(), j.clone()], last.e.clone()));
    let side = *m.random.weighted(&[(4, 8u32), (3, 16), (2, 4)]);
    let (pad, unroll, restrict) = (m.random.chance(30) as u32, m.random.chance(50), m.random.chance(70));
    let named = m.random.chance(40);
    let [tile_a, tile_b] = [format!("tile_{}", letters[0]), format!("tile_{}", letters[1])].map(|n| m.names.free(&n));
    let [tx, ty, base, q] = ["tx", "ty", "base", "q"].map(|n| m.names.free(n));
    Some(Box::new(move |program| {
        let text = written(program, restrict, |p| {
            let [i, j] = [&i, &j].map(|e| p.shown(e));
            let (k_name, acc_name) = (program.body.var(k).name.clone(), program.body.var(acc).name.clone());
            let [rows, cols, inner] = [rows, cols, inner].map(|s| size(program, s));
            let (c_type, zero, out) = (scalar.c(), p.shown(&zero), program.array(c).name.clone());
            let (e_a, e_b, last) = (p.shown(&value_a.e), p.shown(&value_b.e), p.shown(&last.e));
            let side_text = if named { "TILE".to_owned() } else { side.to_string() };
            let wide = if pad > 0 { format!("{side_text} + {pad}") } else { side_text.clone() };
            let mut lines = vec![];
            if named {
                lines.push(format!("const int TILE = {side};"));
            }
            lines.extend([
                format!("__shared__ {c_type} {tile_a}[{side_text}][{wide}];"),
                format!("__shared__ {c_type} {tile_b}[{side_text}][{wide}];"),
                format!("int {tx} = threadIdx.x, {ty} = threadIdx.y;"),
                format!("int {i} = blockIdx.y * {side_text} + {ty};"),
                format!("int {j} = blockIdx.x * {side_text} + {tx};"),
                format!("{c_type} {acc_name} = {zero};"),
                format!("for (int {base} = 0; {base} < {inner}; {base} += {side_text}) {{"),
                format!("    int {k_name} = {base} + {tx};"),
                format!("    {tile_a}[{ty}][{tx}] = {i} < {rows} && {k_name} < {inner} ? {e_a} : {zero};"),
                format!("    {k_name} = {base} + {ty};"),
                format!("    {tile_b}[{ty}][{tx}] = {k_name} < {inner} && {j} < {cols} ? {e_b} : {zero};"),
                "    __syncthreads();".into(),
            ]);
            if unroll {
                lines.push("    #pragma unroll".into());
            }
            lines.push(format!(
                "    for (int {q} = 0; {q} < {side_text}; ++{q}) {acc_name} += {tile_a}[{ty}][{q}] * {tile_b}[{q}][{tx}];"
            ));
            lines.push("    __syncthreads();".into());
            lines.push("}".into());
            lines.push(format!("if ({i} < {rows} && {j} < {cols}) {out}[{i} * {cols} + {j}] = {last};"));
            indent(1, &lines)
        });
        Cooperative {
            text,
            block: [side, side, 1],
            grid: [(cols, side), (rows, side), (Size::Known(1), 1)],
            kind: "matmul_tile",
        }
    }))
}
