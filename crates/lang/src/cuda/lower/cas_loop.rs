//! Compare-and-swap loops, as in CUDA's programming guide:
//!
//! ```text
//! unsigned old = *address, assumed;
//! do {
//!     assumed = old;
//!     old = atomicCAS(address, assumed, f(assumed));
//! } while (assumed != old);
//! ```
//!
//! A stale initial read only makes the exchange fail, and the loop continues with the right value.
//! By CUDA's memory model that read still races with the atomics of other threads and would be
//! reported. In exactly this form it is lowered to an atomic read, an exchange of 0 for 0; any
//! other plain read that is concurrent with atomics remains one.

use bornite_ir::{Args, Scalar, Type, Value};

use super::lvalue::{CudaOperand, Lvalue, LvalueRoot, Projection};
use super::{CodeKind, LowerResult, Lowering, scan};
use crate::SourceSpan;
use crate::cuda::CudaModule;
use crate::cuda::ast::{Binary, Expr, ExprKind, Stmt, StmtKind, Unary};
use crate::cuda::lex::Symbol;
use crate::lower::Tree;

/// Returns the span of the initial read if two statements form such a loop.
pub fn initial_read(module: &CudaModule, first: &Stmt, second: Option<&Stmt>) -> Option<SourceSpan> {
    let (StmtKind::Declare(_, declared), StmtKind::Do(body, condition)) = (&first.kind, &second?.kind) else {
        return None;
    };
    let StmtKind::Block(body) = &body.kind else { return None };
    let [copy, exchange] = &body[..] else { return None };
    let (assumed, copied) = assignment(copy)?;
    let (old, value) = assignment(exchange)?;
    let ends = matches!(&condition.kind, ExprKind::Binary(Binary::Ne, a, b)
        if matches!((name(a), name(b)), (Some(a), Some(b)) if (a, b) == (assumed, old) || (a, b) == (old, assumed)));
    if !ends || name(copied) != Some(old) {
        return None;
    }
    let target = exchanged(module, value)?;
    // The new value must depend on the initial read through `assumed` only.
    if scan::mentions(value, old) {
        return None;
    }
    let init = declared.iter().find(|d| d.name == old && d.sizes.is_empty())?.init.as_ref()?;
    let same = match &init.kind {
        ExprKind::Unary(Unary::Deref, pointer) => alike(pointer, target),
        _ => matches!(&target.kind, ExprKind::Unary(Unary::Address, lvalue) if alike(lvalue, init)),
    };
    same.then_some(init.span)
}

fn name(expr: &Expr) -> Option<Symbol> {
    if let ExprKind::Name(name) = expr.kind { Some(name) } else { None }
}

fn assignment(stmt: &Stmt) -> Option<(Symbol, &Expr)> {
    let StmtKind::Expr(Expr { kind: ExprKind::Assign(None, lvalue, value), .. }) = &stmt.kind else { return None };
    Some((name(lvalue)?, value))
}

/// Returns the pointer argument of an `atomicCAS`, whose result may be reinterpreted as another
/// type.
fn exchanged<'e>(module: &CudaModule, value: &'e Expr) -> Option<&'e Expr> {
    match &value.kind {
        ExprKind::Cast(_, inner) => exchanged(module, inner),
        ExprKind::Call { callee, args, .. } => match (module.names.text(*callee), &args[..]) {
            ("atomicCAS", [pointer, _, _]) => Some(pointer),
            (other, [inner]) if super::cuda_functions::bit_cast_function(other).is_some() => exchanged(module, inner),
            _ => None,
        },
        _ => None,
    }
}

/// Returns true if two expressions without side effects are written alike, ignoring pointer casts.
fn alike(a: &Expr, b: &Expr) -> bool {
    match (&a.kind, &b.kind) {
        (ExprKind::Cast(ty, inner), _) if ty.pointers > 0 => alike(inner, b),
        (_, ExprKind::Cast(ty, inner)) if ty.pointers > 0 => alike(a, inner),
        (ExprKind::Name(a), ExprKind::Name(b)) => a == b,
        (ExprKind::Number { value: a, .. }, ExprKind::Number { value: b, .. }) => a == b,
        (ExprKind::Index(a, i), ExprKind::Index(b, j)) => alike(a, b) && alike(i, j),
        (ExprKind::Member(a, i), ExprKind::Member(b, j)) => i == j && alike(a, b),
        (ExprKind::Binary(o, a, b), ExprKind::Binary(p, c, d)) => o == p && alike(a, c) && alike(b, d),
        (ExprKind::Unary(o, a), ExprKind::Unary(p, b)) => o == p && alike(a, b),
        _ => false,
    }
}

impl<'m> Lowering<'m> {
    /// Lowers the initial read, as an atomic one where possible.
    pub(super) fn atomic_initial_read(&mut self, init: &'m Expr, ty: Type) -> LowerResult<Tree> {
        self.cas_initial_read = None;
        let operand = self.operand(init)?;
        let tree = match &operand {
            CudaOperand::Lvalue(Lvalue {
                root: LvalueRoot::Element { view, at, width: 1, element, choice: None, .. },
                path,
                ..
            }) if self.code == CodeKind::Kernel
                && matches!(path[..], [] | [Projection::Reinterpret(Type::Scalar(_))])
                && element.as_scalar().is_some_and(|scalar| scalar != Scalar::Bool && scalar.bytes() >= 4)
                && self.read_only.iter().all(|(found, _)| found != view) =>
            {
                let scalar = element.as_scalar().unwrap_or(Scalar::I32);
                let (Some(at), zero) = (Args::new(at), self.w.constant(Value::int(scalar, 0))) else {
                    return self.initializer(init, ty);
                };
                self.set_source_line(init.span);
                let id = self.w.b.compare_exchange(*view, at, zero, zero);
                let old = Tree::emitted(id, scalar);
                match path[..] {
                    [Projection::Reinterpret(Type::Scalar(cast_type))] => old.reinterpret(cast_type),
                    _ => old,
                }
            }
            _ => self.value_of(operand, init.span)?,
        };
        self.convert(tree, ty, init.span)
    }
}
