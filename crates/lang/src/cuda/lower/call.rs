//! Calls of functions defined in the file. Pure functions become IR functions; others are inlined
//! (`inline.rs`).

use std::rc::Rc;

use bornite_ir::{FunctionId, Scalar, Type, Value};

use super::lvalue::CudaOperand;
use super::method::ThisObject;
use super::overload::{ConversionRank, is_cuda_function, value_type};
use super::{Binding, BoundArg, CodeKind, LowerFailed, LowerResult, Lowering, names, scan};
use crate::SourceSpan;
use crate::cuda::ast::{Expr, ExprKind, Function, OVERLOADABLE, Stmt, StmtKind, TemplateArg};
use crate::cuda::lex::Symbol;
use crate::cuda::types::CType;
use crate::diagnostic::{counted, given_count};
use crate::lower::Tree;

/// A call before its candidates are ranked.
pub(super) struct CallTarget<'m> {
    /// Functions of the file that take that number of arguments.
    pub candidates: Vec<usize>,
    pub name: Symbol,
    pub templates: &'m [TemplateArg],
    /// Template arguments of the struct of a member function.
    pub outer: Vec<BoundArg>,
    /// Object of a member function.
    pub this: Option<ThisObject>,
    /// True if CUDA has a function of that name, too.
    pub is_builtin_too: bool,
}

/// Returns true if a function can be called with a number of arguments.
pub(super) fn takes_count(function: &Function, count: usize) -> bool {
    let rest = function.params.get(count..);
    rest.is_some_and(|rest| rest.iter().all(|param| param.init.is_some()))
}

/// Maximum depth of inlined calls.
pub(super) const MAX_CALLS: usize = 32;

impl<'m> Lowering<'m> {
    pub(super) fn call(
        &mut self,
        callee: Symbol,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let module = self.module;
        if !self.is_qualified(callee, span)
            && let Some(done) = self.call_of_member(callee, templates, args, span)?
        {
            return Ok(done);
        }
        self.report_unsupported(Some(callee))?;
        let named = self.visible_functions(callee, span);
        let declared: Vec<usize> = named.iter().copied().filter(|n| self.is_declared(*n)).collect();
        // The classes of arguments make functions visible where a template is instantiated.
        let is_instance = self.scope[self.base..].iter().any(|(_, binding)| matches!(binding, Binding::Type(_)));
        let named = match declared.len() < named.len() && is_instance && self.has_class_argument(args) {
            true => named,
            false if declared.is_empty() && !named.is_empty() && !is_cuda_function(self.text(callee)) => {
                return self.used_before(callee, module.file.functions[named[0]].span, span);
            }
            false => declared,
        };
        let takes = |n: &usize| takes_count(&module.file.functions[*n], args.len());
        let all: Vec<usize> = named.iter().copied().filter(takes).collect();
        // A specialization is found through its primary template, if that is defined.
        let general: Vec<usize> =
            all.iter().copied().filter(|n| module.file.functions[*n].specialization.is_none()).collect();
        let all = if general.is_empty() { all } else { general };
        // Explicit template arguments select templates only.
        let is_template = |n: &usize| {
            !module.file.functions[*n].templates.is_empty() || module.file.functions[*n].specialization.is_some()
        };
        let all: Vec<usize> = match all.iter().any(is_template) && !templates.is_empty() {
            true => all.into_iter().filter(is_template).collect(),
            false => all,
        };
        let offered = is_cuda_function(self.text(callee)) && !self.request.round_trip;
        let Some(&first) = all.first() else {
            if let Some(other) = named.first().filter(|_| !offered).map(|n| &module.file.functions[*n]) {
                let (name, wanted, found) = (self.text(callee), other.params.len(), args.len());
                let what = format!("'{name}' takes {}, {} given", counted(wanted, "argument"), given_count(found));
                return self.fail(span, what, "", "");
            }
            return self.builtin(callee, templates, args, span);
        };
        if module.file.functions[first].is_kernel {
            return self.unsupported(span, "calling a kernel", "make it a '__device__' function");
        }
        let (mark, locals) = (self.w.b.mark(), self.locals);
        let operands = self.call_operands(&all, templates, args)?;
        let all = self.one_namespace(all, &operands, callee, span, |lower, n| {
            lower.conversion_ranks(n, &[], templates, &operands, span).is_some()
        })?;
        if module.file.host_functions.contains(&callee) && !offered && !self.is_qualified(callee, span) {
            let is_exact = |ranks: Vec<ConversionRank>| ranks.iter().all(|rank| *rank <= ConversionRank::Qualified);
            if !all.iter().any(|n| self.conversion_ranks(*n, &[], templates, &operands, span).is_some_and(is_exact)) {
                let what = format!("overloading '{}' for the host and for the device", self.text(callee));
                return self.unsupported(span, what, "use different names, or cast the arguments");
            }
        }
        let target =
            CallTarget { candidates: all, name: callee, templates, outer: vec![], this: None, is_builtin_too: offered };
        match self.call_target(target, operands, args.iter().map(Some).collect(), span)? {
            Some(result) => Ok(result),
            None => {
                self.w.rollback(&mark);
                self.locals = locals;
                self.builtin(callee, templates, args, span)
            }
        }
    }

