//! Parses the items of a file: kernels, device functions, globals. Host code is skipped; host
//! declarations that a kernel cannot use are recorded with the reason.

use super::{NOT_IN_SUBSET, OutlineEntry, OutlineKind, ParseResult, Parser};
use crate::Diagnostic;
use crate::cuda::ast::UnsupportedFunction;
use crate::cuda::lex::{Symbol, Token, TokenKind};

/// Maximum nesting of namespaces.
const MAX_NAMESPACES: usize = 200;

impl Parser<'_> {
    /// Parses all items.
    pub fn items(&mut self) {
        while self.kind() != TokenKind::End {
            if self.take(";") {
                continue;
            }
            let first = self.at;
            if self.is("}") {
                self.close_scope();
                self.record(OutlineKind::Close, first, self.at);
                continue;
            }
            if self.is("#pragma pack") {
                self.pragma_pack();
                continue;
            }
            if self.open_scope() {
                self.record(OutlineKind::Open, first, self.at);
                continue;
            }
            if self.is("namespace") {
                self.namespace_alias();
                self.record(OutlineKind::Item, first, self.at);
                continue;
            }
            if let TokenKind::Invalid { error: n, .. } = self.kind() {
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
            let is_host = skipped && !self.is("static_assert") && !self.is("using") && !self.is_device_item(start, end);
            self.record(if is_host { OutlineKind::Host } else { OutlineKind::Item }, start, end);
            if self.is("static_assert") {
                self.file_assertion();
                (self.at, self.nesting) = (end, nesting);
                continue;
            }
            self.record_using(end);
            self.note_function_pointer_alias(end);
            if !skipped {
                if self.item().is_err() {
                    self.nesting = nesting;
                }
                self.defer_errors(before, start, end);
            }
            self.check_finished(start, end);
            if skipped || !self.is_device_item(start, end) {
                self.host_items.push(start..end);
            }
            if skipped && self.head_of(start, end).iter().any(|token| token.kind == TokenKind::Reserved("(")) {
                let name = self.declared_name(start, end);
                self.file.host_functions.extend(name);
            }
            if skipped || self.at < end {
                self.at = end;
            }
        }
        if !self.open_scopes.is_empty() && self.errors.is_empty() {
            let span = self.span();
            let _: ParseResult<()> = self.fail(span, "expected '}', found the end of the file", "expected '}'", "");
        }
    }

    fn record(&mut self, kind: OutlineKind, start: usize, end: usize) {
        self.outline.push(OutlineEntry { kind, tokens: start..end });
    }

    /// Closes a namespace or `extern "C"`.
    fn close_scope(&mut self) {
        let span = self.span();
        self.advance();
        match self.open_scopes.pop() {
            None if self.errors.is_empty() => {
                let _: ParseResult<()> = self.fail(span, "unmatched '}'", "no matching '{'", "remove it");
            }
            Some(Some(namespace)) => self.file.namespaces.close(namespace, span.start),
            _ => {}
        }
    }

    /// Records the name of `using a::f;` or `using namespace a;` that ends before token `end`.
    pub(super) fn record_using(&mut self, end: usize) {
        let is_alias = self.ahead(2) == TokenKind::Reserved("=");
        if !self.is("using") || is_alias {
            return;
        }
        let names = self.tokens[self.at..end].iter().rev();
        if let Some(name) =
            names.filter_map(|t| if let TokenKind::Name(name) = t.kind { Some(name) } else { None }).next()
        {
            self.file.namespaces.record_using(name);
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
        if !self.take(";") {
            let span = self.span();
            let what = "expected the end of a namespace declaration, found the end of the file";
            let _: ParseResult<()> = self.fail(span, what, "expected ';' or '{'", "");
        }
    }

    /// Opens `namespace x {` or `extern "C" {`; names of namespaces are recorded.
    fn open_scope(&mut self) -> bool {
        let is_inline = self.is("inline");
        let mut length = is_inline as usize;
        if self.is("extern") && matches!(self.ahead(1), TokenKind::Str(_)) && self.ahead(2) == TokenKind::Reserved("{")
        {
            length = 2;
            self.open_scopes.push(None);
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
            if self.open_scopes.len() >= MAX_NAMESPACES {
                if self.errors.is_empty() {
                    let (span, what) = (self.span(), format!("more than {MAX_NAMESPACES} nested namespaces"));
                    let _: ParseResult<()> = self.unsupported(span, &what, "");
                }
                self.at = self.tokens.len() - 1;
                return true;
            }
            let outer = self.open_scopes.iter().rev().find_map(|scope| *scope);
            let own: &[Symbol] = if is_inline { &[] } else { &names };
            let namespace = self.file.namespaces.open(outer, own, self.span().start);
            self.open_scopes.push(Some(namespace));
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
            TokenKind::Invalid { error: n, .. } => Some(n),
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
        if let Some((name, method_of)) = self.specialized_function(&head).filter(|_| !has("__global__")) {
            let span = self.tokens[start].span;
            let function = UnsupportedFunction { name: Some(name), method_of, is_kernel: false, span, errors };
            return self.file.unsupported_functions.push(function);
        }
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

    /// Function or variable template that an item specializes, or member function that it defines
    /// outside of its struct; the struct follows.
    fn specialized_function(&self, head: &[Token]) -> Option<(Symbol, Option<Symbol>)> {
        let kind = |n: usize| head.get(n).map(|token| token.kind);
        let struct_before = |at: usize| {
            if at < 2 || kind(at - 1) != Some(TokenKind::Reserved("::")) {
                return None;
            }
            head[..at].iter().rev().find_map(|token| match token.kind {
                TokenKind::Name(of) => Some(of).filter(|of| self.file.structs.iter().any(|item| item.name == *of)),
                _ => None,
            })
        };
        let at = (0..head.len()).find(|n| match (kind(*n), kind(n + 1)) {
            (_, Some(TokenKind::Reserved("("))) => true,
            (Some(TokenKind::Name(name)), Some(TokenKind::Reserved("<"))) => self.templates.contains(&name),
            _ => false,
        })?;
        let TokenKind::Name(name) = head[at].kind else { return None };
        let method_of = struct_before(at);
        (kind(at + 1) == Some(TokenKind::Reserved("<")) || method_of.is_some()).then_some((name, method_of))
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
