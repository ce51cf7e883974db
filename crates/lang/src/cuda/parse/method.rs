//! Parses members of structs and classes: fields, member functions, constructors, static members.
//! Members for the host only are skipped.

use super::{ParseResult, Parser};
use crate::Diagnostic;
use crate::SourceSpan;
use crate::cuda::ast::{
    Assertion, Base, Declarator, Expr, Function, Method, MethodKind, OVERLOADABLE, Storage, TemplateArg, TemplateParam,
    TypeName, UnsupportedFunction,
};
use crate::cuda::lex::{Symbol, Token, TokenKind};

/// Members of a struct.
#[derive(Default)]
pub struct Members {
    pub fields: Vec<Declarator>,
    pub field_aligns: Vec<(usize, Expr)>,
    pub statics: Vec<Declarator>,
    pub assertions: Vec<Assertion>,
    pub methods: Vec<Function>,
    pub has_constructor: bool,
    /// Members that only member functions can name.
    pub private: Vec<Symbol>,
    pub copy_control: Option<Diagnostic>,
}

impl Parser<'_> {
    /// Parses members up to and including the closing brace.
    pub(super) fn members(&mut self, mut is_private: bool) -> ParseResult<Members> {
        let mut members = Members::default();
        let (mut public, mut has_friends) = (vec![], false);
        while !self.take("}") {
            if self.kind() == TokenKind::End {
                let span = self.span();
                return self.fail(span, "expected '}', found the end of the file", "expected '}'", "");
            }
            let is_access = match self.kind() {
                TokenKind::Reserved("public" | "private") => true,
                TokenKind::Name(name) => self.names.text(name) == "protected",
                _ => false,
            };
            if is_access && self.ahead(1) == TokenKind::Reserved(":") {
                is_private = !self.is("public");
                self.advance();
                self.advance();
                continue;
            }
            if self.take(";") {
                continue;
            }
            if self.is("static_assert") {
                members.assertions.push(self.static_assertion()?);
                continue;
            }
            let (start, end) = (self.at, self.item_end());
            let (fields, statics) = (members.fields.len(), members.statics.len());
            if self.is_member_function(end) {
                let head = self.head_of(start, end);
                has_friends |= head.iter().any(|token| token.kind == TokenKind::Reserved("friend"));
                let name = self.operator_in(&head).or_else(|| self.declared_name(start, end));
                (if is_private { &mut members.private } else { &mut public }).extend(name);
                self.member_function(end, &mut members)?;
            } else {
                self.field(&mut members)?;
            }
            let declared = members.fields[fields..].iter().chain(&members.statics[statics..]).map(|field| field.name);
            (if is_private { &mut members.private } else { &mut public }).extend(declared);
        }
        // Friends are not distinguished from other functions, nor overloads from each other.
        members.private.retain(|name| !has_friends && !public.contains(name));
        Ok(members)
    }

    /// Returns true if the member here has a parameter list.
    fn is_member_function(&self, end: usize) -> bool {
        let head = self.head_of(self.at, end);
        let has = |word: &'static str| head.iter().any(|token| token.kind == TokenKind::Reserved(word));
        let is_pointer = head
            .windows(2)
            .any(|two| two[0].kind == TokenKind::Reserved("(") && two[1].kind == TokenKind::Reserved("*"));
        has("operator") || has("friend") || has("(") && !is_pointer && !has("using") && !has("typedef")
    }

    fn field(&mut self, members: &mut Members) -> ParseResult<()> {
        let start = self.span();
        if let TokenKind::Reserved(word @ ("typedef" | "using" | "enum" | "union" | "class" | "template")) = self.kind()
        {
            return self.unsupported(start, &format!("'{word}' in a struct"), "declare it outside the struct");
        }
        if self.is("struct") && self.defines_struct() {
            return self.unsupported(start, "a struct in a struct", "declare it outside the struct");
        }
        let align = self.alignment()?;
        let storage = self.storage()?;
        let base = self.base_type()?;
        let storage = storage.merge(self.storage()?);
        loop {
            let mut declared = self.declarator(&base, "a field")?;
            if storage.is_static {
                declared.ty.constant = true;
                members.statics.push(declared);
            } else {
                members.field_aligns.extend(align.clone().map(|align| (members.fields.len(), align)));
                members.fields.push(declared);
            }
            if self.is("__attribute__") {
                return self.layout_attribute();
            }
            if self.is(":") {
                let span = self.span();
                return self.unsupported(span, "a bit field", "use shifts and masks");
            }
            if !self.take(",") {
                break;
            }
        }
        self.expect(";", "after a field")
    }

    /// Parses a member function. Its errors are reported where it is called.
    fn member_function(&mut self, end: usize, members: &mut Members) -> ParseResult<()> {
        let (start, errors, nesting) = (self.at, self.errors.len(), self.nesting);
        let head = self.head_of(start, end);
        let has = |word: &'static str| head.iter().any(|token| token.kind == TokenKind::Reserved(word));
        let of_device = has("__device__") || has("constexpr");
        let tail: Vec<TokenKind> = self.tokens[start..end].iter().rev().take(3).map(|token| token.kind).collect();
        let ends_with =
            |word| matches!(tail[..], [TokenKind::Reserved(";"), TokenKind::Reserved(last), _] if last == word);
        let (is_defaulted, is_deleted) = (ends_with("default"), ends_with("delete"));
        let (of, params) = self.current_struct.clone().unwrap_or((self.unnamed, vec![]));
        let name = match self.declared_name(start, end) {
            _ if has("operator") => self.operator_in(&head),
            name => name,
        };
        let is_destructor = has("~") && !has("operator");
        let is_constructor = name == Some(of) && !is_destructor && !has("operator");
        members.has_constructor |= is_constructor && !is_defaulted;
        let copies = is_destructor || is_constructor && takes_own_type(&head, of);
        let is_empty = self.tokens[start..end]
            .iter()
            .rev()
            .map(|token| token.kind)
            .take(2)
            .eq([TokenKind::Reserved("}"), TokenKind::Reserved("{")]);
        let is_trivial = is_defaulted || is_destructor && is_empty || self.copies_members(start, end, members);
        if (copies && !is_trivial || has("virtual")) && members.copy_control.is_none() {
            let what = match (has("virtual"), is_deleted) {
                (true, _) => "a virtual function",
                (_, true) => "a deleted copy constructor or destructor",
                _ => "a copy constructor or destructor",
            };
            let what = format!("{what} is not supported");
            let hint = Some("write it '= default', or leave it out".into());
            let why = self.source.diagnostic(self.span(), what, super::NOT_IN_SUBSET.into(), hint);
            members.copy_control = Some(why);
        }
        let is_default_constructor = is_constructor && is_defaulted && !copies;
        if (is_defaulted || !of_device) && !is_deleted && !is_default_constructor || is_destructor || copies {
            self.at = end;
            return Ok(());
        }
        let kind = if is_constructor { MethodKind::Constructor } else { MethodKind::Plain };
        match self.method(of, params, kind) {
            Ok(Some(method)) if self.errors.len() == errors => members.methods.push(method),
            Ok(_) | Err(_) => {}
        }
        self.nesting = nesting;
        let errors: Vec<Diagnostic> = self.errors.drain(errors..).collect();
        if !errors.is_empty() {
            let (span, method_of) = (self.tokens[start].span, Some(of).filter(|_| !has("friend")));
            self.file.unsupported_functions.push(UnsupportedFunction {
                name,
                method_of,
                is_kernel: false,
                span,
                errors,
            });
        }
        self.at = end;
        Ok(())
    }

    /// Returns true for a copy constructor that copies every field, as the implicit one does.
    fn copies_members(&mut self, start: usize, end: usize, members: &Members) -> bool {
        let text = |token: &Token| match token.kind {
            TokenKind::Name(name) => self.names.text(name).to_owned(),
            TokenKind::Reserved(text) => text.to_owned(),
            _ => "?".to_owned(),
        };
        let tokens: Vec<String> = self.tokens[start..end].iter().map(text).collect();
        let Some(close) = tokens.iter().position(|token| token == ")").filter(|close| *close > 0) else { return false };
        let source = tokens[close - 1].clone();
        let rest = tokens[close + 1..].concat();
        let names: Vec<&str> = members.fields.iter().map(|field| self.names.text(field.name)).collect();
        let [initialized, assigned, through_this] = [
            names.iter().map(|name| format!("{name}({source}.{name})")).collect::<Vec<_>>().join(","),
            names.iter().map(|name| format!("{name}={source}.{name};")).collect::<String>(),
            names.iter().map(|name| format!("this->{name}={source}.{name};")).collect::<String>(),
        ];
        !names.is_empty()
            && (rest == format!(":{initialized}{{}}")
                || rest == format!("{{{assigned}}}")
                || rest == format!("{{{through_this}}}"))
    }

    /// Parses a member function with its specifiers; `None` for a declaration.
    fn method(
        &mut self,
        of: Symbol,
        mut templates: Vec<TemplateParam>,
        kind: MethodKind,
    ) -> ParseResult<Option<Function>> {
        if self.take("template") {
            templates.extend(self.template_params()?);
        }
        let (mut storage, mut is_friend, mut is_explicit) = (Storage::default(), false, false);
        loop {
            let before = self.at;
            storage = storage.merge(self.storage()?);
            is_friend |= self.take("friend");
            is_explicit |= self.take("explicit");
            if self.at == before {
                break;
            }
        }
        let result = match kind {
            MethodKind::Constructor => self.own_type(of),
            _ if self.is("operator") => {
                let span = self.span();
                return self.unsupported(span, "a conversion function", "write a named function");
            }
            _ => {
                let base = self.base_type()?;
                storage = storage.merge(self.storage()?);
                self.pointers(base)?
            }
        };
        let (name, span) = if self.is("operator") { self.operator_name()? } else { self.name("a function")? };
        if !templates.is_empty() && !is_friend {
            self.templates.insert(name);
        }
        let kind = match kind {
            MethodKind::Plain if storage.is_static => MethodKind::Static,
            kind => kind,
        };
        let method = Method { of, kind, is_const: false, is_explicit, initializers: vec![] };
        let method = if is_friend { None } else { Some(method) };
        self.method_rest(Signature { name, span, templates, storage, result }, method)
    }

    /// Parses a function from its parameters on.
    pub(super) fn method_rest(
        &mut self,
        signature: Signature,
        method: Option<Method>,
    ) -> ParseResult<Option<Function>> {
        let Signature { name, span, templates, storage, result } = signature;
        let order = self.at as u32;
        let params = self.params()?;
        let mut is_const = false;
        loop {
            is_const |= self.is("const");
            let is_word = matches!(self.kind(), TokenKind::Reserved("const" | "noexcept"))
                || matches!(self.kind(), TokenKind::Name(name) if matches!(self.names.text(name), "override" | "final"));
            if !is_word {
                break;
            }
            self.advance();
        }
        if self.take(";") {
            return Ok(None);
        }
        let is_deleted = self.is("=") && self.ahead(1) == TokenKind::Reserved("delete");
        let is_defaulted = self.is("=") && self.ahead(1) == TokenKind::Reserved("default");
        let has_body = !is_deleted && !is_defaulted;
        let mut initializers = vec![];
        if self.take(":") {
            while !self.is("{") {
                let (member, span) = self.name("a member")?;
                let args = if self.is("{") {
                    vec![self.braced_list()?]
                } else {
                    self.expect("(", "after a member")?;
                    self.list(")")?
                };
                initializers.push((member, span, args));
                if !self.take(",") {
                    break;
                }
            }
        }
        if has_body {
            self.expect("{", "before the body of a function")?;
        }
        self.block_names = vec![params.iter().map(|param| param.name).filter(|name| *name != self.unnamed).collect()];
        let body = if has_body { self.nested(|p| p.statements())? } else { vec![] };
        let method = method.map(|method| Box::new(Method { is_const, initializers, ..method }));
        Ok(Some(Function {
            name,
            span,
            templates,
            specialization: None,
            is_kernel: false,
            in_namespace: self.in_namespace(),
            is_constexpr: storage.constant,
            launch_bound: None,
            result,
            params,
            body,
            declared: order,
            order,
            is_deleted,
            method,
        }))
    }

    /// The type of the struct being parsed.
    pub(super) fn own_type(&self, name: Symbol) -> TypeName {
        let base = self.injected_name(name).unwrap_or(Base::Named(name));
        let span = self.span();
        TypeName { base, pointers: 0, constant: false, is_const_pointer: false, reference: false, span }
    }

    /// A struct template's name without arguments, inside the template: the instance itself.
    pub(super) fn injected_name(&self, name: Symbol) -> Option<Base> {
        let (_, params) = self.current_struct.as_ref().filter(|(of, params)| *of == name && !params.is_empty())?;
        let span = self.span();
        let arg = |param: &TemplateParam| {
            let ty =
                |base| TypeName { base, pointers: 0, constant: false, is_const_pointer: false, reference: false, span };
            match param.is_type() {
                true => TemplateArg::Type(ty(Base::Named(param.name))),
                false => {
                    TemplateArg::Value(Expr { kind: crate::cuda::ast::ExprKind::Name(param.name), span, depth: 1 })
                }
            }
        };
        Some(Base::Template(name, params.iter().map(arg).collect()))
    }

    /// Parses `operator+` and similar.
    pub(super) fn operator_name(&mut self) -> ParseResult<(Symbol, SourceSpan)> {
        let start = self.span();
        let found = self.operator_in(&self.tokens[self.at..(self.at + 4).min(self.tokens.len())]);
        self.advance();
        match found {
            Some(name) => {
                // `()` and `[]` are two tokens.
                let text = &self.names.text(name)["operator".len()..];
                let tokens = if matches!(text, "()" | "[]") { 2 } else { 1 };
                (0..tokens).for_each(|_| self.advance());
                Ok((name, start.to(self.last_span())))
            }
            None => self.unsupported(start, "a conversion function", "write a named function"),
        }
    }

    /// Name of the operator that some tokens declare.
    pub(super) fn operator_in(&self, tokens: &[Token]) -> Option<Symbol> {
        let at = tokens.iter().position(|token| token.kind == TokenKind::Reserved("operator"))?;
        let text = |n: usize| match tokens.get(at + n).map(|token| token.kind) {
            Some(TokenKind::Reserved(text)) => text,
            _ => "",
        };
        let token = match (text(1), text(2)) {
            ("(", ")") => "()",
            ("[", "]") => "[]",
            (token, _) => token,
        };
        let token = OVERLOADABLE.iter().find(|known| **known == token)?;
        self.names.find(&format!("operator{token}"))
    }
}

/// A function before its parameters.
pub struct Signature {
    pub name: Symbol,
    pub span: SourceSpan,
    pub templates: Vec<TemplateParam>,
    pub storage: Storage,
    pub result: TypeName,
}

/// Returns true if the only parameter of a constructor is a reference to its own type.
fn takes_own_type(head: &[Token], of: Symbol) -> bool {
    let Some(open) = head.iter().position(|token| token.kind == TokenKind::Reserved("(")) else { return false };
    let params: Vec<TokenKind> =
        head[open + 1..].iter().map(|token| token.kind).take_while(|kind| *kind != TokenKind::Reserved(")")).collect();
    let is_reference = params.iter().any(|kind| matches!(kind, TokenKind::Reserved("&" | "&&")));
    let is_own = params.iter().find_map(|kind| if let TokenKind::Name(name) = kind { Some(*name) } else { None });
    is_reference && is_own == Some(of) && !params.contains(&TokenKind::Reserved(","))
}
