//! Dead code elimination: removes values that nothing reads and arrays that nothing loads.

use foldhash::{HashSet, HashSetExt};

use crate::program::{Array, Expr, Kind, Program, Stmt};

/// Removes from a finished program what is never read.
pub fn prune(program: &mut Program) {
    loop {
        let mut read = HashSet::new();
        for stmt in &program.body.stmts {
            stmt.walk(&mut |stmt| {
                for e in stmt.contents().0 {
                    e.walk(&mut |e| {
                        if let Kind::Var(var) = e.kind {
                            read.insert(var);
                        }
                    });
                }
            });
        }
        program.values.retain(|value| read.contains(&value.var));
        let changing: Vec<bool> = program.body.vars.iter().map(|var| var.changes).collect();
        let dead = |stmt: &Stmt| match stmt {
            Stmt::Let(var, _) => !read.contains(var) && !changing[var.0 as usize],
            Stmt::Draw(var, ..) => !read.contains(var),
            _ => false,
        };
        if !remove(&mut program.body.stmts, &dead) {
            break;
        }
    }
    let mut loaded = HashSet::new();
    program.each_expr(&mut |e| {
        if let Kind::Load(array, _) = &e.kind {
            loaded.insert(*array);
        }
    });
    for n in (0..program.arrays.len()).rev() {
        if program.arrays[n].written || loaded.contains(&Array(n as u8)) {
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
fn remove(stmts: &mut Vec<Stmt>, dead: &dyn Fn(&Stmt) -> bool) -> bool {
    let before = stmts.len();
    stmts.retain(|stmt| !dead(stmt));
    let mut removed = stmts.len() < before;
    for stmt in stmts {
        match stmt {
            Stmt::If(_, then, otherwise) => {
                removed |= remove(then, dead);
                removed |= remove(otherwise, dead);
            }
            Stmt::For(.., body) | Stmt::While(_, body) => removed |= remove(body, dead),
            _ => {}
        }
    }
    removed
}

fn each_mut(stmts: &mut [Stmt], visit: &mut dyn FnMut(&mut Array)) {
    for stmt in stmts {
        match stmt {
            Stmt::Let(_, e) | Stmt::Assign(_, e) | Stmt::Update(_, _, e) | Stmt::SetPart(_, _, e) => within(e, visit),
            Stmt::Return(Some(e)) => within(e, visit),
            Stmt::Store(array, at, e) | Stmt::Atomic(_, array, at, e) => {
                visit(array);
                at.iter_mut().for_each(|e| within(e, visit));
                within(e, visit);
            }
            Stmt::If(e, then, otherwise) => {
                within(e, visit);
                each_mut(then, visit);
                each_mut(otherwise, visit);
            }
            Stmt::For(_, low, high, _, body) => {
                within(low, visit);
                within(high, visit);
                each_mut(body, visit);
            }
            Stmt::While(e, body) => {
                within(e, visit);
                each_mut(body, visit);
            }
            Stmt::Seed(_, a, b) => {
                within(a, visit);
                within(b, visit);
            }
            Stmt::Break | Stmt::Continue | Stmt::Return(None) | Stmt::Draw(..) => {}
        }
    }
}

fn within(e: &mut Expr, visit: &mut dyn FnMut(&mut Array)) {
    match &mut e.kind {
        Kind::Float(_) | Kind::Int(_) | Kind::Var(_) => {}
        Kind::Load(array, at) => {
            visit(array);
            at.iter_mut().for_each(|e| within(e, visit));
        }
        Kind::Call(_, args) | Kind::Function(_, args) | Kind::Make(args) => {
            args.iter_mut().for_each(|e| within(e, visit))
        }
        Kind::Unary(_, a) | Kind::Cast(a) | Kind::Part(a, _) => within(a, visit),
        Kind::Binary(_, both) => both.iter_mut().for_each(|e| within(e, visit)),
        Kind::Where(three) => three.iter_mut().for_each(|e| within(e, visit)),
    }
}
