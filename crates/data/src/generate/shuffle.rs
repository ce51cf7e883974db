//! Kernels with warp shuffles.

use super::block::{BlockNames, BlockWriter, Reduce, ReduceStrategy, along_x, indent, kernel_text};
use super::builder::ProgramBuilder;
use super::reduce::{Elements, reduction};
use super::shared::without_binding;
use super::term::{ARITHMETIC, MIXED, PLAIN, Term};
use crate::program::python::size_text;
use crate::program::{BinaryOp, BuiltinFn, ProgramExpr, ProgramStmt, ScalarType};

/// Kernels with warp shuffles.
pub fn warp_shuffle(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    match m.random.below(4) {
        0 => {
            let strategy = *m.random.pick(&[ReduceStrategy::Warps, ReduceStrategy::WarpsThenOne]);
            reduction(m, Some(strategy))
        }
        1 => broadcast(m),
        2 => butterfly(m),
        _ => lanes(m),
    }
}

/// Each lane combines its value with that of a lane further up or down the warp, if there is one.
fn lanes(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    let scalar = *m.random.pick_weighted(&[(4, ScalarType::F32), (2, ScalarType::I32), (1, ScalarType::F64)]);
    let n = m.size("n", true, 0, 500);
    let elements = Elements::new(m, scalar, &[n]);
    let out = m.output(scalar, &[n]);
    let i = m.index("i", n);
    let extent = m.extent(n);
    let by = *m.random.pick(&[1i64, 1, 2, 4, 8, 3]);
    let down = m.random.chance(50);
    let element = elements.at(m, std::slice::from_ref(&i), 100.0);
    let mine = m.bind_as("mine", element.e.clone());
    let lane = m.bind_as("lane", ProgramExpr::binary(BinaryOp::Rem, i.clone(), ProgramExpr::int(32)));
    let identity = if scalar.is_float() { ProgramExpr::float(scalar, 0.0) } else { ProgramExpr::typed_int(scalar, 0) };
    let other = m.mutable("other", identity.clone());
    let at = if down {
        ProgramExpr::binary(BinaryOp::Add, i.clone(), ProgramExpr::int(by))
    } else {
        ProgramExpr::binary(BinaryOp::Sub, i.clone(), ProgramExpr::int(by))
    };
    let inside = if down {
        let lane_ok = ProgramExpr::binary(
            BinaryOp::Lt,
            ProgramExpr::binary(BinaryOp::Add, lane.clone(), ProgramExpr::int(by)),
            ProgramExpr::int(32),
        );
        ProgramExpr::binary(BinaryOp::And, lane_ok, ProgramExpr::binary(BinaryOp::Lt, at.clone(), extent))
    } else {
        ProgramExpr::binary(BinaryOp::Ge, lane.clone(), ProgramExpr::int(by))
    };
    let far = substituted(&element.e, &i, &at);
    m.push(ProgramStmt::If(inside, vec![ProgramStmt::Assign(other, far)], vec![]));
    let combined = without_binding(m, |m| {
        let (a, b) = (
            Term::new(mine.clone(), element.low, element.high),
            Term::new(m.read(other), element.low.min(0.0), element.high.max(0.0)),
        );
        if scalar.is_float() {
            let distribution = if m.random.chance(50) { &PLAIN } else { &ARITHMETIC };
            m.combine(vec![a, b], 1, 0, distribution)
        } else {
            let combined = m.join_int(a, b);
            m.apply_int(combined)
        }
    });
    m.push(ProgramStmt::Store(out, vec![i.clone()], combined.e.clone()));
    let threads = *m.random.pick(&[32u32, 64, 128]);
    let restrict = m.random.chance(60);
    let got = m.names.unique("got");
    Some(Box::new(move |program| {
        let text = kernel_text(program, restrict, |p| {
            let (i_name, n_name) = (p.expr_text(&i), size_text(program, n));
            let (out_name, other_name) = (program.array(out).name.clone(), program.body.var(other).name.clone());
            let (mine_name, lane_name, c, zero) =
                (p.expr_text(&mine), p.expr_text(&lane), scalar.c(), p.expr_text(&identity));
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
                format!("if ({i_name} < {n_name}) {mine_name} = {};", p.expr_text(&element.e)),
                format!("{c} {got} = {shuffle}(0xffffffff, {mine_name}, {by});"),
                format!("{c} {other_name} = {exists} ? {got} : {zero};"),
                format!("if ({i_name} < {n_name}) {out_name}[{i_name}] = {};", p.expr_text(&combined.e)),
            ];
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads), "shuffle_shift")
    }))
}

