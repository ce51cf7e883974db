//! Removal of code without effect from an adjoint kernel, and of parameters that it does not use.

use std::collections::{BTreeMap, BTreeSet};

use super::{AdjointArray, AdjointRole};
use crate::{Access, Args, Code, Expr, ExprId, Kernel, LocalArrayId, LocalId, ParamId, Stmt, View};

pub(super) fn clean(mut kernel: Kernel, roles: Vec<AdjointArray>) -> (Kernel, Vec<AdjointArray>) {
    let is_scratch = |view: View| match view {
        View::Param(ParamId(n)) => roles.get(n as usize).is_some_and(|array| array.role == AdjointRole::Original),
        View::Local(_) => true,
        View::Shared(_) => false,
    };
    let mut body = std::mem::take(&mut kernel.code.body);
    loop {
        let used = Used::of(&kernel.code, &body);
        let mut changed = false;
        body = sweep(&kernel.code, body, &used, &mut BTreeSet::new(), &is_scratch, &mut changed);
        if !changed {
            break;
        }
    }
    let used = Used::of(&kernel.code, &body);
    kernel.code.body = body;
    compact(kernel, roles, &used)
}

/// Expressions, variables and arrays that statements use.
#[derive(Default)]
struct Used {
    /// Operands, and expressions that a `Let` evaluates.
    exprs: BTreeSet<ExprId>,
    evaluated: BTreeSet<ExprId>,
    reads: BTreeMap<LocalId, usize>,
    assigned: BTreeSet<LocalId>,
    loaded: BTreeSet<ViewKey>,
    stored: BTreeSet<ViewKey>,
    declared: BTreeSet<LocalArrayId>,
    has_effects: bool,
}

type ViewKey = (u8, u32);

fn key(view: View) -> ViewKey {
    match view {
        View::Param(id) => (0, id.0),
        View::Shared(id) => (1, id.0),
        View::Local(id) => (2, id.0),
    }
}

fn operands(expr: &Expr) -> Vec<ExprId> {
    match expr {
        Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) | Expr::Read(_) => vec![],
        Expr::Op(_, args) => args.to_vec(),
        Expr::Algebra { args, .. } | Expr::Call(_, args) => args.to_vec(),
        Expr::Cast(_, from) | Expr::Bitcast(_, from) => vec![*from],
        Expr::Load { indices, .. } => indices.to_vec(),
        Expr::Atomic { indices, value, .. } => [&indices[..], &[*value]].concat(),
        Expr::CompareExchange { indices, expected, value, .. } => [&indices[..], &[*expected, *value]].concat(),
        Expr::Shuffle { value, lane, mask, .. } => [&[*value, *lane], mask.as_slice()].concat(),
        Expr::Vote { value, mask, .. } => [&[*value], mask.as_slice()].concat(),
    }
}

impl Used {
    fn of(code: &Code, block: &[Stmt]) -> Used {
        let mut used = Used::default();
        used.block(code, block);
        used
    }

    fn block(&mut self, code: &Code, block: &[Stmt]) {
        for stmt in block {
            match stmt {
                Stmt::Let(id) => {
                    self.evaluated.insert(*id);
                    match code.expr(*id) {
                        Expr::Read(local) => *self.reads.entry(*local).or_default() += 1,
                        Expr::Load { view, .. } => _ = self.loaded.insert(key(*view)),
                        Expr::Atomic { view, .. } => {
                            self.stored.insert(key(*view));
                            self.loaded.insert(key(*view));
                            self.has_effects = true;
                        }
                        _ => {}
                    }
                    self.exprs.extend(operands(code.expr(*id)));
                }
                Stmt::Assign(local, value) => {
                    self.assigned.insert(*local);
                    self.exprs.insert(*value);
                }
                Stmt::Store { view, indices, value } => {
                    self.stored.insert(key(*view));
                    self.exprs.extend(indices.iter().chain([value]));
                    self.has_effects = true;
                }
                Stmt::For { counter, end, .. } => {
                    self.assigned.insert(*counter);
                    self.exprs.insert(*end);
                }
                Stmt::If { condition, .. } => _ = self.exprs.insert(*condition),
                Stmt::Check(crate::Check::Assert { condition, .. }) => {
                    self.exprs.insert(*condition);
                    self.has_effects = true;
                }
                Stmt::Declare(array) => _ = self.declared.insert(*array),
                Stmt::Return(_) => self.has_effects = true,
                _ => {}
            }
            stmt.blocks().into_iter().for_each(|inner| self.block(code, inner));
        }
    }
}