    /// Evaluates the arguments of a call: lvalues where a candidate takes a reference.
    pub(super) fn call_operands(
        &mut self,
        all: &[usize],
        templates: &'m [TemplateArg],
        args: &'m [Expr],
    ) -> LowerResult<Vec<CudaOperand>> {
        let mut operands = vec![];
        for (n, arg) in args.iter().enumerate() {
            let operand = match &arg.kind {
                ExprKind::Braces(_) => CudaOperand::Tree(self.braced_argument(all[0], templates, n, arg)?),
                _ if self.takes_reference(all, n) => self.referred(arg)?,
                _ => self.operand(arg)?,
            };
            operands.push(self.by_value_unless_reference(all, n, operand, arg.span)?);
        }
        Ok(operands)
    }

    /// Reads an lvalue unless a candidate takes it by reference.
    pub(super) fn by_value_unless_reference(
        &mut self,
        all: &[usize],
        n: usize,
        operand: CudaOperand,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        Ok(match operand {
            CudaOperand::Lvalue(lvalue) if !self.takes_reference(all, n) => {
                CudaOperand::Tree(self.read(&lvalue, span)?)
            }
            other => other,
        })
    }

    fn takes_reference(&self, all: &[usize], n: usize) -> bool {
        all.iter().any(|f| self.module.file.functions[*f].params[n].ty.reference)
    }

    /// Calls one of several candidates; `None` if CUDA's own function is the best match.
    pub(super) fn call_target(
        &mut self,
        target: CallTarget<'m>,
        mut operands: Vec<CudaOperand>,
        mut args: Vec<Option<&'m Expr>>,
        span: SourceSpan,
    ) -> LowerResult<Option<CudaOperand>> {
        self.check_enum_call(&target, &operands, &args, span)?;
        let CallTarget { candidates, name, templates, outer, this, is_builtin_too } = target;
        let module = self.module;
        let candidates = self.matching_specializations(candidates, templates, &operands, span)?;
        let mut chosen = match candidates[..] {
            [one] if !is_builtin_too => one,
            _ => match self.overload(&candidates, &outer, templates, &operands, name, span)? {
                Some(own) => own,
                None => return Ok(None),
            },
        };
        let function = &module.file.functions[chosen];
        if function.is_deleted {
            let what = format!("use of deleted function '{}'", self.text(function.name));
            let line = module.source.line_in_words(function.span.start, span.start);
            return self.fail(span, what, format!("deleted in {line}"), "");
        }
        let explicit_args = if function.specialization.is_some() { &[] } else { templates };
        let bound = self.template_arguments(function, &outer, explicit_args, &operands, span)?;
        for param in &function.params[args.len()..] {
            let Some(default) = &param.init else { continue };
            operands.push(self.default_argument(function, &bound, this.as_ref().map(|this| this.ty), default)?);
            args.push(Some(default));
        }
        self.check_deduced_const(function, &operands, span)?;
        let mut own = bound;
        if !own.is_empty()
            && function.method.is_none()
            && let Some(specialization) = self.find_specialization(function, &own)?
        {
            (chosen, own) = (specialization, vec![]);
        }
        let pointers = own.iter().any(|bound| matches!(bound, BoundArg::Type(CType::Pointer(_))));
        let holds = |operand: &CudaOperand| value_type(operand).is_some_and(|ty| self.holds_pointers(ty));
        let pointers = pointers || operands.iter().any(holds) || self.returns_pointers(chosen, &own);
        if self.module.is_pure[chosen] && !pointers && !self.needs.inlined.contains(&chosen) {
            if let Some(known) = self.evaluate_constexpr(chosen, &own, &operands) {
                return Ok(Some(CudaOperand::Tree(known)));
            }
            let id = self.instantiate(chosen, &own, span)?;
            let types = self.signature(chosen, &own)?;
            let mut trees = vec![];
            for ((operand, ty), arg) in operands.into_iter().zip(&types.0).zip(args) {
                let arg_span = arg.map_or(span, |arg| arg.span);
                let tree = self.value_of(operand, arg_span)?;
                trees.push(self.convert(tree, *ty, arg_span)?);
            }
            self.copied_reference = false;
            return Ok(Some(CudaOperand::Tree(Tree::of(crate::lower::Node::Call(id, trees), types.1))));
        }
        self.inline_call(chosen, &own, this, operands, &args, span).map(Some)
    }

