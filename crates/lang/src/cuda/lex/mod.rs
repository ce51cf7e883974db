//! Lexer of CUDA C++: keywords, punctuators, names, literals. It knows nothing of macros
//! (`preprocess/`) or syntax (`parse/`).

mod attributes;
mod literal;
mod splice;

use std::sync::LazyLock;

use bornite_ir::Scalar;
use foldhash::HashMap;

use crate::SourceSpan;
pub use attributes::strip_attributes;
use literal::{char_literal, number_literal};
use splice::Spliced;

/// An interned name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Symbol(pub u32);

/// Interned names of a file.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    all: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
}

impl Interner {
    pub fn intern(&mut self, text: &str) -> Symbol {
        if let Some(&n) = self.numbers.get(text) {
            return Symbol(n);
        }
        let n = self.all.len() as u32;
        self.all.push(text.into());
        self.numbers.insert(text.into(), n);
        Symbol(n)
    }

    /// The symbol of a text that was interned before.
    pub fn find(&self, text: &str) -> Option<Symbol> {
        self.numbers.get(text).copied().map(Symbol)
    }

    pub fn text(&self, symbol: Symbol) -> &str {
        &self.all[symbol.0 as usize]
    }
}

/// Kind of a token.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TokenKind {
    Name(Symbol),
    /// A keyword or punctuator of C++ or CUDA.
    Reserved(&'static str),
    /// An integer literal; `hex` if it was written in hexadecimal, `text` as written.
    Int {
        value: u64,
        scalar: Scalar,
        hex: bool,
        text: Symbol,
    },
    /// A floating-point literal, as bits of its type; `text` as written.
    Float {
        bits: u64,
        scalar: Scalar,
        text: Symbol,
    },
    /// A string literal: the text between its quotes, with escape sequences as written.
    Str(Symbol),
    /// An invalid token or use of a macro: the index of its error, its text as written. Only an
    /// item that contains it fails.
    Invalid {
        error: u32,
        text: Symbol,
    },
    /// End of file.
    End,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Token {
    pub kind: TokenKind,
    pub span: SourceSpan,
    /// True for the first token of a line.
    pub starts_line: bool,
    /// True if whitespace precedes the token.
    pub space_before: bool,
    /// True for a name that is not expanded, as it was part of its own macro's expansion.
    pub no_expand: bool,
}

/// Keywords of C++ and CUDA.
const KEYWORDS: &[&str] = &[
    "void",
    "bool",
    "char",
    "short",
    "int",
    "long",
    "signed",
    "unsigned",
    "float",
    "double",
    "auto",
    "const",
    "constexpr",
    "volatile",
    "static",
    "extern",
    "inline",
    "struct",
    "class",
    "union",
    "enum",
    "typedef",
    "using",
    "namespace",
    "template",
    "typename",
    "if",
    "else",
    "for",
    "while",
    "do",
    "switch",
    "case",
    "default",
    "break",
    "continue",
    "return",
    "goto",
    "sizeof",
    "true",
    "false",
    "nullptr",
    "static_cast",
    "reinterpret_cast",
    "const_cast",
    "new",
    "delete",
    "throw",
    "try",
    "asm",
    "operator",
    "static_assert",
    "this",
    "public",
    "private",
    "__global__",
    "__device__",
    "__host__",
    "__shared__",
    "__constant__",
    "__restrict__",
    "__restrict",
    "restrict",
    "__forceinline__",
    "__noinline__",
    "__launch_bounds__",
    "__align__",
    "alignas",
    "__inline__",
    "__managed__",
    "__grid_constant__",
    "dynamic_cast",
    "goto",
    "virtual",
    "friend",
    "register",
    "mutable",
    "explicit",
    "decltype",
    "noexcept",
];

/// Alternative tokens of punctuators.
const ALTERNATIVE_TOKENS: &[(&str, &str)] = &[
    ("and", "&&"),
    ("or", "||"),
    ("not", "!"),
    ("xor", "^"),
    ("bitand", "&"),
    ("bitor", "|"),
    ("compl", "~"),
    ("not_eq", "!="),
    ("and_eq", "&="),
    ("or_eq", "|="),
    ("xor_eq", "^="),
];

/// Punctuators, longest first.
const PUNCTUATORS: &[&str] = &[
    "<<<", ">>>", "<<=", ">>=", "...", "->*", "::", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
    "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##", "{", "}", "[", "]", "(", ")", ";", ":", ",", ".", "?", "+",
    "-", "*", "/", "%", "&", "|", "^", "!", "~", "<", ">", "=", "#",
];

/// Span, message and hint of a lexer or preprocessor error.
pub type LexError = (SourceSpan, String, Option<&'static str>);

/// Records an error, and returns the token that stands for it.
pub fn invalid(errors: &mut Vec<LexError>, error: LexError, text: Symbol) -> TokenKind {
    errors.push(error);
    TokenKind::Invalid { error: errors.len() as u32 - 1, text }
}

/// Keywords and punctuators by first byte; punctuators longest first.
static RESERVED_BY_FIRST_BYTE: LazyLock<Vec<Vec<&'static str>>> = LazyLock::new(|| {
    let mut by = vec![vec![]; 128];
    KEYWORDS.iter().chain(PUNCTUATORS).for_each(|text| by[text.as_bytes()[0] as usize].push(*text));
    by
});