/// Substitutes a subexpression.
fn substituted(e: &ProgramExpr, target: &ProgramExpr, by: &ProgramExpr) -> ProgramExpr {
    use crate::program::ExprKind::*;
    if e == target {
        return by.clone();
    }
    let all = |args: &[ProgramExpr]| args.iter().map(|arg| substituted(arg, target, by)).collect::<Vec<_>>();
    let kind = match &e.kind {
        Float(_) | Int(_) | Var(_) => return e.clone(),
        Load(array, at) => Load(*array, all(at)),
        Unary(op, a) => Unary(*op, Box::new(substituted(a, target, by))),
        Binary(op, both) => {
            Binary(*op, Box::new([substituted(&both[0], target, by), substituted(&both[1], target, by)]))
        }
        Call(builtin, args) => Call(*builtin, all(args)),
        Function(func, args) => Function(*func, all(args)),
        Where(three) => Where(Box::new([0, 1, 2].map(|n| substituted(&three[n], target, by)))),
        Cast(a) => Cast(Box::new(substituted(a, target, by))),
        Component(a, at) => Component(Box::new(substituted(a, target, by)), *at),
        Construct(args) => Construct(all(args)),
    };
    ProgramExpr::new(kind, e.ty)
}

/// Each lane combines its value with that of its warp's first lane.
fn broadcast(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    let scalar = *m.random.pick_weighted(&[(4, ScalarType::F32), (2, ScalarType::I32)]);
    let n = m.size("n", false, 0, 500);
    let elements = Elements::new(m, scalar, &[n]);
    let out = m.output(scalar, &[n]);
    let i = m.index("i", n);
    let base = ProgramExpr::binary(
        BinaryOp::Mul,
        ProgramExpr::binary(BinaryOp::Quotient, i.clone(), ProgramExpr::int(32)),
        ProgramExpr::int(32),
    );
    let first = m.bind_as("first", base);
    let element = elements.at(m, std::slice::from_ref(&i), 100.0);
    let mine = m.bind_as("mine", element.e.clone());
    let far = substituted(&element.e, &i, &first);
    let lead = m.bind_as("lead", far);
    let combined = without_binding(m, |m| {
        let (a, b) =
            (Term::new(mine.clone(), element.low, element.high), Term::new(lead.clone(), element.low, element.high));
        if scalar.is_float() {
            let unary = m.random.below(3);
            m.combine(vec![a, b], unary, 0, &MIXED)
        } else {
            let combined = m.join_int(a, b);
            m.apply_int(combined)
        }
    });
    m.push(ProgramStmt::Store(out, vec![i.clone()], combined.e.clone()));
    let threads = *m.random.pick(&[32u32, 64, 128]);
    let restrict = m.random.chance(60);
    Some(Box::new(move |program| {
        let text = kernel_text(program, restrict, |p| {
            let (i_name, n_name) = (p.expr_text(&i), size_text(program, n));
            let (mine_name, lead_name, c) = (p.expr_text(&mine), p.expr_text(&lead), scalar.c());
            let out_name = program.array(out).name.clone();
            let zero = if scalar.is_float() { "0.0f" } else { "0" };
            let lines = [
                format!("int {i_name} = blockIdx.x * blockDim.x + threadIdx.x;"),
                format!("{c} {mine_name} = {zero};"),
                format!("if ({i_name} < {n_name}) {mine_name} = {};", p.expr_text(&element.e)),
                format!("{c} {lead_name} = __shfl_sync(0xffffffff, {mine_name}, 0);"),
                format!("if ({i_name} < {n_name}) {out_name}[{i_name}] = {};", p.expr_text(&combined.e)),
            ];
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads), "shuffle_broadcast")
    }))
}

