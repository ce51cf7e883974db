//! Overload resolution by the C++ rules: exact matches are better than promotions, promotions
//! better than conversions; a call without a best candidate is ambiguous.

use bornite_ir::{Scalar, Type};

use super::cuda_functions::{MathType, is_math, op_table};
use super::lvalue::CudaOperand;
use super::{BoundArg, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Base, Declarator, Function, TemplateArg};
use crate::cuda::lex::Symbol;
use crate::cuda::types::{CType, promoted};

/// Rank of an argument conversion, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConversionRank {
    Exact,
    /// Exact apart from added `const`.
    Qualified,
    Promoted,
    Converted,
    /// A conversion through a class, as CUDA implements 16-bit floats.
    ByClass,
    ByClassPromoted,
}

struct Candidate {
    function: usize,
    ranks: Vec<ConversionRank>,
}

/// Returns true if CUDA provides a function of that name, which functions of the file then
/// overload.
pub(super) fn is_cuda_function(name: &str) -> bool {
    is_math(name)
        || name.starts_with("atomic")
        || name.starts_with("__shfl")
        || name.starts_with("__ld")
        || matches!(
            name,
            "sincos" | "sincosf" | "__sincosf" | "sincospif" | "__any_sync" | "__all_sync" | "__ballot_sync"
        )
}

/// Returns true if CUDA's function of that name is overloaded for all number types.
fn takes_any_scalar(name: &str) -> bool {
    matches!(name, "min" | "max" | "abs") || op_table().get(name).is_some_and(|(_, on)| *on == MathType::Overloaded)
}

impl<'m> Lowering<'m> {
    /// Selects a function; `None` if CUDA's own is the best match.
    pub(super) fn overload(
        &mut self,
        all: &[usize],
        outer: &[BoundArg],
        explicit_args: &'m [TemplateArg],
        operands: &[CudaOperand],
        callee: Symbol,
        span: SourceSpan,
    ) -> LowerResult<Option<usize>> {
        let name = self.text(callee);
        let mut viable = vec![];
        for &function in all {
            if let Some(ranks) = self.conversion_ranks(function, outer, explicit_args, operands, span) {
                viable.push(Candidate { function, ranks });
            }
        }
        let best = viable.iter().find(|one| viable.iter().all(|other| self.is_better(one, other)));
        match best {
            Some(best) => Ok(Some(best.function)
                .filter(|_| !explicit_args.is_empty() || !self.prefers_builtin(name, best, operands))),
            None if viable.is_empty() && is_cuda_function(name) => Ok(None),
            None if viable.is_empty() => {
                let hint = format!("candidates: {}", self.listed(all.iter().copied(), span));
                self.fail(span, format!("no matching function for call to '{name}'"), "no matching function", hint)
            }
            None => {
                let listed = self.listed(viable.iter().map(|one| one.function), span);
                let hint = format!("cast an argument; candidates: {listed}");
                self.fail(span, format!("call to '{name}' is ambiguous"), "several candidates match equally well", hint)
            }
        }
    }

    /// Signatures of functions, for hints.
    fn listed(&self, all: impl Iterator<Item = usize>, span: SourceSpan) -> String {
        let text = |param: &Declarator| self.module.source.text_of(param.ty.span).to_owned();
        let one = |n: usize| {
            let function = &self.module.file.functions[n];
            let params: Vec<String> = function.params.iter().map(text).collect();
            let line = self.module.source.line_in_words(function.span.start, span.start);
            format!("'{}({})' in {line}", self.text(function.name), params.join(", "))
        };
        all.map(one).collect::<Vec<_>>().join(", ")
    }

    /// Conversion rank of each argument; `None` if the function is not viable.
    pub(super) fn conversion_ranks(
        &mut self,
        n: usize,
        outer: &[BoundArg],
        explicit_args: &'m [TemplateArg],
        operands: &[CudaOperand],
        span: SourceSpan,
    ) -> Option<Vec<ConversionRank>> {
        let function = &self.module.file.functions[n];
        let explicit_args = if function.specialization.is_some() { &[] } else { explicit_args };
        let bound = self.attempt(|lower| lower.template_arguments(function, outer, explicit_args, operands, span))?;
        let deducible = || {
            function
                .templates
                .iter()
                .zip(&bound)
                .skip(outer.len() + explicit_args.len())
                .filter(|(param, _)| param.is_type())
        };
        for (param, operand) in function.params.iter().zip(operands) {
            let agrees = |found: Option<BoundArg>, bound: &BoundArg| found.is_none_or(|found| found == *bound);
            if !deducible().all(|(template, bound)| agrees(self.deduce(template, param, operand), bound)) {
                return None;
            }
        }
        let (types, _) = self.attempt(|lower| {
            lower.in_file_scope(&function.templates, &bound, |lower| lower.declared_types(function))
        })?;
        let all = function.params.iter().zip(types).zip(operands);
        let is_generic = |param: &Declarator| function.templates.iter().any(|t| param.ty.base == Base::Named(t.name));
        all.map(|((param, ty), operand)| conversion_rank(param, ty, operand, is_generic(param))).collect()
    }

