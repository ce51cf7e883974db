//! Preprocessor: directives here, macros in `macros.rs`, conditions in `condition.rs`, included
//! files in `include.rs`.
//!
//! An invalid use of a macro becomes an invalid token, so that it costs only the item that contains
//! it. Errors that make the rest of the file unreliable (`#error`, unmatched conditionals) are
//! errors of the file.

mod condition;
mod expand;
mod include;
mod macros;
mod pragma;
mod trace;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};

use super::lex::{self, Interner, LexError, Symbol, Token, TokenKind, invalid};
use crate::diagnostic::Source;
use include::IncludedHeader;
pub use include::{MissingHeader, undeclared_hint};
use macros::Macro;
pub use trace::{TraceElement, TraceKind};

/// Maximum tokens of a file after macro expansion, which bounds memory.
pub const MAX_TOKENS: usize = 400_000;
/// Maximum tokens read during macro expansion, which bounds time: macros may expand to nothing.
const MAX_EXPANDED_TOKENS: usize = 10 * MAX_TOKENS;
/// Maximum nesting of macros in macros and of calls in arguments of calls.
const MAX_MACRO_DEPTH: usize = 64;

/// Macros and include folders of a CUDA C++ source, as a compiler's `-D` and `-I` specify them.
#[derive(Clone, Debug, Default)]
pub struct PreprocessorOptions {
    /// Folders that are searched for headers, after the folder of the including file.
    pub include_dirs: Vec<PathBuf>,
    /// Macros, as `NAME` or `NAME=VALUE`.
    pub defines: Vec<String>,
}

/// Result of preprocessing.
pub struct Preprocessed {
    /// Tokens for the parser; those of invalid uses refer to `token_errors`.
    pub tokens: Vec<Token>,
    pub token_errors: Vec<LexError>,
    /// Errors of the file as a whole.
    pub file_errors: Vec<LexError>,
    pub missing_headers: Vec<MissingHeader>,
    /// Paths of the included files.
    pub included: Vec<PathBuf>,
    /// Source elements in reading order, if requested.
    pub trace: Option<Vec<TraceElement>>,
}

pub struct Preprocessor<'a> {
    source: &'a mut Source,
    names: &'a mut Interner,
    options: &'a PreprocessorOptions,
    macros: HashMap<Symbol, Rc<Macro>>,
    out: Vec<Token>,
    token_errors: Vec<LexError>,
    file_errors: Vec<LexError>,
    aborted: bool,
    /// Tokens read during macro expansion.
    expanded_tokens: usize,
    /// Number of macro calls whose arguments are being expanded.
    open_calls: usize,
    /// True if the text being expanded ends at a directive.
    before_directive: bool,
    /// Value of the next `__COUNTER__`.
    counter: u64,
    headers: Vec<IncludedHeader>,
    missing_headers: Vec<MissingHeader>,
    /// Open braces of the first tokens of `out`, and their number; true for those of namespaces and
    /// `extern "C"`.
    open_braces: Vec<bool>,
    scanned: usize,
    /// Files being read: the source itself, which may have no path, and the chain of included
    /// files.
    open_files: Vec<Option<PathBuf>>,
    /// Number of `#include` directives that read a file.
    includes: usize,
    trace: Option<Vec<TraceElement>>,
}

/// An open `#if`.
struct Conditional {
    is_active: bool,
    any_taken: bool,
    has_else: bool,
    outer_active: bool,
}

/// Runs the preprocessor on a source. Without a path, its local headers cannot be found. With
/// `traced`, what is read is recorded.
pub fn preprocess(
    source: &mut Source,
    path: Option<&Path>,
    options: &PreprocessorOptions,
    names: &mut Interner,
    traced: bool,
) -> Preprocessed {
    let mut token_errors = vec![];
    let tokens = lex::tokenize(&source.text, names, &mut token_errors);
    let uses_macros = tokens.iter().any(|token| token.kind == TokenKind::Reserved("#"))
        || ["__LINE__", "__FILE__", "__COUNTER__"].iter().any(|name| names.find(name).is_some());
    let mut p = Preprocessor {
        source,
        names,
        options,
        macros: HashMap::new(),
        out: vec![],
        token_errors,
        file_errors: vec![],
        aborted: false,
        expanded_tokens: 0,
        open_calls: 0,
        before_directive: false,
        counter: 0,
        headers: vec![],
        missing_headers: vec![],
        open_braces: vec![],
        scanned: 0,
        open_files: vec![path.map(Path::to_path_buf)],
        includes: 0,
        trace: None,
    };
    if uses_macros || !options.defines.is_empty() || traced {
        p.predefine();
        p.trace = traced.then(Vec::new);
        p.out.reserve(tokens.len());
        p.file(&tokens);
        if p.out.last().is_none_or(|token| token.kind != TokenKind::End) {
            p.out.extend(tokens.last());
        }
    } else {
        p.out = tokens;
    }
    p.remove_pragma_operators();
    let included = p.headers.into_iter().map(|header| header.path).collect();
    let Preprocessor { out: tokens, token_errors, file_errors, missing_headers, trace, .. } =
        Preprocessor { headers: vec![], ..p };
    Preprocessed { tokens, token_errors, file_errors, missing_headers, included, trace }
}

