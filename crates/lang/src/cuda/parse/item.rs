//! Parses the items of a file: kernels, device functions, globals. Host code is skipped; host
//! declarations that a kernel cannot use are recorded with the reason.

use super::method::Signature;
use super::{NOT_IN_SUBSET, ParseResult, Parser};
use crate::Diagnostic;
use crate::cuda::ast::{
    Base, Function, Method, MethodKind, Stmt, StmtKind, Storage, TemplateParam, TypeName, UnsupportedFunction,
};
use crate::cuda::lex::{Symbol, Token, TokenKind};

impl Parser<'_> {
    /// Parses all items.
    pub fn items(&mut self) {
        while self.kind() != TokenKind::End {
            if self.take(";") {
                continue;
            }
            if self.is("}") {
                self.close_scope();
                continue;
            }
            if self.is("#pragma pack") {
                self.pragma_pack();
                continue;
            }
            if self.open_scope() {
                self.open_scopes += 1;
                continue;
            }
            if self.is("namespace") {
                self.namespace_alias();
                continue;
            }
            if let TokenKind::Invalid(n) = self.kind() {
                let error = self.token_error(n);
                self.errors.push(error);
                self.advance();
                continue;
            }
            // Recovery continues at the end of the item, whatever failed inside.
            let (end, nesting) = (self.item_end(), self.nesting);
            self.shadowed.clear();
            for name in self.local_types.drain(..) {
                self.types.remove(&name);
            }
            let (start, before) = (self.at, self.errors.len());
            let skipped = self.is_host_item(end);
            self.note_function_pointer_alias(end);
            if !skipped {
                if self.item().is_err() {
                    self.nesting = nesting;
                }
                self.defer_errors(before, start, end);
            }
            if !skipped && !self.is_device_item(start, end) || skipped {
                self.host_items.push(start..end);
            }
            if skipped || self.at < end {
                self.at = end;
            }
        }
        if self.open_scopes > 0 && self.errors.is_empty() {
            let span = self.span();
            let _: ParseResult<()> = self.fail(span, "expected '}', found the end of the file", "expected '}'", "");
        }
    }

    /// Closes a namespace or `extern "C"`.
    fn close_scope(&mut self) {
        let span = self.span();
        self.advance();
        match self.open_scopes {
            0 if self.errors.is_empty() => {
                let _: ParseResult<()> = self.fail(span, "unmatched '}'", "no matching '{'", "remove it");
            }
            0 => {}
            _ => self.open_scopes -= 1,
        }
    }

    /// `namespace cg = cooperative_groups;`
    pub(super) fn namespace_alias(&mut self) {
        self.advance();
        if let TokenKind::Name(name) = self.kind() {
            self.namespaces.insert(name);
        }
        while !self.is(";") && self.kind() != TokenKind::End {
            self.advance();
        }
        self.take(";");
    }

    /// Opens `namespace x {` or `extern "C" {`; names of namespaces are recorded.
    fn open_scope(&mut self) -> bool {
        let mut length = self.is("inline") as usize;
        if self.is("extern") && matches!(self.ahead(1), TokenKind::Str(_)) && self.ahead(2) == TokenKind::Reserved("{")
        {
            length = 2;
        } else if self.ahead(length) == TokenKind::Reserved("namespace") {
            let mut names = vec![];
            loop {
                length += 1;
                match self.ahead(length) {
                    TokenKind::Name(name) => names.push(name),
                    TokenKind::Reserved("::" | "inline") => {}
                    TokenKind::Reserved("{") => break,
                    _ => return false,
                }
            }
            self.namespaces.extend(names);
        } else {
            return false;
        }
        (0..=length).for_each(|_| self.advance());
        true
    }

    /// Moves the errors of an item to it, to be reported where a kernel uses the item.
    fn defer_errors(&mut self, before: usize, start: usize, end: usize) {
        // An invalid token in a part that was not parsed: an attribute, an alignment.
        let invalid = self.tokens[start..end].iter().find_map(|token| match token.kind {
            TokenKind::Invalid(n) => Some(n),
            _ => None,
        });
        let before = before.min(self.errors.len());
        let mut errors: Vec<Diagnostic> = self.errors.drain(before..).collect();
        match invalid {
            Some(n) if errors.is_empty() => errors.push(self.token_error(n)),
            _ if errors.is_empty() => return,
            _ => {}
        }
        let item = &self.tokens[start..end];
        let head: Vec<Token> = self.head_of(start, end);
        let has = |word: &'static str| head.iter().any(|token| token.kind == TokenKind::Reserved(word));
        let is_operator = has("operator");
        let name = if is_operator { self.operator_in(&head) } else { self.declared_name(start, end) };
        let is_whole = item.last().is_some_and(|last| matches!(last.kind, TokenKind::Reserved("}")));
        let named = |two: &[Token]| {
            two[1].kind == TokenKind::Reserved("(") && name.is_some_and(|name| two[0].kind == TokenKind::Name(name))
        };
        let is_aggregate = ["struct", "class", "union", "enum", "typedef", "using"].iter().any(|word| has(word));
        let is_kernel = has("__global__");
        if is_kernel || !is_aggregate && (is_operator || is_whole && head.windows(2).any(named)) {
            let span = self.tokens[start].span;
            let function = UnsupportedFunction { name, method_of: None, is_kernel, span, errors };
            return self.file.unsupported_functions.push(function);
        }
        let names = if is_aggregate { name.into_iter().collect() } else { declarator_names(&head) };
        for name in names {
            self.types.remove(&name);
            self.struct_templates.remove(&name);
            self.file.unsupported_items.push((name, errors[0].clone()));
        }
    }

    /// Records an alias of a function pointer type as unsupported.
    fn note_function_pointer_alias(&mut self, end: usize) {
        let all = &self.tokens[self.at..end];
        let pointer = all.iter().position(|token| token.kind == TokenKind::Reserved("*"));
        let name = match (self.kind(), self.ahead(1), pointer.map(|at| self.ahead(at + 1))) {
            (TokenKind::Reserved("typedef"), _, Some(TokenKind::Name(name))) => name,
            (TokenKind::Reserved("using"), TokenKind::Name(name), Some(_)) => name,
            _ => return,
        };
        if all.windows(2).any(|two| two[0].kind == TokenKind::Reserved("(") && two[1].kind == TokenKind::Reserved("*"))
        {
            let (what, label) = ("a pointer to a function is not supported", NOT_IN_SUBSET);
            let why = self.source.diagnostic(self.span(), what.into(), label.into(), None);
            self.file.unsupported_items.push((name, why));
        }
    }

    /// Number of tokens of `template <…>` at `start`.
    pub(super) fn template_header_len(&self, start: usize) -> usize {
        let two = self.tokens.get(start..start + 2).unwrap_or_default();
        if !two.iter().map(|token| token.kind).eq([TokenKind::Reserved("template"), TokenKind::Reserved("<")]) {
            return 0;
        }
        let (mut depth, mut angles) = (0usize, 0usize);
        for (n, token) in self.tokens[start..].iter().enumerate().skip(1) {
            match token.kind {
                TokenKind::Reserved("(" | "[" | "{") => depth += 1,
                TokenKind::Reserved(")" | "]" | "}") => depth = depth.saturating_sub(1),
                TokenKind::Reserved("<") if depth == 0 => angles += 1,
                TokenKind::Reserved(">") if depth == 0 => angles = angles.saturating_sub(1),
                TokenKind::Reserved(sign @ (">>" | ">>>")) if depth == 0 => angles = angles.saturating_sub(sign.len()),
                TokenKind::Reserved(";") | TokenKind::End => return 0,
                _ => {}
            }
            if angles == 0 {
                return n + 1;
            }
        }
        0
    }

    /// Index of the token after the item here.
    pub(super) fn item_end(&self) -> usize {
        let (mut depth, mut assigned) = (0usize, false);
        for n in self.at + self.template_header_len(self.at)..self.tokens.len() {
            match self.tokens[n].kind {
                TokenKind::Reserved("(" | "[" | "{") => depth += 1,
                TokenKind::Reserved(")" | "]") => depth = depth.saturating_sub(1),
                TokenKind::Reserved("=") if depth == 0 => assigned = true,
                TokenKind::Reserved("}") => {
                    depth = depth.saturating_sub(1);
                    // `Pair(int v) : a{v}, b{v} { … }`.
                    let next = self.tokens.get(n + 1).map(|token| token.kind);
                    let continues = matches!(next, Some(TokenKind::Reserved("," | "{")));
                    if depth == 0 && !assigned && !continues {
                        return self.after_semicolon(n + 1);
                    }
                }
                TokenKind::Reserved(";") if depth == 0 => return n + 1,
                TokenKind::End => return n,
                _ => {}
            }
        }
        self.tokens.len() - 1
    }

    /// Index after an optional semicolon that follows a brace: `};`, `} name;`.
    fn after_semicolon(&self, at: usize) -> usize {
        let kind = |n: usize| self.tokens.get(n).map(|token| token.kind);
        let aggregate = matches!(self.kind(), TokenKind::Reserved("typedef" | "struct" | "class" | "union" | "enum"));
        match (kind(at), kind(at + 1)) {
            (Some(TokenKind::Reserved(";")), _) => at + 1,
            (Some(TokenKind::Name(_)), Some(TokenKind::Reserved(";"))) if aggregate => at + 2,
            _ => at,
        }
    }

    fn head(&self, end: usize) -> Vec<Token> {
        self.head_of(self.at, end)
    }

    /// Tokens of an item before its body or initializer, without template parameters and alignment
    /// specifiers.
    pub(super) fn head_of(&self, start: usize, end: usize) -> Vec<Token> {
        let mut out: Vec<Token> = vec![];
        let mut at = (start + self.template_header_len(start)).min(end);
        while at < end {
            let token = self.tokens[at];
            at += 1;
            match token.kind {
                TokenKind::Reserved("{" | ";" | "=") => break,
                TokenKind::Reserved("__align__" | "alignas") => {
                    at = (at..end).find(|n| self.tokens[*n].kind == TokenKind::Reserved(")")).map_or(end, |n| n + 1);
                }
                _ => out.push(token),
            }
        }
        out
    }

    /// Returns true for device code.
    fn is_device_item(&self, start: usize, end: usize) -> bool {
        let words = ["__global__", "__device__", "__constant__", "__shared__", "__managed__"];
        self.head_of(start, end)
            .iter()
            .any(|token| matches!(token.kind, TokenKind::Reserved(word) if words.contains(&word)))
    }

    /// Returns true for items to skip: host code, and helper functions of the CUDA printer.
    fn is_host_item(&self, end: usize) -> bool {
        let head = self.head(end);
        let names = head.iter().filter_map(|t| if let TokenKind::Name(s) = t.kind { Some(s) } else { None });
        if names.clone().any(|s| self.names.text(s).starts_with("bn_") && self.item_name(&head) == Some(s)) {
            return true;
        }
        let has = |word: &'static str| head.iter().any(|t| t.kind == TokenKind::Reserved(word));
        if has("__global__") || has("__device__") || has("__constant__") || has("__shared__") || has("constexpr") {
            return false;
        }
        let parenthesis = has("(");
        let declares = has("struct") || has("typedef") || has("using") || has("enum") || has("union") || has("class");
        if declares && !parenthesis {
            // using namespace std; using std::min;
            return has("using") && (has("namespace") || has("::"));
        }
        if has("static_assert") {
            return true;
        }
        // Host constants are visible in kernels too, also `const int n(4);`.
        let initialized = |three: &[Token]| {
            matches!(three[0].kind, TokenKind::Name(_))
                && three[1].kind == TokenKind::Reserved("(")
                && match three[2].kind {
                    TokenKind::Int { .. } | TokenKind::Float { .. } => true,
                    TokenKind::Name(name) => {
                        let globals = &self.file.globals;
                        globals.iter().any(|(_, found)| found.name == name)
                    }
                    _ => false,
                }
        };
        parenthesis && !head.windows(3).any(initialized) || !has("const")
    }

    /// Name that an item declares: before the parenthesis of a function, otherwise the last name.
    fn item_name(&self, head: &[Token]) -> Option<Symbol> {
        let name = |kind: TokenKind| if let TokenKind::Name(symbol) = kind { Some(symbol) } else { None };
        let aggregate =
            |token: &Token| matches!(token.kind, TokenKind::Reserved("struct" | "class" | "union" | "enum"));
        if let Some(n) = head.iter().position(aggregate) {
            return head[n..].iter().find_map(|token| name(token.kind));
        }
        let pairs =
            head.windows(2).find(|pair| pair[1].kind == TokenKind::Reserved("(") && name(pair[0].kind).is_some());
        match pairs {
            Some(pair) => name(pair[0].kind),
            None => head.iter().rev().find_map(|t| name(t.kind)),
        }
    }

    /// Name that an item declares.
    pub(super) fn declared_name(&self, start: usize, end: usize) -> Option<Symbol> {
        let name = |token: &Token| if let TokenKind::Name(symbol) = token.kind { Some(symbol) } else { None };
        match self.tokens[start].kind {
            TokenKind::Reserved("typedef") => self.tokens[start..end].iter().rev().find_map(name),
            TokenKind::Reserved("using") => self.tokens[start..end].iter().find_map(name),
            _ => self.item_name(&self.head_of(start, end)),
        }
    }

    fn item(&mut self) -> ParseResult<()> {
        let start = self.span();
        match self.kind() {
            TokenKind::Reserved("struct" | "class") if self.defines_struct() => self.struct_item(vec![]),
            TokenKind::Reserved("typedef")
                if self.ahead(1) == TokenKind::Reserved("struct") && self.has_brace(self.at + 2) =>
            {
                self.advance();
                self.struct_item(vec![])
            }
            TokenKind::Reserved("typedef") => {
                self.advance();
                let ty = self.type_name()?;
                let (name, _) = self.name("an alias")?;
                self.expect(";", "after an alias")?;
                self.types.insert(name);
                self.file.aliases.push((name, ty));
                Ok(())
            }
            TokenKind::Reserved("using") => {
                self.advance();
                let (name, _) = self.name("an alias")?;
                self.expect("=", "after the name of an alias")?;
                let ty = self.type_name()?;
                self.expect(";", "after an alias")?;
                self.types.insert(name);
                self.file.aliases.push((name, ty));
                Ok(())
            }
            TokenKind::Reserved("enum") => self.enum_item(),
            TokenKind::Reserved("union") => self.unsupported(start, "'union'", "write a struct"),
            TokenKind::Reserved("template") => self.template(),
            _ => self.function_or_global(vec![], false),
        }
    }

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
            return self.out_of_class_method(of, templates, storage, ty);
        }
        let follows = if specialization { "<" } else { "(" };
        let is_function =
            matches!((self.kind(), self.ahead(1)), (TokenKind::Name(_), TokenKind::Reserved(sign)) if sign == follows);
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
            self.file.globals.extend(all.into_iter().map(|found| (storage, found)));
            return Ok(());
        }
        let (name, span) = self.name("a function")?;
        if self.is_type_name(name) {
            self.function_names.insert(name);
        }
        if !templates.is_empty() {
            self.templates.insert(name);
        }
        let specialization = if specialization { Some(self.template_args()?) } else { None };
        if specialization.is_some() && is_kernel {
            return self.unsupported(span, "a kernel specialization", "write a kernel with another name");
        }
        let mut params = self.params()?;
        self.take("const");
        self.take("noexcept");
        let known =
            self.forward_declarations.iter().find(|(found, known)| *found == name && known.len() == params.len());
        if let Some((_, known)) = known {
            // Default arguments come from the first declaration.
            params
                .iter_mut()
                .zip(known)
                .for_each(|(param, known)| param.init = param.init.take().or(known.init.clone()));
        }
        if self.take(";") {
            self.forward_declarations.push((name, params));
            return Ok(());
        }
        if is_kernel && ty.base != Base::Void {
            return self.fail(start.to(ty.span), "a kernel must return 'void'", "expected 'void'", "write 'void'");
        }
        self.expect("{", "before the body of a function")?;
        let errors = self.errors.len();
        self.block_names = vec![params.iter().map(|param| param.name).filter(|name| *name != self.unnamed).collect()];
        let body = self.nested(|p| p.statements())?;
        if self.errors.len() > errors {
            return Ok(());
        }
        let (in_namespace, is_constexpr) = (self.open_scopes > 0, storage.constant);
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
            method: None,
        };
        self.check_not_redefined(&function)?;
        self.file.functions.push(function);
        Ok(())
    }

    /// Returns true for a variable that is initialized in parentheses: `constexpr int n(4);`.
    fn initializes_variable(&self, storage: &Storage) -> bool {
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
    fn variable_template(&mut self, name: Symbol, templates: Vec<TemplateParam>, base: TypeName) -> ParseResult<()> {
        let declared = self.declarator(&base, "a variable")?;
        let (true, Some(init)) = (declared.sizes.is_empty(), declared.init) else {
            return self.unsupported(declared.span, "a variable template without a value", "");
        };
        self.expect(";", "after a declaration")?;
        self.templates.insert(name);
        self.variable_templates.insert(name);
        let result = TypeName { constant: false, ..declared.ty };
        let body = vec![Stmt { span: init.span, kind: StmtKind::Return(Some(init)) }];
        self.file.functions.push(Function {
            name,
            span: declared.span,
            templates,
            specialization: None,
            is_kernel: false,
            in_namespace: self.open_scopes > 0,
            is_constexpr: true,
            launch_bound: None,
            result,
            params: vec![],
            body,
            method: None,
        });
        Ok(())
    }

    /// The struct of a member function that is defined outside of it: `S::f(`, `S<T>::f(`.
    fn out_of_class_struct(&self) -> Option<Symbol> {
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

    /// Parses a member function outside of its struct.
    fn out_of_class_method(
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
        let method = Method { of, kind: MethodKind::Plain, is_const: false, initializers: vec![] };
        let signature = Signature { name, span, templates, storage, result };
        let function = self.method_rest(signature, Some(method));
        self.current_struct = outer;
        self.file.functions.extend(function?);
        Ok(())
    }

    /// Returns true if a brace follows before the end of the statement at `at`.
    fn has_brace(&self, at: usize) -> bool {
        let rest = self.tokens[at.min(self.tokens.len())..].iter().map(|token| token.kind);
        rest.take_while(|kind| *kind != TokenKind::Reserved(";")).any(|kind| kind == TokenKind::Reserved("{"))
    }

    /// Parses the parameters of a function, including the parentheses.
    pub(super) fn params(&mut self) -> ParseResult<Vec<crate::cuda::ast::Declarator>> {
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

    /// Rejects a redefinition.
    fn check_not_redefined(&mut self, new: &Function) -> ParseResult<()> {
        let signature = |ty: &TypeName| {
            let constant = ty.constant && (ty.pointers > 0 || ty.reference);
            (ty.base.clone(), ty.pointers, ty.reference, constant)
        };
        let owner = |function: &Function| function.method.as_ref().map(|method| (method.of, method.is_const));
        let alike = |old: &Function| {
            owner(old) == owner(new)
                && old.params.len() == new.params.len()
                && old.templates.len() == new.templates.len()
                && old.specialization.is_none()
                && new.specialization.is_none()
                && old
                    .params
                    .iter()
                    .zip(&new.params)
                    .all(|(a, b)| signature(&a.ty) == signature(&b.ty) && a.sizes.len() == b.sizes.len())
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

/// Names that a declaration of variables declares.
fn declarator_names(head: &[Token]) -> Vec<Symbol> {
    let after = head.iter().skip(1).map(|token| token.kind).chain([TokenKind::Reserved(";")]);
    let names = head.iter().zip(after).filter_map(|(token, next)| match (token.kind, next) {
        (TokenKind::Name(name), TokenKind::Reserved("," | ";" | "[" | "(")) => Some(name),
        _ => None,
    });
    names.collect()
}
