//! Takes out what a program came to have no use for: values that nothing reads, arrays that nothing loads.

use foldhash::{HashSet, HashSetExt};

use crate::program::{Array, Expr, Kind, Program, Stmt};

/// Takes out of a finished program what is never read.
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

/// Removes statements; whether there were any.
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

fn each_mut(stmts: &mut [Stmt], see: &mut dyn FnMut(&mut Array)) {
    for stmt in stmts {
        match stmt {
            Stmt::Let(_, e) | Stmt::Assign(_, e) | Stmt::Update(_, _, e) | Stmt::SetPart(_, _, e) => within(e, see),
            Stmt::Return(Some(e)) => within(e, see),
            Stmt::Store(array, at, e) | Stmt::Atomic(_, array, at, e) => {
                see(array);
                at.iter_mut().for_each(|e| within(e, see));
                within(e, see);
            }
            Stmt::If(e, then, otherwise) => {
                within(e, see);
                each_mut(then, see);
                each_mut(otherwise, see);
            }
            Stmt::For(_, low, high, _, body) => {
                within(low, see);
                within(high, see);
                each_mut(body, see);
            }
            Stmt::While(e, body) => {
                within(e, see);
                each_mut(body, see);
            }
            Stmt::Seed(_, a, b) => {
                within(a, see);
                within(b, see);
            }
            Stmt::Break | Stmt::Continue | Stmt::Return(None) | Stmt::Draw(..) => {}
        }
    }
}

fn within(e: &mut Expr, see: &mut dyn FnMut(&mut Array)) {
    match &mut e.kind {
        Kind::Float(_) | Kind::Int(_) | Kind::Var(_) => {}
        Kind::Load(array, at) => {
            see(array);
            at.iter_mut().for_each(|e| within(e, see));
        }
        Kind::Call(_, args) | Kind::Function(_, args) | Kind::Make(args) => {
            args.iter_mut().for_each(|e| within(e, see))
        }
        Kind::Unary(_, a) | Kind::Cast(a) | Kind::Part(a, _) => within(a, see),
        Kind::Binary(_, both) => both.iter_mut().for_each(|e| within(e, see)),
        Kind::Where(three) => three.iter_mut().for_each(|e| within(e, see)),
    }
}
