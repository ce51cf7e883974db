//! Recognizes the code that the CUDA printer writes around a `ParallelFor`: a grid-stride loop over
//! instances, or a bounds check.

use bornite_ir::Extent;

use super::{LowerResult, Lowering};
use crate::ParamRef;
use crate::cuda::CudaModule;
use crate::cuda::ast::{Binary, Expr, ExprKind, Stmt, StmtKind};
use crate::cuda::lex::Symbol;

/// Instances of a printed `ParallelFor` kernel.
pub struct Instances<'m> {
    /// Number of instances.
    pub count: &'m Expr,
    /// Name of the instance index.
    pub index: Symbol,
    /// Code of an instance; its first statement declares `index`.
    pub body: &'m [Stmt],
}

/// Returns the instances if the body of a kernel has that form.
pub fn instances<'m>(module: &'m CudaModule, body: &'m [Stmt]) -> Option<Instances<'m>> {
    let declares = |stmt: &Stmt, name: &str| match &stmt.kind {
        StmtKind::Declare(_, all) => {
            all.first().filter(|found| module.names.text(found.name) == name).map(|found| found.name)
        }
        _ => None,
    };
    let (condition, inside) = match body {
        [Stmt { kind: StmtKind::For { init, condition: Some(condition), body, .. }, .. }] => {
            declares(init, "i_")?;
            (condition, body)
        }
        [first, Stmt { kind: StmtKind::If(condition, then, None), .. }] => {
            declares(first, "i_")?;
            (condition, then)
        }
        _ => return None,
    };
    let (ExprKind::Binary(Binary::Lt, _, count), StmtKind::Block(body)) = (&condition.kind, &inside.kind) else {
        return None;
    };
    let index = declares(body.first()?, "index")?;
    Some(Instances { count, index, body })
}

impl<'m> Lowering<'m> {
    /// Number of instances of a printed kernel.
    pub(super) fn instance_count(&mut self, count: &'m Expr) -> LowerResult<Extent> {
        match &count.kind {
            ExprKind::Number { value, .. } => Ok(Extent::Const(value.as_i64())),
            ExprKind::Cast(_, inner) if let ExprKind::Name(name) = inner.kind => {
                let text = self.text(name);
                let param = self.params.iter().find(|(found, _)| found == text).map(|(_, param)| *param);
                match param {
                    Some(ParamRef::Value(n)) => Ok(Extent::Value(n)),
                    _ => self.fail(count.span, "the number of instances must be a parameter", "", ""),
                }
            }
            _ => self.fail(count.span, "unsupported expression for the number of instances", "", ""),
        }
    }
}
