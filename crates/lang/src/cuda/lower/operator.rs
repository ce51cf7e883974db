//! Overloaded operators: free functions and member functions named `operator+` and similar.

use bornite_ir::Type;

use super::call::{CallTarget, takes_count};
use super::lvalue::{CudaOperand, Lvalue};
use super::method::ThisObject;
use super::overload::value_type;
use super::{LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::Expr;

/// Result of an overloaded operator, or the operands if none applies.
pub(super) type Overloaded = Result<CudaOperand, Vec<CudaOperand>>;

impl<'m> Lowering<'m> {
    /// Returns true if the file overloads an operator.
    pub(super) fn overloads(&self, token: &str) -> bool {
        let file = &self.module.file;
        self.module.names.find(&format!("operator{token}")).is_some_and(|name| {
            file.functions.iter().any(|function| function.name == name)
                || file.unsupported_functions.iter().any(|function| function.name == Some(name))
        })
    }

    /// Calls the overloaded operator for these operands, if there is one.
    pub(super) fn overloaded(
        &mut self,
        token: &str,
        operands: Vec<CudaOperand>,
        exprs: &[&'m Expr],
        span: SourceSpan,
    ) -> LowerResult<Overloaded> {
        let is_class = |operand: &CudaOperand| value_type(operand).is_some_and(Lowering::is_class);
        if !operands.iter().any(is_class) || !self.overloads(token) {
            return Ok(Err(operands));
        }
        let Some(name) = self.module.names.find(&format!("operator{token}")) else { return Ok(Err(operands)) };
        self.report_unsupported(Some(name))?;
        let functions = &self.module.file.functions;
        let (first, rest) = operands.split_at(1);
        if let Some(ty @ Type::Struct(_)) = value_type(&first[0])
            && let Some((item, outer)) = self.struct_of(ty)
        {
            let file = &self.module.file;
            let unsupported = |one: &&crate::cuda::ast::UnsupportedFunction| {
                one.method_of == Some(item.name) && one.name == Some(name)
            };
            if let Some(unsupported) = file.unsupported_functions.iter().find(unsupported) {
                self.errors.extend(unsupported.errors.iter().take(3).cloned());
                return Err(LowerFailed);
            }
            let object = match &first[0] {
                CudaOperand::Lvalue(lvalue) => lvalue.clone(),
                CudaOperand::Tree(tree) => Lvalue::of_value(self.materialize(tree.clone())),
                _ => return Ok(Err(operands)),
            };
            let candidates: Vec<usize> = self
                .methods_for(item.name, name, rest.len(), object.constant)
                .into_iter()
                .filter(|n| self.conversion_ranks(*n, &outer, &[], rest, span).is_some())
                .collect();
            if !candidates.is_empty() {
                let mut passed = vec![];
                for (n, operand) in operands.into_iter().skip(1).enumerate() {
                    passed.push(self.by_value_unless_reference(&candidates, n, operand, span)?);
                }
                let this = Some(ThisObject { ty, object: Some(object) });
                let target = CallTarget { candidates, name, templates: &[], outer, this, is_builtin_too: false };
                let exprs = exprs[1..].iter().map(|expr| Some(*expr)).collect();
                return self.call_target(target, passed, exprs, span)?.map(Ok).ok_or(LowerFailed);
            }
        }
        let is_instance = self.scope[self.base..].iter().any(|(_, binding)| matches!(binding, super::Binding::Type(_)));
        let mut candidates: Vec<usize> = (0..functions.len())
            .filter(|n| {
                let function = &functions[*n];
                let is_named = function.name == name && function.method.is_none();
                is_named && takes_count(function, operands.len()) && (is_instance || self.is_declared(*n))
            })
            .collect();
        candidates.retain(|n| self.conversion_ranks(*n, &[], &[], &operands, span).is_some());
        if candidates.is_empty() {
            return Ok(Err(operands));
        }
        let candidates = self.one_namespace(candidates, &operands, name, span, |_, _| true)?;
        let mut passed = vec![];
        for (n, operand) in operands.into_iter().enumerate() {
            passed.push(self.by_value_unless_reference(&candidates, n, operand, span)?);
        }
        let target = CallTarget { candidates, name, templates: &[], outer: vec![], this: None, is_builtin_too: false };
        let exprs = exprs.iter().map(|expr| Some(*expr)).collect();
        self.call_target(target, passed, exprs, span)?.map(Ok).ok_or(LowerFailed)
    }
}