/// Statements of a block without those whose results are not used. `live` holds the expressions
/// that later statements use.
fn sweep(
    code: &Code,
    block: Vec<Stmt>,
    used: &Used,
    live: &mut BTreeSet<ExprId>,
    is_scratch: &dyn Fn(View) -> bool,
    changed: &mut bool,
) -> Vec<Stmt> {
    let mut out = vec![];
    for stmt in block.into_iter().rev() {
        let dead = match &stmt {
            Stmt::Let(id) => !live.contains(id) && !matches!(code.expr(*id), Expr::Atomic { .. }),
            Stmt::Assign(local, _) => !used.reads.contains_key(local),
            Stmt::Store { view, .. } => is_scratch(*view) && !used.loaded.contains(&key(*view)),
            Stmt::Declare(array) => !used.loaded.contains(&(2, array.0)),
            Stmt::If { then, otherwise, .. } => then.is_empty() && otherwise.is_empty(),
            Stmt::For { .. } | Stmt::Loop { .. } => {
                let own = Used::of(code, std::slice::from_ref(&stmt));
                !own.has_effects && own.assigned.iter().all(|local| own.reads.get(local) == used.reads.get(local))
            }
            _ => false,
        };
        if dead {
            *changed = true;
            continue;
        }
        let stmt = match stmt {
            Stmt::If { condition, then, otherwise } => {
                let then = sweep(code, then, used, live, is_scratch, changed);
                let otherwise = sweep(code, otherwise, used, live, is_scratch, changed);
                Stmt::If { condition, then, otherwise }
            }
            Stmt::For { counter, end, body } => {
                Stmt::For { counter, end, body: sweep(code, body, used, live, is_scratch, changed) }
            }
            Stmt::Loop { body } => Stmt::Loop { body: sweep(code, body, used, live, is_scratch, changed) },
            other => other,
        };
        match &stmt {
            Stmt::Let(id) => live.extend(operands(code.expr(*id))),
            Stmt::Assign(_, value) | Stmt::Return(Some(value)) => _ = live.insert(*value),
            Stmt::Store { indices, value, .. } => live.extend(indices.iter().chain([value])),
            Stmt::For { end, .. } => _ = live.insert(*end),
            Stmt::If { condition, .. } => _ = live.insert(*condition),
            Stmt::Check(crate::Check::Assert { condition, .. }) => _ = live.insert(*condition),
            _ => {}
        }
        out.push(stmt);
    }
    out.reverse();
    out
}

/// New numbers of what remains.
struct Renumbering {
    exprs: BTreeMap<ExprId, ExprId>,
    locals: BTreeMap<LocalId, LocalId>,
    views: BTreeMap<ViewKey, u32>,
}

