//! Names that several namespaces define: selects the definition that a use refers to, or reports
//! that it is ambiguous.

use super::lvalue::CudaOperand;
use super::overload::{is_cuda_function, value_type};
use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Base, Expr, Function, TypeName};
use crate::cuda::lex::Symbol;

/// Definition of a type name, by index.
#[derive(Clone, Copy)]
pub(super) enum TypeDefinition {
    Alias(usize),
    Struct(usize),
}

impl<'m> Lowering<'m> {
    /// Returns true if a name is written with a qualifier: `a::name`, `::name`. It never is a local
    /// variable or a member.
    pub(super) fn is_qualified(&self, name: Symbol, span: SourceSpan) -> bool {
        self.module.file.namespaces.qualifier(span, name).is_some()
    }

    /// Selects one of several definitions of a name.
    fn select(&mut self, name: Symbol, at: SourceSpan, definitions: &[SourceSpan]) -> LowerResult<usize> {
        let module = self.module;
        match module.file.namespaces.visible(name, at, definitions, &module.source)[..] {
            [one] => Ok(one),
            [first, second, ..] => self.ambiguous(name, at, definitions[first], definitions[second]),
            [] => Ok(0),
        }
    }

    /// Reports a name with two definitions.
    pub(super) fn ambiguous<T>(
        &mut self,
        name: Symbol,
        at: SourceSpan,
        a: SourceSpan,
        b: SourceSpan,
    ) -> LowerResult<T> {
        let source = &self.module.source;
        let [a, b] = [a, b].map(|span| source.line_in_words(span.start, at.start));
        let what = format!("'{}' has several definitions", self.text(name));
        let hint = "give them different names, or qualify the name with its namespace";
        self.fail(at, what, format!("defined in {a} and in {b}"), hint)
    }

    /// Reports a name that is declared after its use.
    pub(super) fn used_before<T>(&mut self, name: Symbol, declared: SourceSpan, at: SourceSpan) -> LowerResult<T> {
        let line = self.module.source.line_in_words(declared.start, at.start);
        let what = format!("'{}' is used before its declaration", self.text(name));
        self.fail(at, what, format!("declared in {line}"), "move the declaration up")
    }

    /// Selects the global variable or constant of a name.
    pub(super) fn select_global(&mut self, name: Symbol, at: SourceSpan) -> LowerResult<Option<usize>> {
        let globals = &self.module.file.globals;
        let mut all: Vec<usize> = (0..globals.len()).filter(|n| globals[*n].1.name == name).collect();
        if let Some(later) = all.first().copied().filter(|_| !self.request.round_trip) {
            let orders = &self.module.file.global_orders;
            all.retain(|n| orders[*n] <= self.order);
            if all.is_empty() {
                return self.used_before(name, globals[later].1.span, at);
            }
        }
        // `extern` declarations repeat a definition or each other.
        let is_external = |n: &usize| globals[*n].0.external && globals[*n].1.init.is_none();
        match all.iter().all(is_external) {
            true => all.truncate(1),
            false => all.retain(|n| !is_external(n)),
        }
        let spans: Vec<SourceSpan> = all.iter().map(|n| globals[*n].1.span).collect();
        match all.len() {
            0 => Ok(None),
            1 => Ok(Some(all[0])),
            _ => Ok(Some(all[self.select(name, at, &spans)?])),
        }
    }

    /// Selects the alias or struct of a name.
    pub(super) fn select_type(&mut self, name: Symbol, at: SourceSpan) -> LowerResult<Option<TypeDefinition>> {
        let file = &self.module.file;
        let mut all: Vec<(TypeDefinition, SourceSpan)> = vec![];
        let is_same =
            |a: &TypeName, b: &TypeName| (&a.base, a.pointers, a.constant) == (&b.base, b.pointers, b.constant);
        for (n, (found, ty)) in file.aliases.iter().enumerate() {
            // `typedef struct S S;` and a repeated alias are valid.
            let repeats = |(other, span): &(TypeDefinition, SourceSpan)| {
                matches!(other, TypeDefinition::Alias(other) if is_same(&file.aliases[*other].1, ty))
                    && file.namespaces.path_at(span.start) == file.namespaces.path_at(ty.span.start)
            };
            if *found == name && ty.base != Base::Named(name) && !all.iter().any(repeats) {
                all.push((TypeDefinition::Alias(n), ty.span));
            }
        }
        let structs = file.structs.iter().enumerate().filter(|(_, item)| item.name == name);
        all.extend(structs.map(|(n, item)| (TypeDefinition::Struct(n), item.span)));
        let spans: Vec<SourceSpan> = all.iter().map(|(_, span)| *span).collect();
        match all[..] {
            [] => Ok(None),
            [(one, _)] => Ok(Some(one)),
            [(_, first), (_, second), ..] => {
                let selected = all[self.select(name, at, &spans)?].0;
                let is_method = |function: &Function| function.method.as_ref().is_some_and(|method| method.of == name);
                if file.functions.iter().any(is_method) {
                    return self.ambiguous(name, at, first, second);
                }
                Ok(Some(selected))
            }
        }
    }

