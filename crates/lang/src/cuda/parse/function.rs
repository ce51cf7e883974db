//! Parses functions and global variables.

use super::method::Signature;
use super::{ParseResult, Parser};
use crate::SourceSpan;
use crate::cuda::ast::{
    Base, Declarator, Expr, Function, Method, MethodKind, Stmt, StmtKind, Storage, TemplateArg, TemplateParam,
    TypeName, UnsupportedFunction,
};
use crate::cuda::lex::{Symbol, TokenKind};

impl Parser<'_> {
    /// Parses a function or global variables; `specialization` after `template <>`.
    pub(super) fn function_or_global(
        &mut self,
        templates: Vec<TemplateParam>,
        specialization: bool,
    ) -> ParseResult<()> {
        let start = self.span();
        let (mut is_kernel, mut launch_bound, mut storage) = (false, None, Storage::default());
        let mut result = None;
        // CUDA's specifiers may stand before and after the type.
        loop {
            if self.take("__global__") {
                is_kernel = true;
            } else if self.take("__launch_bounds__") {
                self.expect("(", "after '__launch_bounds__'")?;
                launch_bound = self.list(")")?.into_iter().next();
            } else if let (None, Some(of)) = (&result, self.out_of_class_constructor()) {
                return self.unsupported_constructor(of);
            } else if result.is_none() && self.at_type() {
                let base = self.base_type()?;
                storage = storage.merge(self.inner_storage);
                storage.constant |= base.constant;
                result = Some(base);
            } else {
                let before = self.at;
                let found = self.storage()?;
                storage = storage.merge(found);
                if self.at == before {
                    break;
                }
            }
        }
        let Some(base) = result else {
            let (span, found) = (self.span(), self.current_text());
            if let TokenKind::Name(symbol) = self.kind() {
                self.check_supported(symbol, span)?;
            }
            return self.fail(span, format!("expected a type, found {found}"), "expected a type", "");
        };
        let ty = self.pointers(base.clone())?;
        if self.is("operator") && !specialization {
            let (name, span) = self.operator_name()?;
            let signature = Signature { name, span, templates, storage, result: ty };
            if let Some(function) = self.method_rest(signature, None)? {
                self.check_not_redefined(&function)?;
                self.file.functions.push(function);
            }
            return Ok(());
        }
        if let Some(of) = self.out_of_class_struct() {
            let is_template = self.file.structs.iter().any(|item| item.name == of && !item.templates.is_empty());
            if specialization || is_template && templates.is_empty() {
                return self.unsupported(start, "a specialization of a member function", "use another name");
            }
            return self.out_of_class_method(of, templates, storage, ty);
        }
        // `template <> int f(float)` deduces its template arguments.
        let is_function = match (self.kind(), self.ahead(1)) {
            (TokenKind::Name(_), TokenKind::Reserved("<")) => specialization,
            (TokenKind::Name(_), TokenKind::Reserved("(")) => true,
            _ => false,
        };
        if !is_function || !specialization && !is_kernel && self.initializes_variable(&storage) {
            if let (TokenKind::Name(name), false) = (self.kind(), templates.is_empty()) {
                return self.variable_template(name, templates, base);
            }
            if specialization {
                return self.unsupported(start, "this template specialization", "write a function with another name");
            }
            let mut all = vec![];
            loop {
                all.push(self.declarator(&base, "a variable")?);
                if !self.take(",") {
                    break;
                }
            }
            self.expect(";", "after a declaration")?;
            all.into_iter().for_each(|found| self.push_global(storage, found));
            return Ok(());
        }
        let (name, span) = self.name("a function")?;
        if self.is_type_name(name) {
            self.function_names.insert(name);
        }
        if !templates.is_empty() {
            self.templates.insert(name);
        }
        let specialization = match specialization {
            true if self.is("<") => Some(self.template_args()?),
            true => Some(vec![]),
            false => None,
        };
        if let (Some(args), TokenKind::Reserved("=" | "{")) = (&specialization, self.kind()) {
            let init = if self.take("=") { self.initializer()? } else { self.braced_list()? };
            let (base, specialization) = (TypeName { constant: false, ..ty }, Some(args.clone()));
            self.expect(";", "after a declaration")?;
            self.push_variable_template(name, span, vec![], specialization, base, init);
            return Ok(());
        }
        if specialization.is_some() && is_kernel {
            return self.unsupported(span, "a kernel specialization", "write a kernel with another name");
        }
        let order = self.at as u32;
        let mut params = self.params()?;
        self.take("const");
        self.take("noexcept");
        let declares =
            |(found, known, _): &&(Symbol, Vec<Declarator>, u32)| *found == name && may_declare(known, &params);
        let declared = self.forward_declarations.iter().filter(declares).map(|(.., at)| *at).min().unwrap_or(order);
        let known = (self.forward_declarations.iter())
            .find(|(found, known, _)| *found == name && has_same_types(known, &params));
        if let Some((_, known, _)) = known {
            // Default arguments come from the first declaration.
            params
                .iter_mut()
                .zip(known)
                .for_each(|(param, known)| param.init = param.init.take().or(known.init.clone()));
        }
        self.check_defaults(&params)?;
        if self.take(";") {
            self.forward_declarations.push((name, params, order));
            return Ok(());
        }
        if is_kernel && ty.base != Base::Void {
            return self.fail(start.to(ty.span), "a kernel must return 'void'", "expected 'void'", "write 'void'");
        }
        let is_deleted = self.is("=") && self.ahead(1) == TokenKind::Reserved("delete");
        if !is_deleted {
            self.expect("{", "before the body of a function")?;
        }
        let errors = self.errors.len();
        self.block_names = vec![params.iter().map(|param| param.name).filter(|name| *name != self.unnamed).collect()];
        let body = if is_deleted { vec![] } else { self.nested(|p| p.statements())? };
        if self.errors.len() > errors {
            return Ok(());
        }
        let (in_namespace, is_constexpr) = (self.in_namespace(), storage.constant);
        let function = Function {
            name,
            span,
            templates,
            specialization,
            is_kernel,
            in_namespace,
            is_constexpr,
            launch_bound,
            result: ty,
            params,
            body,
            declared,
            order,
            is_deleted,
            method: None,
        };
        self.check_not_redefined(&function)?;
        self.file.functions.push(function);
        Ok(())
    }

    /// Returns true for a variable that is initialized in parentheses: `constexpr int n(4);`.
    pub(super) fn initializes_variable(&self, storage: &Storage) -> bool {
        let first = self.ahead(2);
        storage.constant
            && match first {
                TokenKind::Int { .. } | TokenKind::Float { .. } | TokenKind::Reserved("(" | "-") => true,
                TokenKind::Name(name) => self.file.globals.iter().any(|(_, found)| found.name == name),
                _ => false,
            }
    }

    /// `template <class T> constexpr T pi = T(3.14);`: a function without parameters that returns
    /// the value.
    pub(super) fn variable_template(
        &mut self,
        name: Symbol,
        templates: Vec<TemplateParam>,
        base: TypeName,
    ) -> ParseResult<()> {
        let declared = self.declarator(&base, "a variable")?;
        let (true, Some(init)) = (declared.sizes.is_empty(), declared.init) else {
            return self.unsupported(declared.span, "a variable template without a value", "");
        };
        self.expect(";", "after a declaration")?;
        self.templates.insert(name);
        self.variable_templates.insert(name);
        let result = TypeName { constant: false, ..declared.ty };
        self.push_variable_template(name, declared.span, templates, None, result, init);
        Ok(())
    }

    fn push_variable_template(
        &mut self,
        name: Symbol,
        span: SourceSpan,
        templates: Vec<TemplateParam>,
        specialization: Option<Vec<TemplateArg>>,
        result: TypeName,
        init: Expr,
    ) {
        let body = vec![Stmt { span: init.span, kind: StmtKind::Return(Some(init)) }];
        self.file.functions.push(Function {
            name,
            span,
            templates,
            specialization,
            is_kernel: false,
            in_namespace: self.in_namespace(),
            is_constexpr: true,
            launch_bound: None,
            result,
            params: vec![],
            body,
            declared: self.at as u32,
            order: self.at as u32,
            is_deleted: false,
            method: None,
        });
    }

    /// The struct of a member function that is defined outside of it: `S::f(`, `S<T>::f(`.
    pub(super) fn out_of_class_struct(&self) -> Option<Symbol> {
        let TokenKind::Name(name) = self.kind() else { return None };
        let is_struct = self.file.structs.iter().any(|item| item.name == name);
        let mut at = 1;
        if self.ahead(1) == TokenKind::Reserved("<") {
            while !matches!(self.ahead(at), TokenKind::Reserved(">" | ";" | "{" | "(") | TokenKind::End) {
                at += 1;
            }
            at += 1;
        }
        (is_struct && self.ahead(at) == TokenKind::Reserved("::")).then_some(name)
    }

    /// The struct of a constructor that is defined outside of it: `S::S(`, `S<T>::S(`.
    fn out_of_class_constructor(&self) -> Option<Symbol> {
        let of = self.out_of_class_struct()?;
        let scope = (1..).find(|at| matches!(self.ahead(*at), TokenKind::Reserved("::") | TokenKind::End))?;
        let is_constructor =
            self.ahead(scope + 1) == TokenKind::Name(of) && self.ahead(scope + 2) == TokenKind::Reserved("(");
        is_constructor.then_some(of)
    }

    /// Records a constructor outside of its struct, to be reported where an object is constructed.
    fn unsupported_constructor(&mut self, of: Symbol) -> ParseResult<()> {
        let span = self.span();
        let what = "a constructor that is defined outside of its struct is not supported".into();
        let hint = Some("define it in the struct".into());
        let errors = vec![self.source.diagnostic(span, what, super::NOT_IN_SUBSET.into(), hint)];
        let function = UnsupportedFunction { name: Some(of), method_of: Some(of), is_kernel: false, span, errors };
        self.file.unsupported_functions.push(function);
        Ok(())
    }

    /// Parses a member function outside of its struct.
    pub(super) fn out_of_class_method(
        &mut self,
        of: Symbol,
        templates: Vec<TemplateParam>,
        storage: Storage,
        result: TypeName,
    ) -> ParseResult<()> {
        while !self.take("::") {
            self.advance();
        }
        let (name, span) = if self.is("operator") { self.operator_name()? } else { self.name("a function")? };
        let outer = self.current_struct.replace((of, templates.clone()));
        let method = Method { of, kind: MethodKind::Plain, is_const: false, is_explicit: false, initializers: vec![] };
        let signature = Signature { name, span, templates, storage, result };
        let function = self.method_rest(signature, Some(method));
        self.current_struct = outer;
        self.file.functions.extend(function?);
        Ok(())
    }

    /// Parses the parameters of a function, including the parentheses.
    pub(super) fn params(&mut self) -> ParseResult<Vec<Declarator>> {
        self.expect("(", "after the name of a function")?;
        let mut params = vec![];
        while !self.is(")") {
            if self.is("void") && self.ahead(1) == TokenKind::Reserved(")") {
                self.advance();
                break;
            }
            if self.is("...") {
                let span = self.span();
                return self.unsupported(span, "a variadic function", "name its parameters");
            }
            let base = self.base_type()?;
            params.push(self.declarator(&base, "a parameter")?);
            if !self.take(",") {
                break;
            }
        }
        self.expect(")", "after the parameters of a function")?;
        Ok(params)
    }

    pub(super) fn push_global(&mut self, storage: Storage, declared: Declarator) {
        self.file.globals.push((storage, declared));
        self.file.global_orders.push(self.at as u32);
    }

    /// Rejects a parameter without a default argument after one that has it.
    pub(super) fn check_defaults(&mut self, params: &[Declarator]) -> ParseResult<()> {
        let missing = params.windows(2).find(|two| two[0].init.is_some() && two[1].init.is_none());
        match missing {
            Some([_, param]) => {
                let what = format!("parameter '{}' has no default argument", self.names.text(param.name));
                self.fail(param.span, what, "expected '= …', as for the parameter before", "")
            }
            _ => Ok(()),
        }
    }

    /// Rejects a redefinition.
    pub(super) fn check_not_redefined(&mut self, new: &Function) -> ParseResult<()> {
        let owner = |function: &Function| function.method.as_ref().map(|method| (method.of, method.is_const));
        let alike = |old: &Function| {
            owner(old) == owner(new)
                && has_same_types(&old.params, &new.params)
                && old.templates.len() == new.templates.len()
                && old.specialization.is_none()
                && new.specialization.is_none()
        };
        let found = self.file.functions.iter().find(|old| old.name == new.name && alike(old));
        let Some(old) = found else { return Ok(()) };
        let (line, name) = (self.source.line_in_words(old.span.start, new.span.start), self.names.text(new.name));
        let what = if old.is_kernel { "kernel" } else { "function" };
        let message = format!("redefinition of {what} '{name}'");
        let hint = "use different names; namespaces are ignored";
        self.fail(new.span, message, format!("first defined in {line}"), hint)
    }
}

/// Returns true if a forward declaration may declare a function of that name: its types are the
/// same, or written in another way.
fn may_declare(known: &[Declarator], params: &[Declarator]) -> bool {
    let is_plain = |param: &Declarator| matches!(param.ty.base, Base::Scalar(_));
    has_same_types(known, params) || known.len() == params.len() && !known.iter().chain(params).all(is_plain)
}

/// Returns true if two lists of parameters have the same types, as written.
fn has_same_types(a: &[Declarator], b: &[Declarator]) -> bool {
    let signature = |param: &Declarator| {
        let ty = &param.ty;
        let constant = ty.constant && (ty.pointers > 0 || ty.reference);
        (ty.base.clone(), ty.pointers, ty.reference, constant, param.sizes.len())
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| signature(a) == signature(b))
}