/// Each element is combined with a reduction over its group of lanes.
fn butterfly(m: &mut ProgramBuilder) -> Option<BlockWriter> {
    let scalar = *m.random.pick_weighted(&[(4, ScalarType::F32), (2, ScalarType::I32)]);
    let n = m.size("n", true, 0, 500);
    let elements = Elements::new(m, scalar, &[n]);
    let out = m.output(scalar, &[n]);
    let group = *m.random.pick(&[32i64, 32, 16, 8, 4]);
    let reduce = *m.random.pick(&[Reduce::Add, Reduce::Max, Reduce::Min]);
    let i = m.index("i", n);
    let extent = m.extent(n);
    let begin = ProgramExpr::binary(
        BinaryOp::Mul,
        ProgramExpr::binary(BinaryOp::Quotient, i.clone(), ProgramExpr::int(group)),
        ProgramExpr::int(group),
    );
    let begin = m.bind_as("begin", begin);
    let end = ProgramExpr::call(
        BuiltinFn::Min,
        vec![ProgramExpr::binary(BinaryOp::Add, begin.clone(), ProgramExpr::int(group)), extent],
    );
    let end = m.bind_as("end", end);
    let acc = m.mutable("acc", reduce.identity(scalar));
    let (mut value, mut counter) = (None, None);
    m.for_range("k", begin, end, 1, |m, k| {
        let element = elements.at(m, std::slice::from_ref(&k), 50.0);
        let now = m.read(acc);
        m.push(reduce.step(acc, now, element.e.clone()));
        (value, counter) = (Some(element), Some(k));
    });
    let (value, k): (Term, ProgramExpr) = (value?, counter?);
    let own_value = substituted(&value.e, &k, &i);
    let mine = m.bind_as("mine", own_value.clone());
    let combined = without_binding(m, |m| {
        let max = if reduce == Reduce::Add { value.size() * group as f64 } else { value.size() };
        let (a, b) = (Term::new(mine.clone(), value.low, value.high), Term::new(m.read(acc), -max, max));
        if scalar.is_float() {
            let unary = m.random.below(2);
            m.combine(vec![a, b], unary, 0, &PLAIN)
        } else {
            m.join_int(a, b)
        }
    });
    m.push(ProgramStmt::Store(out, vec![i.clone()], combined.e.clone()));
    let threads = *m.random.pick(&[32u32, 64, 128]);
    let restrict = m.random.chance(60);
    let names = BlockNames::new(m);
    Some(Box::new(move |program| {
        let text = kernel_text(program, restrict, |p| {
            let (i_name, n_name) = (p.expr_text(&i), size_text(program, n));
            let (mine_name, acc_name, c) = (p.expr_text(&mine), program.body.var(acc).name.clone(), scalar.c());
            let (out_name, identity, s) =
                (program.array(out).name.clone(), p.expr_text(&reduce.identity(scalar)), &names.step);
            let other = format!("__shfl_xor_sync(0xffffffff, {acc_name}, {s})");
            let lines = [
                format!("int {i_name} = blockIdx.x * blockDim.x + threadIdx.x;"),
                format!("{c} {mine_name} = {identity};"),
                format!("if ({i_name} < {n_name}) {mine_name} = {};", p.expr_text(&own_value)),
                format!("{c} {acc_name} = {mine_name};"),
                format!("for (int {s} = {}; {s} > 0; {s} >>= 1) {{", group / 2),
                format!("    {}", reduce.assign_text(scalar, &acc_name, &other)),
                "}".into(),
                format!("if ({i_name} < {n_name}) {out_name}[{i_name}] = {};", p.expr_text(&combined.e)),
            ];
            indent(1, &lines)
        });
        along_x(text, threads, (n, threads), "shuffle_butterfly")
    }))
}
