//! Parser: tokens to syntax. Parsing continues after an error, so that one run reports several.
//!
//! Host code in the same file is skipped, and so are the helper functions that the CUDA printer
//! writes before a kernel: functions whose names begin with `bn_` are built in
//! (`printer_functions.rs`).

mod aggregate;
mod assertion;
mod classify;
mod enums;
mod expr;
mod function;
mod host;
mod instances;
mod item;
mod method;
mod stmt;
mod template;
mod types;

use std::ops::Range;

use foldhash::{HashSet, HashSetExt};

use super::ast::{Declarator, Expr, ExprKind, File, Storage, TemplateParam};
use super::lex::{Interner, LexError, Symbol, Token, TokenKind};
use super::namespaces::Qualifier;
use super::preprocess::MissingHeader;
use super::types::{builtin_type, is_collective, is_group_type};
use crate::SourceSpan;
use crate::diagnostic::{Diagnostic, Source};

/// Maximum nesting of statements and parentheses.
const MAX_NESTING: usize = 100;
/// Maximum conditions of an else-if chain.
const MAX_ARMS: usize = 500;
/// Maximum depth of an expression tree: that many terms in a sum, for example.
const MAX_DEPTH: u16 = 200;
/// Errors after which the rest of a file is skipped.
const MAX_ERRORS: usize = 20;

/// Label of unsupported constructs.
const NOT_IN_SUBSET: &str = "not in the subset";

/// Marker of a failed parse; its error is in [`Parser::errors`].
pub struct Failed;

pub type ParseResult<T> = Result<T, Failed>;

pub struct Parser<'a> {
    source: &'a Source,
    names: &'a Interner,
    tokens: &'a [Token],
    at: usize,
    nesting: usize,
    /// True if the current declaration is a shared array that the CUDA printer placed in
    /// `bn_shared`.
    placed_shared: bool,
    /// Type names: structs, aliases, template parameters.
    types: HashSet<Symbol>,
    /// Type names that are local to the current item.
    local_types: Vec<Symbol>,
    /// Type names that the current item uses for variables: `half`.
    shadowed: HashSet<Symbol>,
    /// Type names that the file uses for functions.
    function_names: HashSet<Symbol>,
    /// Names of function templates.
    templates: HashSet<Symbol>,
    /// Names of variable templates.
    variable_templates: HashSet<Symbol>,
    /// Specifiers that follow a qualifier: `volatile __shared__ int`.
    inner_storage: Storage,
    /// Names of struct templates.
    struct_templates: HashSet<Symbol>,
    /// The struct whose members are being parsed, with its template parameters.
    current_struct: Option<(Symbol, Vec<TemplateParam>)>,
    /// Names of namespaces.
    namespaces: HashSet<Symbol>,
    /// Current limit of `#pragma pack` in bytes, and those saved by `push`.
    pack: Option<u64>,
    packs: Vec<Option<u64>>,
    /// Enclosing namespaces, by index; `None` for `extern "C"` blocks.
    open_scopes: Vec<Option<usize>>,
    /// Name of unnamed parameters.
    unnamed: Symbol,
    /// Names declared in the enclosing blocks, innermost last.
    block_names: Vec<Vec<Symbol>>,
    /// Forward declarations of functions, with their parameters and their order.
    forward_declarations: Vec<(Symbol, Vec<Declarator>, u32)>,
    /// True while `>>` closes the template argument list being parsed; the number of `>` consumed
    /// of the current token.
    in_angles: bool,
    angles_read: usize,
    /// Errors of invalid tokens, by index.
    token_errors: &'a [LexError],
    missing_headers: &'a [MissingHeader],
    /// Token ranges of host code, which may launch kernels.
    host_items: Vec<Range<usize>>,
    pub errors: Vec<Diagnostic>,
    pub file: File,
    pub outline: Vec<OutlineEntry>,
}