    /// Selects the struct of a name.
    pub(super) fn select_struct(&mut self, name: Symbol, at: SourceSpan) -> LowerResult<Option<usize>> {
        Ok(match self.select_type(name, at)? {
            Some(TypeDefinition::Struct(n)) => Some(n),
            _ => None,
        })
    }

    /// Returns true if a function is declared before the code being lowered.
    pub(super) fn is_declared(&self, n: usize) -> bool {
        self.request.round_trip || self.module.file.functions[n].declared <= self.order
    }

    /// Returns true if an argument is an object of a class or a pointer to one.
    pub(super) fn has_class_argument(&mut self, args: &'m [Expr]) -> bool {
        args.iter().any(|arg| {
            let (mark, locals) = (self.w.b.mark(), self.locals);
            let operand = self.attempt(|lower| lower.operand(arg));
            self.w.rollback(&mark);
            self.locals = locals;
            match operand {
                Some(CudaOperand::Pointer(pointer)) => Self::is_class(pointer.pointee_type()),
                Some(CudaOperand::Address(lvalue)) => Self::is_class(lvalue.ty),
                operand => operand.and_then(|operand| value_type(&operand)).is_some_and(Self::is_class),
            }
        })
    }

    /// Functions of a name that a call can refer to, before their parameters are compared.
    pub(super) fn visible_functions(&self, name: Symbol, at: SourceSpan) -> Vec<usize> {
        let (file, source) = (&self.module.file, &self.module.source);
        let is_named = |n: &usize| file.functions[*n].name == name && file.functions[*n].method.is_none();
        let mut all: Vec<usize> = (0..file.functions.len()).filter(is_named).collect();
        if all.is_empty() || self.request.round_trip {
            return all;
        }
        let path = |n: usize| file.namespaces.path_at(file.functions[n].span.start);
        let qualifier = file.namespaces.qualifier(at, name);
        if is_cuda_function(self.text(name)) {
            let context = file.namespaces.path_at(at.start);
            // The arguments of a function that takes structs can make it visible.
            let takes_struct = |n: usize| {
                let named = |ty: &TypeName| match &ty.base {
                    Base::Named(name) | Base::Template(name, _) => file.structs.iter().any(|item| item.name == *name),
                    _ => false,
                };
                file.functions[n].params.iter().any(|param| named(&param.ty))
            };
            all.retain(|n| match qualifier {
                Some(qualifier) if qualifier.path.iter().any(|part| self.text(*part) == "std") => {
                    qualifier.names(path(*n))
                }
                Some(qualifier) => !qualifier.is_rooted || qualifier.names(path(*n)),
                None => context.starts_with(path(*n)) || file.namespaces.is_used(name, path(*n)) || takes_struct(*n),
            });
        }
        if qualifier.is_some() {
            let spans: Vec<SourceSpan> = all.iter().map(|n| file.functions[*n].span).collect();
            let visible = file.namespaces.visible(name, at, &spans, source);
            return visible.into_iter().map(|n| all[n]).collect();
        }
        all
    }

    /// Narrows the candidates of a call without a qualifier to those of the innermost namespace,
    /// and rejects a call whose viable candidates are in several.
    pub(super) fn one_namespace(
        &mut self,
        candidates: Vec<usize>,
        operands: &[CudaOperand],
        name: Symbol,
        at: SourceSpan,
        is_viable: impl Fn(&mut Self, usize) -> bool,
    ) -> LowerResult<Vec<usize>> {
        let module = self.module;
        let path = |n: usize| module.file.namespaces.path_at(module.file.functions[n].span.start);
        if candidates.windows(2).all(|two| path(two[0]) == path(two[1])) {
            return Ok(candidates);
        }
        // The namespaces of class arguments are searched, too.
        let is_class = |operand: &CudaOperand| value_type(operand).is_some_and(Lowering::is_class);
        let mut all = candidates;
        if !operands.iter().any(is_class) && !self.text(name).starts_with("operator") {
            let spans: Vec<SourceSpan> = all.iter().map(|n| module.file.functions[*n].span).collect();
            let visible = module.file.namespaces.visible(name, at, &spans, &module.source);
            all = visible.into_iter().map(|n| all[n]).collect();
        }
        let viable: Vec<usize> = all.iter().copied().filter(|n| is_viable(self, *n)).collect();
        match viable.iter().find(|n| path(**n) != path(viable[0])) {
            Some(other) => {
                let [first, second] = [viable[0], *other].map(|n| module.file.functions[n].span);
                self.ambiguous(name, at, first, second)
            }
            None if viable.is_empty() => Ok(all),
            None => Ok(viable),
        }
    }
}