    /// Reports the errors of an unsupported function, or of one without a known name if `name` is
    /// `None`.
    pub(super) fn report_unsupported(&mut self, name: Option<Symbol>) -> LowerResult {
        let module = self.module;
        let mut done = Ok(());
        for function in
            module.file.unsupported_functions.iter().filter(|one| one.name == name && one.method_of.is_none())
        {
            for error in &function.errors {
                if self.errors.len() < super::MAX_ERRORS && self.errors.iter().all(|other| other.span != error.span) {
                    self.errors.push(error.clone());
                }
            }
            done = Err(LowerFailed);
        }
        done
    }

    /// Evaluates a `constexpr` function that consists of one `return`, if all arguments are
    /// constant.
    fn evaluate_constexpr(&mut self, n: usize, bound: &[BoundArg], operands: &[CudaOperand]) -> Option<Tree> {
        let function = &self.module.file.functions[n];
        let [Stmt { kind: StmtKind::Return(Some(value)), .. }] = &function.body[..] else { return None };
        if !function.is_constexpr || self.request.round_trip || self.instantiating.len() > MAX_CALLS {
            return None;
        }
        let known = |operand: &CudaOperand| match operand {
            CudaOperand::Tree(tree) => self.w.fold(tree),
            _ => None,
        };
        let values: Vec<Value> = operands.iter().map(known).collect::<Option<_>>()?;
        let (types, result) = self.attempt(|lower| lower.signature(n, bound))?;
        let scalars: Vec<Scalar> = types.iter().map(|ty| ty.as_scalar()).collect::<Option<_>>()?;
        let (mark, locals) = (self.w.b.mark(), self.locals);
        self.instantiating.push((n, bound.to_vec()));
        let order = std::mem::replace(&mut self.order, function.order);
        let tree = self.in_file_scope(&function.templates, bound, |lower| {
            for ((param, value), scalar) in function.params.iter().zip(values).zip(scalars) {
                let value = lower.convert_scalar(Tree::constant(value), scalar);
                lower.bind(param.name, Binding::Value(value));
            }
            lower.attempt(|lower| lower.initializer(value, result))
        });
        self.order = order;
        self.instantiating.pop();
        let known = tree.and_then(|tree| self.w.fold(&tree));
        self.w.rollback(&mark);
        self.locals = locals;
        known.map(Tree::constant)
    }

    /// Keeps the specializations that a call's explicit template arguments select, or whose
    /// parameters have the types of the arguments, if only specializations are defined.
    fn matching_specializations(
        &mut self,
        all: Vec<usize>,
        templates: &'m [TemplateArg],
        operands: &[CudaOperand],
        span: SourceSpan,
    ) -> LowerResult<Vec<usize>> {
        let functions = &self.module.file.functions;
        if all.iter().all(|n| functions[*n].specialization.is_none()) {
            return Ok(all);
        }
        let mut matching = vec![];
        for n in all.iter().copied() {
            let is_exact = |rank: &ConversionRank| *rank <= ConversionRank::Qualified;
            let mut alike = match (&functions[n].specialization, templates) {
                (Some(specialization), [_, ..]) => specialization.len() >= templates.len(),
                (Some(_), []) => {
                    self.conversion_ranks(n, &[], &[], operands, span).is_some_and(|ranks| ranks.iter().all(is_exact))
                }
                (None, _) => true,
            };
            for (a, b) in functions[n].specialization.iter().flatten().zip(templates) {
                let (a, b) =
                    (self.in_file_scope(&[], &[], |lower| lower.template_arg_value(a))?, self.template_arg_value(b)?);
                alike &= a == b;
            }
            matching.extend(alike.then_some(n));
        }
        if matching.is_empty() {
            let what = format!("no specialization of '{}' matches this call", self.text(functions[all[0]].name));
            return self.fail(span, what, "not defined for these arguments", "define the template itself");
        }
        Ok(matching)
    }