impl Preprocessor<'_> {
    /// Reports an error of the whole file.
    fn fail(&mut self, token: &Token, what: impl Into<String>, hint: Option<&'static str>) {
        self.file_errors.push((token.span, what.into(), hint));
    }

    /// Reports an error and stops.
    fn abort(&mut self, token: &Token, what: impl Into<String>, hint: Option<&'static str>) {
        self.aborted = true;
        self.fail(token, what, hint);
    }

    /// An invalid token in the position of `token`.
    fn invalid(&mut self, token: &Token, what: impl Into<String>, hint: Option<&'static str>) -> Token {
        let text = self.names.intern("");
        Token { kind: invalid(&mut self.token_errors, (token.span, what.into(), hint), text), ..*token }
    }

    /// Defines the compiler's macros and those of the options.
    fn predefine(&mut self) {
        let mut text: String = condition::PREDEFINED.iter().map(|define| format!("#define {define}\n")).collect();
        for define in &self.options.defines {
            let (name, value) = define.split_once('=').unwrap_or((define, "1"));
            text += &format!("#define {name} {value}\n");
        }
        let tokens = self.tokenize_file("the predefined macros", &text);
        self.file(&tokens);
        self.out.clear();
    }

    /// Appends a file to the source and splits it into tokens.
    fn tokenize_file(&mut self, file: &str, text: &str) -> Vec<Token> {
        let offset = self.source.append(file, text);
        let errors = self.token_errors.len();
        let mut tokens = lex::tokenize(text, self.names, &mut self.token_errors);
        let spans = tokens.iter_mut().map(|token| &mut token.span);
        for span in spans.chain(self.token_errors[errors..].iter_mut().map(|(span, ..)| span)) {
            (span.start, span.end) = (span.start + offset, span.end + offset);
        }
        tokens
    }

    /// Text of a token as the preprocessor sees it.
    fn token_text(&self, token: &Token) -> String {
        match token.kind {
            TokenKind::Name(symbol)
            | TokenKind::Int { text: symbol, .. }
            | TokenKind::Float { text: symbol, .. }
            | TokenKind::Invalid { text: symbol, .. } => self.names.text(symbol).into(),
            TokenKind::Reserved(text) => text.into(),
            TokenKind::Str(symbol) => format!("\"{}\"", self.names.text(symbol)),
            TokenKind::End => String::new(),
        }
    }

    /// Name of a token that may be that of a macro: keywords are names for the preprocessor. `None`
    /// for a keyword that was never interned.
    fn word(&self, token: &Token) -> Option<Symbol> {
        match token.kind {
            TokenKind::Name(symbol) => Some(symbol),
            TokenKind::Reserved(word) if is_keyword(word) => self.names.find(word),
            _ => None,
        }
    }

    /// [`Self::word`], interned.
    fn interned_word(&mut self, token: &Token) -> Option<Symbol> {
        match token.kind {
            TokenKind::Reserved(word) if is_keyword(word) => Some(self.names.intern(word)),
            _ => self.word(token),
        }
    }

    /// Processes the tokens of one file.
    fn file(&mut self, tokens: &[Token]) {
        let mut conditions: Vec<Conditional> = vec![];
        let mut at = 0;
        while at < tokens.len() && !self.aborted {
            let rest = &tokens[at..];
            let is_active = conditions.last().is_none_or(|c| c.is_active);
            let directive = rest[0].starts_line && rest[0].kind == TokenKind::Reserved("#");
            if directive {
                let next = 1 + rest[1..].iter().position(|t| t.starts_line).unwrap_or(rest.len() - 1);
                self.record(TraceKind::Directive(is_active), &rest[..next]);
                self.directive(&rest[..next], &mut conditions);
                at += next;
                continue;
            }
            // Up to the next directive, since calls of macros may span lines.
            let end =
                rest.iter().position(|t| t.starts_line && t.kind == TokenKind::Reserved("#")).unwrap_or(rest.len());
            self.record(if is_active { TraceKind::Text } else { TraceKind::Excluded }, &rest[..end]);
            if is_active {
                let is_end = rest[end - 1].kind == TokenKind::End && self.open_files.len() > 1;
                let mut out = std::mem::take(&mut self.out);
                self.before_directive = end < rest.len();
                self.expand(&rest[..end - is_end as usize], &[], &mut out);
                self.before_directive = false;
                self.out = out;
            }
            at += end;
        }
        if let (Some(_), Some(last)) = (conditions.last(), tokens.last()) {
            self.fail(last, "unterminated '#if'", Some("write '#endif'"));
        }
    }

    fn directive(&mut self, line: &[Token], conditions: &mut Vec<Conditional>) {
        let Some(word) = line.get(1) else { return };
        let name = self.token_text(word);
        let is_active = conditions.last().is_none_or(|c| c.is_active);
        let symbol = line.get(2).and_then(|token| self.interned_word(token));
        match name.as_str() {
            "ifdef" | "ifndef" | "if" => {
                let holds = match (name.as_str(), symbol) {
                    ("if", _) => is_active && self.condition(word, &line[2..]),
                    (_, Some(symbol)) => self.is_defined(symbol) == (name == "ifdef"),
                    _ if !is_active => false,
                    _ => {
                        self.fail(word, format!("'#{name}' without a name"), Some("write '#ifdef NAME'"));
                        false
                    }
                };
                conditions.push(Conditional {
                    is_active: is_active && holds,
                    any_taken: holds,
                    has_else: false,
                    outer_active: is_active,
                });
            }
            "elif" | "else" => match conditions.pop() {
                Some(c) if c.has_else => {
                    self.fail(word, format!("'#{name}' after '#else'"), None);
                    conditions.push(c);
                }
                Some(mut c) => {
                    c.has_else = name == "else";
                    let may_hold = c.outer_active && !c.any_taken;
                    c.is_active = may_hold && (name == "else" || self.condition(word, &line[2..]));
                    c.any_taken |= c.is_active;
                    conditions.push(c);
                }
                None => self.fail(word, format!("'#{name}' without '#if'"), None),
            },
            "endif" => {
                if conditions.pop().is_none() {
                    self.fail(word, "'#endif' without '#if'", None);
                }
            }
            _ if !is_active => {}
            "define" => match symbol {
                Some(symbol) if matches!(self.names.text(symbol), "defined" | "__VA_ARGS__" | "__VA_OPT__") => {
                    let what = format!("'{}' cannot be the name of a macro", self.names.text(symbol));
                    self.fail(word, what, None);
                }
                Some(symbol) => self.define(symbol, &line[2..]),
                None => self.fail(word, "'#define' without a name", Some("write '#define NAME value'")),
            },
            "undef" => {
                if let Some(symbol) = symbol {
                    self.macros.remove(&symbol);
                    self.toggle_assert(symbol, false);
                }
            }
            "include" => self.include(&line[2..], word),
            "pragma" => match line.get(2).map(|token| self.token_text(token)).as_deref() {
                Some("once") => self.pragma_once(),
                Some("pack") => {
                    let span = line[0].span.to(line[line.len() - 1].span);
                    let token = |text| Token { kind: TokenKind::Reserved(text), span, ..line[0] };
                    let mut out = std::mem::take(&mut self.out);
                    out.push(token("#pragma pack"));
                    self.expand(&line[3..], &[], &mut out);
                    out.push(token(";"));
                    self.out = out;
                }
                Some(text @ ("push_macro" | "pop_macro")) => {
                    self.fail(word, format!("'#pragma {text}' is not supported"), Some("define another macro"));
                }
                _ => {}
            },
            "warning" | "line" | "ident" => {}
            "error" => {
                let text = self.source.text_of(word.span.to(line[line.len() - 1].span)).to_owned();
                self.fail(word, format!("'#{text}' reached"), None);
            }
            _ => self.fail(word, format!("the directive '#{name}' is not supported"), None),
        }
    }

    fn is_defined(&self, symbol: Symbol) -> bool {
        self.macros.contains_key(&symbol) || matches!(self.names.text(symbol), "__LINE__" | "__FILE__" | "__COUNTER__")
    }
}

fn is_keyword(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}