/// A declaration outside of all others, or an end of a scope around some, by its tokens.
pub struct OutlineEntry {
    pub kind: OutlineKind,
    pub tokens: Range<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutlineKind {
    /// `namespace a {`, `extern "C" {`.
    Open,
    /// The brace that closes a scope.
    Close,
    /// Code of the host, which kernels cannot use.
    Host,
    /// Other declarations.
    Item,
}

impl<'a> Parser<'a> {
    pub fn new(
        source: &'a Source,
        names: &'a Interner,
        tokens: &'a [Token],
        token_errors: &'a [LexError],
        missing_headers: &'a [MissingHeader],
        unnamed: Symbol,
    ) -> Parser<'a> {
        Parser {
            source,
            names,
            tokens,
            at: 0,
            nesting: 0,
            placed_shared: false,
            types: HashSet::new(),
            local_types: vec![],
            shadowed: HashSet::new(),
            function_names: HashSet::new(),
            templates: HashSet::new(),
            variable_templates: HashSet::new(),
            inner_storage: Storage::default(),
            struct_templates: HashSet::new(),
            current_struct: None,
            namespaces: HashSet::new(),
            pack: None,
            packs: vec![],
            open_scopes: vec![],
            unnamed,
            block_names: vec![],
            forward_declarations: vec![],
            in_angles: false,
            angles_read: 0,
            token_errors,
            missing_headers,
            host_items: vec![],
            errors: vec![],
            file: File::default(),
            outline: vec![],
        }
    }

    fn token(&self) -> Token {
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn kind(&self) -> TokenKind {
        self.token().kind
    }

    fn ahead(&self, by: usize) -> TokenKind {
        self.tokens[(self.at + by).min(self.tokens.len() - 1)].kind
    }

    fn span(&self) -> SourceSpan {
        self.token().span
    }

    /// Span of the previous token.
    fn last_span(&self) -> SourceSpan {
        self.tokens[self.at.saturating_sub(1).min(self.tokens.len() - 1)].span
    }

    fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        self.angles_read = 0;
    }

    fn is(&self, token: &str) -> bool {
        matches!(self.kind(), TokenKind::Reserved(found) if found == token)
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.is(token);
        if found {
            self.advance();
        }
        found
    }