    fn template_arg_value(&mut self, arg: &'m TemplateArg) -> LowerResult<BoundArg> {
        Ok(match arg {
            TemplateArg::Type(ty) => BoundArg::Type(self.c_type(ty)?),
            TemplateArg::Value(value) => BoundArg::Value(self.template_value(value)?),
        })
    }

    /// Lowers a default argument, which sees the scope of the function, not that of the call.
    fn default_argument(
        &mut self,
        function: &'m Function,
        bound: &[BoundArg],
        of: Option<Type>,
        default: &'m Expr,
    ) -> LowerResult<CudaOperand> {
        let value = self.in_class_scope(of, &function.templates, bound, |lower| lower.rvalue(default));
        Ok(CudaOperand::Tree(value?))
    }

    fn braced_argument(
        &mut self,
        function: usize,
        explicit_args: &'m [TemplateArg],
        n: usize,
        arg: &'m Expr,
    ) -> LowerResult<Tree> {
        let function = &self.module.file.functions[function];
        let explicit = match &function.templates[..] {
            [] => vec![],
            templates => self.template_args(templates, explicit_args, function.name, arg.span)?,
        };
        let bound: Vec<BoundArg> = explicit.into_iter().map_while(|explicit| explicit).collect();
        match self.in_file_scope(&function.templates, &bound, |lower| lower.c_type(&function.params[n].ty))? {
            CType::Value(ty) => self.initializer(arg, ty),
            _ => self.unsupported(arg.span, "a braced list here", ""),
        }
    }

    /// Parameter types and return type of an instance of a pure function.
    fn signature(&mut self, n: usize, bound: &[BoundArg]) -> LowerResult<(Vec<Type>, Type)> {
        let function = &self.module.file.functions[n];
        self.in_file_scope(&function.templates, bound, |lower| {
            let mut types = vec![];
            let mut failed = false;
            for param in &function.params {
                match lower.c_type(&param.ty) {
                    Ok(CType::Value(ty)) => types.push(ty),
                    _ => failed = true,
                }
            }
            match lower.c_type(&function.result) {
                Ok(CType::Value(result)) if !failed => Ok((types, result)),
                _ => Err(LowerFailed),
            }
        })
    }

    /// Lowers all functions and structs of a printed text, in source order.
    pub(super) fn lower_all_items(&mut self) -> LowerResult {
        for n in 0..self.module.file.structs.len() {
            if self.module.file.structs[n].templates.is_empty() {
                self.struct_type(n, &[])?;
            }
        }
        for n in 0..self.module.file.functions.len() {
            let function = &self.module.file.functions[n];
            if !function.is_kernel && function.templates.is_empty() {
                self.instantiate(n, &[], function.span)?;
            }
        }
        Ok(())
    }

