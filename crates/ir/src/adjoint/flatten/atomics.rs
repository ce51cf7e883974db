//! Check that the results of atomic operations are not used.

use super::Flattener;
use crate::adjoint::AdjointError;
use crate::{Code, Expr, ExprId, Stmt};

impl<'k> Flattener<'k> {
    /// Refuses atomics whose result is used.
    pub(super) fn check_atomics(&mut self, code: &'k Code) -> Result<(), AdjointError> {
        let mut used = vec![false; code.exprs.len()];
        let mut mark = |ids: &[ExprId]| ids.iter().for_each(|id| used[id.0 as usize] = true);
        for expr in &code.exprs {
            match expr {
                Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) | Expr::Read(_) => {}
                Expr::Op(_, args) => mark(args),
                Expr::Algebra { args, .. } | Expr::Call(_, args) => mark(args),
                Expr::Cast(_, from) | Expr::Bitcast(_, from) => mark(&[*from]),
                Expr::Load { indices, .. } => mark(indices),
                Expr::Atomic { indices, value, .. } => {
                    mark(indices);
                    mark(&[*value]);
                }
                Expr::CompareExchange { indices, expected, value, .. } => {
                    mark(indices);
                    mark(&[*expected, *value]);
                }
                Expr::Shuffle { value, lane, mask, .. } => {
                    mark(&[*value, *lane]);
                    mark(mask.as_slice());
                }
                Expr::Vote { value, mask, .. } => {
                    mark(&[*value]);
                    mark(mask.as_slice());
                }
            }
        }
        fn visit<'k>(block: &'k [Stmt], f: &mut dyn FnMut(&'k Stmt)) {
            for stmt in block {
                f(stmt);
                stmt.blocks().into_iter().for_each(|inner| visit(inner, f));
            }
        }
        visit(&code.body, &mut |stmt| match stmt {
            Stmt::Assign(_, value) | Stmt::Return(Some(value)) => mark(&[*value]),
            Stmt::Store { indices, value, .. } => {
                mark(indices);
                mark(&[*value]);
            }
            Stmt::For { end, .. } => mark(&[*end]),
            Stmt::If { condition, .. } => mark(&[*condition]),
            Stmt::Print { args, .. } => mark(args),
            _ => {}
        });
        let mut found = None;
        visit(&code.body, &mut |stmt| {
            if let Stmt::Let(id) = stmt
                && let Expr::Atomic { view, .. } = code.expr(*id)
                && used[id.0 as usize]
            {
                found.get_or_insert((stmt, *view));
            }
        });
        let Some((stmt, view)) = found else { return Ok(()) };
        self.site = Some(stmt);
        let what = format!("an atomic operation on '{}' whose result is used", self.kernel.view(view).name);
        self.refuse(what, "the result depends on the order of threads; compute it without the old value")
    }
}
