//! What our printer writes around the code of a `ParallelFor`: a loop over instances, or a test of one.

use bornite_ir::Extent;

use super::{LowerResult, Lowering};
use crate::ParamRef;
use crate::cuda::CudaModule;
use crate::cuda::ast::{Binary, Expr, ExprKind, Stmt, StmtKind};
use crate::cuda::lex::Symbol;

/// Instances of a printed kernel.
pub struct Instances<'m> {
    /// How many they are.
    pub count: &'m Expr,
    /// The name of an instance's number.
    pub index: Symbol,
    /// What an instance does; the first statement declares `index`.
    pub body: &'m [Stmt],
}

/// The instances of a kernel's body, if it is one over instances.
pub fn instances<'m>(m: &'m CudaModule, body: &'m [Stmt]) -> Option<Instances<'m>> {
    let declares = |stmt: &Stmt, name: &str| match &stmt.kind {
        StmtKind::Declare(_, all) => {
            all.first().filter(|found| m.names.text(found.name) == name).map(|found| found.name)
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
    /// How many instances a printed kernel has.
    pub(super) fn instance_count(&mut self, count: &'m Expr) -> LowerResult<Extent> {
        match &count.kind {
            ExprKind::Number { value, .. } => Ok(Extent::Const(value.as_i64())),
            ExprKind::Cast(_, inner) if let ExprKind::Name(name) = inner.kind => {
                let text = self.text(name);
                let given = self.params.iter().find(|(found, _)| found == text).map(|(_, given)| *given);
                match given {
                    Some(ParamRef::Value(n)) => Ok(Extent::Value(n)),
                    _ => self.fail(count.span, "the number of instances must be a parameter", "", ""),
                }
            }
            _ => self.fail(count.span, "unsupported expression for the number of instances", "", ""),
        }
    }
}
