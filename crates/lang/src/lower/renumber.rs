//! Renumbers expressions as a printed text names them: `v7` becomes expression 7 again.

use foldhash::HashMap;

use bornite_ir::{Args, Check, Code, Expr, ExprId, Scalar, Stmt, Type, Value};

/// Gives each expression its number in `numbers`; the others take the numbers that are left.
pub(crate) fn renumber(code: &mut Code, numbers: &HashMap<ExprId, u32>) {
    let highest = numbers.values().max().map_or(0, |n| *n as usize + 1);
    let size = code.exprs.len().max(highest);
    let mut slots: Vec<Option<usize>> = vec![None; size];
    let mut new = vec![u32::MAX; code.exprs.len()];
    for (id, &number) in numbers {
        let slot = &mut slots[number as usize];
        if slot.is_none() && (id.0 as usize) < new.len() {
            *slot = Some(id.0 as usize);
            new[id.0 as usize] = number;
        }
    }
    let mut unused = (0..).filter(|n: &usize| slots.get(*n).is_none_or(|slot| slot.is_none()));
    let rest: Vec<usize> = (0..code.exprs.len()).filter(|n| new[*n] == u32::MAX).collect();
    let pairs: Vec<(usize, usize)> = rest.into_iter().zip(&mut unused).collect();
    for (old, number) in pairs {
        if number >= slots.len() {
            slots.resize(number + 1, None);
        }
        slots[number] = Some(old);
        new[old] = number as u32;
    }
    // Gaps are filled with an unused constant.
    let filler = || (Expr::Const(Value::int(Scalar::I32, 0)), Type::Scalar(Scalar::I32));
    let (exprs, types) = (std::mem::take(&mut code.exprs), std::mem::take(&mut code.types));
    for slot in slots {
        let (expr, ty) = slot.map_or_else(filler, |old| (exprs[old].clone(), types[old]));
        code.exprs.push(expr);
        code.types.push(ty);
    }
    let map = |id: &mut ExprId| id.0 = new[id.0 as usize];
    code.exprs.iter_mut().for_each(|expr| expr_ids(expr, &map));
    stmt_ids(&mut code.body, &map);
}

fn args_ids(args: &mut Args, map: &dyn Fn(&mut ExprId)) {
    let mut ids: Vec<ExprId> = args.to_vec();
    ids.iter_mut().for_each(map);
    if let Some(new) = Args::new(&ids) {
        *args = new;
    }
}

fn expr_ids(expr: &mut Expr, map: &dyn Fn(&mut ExprId)) {
    match expr {
        Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) | Expr::Read(_) => {}
        Expr::Op(_, args) => args_ids(args, map),
        Expr::Algebra { args, .. } | Expr::Call(_, args) => args.iter_mut().for_each(map),
        Expr::Cast(_, id) | Expr::Bitcast(_, id) => map(id),
        Expr::Load { indices: at, .. } => args_ids(at, map),
        Expr::Atomic { indices: at, value, .. } => {
            args_ids(at, map);
            map(value);
        }
        Expr::CompareExchange { indices: at, expected, value, .. } => {
            args_ids(at, map);
            map(expected);
            map(value);
        }
        Expr::Shuffle { value, lane, mask, .. } => {
            map(value);
            map(lane);
            mask.iter_mut().for_each(map);
        }
        Expr::Vote { value, mask, .. } => {
            map(value);
            mask.iter_mut().for_each(map);
        }
    }
}

fn stmt_ids(block: &mut [Stmt], map: &dyn Fn(&mut ExprId)) {
    for stmt in block {
        match stmt {
            Stmt::Let(id) | Stmt::Assign(_, id) | Stmt::Return(Some(id)) => map(id),
            Stmt::Store { indices: at, value, .. } => {
                args_ids(at, map);
                map(value);
            }
            Stmt::For { end, body, .. } => {
                map(end);
                stmt_ids(body, map);
            }
            Stmt::If { condition, then, otherwise } => {
                map(condition);
                stmt_ids(then, map);
                stmt_ids(otherwise, map);
            }
            Stmt::Loop { body } => stmt_ids(body, map),
            Stmt::Print { args, .. } => args.iter_mut().for_each(map),
            Stmt::Check(Check::Assert { condition: id, .. } | Check::InBounds { index: id, .. }) => map(id),
            Stmt::Break | Stmt::Continue | Stmt::Return(None) | Stmt::Barrier | Stmt::WarpBarrier => {}
            Stmt::Fence(_) | Stmt::Declare(_) => {}
        }
    }
}