fn reserved_starting_with(byte: u8) -> &'static [&'static str] {
    RESERVED_BY_FIRST_BYTE.get(byte as usize).map_or(&[], Vec::as_slice)
}

/// Splits a text into tokens, the last of which is `End`.
pub fn tokenize(text: &str, names: &mut Interner, errors: &mut Vec<LexError>) -> Vec<Token> {
    let spliced = Spliced::new(text);
    let first_error = errors.len();
    let mut tokens = tokenize_spliced(&spliced, names, errors);
    if spliced.has_splices() {
        let spans = tokens.iter_mut().map(|token| &mut token.span);
        for span in spans.chain(errors[first_error..].iter_mut().map(|(span, ..)| span)) {
            let (start, end) = (spliced.start(span.start as usize), spliced.end(span.end as usize));
            (span.start, span.end) = (start as u32, end.max(start) as u32);
        }
    }
    tokens
}

fn tokenize_spliced(spliced: &Spliced, names: &mut Interner, errors: &mut Vec<LexError>) -> Vec<Token> {
    let text: &str = &spliced.text;
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(text.len() / 4);
    // UTF-8 byte order mark.
    let byte_order_mark = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let (mut at, mut starts_line, mut space_before) = (byte_order_mark, true, false);
    while at < bytes.len() {
        let start = at;
        let span = |end: usize| SourceSpan { start: start as u32, end: end as u32 };
        let mut fail = |names: &mut Interner, at: usize, error: SourceSpan, what: String, hint| {
            invalid(errors, (error, what, hint), names.intern(&text[start..at]))
        };
        let token = |kind, end: usize| Token { kind, span: span(end), starts_line, space_before, no_expand: false };
        match bytes[at] {
            b'\n' => {
                (at, starts_line, space_before) = (at + 1, true, true);
                continue;
            }
            byte if byte.is_ascii_whitespace() => {
                (at, space_before) = (at + 1, true);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += text[at..].find('\n').unwrap_or(text.len() - at);
                space_before = true;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                match text[at + 2..].find("*/") {
                    // A comment is a space: the line of a directive continues after it.
                    Some(n) => at += n + 4,
                    None => {
                        let kind = fail(names, at, span(at + 2), "unterminated comment".into(), Some("write '*/'"));
                        out.push(token(kind, at + 2));
                        at = bytes.len();
                    }
                }
                space_before = true;
                continue;
            }
            _ => {}
        }
        let kind = match bytes[at] {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_') {
                    at += 1;
                }
                let name = &text[start..at];
                if matches!(name, "R" | "LR" | "uR" | "UR" | "u8R") && bytes.get(at) == Some(&b'"') {
                    let kind = match spliced.skip_raw_string(&mut at) {
                        Some(content) => TokenKind::Str(names.intern(&content.replace('\\', "\\\\"))),
                        None => {
                            let what = "unterminated raw string literal".into();
                            fail(names, at, span(at), what, Some("write ')\"'"))
                        }
                    };
                    out.push(token(kind, at));
                    (starts_line, space_before) = (false, false);
                    continue;
                }
                let word = reserved_starting_with(bytes[start]).iter().find(|word| **word == name);
                let word = word.copied().or_else(|| {
                    ALTERNATIVE_TOKENS.iter().find(|(word, _)| *word == name).map(|(_, punctuator)| *punctuator)
                });
                word.map_or_else(|| TokenKind::Name(names.intern(name)), TokenKind::Reserved)
            }
            byte if byte.is_ascii_digit() || byte == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => {
                match number_literal(text, &mut at, names) {
                    Ok(kind) => kind,
                    Err(what) => fail(names, at, span(at), what, None),
                }
            }
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' && bytes[at] != b'\n' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                if bytes.get(at) == Some(&b'"') {
                    at += 1;
                    TokenKind::Str(names.intern(&text[start + 1..at - 1]))
                } else {
                    at = at.min(bytes.len());
                    while !text.is_char_boundary(at) {
                        at += 1;
                    }
                    fail(names, at, span(start + 1), "unterminated string literal".into(), Some("write '\"'"))
                }
            }
            b'\'' => {
                let (value, length) = char_literal(&text[at + 1..]);
                at += 1 + length;
                if bytes.get(at) == Some(&b'\'') && length > 0 {
                    at += 1;
                    match value {
                        Ok(value) => {
                            let text = names.intern(&text[start..at]);
                            TokenKind::Int { value, scalar: Scalar::I8, hex: false, text }
                        }
                        Err(what) => fail(names, at, span(at), what, None),
                    }
                } else {
                    let what = "unterminated character literal".into();
                    fail(names, at, span(start + 1), what, Some("write \"'\""))
                }
            }
            byte => match reserved_starting_with(byte).iter().find(|punctuator| text[at..].starts_with(**punctuator)) {
                Some(punctuator) => {
                    at += punctuator.len();
                    TokenKind::Reserved(punctuator)
                }
                None => {
                    let c = text[at..].chars().next().unwrap_or(' ');
                    at += c.len_utf8();
                    fail(names, at, span(at), format!("unknown character {c:?}"), None)
                }
            },
        };
        out.push(token(kind, at));
        (starts_line, space_before) = (false, false);
    }
    let end = SourceSpan { start: text.len() as u32, end: text.len() as u32 };
    out.push(Token { kind: TokenKind::End, span: end, starts_line: true, space_before: true, no_expand: false });
    out
}
