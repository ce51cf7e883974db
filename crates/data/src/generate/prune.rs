//! Dead code elimination: removes values that nothing reads and arrays that nothing loads.

use foldhash::{HashSet, HashSetExt};

use crate::program::{ArrayId, ExprKind, Program, ProgramExpr, ProgramStmt};

/// Removes from a finished program what is never read.
pub fn prune(program: &mut Program) {
    loop {
        let mut read = HashSet::new();
        for stmt in &program.body.stmts {
            stmt.walk(&mut |stmt| {
                for e in stmt.children().0 {
                    e.walk(&mut |e| {
                        if let ExprKind::Var(var) = e.kind {
                            read.insert(var);
                        }
                    });
                }
            });
        }
        program.values.retain(|value| read.contains(&value.var));
        let changing: Vec<bool> = program.body.vars.iter().map(|var| var.mutable).collect();
        let dead = |stmt: &ProgramStmt| match stmt {
            ProgramStmt::Let(var, _) => !read.contains(var) && !changing[var.0 as usize],
            ProgramStmt::Draw(var, ..) => !read.contains(var),
            _ => false,
        };
        if !remove(&mut program.body.stmts, &dead) {
            break;
        }
    }
    let mut loaded = HashSet::new();
    program.each_expr(&mut |e| {
        if let ExprKind::Load(array, _) = &e.kind {
            loaded.insert(*array);
        }
    });
    for n in (0..program.arrays.len()).rev() {
        if program.arrays[n].written || loaded.contains(&ArrayId(n as u8)) {
            continue;
        }
        program.arrays.remove(n);
        each_mut(&mut program.body.stmts, &mut |array| {
            if array.0 as usize > n {
                array.0 -= 1;
            }
        });
    }
}

/// Removes dead statements; returns true if there were any.
fn remove(stmts: &mut Vec<ProgramStmt>, dead: &dyn Fn(&ProgramStmt) -> bool) -> bool {
    let before = stmts.len();
    stmts.retain(|stmt| !dead(stmt));
    let mut removed = stmts.len() < before;
    for stmt in stmts {
        match stmt {
            ProgramStmt::If(_, then, otherwise) => {
                removed |= remove(then, dead);
                removed |= remove(otherwise, dead);
            }
            ProgramStmt::For(.., body) | ProgramStmt::While(_, body) => removed |= remove(body, dead),
            _ => {}
        }
    }
    removed
}

fn each_mut(stmts: &mut [ProgramStmt], visit: &mut dyn FnMut(&mut ArrayId)) {
    for stmt in stmts {
        match stmt {
            ProgramStmt::Let(_, e)
            | ProgramStmt::Assign(_, e)
            | ProgramStmt::Update(_, _, e)
            | ProgramStmt::SetComponent(_, _, e) => within(e, visit),
            ProgramStmt::Return(Some(e)) => within(e, visit),
            ProgramStmt::Store(array, at, e) | ProgramStmt::Atomic(_, array, at, e) => {
                visit(array);
                at.iter_mut().for_each(|e| within(e, visit));
                within(e, visit);
            }
            ProgramStmt::If(e, then, otherwise) => {
                within(e, visit);
                each_mut(then, visit);
                each_mut(otherwise, visit);
            }
            ProgramStmt::For(_, low, high, _, body) => {
                within(low, visit);
                within(high, visit);
                each_mut(body, visit);
            }
            ProgramStmt::While(e, body) => {
                within(e, visit);
                each_mut(body, visit);
            }
            ProgramStmt::Seed(_, a, b) => {
                within(a, visit);
                within(b, visit);
            }
            ProgramStmt::Break | ProgramStmt::Continue | ProgramStmt::Return(None) | ProgramStmt::Draw(..) => {}
        }
    }
}

fn within(e: &mut ProgramExpr, visit: &mut dyn FnMut(&mut ArrayId)) {
    match &mut e.kind {
        ExprKind::Float(_) | ExprKind::Int(_) | ExprKind::Var(_) => {}
        ExprKind::Load(array, at) => {
            visit(array);
            at.iter_mut().for_each(|e| within(e, visit));
        }
        ExprKind::Call(_, args) | ExprKind::Function(_, args) | ExprKind::Construct(args) => {
            args.iter_mut().for_each(|e| within(e, visit))
        }
        ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Component(a, _) => within(a, visit),
        ExprKind::Binary(_, both) => both.iter_mut().for_each(|e| within(e, visit)),
        ExprKind::Where(three) => three.iter_mut().for_each(|e| within(e, visit)),
    }
}