    fn text(&self, span: SourceSpan) -> &'a str {
        self.source.text_of(span)
    }

    fn fail<T>(
        &mut self,
        span: SourceSpan,
        message: impl Into<String>,
        label: impl Into<String>,
        hint: &str,
    ) -> ParseResult<T> {
        let hint = (!hint.is_empty()).then(|| hint.to_owned());
        let found = match self.kind() {
            TokenKind::Invalid { error: n, .. } => self.token_error(n),
            _ => self.source.diagnostic(span, message.into(), label.into(), hint),
        };
        // One error per position: later ones are consequences of the first.
        if self.errors.len() < MAX_ERRORS && self.errors.last().is_none_or(|last| last.span.start != span.start) {
            self.errors.push(found);
        }
        Err(Failed)
    }

    /// The error of an invalid token.
    fn token_error(&self, n: u32) -> Diagnostic {
        let (span, what, hint) = &self.token_errors[n as usize];
        self.source.diagnostic(*span, what.clone(), String::new(), hint.map(Into::into))
    }

    /// Reports an unsupported construct.
    fn unsupported<T>(&mut self, span: SourceSpan, construct: &str, hint: &str) -> ParseResult<T> {
        self.fail(span, format!("{construct} is not supported"), NOT_IN_SUBSET, hint)
    }

    fn current_text(&self) -> String {
        match self.kind() {
            TokenKind::End => "the end of the file".into(),
            _ => format!("'{}'", self.text(self.span())),
        }
    }

    fn expect(&mut self, token: &str, after: &str) -> ParseResult<()> {
        if self.take(token) {
            return Ok(());
        }
        let (span, found) = (self.span(), self.current_text());
        self.fail(span, format!("expected '{token}' {after}, found {found}"), format!("expected '{token}'"), "")
    }

    fn name(&mut self, what: &str) -> ParseResult<(Symbol, SourceSpan)> {
        let span = self.span();
        if let TokenKind::Name(symbol) = self.kind() {
            self.advance();
            return Ok((symbol, span));
        }
        let found = self.current_text();
        self.fail(span, format!("expected the name of {what}, found {found}"), "expected a name", "")
    }

    fn is_type_name(&self, symbol: Symbol) -> bool {
        !self.shadowed.contains(&symbol)
            && !self.function_names.contains(&symbol)
            && (self.types.contains(&symbol) || is_builtin_name(self.names.text(symbol)))
    }

    /// Declares a type name that is local to the current item.
    fn local_type(&mut self, name: Symbol) {
        if self.types.insert(name) {
            self.local_types.push(name);
        }
        self.shadowed.remove(&name);
    }

    /// Returns true inside a namespace with a name.
    fn in_namespace(&self) -> bool {
        !self.file.namespaces.path_at(self.span().start).is_empty()
    }

    /// Skips the tokens that qualify the name after them and records them; `start` is the position
    /// of the expression or type.
    fn qualifier(&mut self, start: SourceSpan) {
        let length = self.scope_prefix_len();
        let TokenKind::Name(name) = self.ahead(length) else { return };
        if length > 0 {
            let names =
                (0..length).filter_map(|n| if let TokenKind::Name(name) = self.ahead(n) { Some(name) } else { None });
            let qualifier = Qualifier { is_rooted: self.is("::"), path: names.collect() };
            self.file.namespaces.qualify(start.start, name, qualifier);
        }
        (0..length).for_each(|_| self.advance());
    }

    /// Number of tokens here that qualify a name: `util::`, `::`.
    fn scope_prefix_len(&self) -> usize {
        let mut length = 0;
        loop {
            length += match (self.ahead(length), self.ahead(length + 1)) {
                (TokenKind::Reserved("::"), TokenKind::Name(_)) if length == 0 => 1,
                (TokenKind::Name(name), TokenKind::Reserved("::")) if self.is_namespace(name, length) => 2,
                _ => return length,
            };
        }
    }

    fn is_namespace(&self, name: Symbol, at: usize) -> bool {
        match self.names.text(name) {
            "std" | "cooperative_groups" => true,
            "cub" => match self.ahead(at + 2) {
                TokenKind::Name(next) => {
                    let next = self.names.text(next);
                    is_collective(next) || matches!(next, "Sum" | "Max" | "Min") || next.starts_with("BLOCK_")
                }
                _ => false,
            },
            "cuda" => matches!(self.ahead(at + 2), TokenKind::Name(next) if self.names.text(next) == "std"),
            _ => self.namespaces.contains(&name),
        }
    }

    /// Reports a use of an item that is not supported.
    fn check_supported(&mut self, name: Symbol, span: SourceSpan) -> ParseResult<()> {
        let Some(why) = self.file.unsupported_item(name, self.names, self.source, span) else {
            return Ok(());
        };
        let again = self.errors.iter().any(|error| error.span == why.span && error.message == why.message);
        if !again && self.errors.len() < MAX_ERRORS {
            self.errors.push(why);
        }
        Err(Failed)
    }

    /// Parses a block, whose names may hide those outside.
    fn scoped<T>(&mut self, inner: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        let level = self.block_names.len();
        self.block_names.push(vec![]);
        let out = inner(self);
        self.block_names.truncate(level);
        out
    }

    /// Parses one level deeper, up to [`MAX_NESTING`].
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.nesting >= MAX_NESTING {
            let span = self.span();
            let what = format!("nesting deeper than {MAX_NESTING} levels");
            return self.fail(span, what, "too deep", "split it");
        }
        self.nesting += 1;
        let out = inner(self);
        self.nesting -= 1;
        out
    }

    fn make_expr(&mut self, kind: ExprKind, span: SourceSpan, below: u16) -> ParseResult<Expr> {
        if below >= MAX_DEPTH {
            let what = format!("expression deeper than {MAX_DEPTH} levels");
            return self.fail(span, what, "too deep", "split it with variables");
        }
        Ok(Expr { kind, span, depth: below + 1 })
    }

    /// Skips past the bracket that closes the one here.
    fn skip_brackets(&mut self) {
        let mut depth = 0usize;
        loop {
            match self.kind() {
                TokenKind::Reserved("(" | "[" | "{") => depth += 1,
                TokenKind::Reserved(")" | "]" | "}") => depth = depth.saturating_sub(1),
                TokenKind::End => return,
                _ => {}
            }
            self.advance();
            if depth == 0 {
                return;
            }
        }
    }
}

/// Returns true for types that CUDA and the C++ library define.
fn is_builtin_name(name: &str) -> bool {
    builtin_type(name).is_some() || is_group_type(name) || is_collective(name)
}
