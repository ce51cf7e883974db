//! Kernels with warp shuffles.

use super::block::{Own, Plan, Reduce, Way, along_x, indent, written};
use super::maker::Maker;
use super::reduce::{Elements, reduction};
use super::shared::without_binding;
use super::term::{ARITHMETIC, MIXED, PLAIN, Term};
use crate::program::python::size;
use crate::program::{Binary, Builtin, Expr, Scalar, Stmt};

/// Kernels with warp shuffles.
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

/// Each lane combines its value with that of a lane further up or down the warp, if there is one.
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
    let far = substituted(&element.e, &i, &at);
    m.push(Stmt::If(inside, vec![Stmt::Assign(other, far)], vec![]));
    let joined = without_binding(m, |m| {
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

/// Substitutes a subexpression.
fn substituted(e: &Expr, target: &Expr, by: &Expr) -> Expr {
    use crate::program::Kind::*;
    if e == target {
        return by.clone();
    }
    let all = |args: &[Expr]| args.iter().map(|arg| substituted(arg, target, by)).collect::<Vec<_>>();
    let kind = match &e.kind {
        Float(_) | Int(_) | Var(_) => return e.clone(),
        Load(array, at) => Load(*array, all(at)),
        Unary(op, a) => Unary(*op, Box::new(substituted(a, target, by))),
        Binary(op, both) => Binary(*op, Box::new([substituted(&both[0], target, by), substituted(&both[1], target, by)])),
        Call(builtin, args) => Call(*builtin, all(args)),
        Function(func, args) => Function(*func, all(args)),
        Where(three) => Where(Box::new([0, 1, 2].map(|n| substituted(&three[n], target, by)))),
        Cast(a) => Cast(Box::new(substituted(a, target, by))),
        Part(a, at) => Part(Box::new(substituted(a, target, by)), *at),
        Make(args) => Make(all(args)),
    };
    Expr::new(kind, e.ty)
}

/// Each lane combines its value with that of its warp's first lane.
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
    let far = substituted(&element.e, &i, &first);
    let lead = m.bind_as("lead", far);
    let joined = without_binding(m, |m| {
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

/// Each element is combined with a reduction over its group of lanes.
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
        let element = elements.at(m, std::slice::from_ref(&k), 50.0);
        let now = m.read(acc);
        m.push(reduce.step(acc, now, element.e.clone()));
        (value, counter) = (Some(element), Some(k));
    });
    let (value, k): (Term, Expr) = (value?, counter?);
    let own_value = substituted(&value.e, &k, &i);
    let mine = m.bind_as("mine", own_value.clone());
    let joined = without_binding(m, |m| {
        let max = if reduce == Reduce::Add { value.size() * group as f64 } else { value.size() };
        let (a, b) = (Term::new(mine.clone(), value.low, value.high), Term::new(m.read(acc), -max, max));
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