    /// Instantiates a pure function as an IR function.
    fn instantiate(&mut self, n: usize, bound: &[BoundArg], span: SourceSpan) -> LowerResult<FunctionId> {
        if let Some((_, _, id)) = self.functions.iter().find(|(item, found, _)| *item == n && found == bound) {
            return Ok(*id);
        }
        let function = &self.module.file.functions[n];
        let again = self.instantiating.iter().any(|(item, found)| *item == n && found == bound);
        if again {
            return self.report_recursion(function, span);
        }
        self.check_call_depth(self.instantiating.len(), function, span)?;
        let (types, result) = self.signature(n, bound)?;
        self.instantiating.push((n, bound.to_vec()));
        // Save the state of the enclosing code.
        let scope = std::mem::take(&mut self.scope);
        let base = std::mem::replace(&mut self.base, 0);
        let order = std::mem::replace(&mut self.order, function.order);
        let assigned = std::mem::replace(&mut self.assigned, Rc::new(scan::assigned(self.module, function)));
        let (control_scopes, inlines) = (std::mem::take(&mut self.control_scopes), std::mem::take(&mut self.inlines));
        let code = std::mem::replace(&mut self.code, CodeKind::Function(result));
        let (loops, locals) = (std::mem::take(&mut self.loops), std::mem::take(&mut self.locals));
        let this = self.this.take();
        let registers = std::mem::take(&mut self.registers);
        let aliased = std::mem::replace(&mut self.aliased, Rc::new(scan::aliased(function)));
        let wanted = std::mem::take(&mut self.expr_numbers);
        let free = self.w.swap_hoisted(Default::default());
        self.bind_templates(&function.templates, bound);
        let taken = |name: &str| function.params.iter().any(|other| self.module.names.text(other.name) == name);
        let named = |(k, param): (usize, &crate::cuda::ast::Declarator)| match self.text(param.name) {
            "" => format!("parameter{}", k + 1),
            text => names::unmangled(text, self.request.round_trip, taken),
        };
        let param_names: Vec<String> = function.params.iter().enumerate().map(named).collect();
        let params: Vec<(&str, Type)> = param_names.iter().map(String::as_str).zip(types.iter().copied()).collect();
        let outer = self.w.b.open_function(&params);
        self.set_source_line(function.span);
        for (k, (param, ty)) in function.params.iter().zip(&types).enumerate() {
            let value = Binding::Value(Tree::emitted(bornite_ir::ExprId(k as u32), *ty));
            let value = if self.assigned.contains(&param.name) {
                self.bind_mutable_param(self.text(param.name), &param.ty, value)
            } else {
                value
            };
            self.bind(param.name, value);
        }
        let value = self.function_body(&function.body, result);
        let name = self.function_name(function, bound);
        let done = value.is_ok();
        let value = value.unwrap_or(bornite_ir::ExprId(0));
        self.function_names.push(name.clone());
        let id = self.w.b.close_function(outer, name, &params, result, value);
        self.w.swap_hoisted(free);
        self.function_expr_numbers.push(std::mem::replace(&mut self.expr_numbers, wanted));
        (self.scope, self.base, self.assigned, self.control_scopes, self.inlines) =
            (scope, base, assigned, control_scopes, inlines);
        (self.code, self.loops, self.locals, self.this) = (code, loops, locals, this);
        (self.aliased, self.order) = (aliased, order);
        self.function_registers.push((n, std::mem::replace(&mut self.registers, registers)));
        self.instantiating.pop();
        if !done {
            return Err(LowerFailed);
        }
        self.functions.push((n, bound.to_vec(), id));
        Ok(id)
    }

    /// Lowers a function body and returns its final value.
    fn function_body(&mut self, body: &'m [Stmt], result: Type) -> LowerResult<bornite_ir::ExprId> {
        let mark = self.scope.len();
        let mut failed = false;
        let (last, before) = match body.split_last() {
            Some((Stmt { kind: StmtKind::Return(Some(value)), .. }, before)) => (Some(value), before),
            _ => (None, body),
        };
        // Not `block`: the returned expression sees the same names.
        failed |= self.sequence(before).is_err();
        let value = match last {
            Some(value) => {
                self.set_source_line(value.span);
                self.initializer(value, result)
            }
            None => Ok(self.zero(result)),
        };
        let value = value.map(|tree| self.w.emit(&tree));
        self.scope.truncate(mark);
        if failed { Err(LowerFailed) } else { value }
    }

    fn function_name(&self, function: &Function, bound: &[BoundArg]) -> String {
        let taken =
            |name: &str| self.module.file.functions.iter().any(|other| self.module.names.text(other.name) == name);
        let text = self.text(function.name);
        let mut name = match text.strip_prefix("operator").filter(|token| OVERLOADABLE.contains(token)) {
            // A name of the IR is an identifier.
            Some(token) => {
                format!("operator_{}", token.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join("_"))
            }
            None => names::unmangled(text, self.request.round_trip, taken),
        };
        name += &self.name_suffix(bound);
        // Overloads share a name in C++; functions of an IR kernel must not.
        let same = self
            .functions
            .iter()
            .filter(|(item, _, _)| self.module.file.functions[*item].name == function.name)
            .count();
        let name = if bound.is_empty() && same > 0 { format!("{name}_of{same}") } else { name };
        names::unique_name(name, |name| self.function_names.iter().any(|other| other == name))
    }

    /// Rejects a chain of calls that is too long.
    pub(super) fn check_call_depth(&mut self, depth: usize, function: &'m Function, span: SourceSpan) -> LowerResult {
        if depth <= MAX_CALLS {
            return Ok(());
        }
        let what = format!("a chain of more than {MAX_CALLS} calls, here of '{}',", self.text(function.name));
        self.unsupported(span, what, "merge some of these functions")
    }

    pub(super) fn report_recursion<T>(&mut self, function: &'m Function, span: SourceSpan) -> LowerResult<T> {
        let what = format!("recursive function '{}'", self.text(function.name));
        self.unsupported(span, what, "use a loop")
    }
}