fn compact(mut kernel: Kernel, roles: Vec<AdjointArray>, used: &Used) -> (Kernel, Vec<AdjointArray>) {
    let mut new = Renumbering { exprs: BTreeMap::new(), locals: BTreeMap::new(), views: BTreeMap::new() };
    let accessed =
        |kind: u8, n: usize| used.loaded.contains(&(kind, n as u32)) || used.stored.contains(&(kind, n as u32));
    let (mut params, mut arrays) = (vec![], vec![]);
    for (n, (mut param, array)) in std::mem::take(&mut kernel.params).into_iter().zip(roles).enumerate() {
        if !accessed(0, n) && !matches!(array.role, AdjointRole::Gradient { .. }) {
            continue;
        }
        if param.access == Access::ReadWrite
            && array.role == AdjointRole::Original
            && !used.stored.contains(&(0, n as u32))
        {
            param.access = Access::Read;
        }
        new.views.insert((0, n as u32), params.len() as u32);
        params.push(param);
        arrays.push(array);
    }
    kernel.params = params;
    let mut local_arrays = vec![];
    for (n, array) in std::mem::take(&mut kernel.local_arrays).into_iter().enumerate() {
        if accessed(2, n) || used.declared.contains(&LocalArrayId(n as u32)) {
            new.views.insert((2, n as u32), local_arrays.len() as u32);
            local_arrays.push(array);
        }
    }
    kernel.local_arrays = local_arrays;

    let mut code = std::mem::take(&mut kernel.code);
    let mut locals = vec![];
    for (n, local) in std::mem::take(&mut code.locals).into_iter().enumerate() {
        let id = LocalId(n as u32);
        if used.reads.contains_key(&id) || used.assigned.contains(&id) {
            new.locals.insert(id, LocalId(locals.len() as u32));
            locals.push(local);
        }
    }
    code.locals = locals;
    let (exprs, types) = (std::mem::take(&mut code.exprs), std::mem::take(&mut code.types));
    for (n, (expr, ty)) in exprs.into_iter().zip(types).enumerate() {
        let id = ExprId(n as u32);
        if used.evaluated.contains(&id) || expr.is_leaf() && used.exprs.contains(&id) {
            new.exprs.insert(id, ExprId(code.exprs.len() as u32));
            code.exprs.push(expr);
            code.types.push(ty);
        }
    }
    code.exprs.iter_mut().for_each(|expr| new.expr(expr));
    new.block(&mut code.body);
    kernel.code = code;
    (kernel, arrays)
}

impl Renumbering {
    fn id(&self, id: &mut ExprId) {
        *id = self.exprs.get(id).copied().unwrap_or(*id);
    }

    fn args(&self, args: &mut Args) {
        let mut ids = args.to_vec();
        ids.iter_mut().for_each(|id| self.id(id));
        *args = Args::new(&ids).unwrap_or(*args);
    }

    fn local(&self, local: &mut LocalId) {
        *local = self.locals.get(local).copied().unwrap_or(*local);
    }

    fn view(&self, view: &mut View) {
        let Some(n) = self.views.get(&key(*view)) else { return };
        match view {
            View::Param(id) => id.0 = *n,
            View::Shared(id) => id.0 = *n,
            View::Local(id) => id.0 = *n,
        }
    }

    fn expr(&self, expr: &mut Expr) {
        match expr {
            Expr::Read(local) => self.local(local),
            Expr::Op(_, args) => self.args(args),
            Expr::Algebra { args, .. } | Expr::Call(_, args) => args.iter_mut().for_each(|id| self.id(id)),
            Expr::Cast(_, from) | Expr::Bitcast(_, from) => self.id(from),
            Expr::Load { view, indices, .. } => {
                self.view(view);
                self.args(indices);
            }
            Expr::Atomic { view, indices, value, .. } => {
                self.view(view);
                self.args(indices);
                self.id(value);
            }
            // Not part of adjoint kernels.
            Expr::CompareExchange { .. } | Expr::Shuffle { .. } | Expr::Vote { .. } => {}
            Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) => {}
        }
    }

    fn block(&self, block: &mut [Stmt]) {
        for stmt in block {
            match stmt {
                Stmt::Let(id) => self.id(id),
                Stmt::Assign(local, value) => {
                    self.local(local);
                    self.id(value);
                }
                Stmt::Store { view, indices, value } => {
                    self.view(view);
                    self.args(indices);
                    self.id(value);
                }
                Stmt::Declare(array) => {
                    array.0 = self.views.get(&(2, array.0)).copied().unwrap_or(array.0);
                }
                Stmt::For { counter, end, body } => {
                    self.local(counter);
                    self.id(end);
                    self.block(body);
                }
                Stmt::If { condition, then, otherwise } => {
                    self.id(condition);
                    self.block(then);
                    self.block(otherwise);
                }
                Stmt::Loop { body } => self.block(body),
                Stmt::Return(Some(value)) => self.id(value),
                Stmt::Check(crate::Check::Assert { condition, .. }) => self.id(condition),
                _ => {}
            }
        }
    }
}