    /// Returns true if `a` is `b`, or a better match than it.
    fn is_better(&self, a: &Candidate, b: &Candidate) -> bool {
        if a.function == b.function {
            return true;
        }
        if a.ranks.iter().zip(&b.ranks).any(|(a, b)| a > b) {
            return false;
        }
        let (first, second) = (&self.module.file.functions[a.function], &self.module.file.functions[b.function]);
        a.ranks != b.ranks
            || match (first.templates.is_empty(), second.templates.is_empty()) {
                (true, false) => true,
                (false, false) => is_more_specialized(first, second),
                _ => false,
            }
    }

    /// Returns true if CUDA's function is a better match than the best one of the file.
    fn prefers_builtin(&self, name: &str, best: &Candidate, operands: &[CudaOperand]) -> bool {
        let function = &self.module.file.functions[best.function];
        if !takes_any_scalar(name) || function.in_namespace {
            return false;
        }
        let scalars: Option<Vec<Scalar>> = operands.iter().map(|operand| value_type(operand)?.as_scalar()).collect();
        let Some(scalars) = scalars else { return false };
        let ranks = scalars.iter().map(|scalar| match scalar {
            Scalar::F16 | Scalar::BF16 => ConversionRank::ByClass,
            scalar if promoted(*scalar) != *scalar => ConversionRank::Promoted,
            _ => ConversionRank::Exact,
        });
        let ranks: Vec<ConversionRank> = ranks.collect();
        let worse = ranks.iter().zip(&best.ranks).any(|(theirs, own)| theirs > own);
        !worse && (ranks != best.ranks || !function.templates.is_empty())
    }
}

pub(super) fn value_type(operand: &CudaOperand) -> Option<Type> {
    match operand {
        CudaOperand::Tree(tree) => Some(tree.ty),
        CudaOperand::Lvalue(lvalue) => Some(lvalue.ty),
        _ => None,
    }
}

/// Rank of the conversion of an argument; `is_generic` if the parameter's type is a template
/// parameter.
fn conversion_rank(param: &Declarator, to: CType, operand: &CudaOperand, is_generic: bool) -> Option<ConversionRank> {
    let constant = param.ty.constant;
    let to = match to {
        CType::Void | CType::Collective(_) | CType::TempStorage(_) => return None,
        CType::Group(group) => {
            return matches!(operand, CudaOperand::Group(found) if found.is_same_type(group))
                .then_some(ConversionRank::Exact);
        }
        CType::Value(to) => {
            let from = value_type(operand)?;
            return match (param.ty.reference, operand) {
                // A template parameter may be deduced as const.
                (true, CudaOperand::Lvalue(lvalue)) if !constant => {
                    let drops = lvalue.constant && !is_generic;
                    (from == to && !drops).then_some(ConversionRank::Exact)
                }
                (true, _) if !constant => None,
                (true, CudaOperand::Lvalue(_)) => {
                    value_conversion_rank(from, to).map(|rank| rank.max(ConversionRank::Qualified))
                }
                _ => value_conversion_rank(from, to),
            };
        }
        CType::Pointer(to) => to,
    };
    let (from, read_only) = match operand {
        CudaOperand::Pointer(pointer) => (pointer.pointee_type(), pointer.constant),
        CudaOperand::Address(lvalue) => (lvalue.ty, lvalue.constant),
        CudaOperand::RegisterArray(array, _) => (array.lvalue.ty.element()?.into(), array.lvalue.constant),
        CudaOperand::ConstArray(table, _) => (table.values.first()?.scalar().into(), true),
        CudaOperand::Null(_) => return Some(ConversionRank::Converted),
        _ => return None,
    };
    // A parameter whose type is a deduced pointer is const if the argument is.
    let is_deduced_pointer = param.ty.pointers == 0 && param.sizes.is_empty();
    match (read_only, constant) {
        _ if from != to => None,
        _ if is_deduced_pointer => Some(ConversionRank::Exact),
        (true, false) => None,
        (false, true) => Some(ConversionRank::Qualified),
        _ => Some(ConversionRank::Exact),
    }
}

/// Rank of the conversion from one value type to another.
fn value_conversion_rank(from: Type, to: Type) -> Option<ConversionRank> {
    if from == to {
        return Some(ConversionRank::Exact);
    }
    let (from, to) = (from.as_scalar()?, to.as_scalar()?);
    let is_class = |scalar| matches!(scalar, Scalar::F16 | Scalar::BF16);
    Some(match (from, to) {
        // A 16-bit float is converted to `float` first.
        (from, Scalar::F64) if is_class(from) => ConversionRank::ByClassPromoted,
        (from, to) if is_class(from) || is_class(to) => ConversionRank::ByClass,
        (Scalar::F32, Scalar::F64) => ConversionRank::Promoted,
        (from, to) if promoted(from) == to => ConversionRank::Promoted,
        _ => ConversionRank::Converted,
    })
}

/// Returns true if template `a` is more specialized than `b`, as `f(T*)` is than `f(T)`.
fn is_more_specialized(a: &Function, b: &Function) -> bool {
    let specificity = |function: &Function, param: &Declarator| {
        let generic = function.templates.iter().any(|template| param.ty.base == Base::Named(template.name));
        let pointers = param.ty.pointers + !param.sizes.is_empty() as u8;
        let base = match &param.ty.base {
            _ if generic => 0,
            Base::Template(..) => 1,
            _ => 2,
        };
        (pointers, base, pointers > 0 && param.ty.constant)
    };
    let each = || a.params.iter().zip(&b.params).map(|(x, y)| (specificity(a, x), specificity(b, y)));
    each().all(|(a, b)| a >= b) && each().any(|(a, b)| a > b)
}
