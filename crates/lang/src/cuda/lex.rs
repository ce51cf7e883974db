//! Lexer of CUDA C++: keywords, punctuators, names, literals. It knows nothing of macros
//! (`preprocess.rs`) or syntax (`parse/`).

use std::sync::LazyLock;

use bornite_ir::Scalar;
use foldhash::HashMap;

use crate::SourceSpan;

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
    /// An integer literal; `hex` if it was written in hexadecimal.
    Int {
        value: u64,
        scalar: Scalar,
        hex: bool,
    },
    /// A floating-point literal, as bits of its type.
    Float {
        bits: u64,
        scalar: Scalar,
    },
    /// A string literal; its text is at the token's span.
    Str,
    /// A use of an unsupported macro. It is an error only where a kernel needs it.
    UnsupportedMacro(Symbol),
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

/// Alternative spellings of punctuators.
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

/// Keywords and punctuators by first byte; punctuators longest first.
static RESERVED_BY_FIRST_BYTE: LazyLock<Vec<Vec<&'static str>>> = LazyLock::new(|| {
    let mut by = vec![vec![]; 128];
    KEYWORDS.iter().chain(PUNCTUATORS).for_each(|text| by[text.as_bytes()[0] as usize].push(*text));
    by
});

fn reserved_starting_with(byte: u8) -> &'static [&'static str] {
    RESERVED_BY_FIRST_BYTE.get(byte as usize).map_or(&[], Vec::as_slice)
}

/// Splits a text into tokens, the last of which is `End`. Invalid characters are reported and
/// skipped.
pub fn tokenize(text: &str, names: &mut Interner, errors: &mut Vec<LexError>) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(text.len() / 4);
    // UTF-8 byte order mark.
    let byte_order_mark = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let (mut at, mut starts_line, mut space_before) = (byte_order_mark, true, false);
    while at < bytes.len() {
        let start = at;
        let span = |end: usize| SourceSpan { start: start as u32, end: end as u32 };
        match bytes[at] {
            b'\n' => {
                (at, starts_line, space_before) = (at + 1, true, true);
                continue;
            }
            // Line continuation.
            b'\\' if text[at + 1..].starts_with('\n') || text[at + 1..].starts_with("\r\n") => {
                at += text[at..].find('\n').map_or(1, |n| n + 1);
                space_before = true;
                continue;
            }
            byte if byte.is_ascii_whitespace() => {
                (at, space_before) = (at + 1, true);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += text[at..].find('\n').unwrap_or(text.len() - at);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                match text[at + 2..].find("*/") {
                    Some(n) => {
                        starts_line |= text[at + 2..at + 2 + n].contains('\n');
                        at += n + 4;
                    }
                    None => {
                        errors.push((span(at + 2), "unterminated comment".into(), Some("write '*/'")));
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
                    if !skip_raw_string(text, &mut at) {
                        errors.push((span(at), "unterminated raw string literal".into(), Some("write ')\"'")));
                    }
                    out.push(Token { kind: TokenKind::Str, span: span(at), starts_line, space_before });
                    (starts_line, space_before) = (false, false);
                    continue;
                }
                let word = reserved_starting_with(bytes[start]).iter().find(|word| **word == name);
                let word = word.copied().or_else(|| {
                    ALTERNATIVE_TOKENS.iter().find(|(word, _)| *word == name).map(|(_, punctuator)| *punctuator)
                });
                word.map_or_else(|| TokenKind::Name(names.intern(name)), TokenKind::Reserved)
            }
            b'0'..=b'9' => number_literal(text, &mut at, errors),
            b'.' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => number_literal(text, &mut at, errors),
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' && bytes[at] != b'\n' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                if bytes.get(at) != Some(&b'"') {
                    errors.push((span(start + 1), "unterminated string literal".into(), Some("write '\"'")));
                    at = at.min(bytes.len());
                    while !text.is_char_boundary(at) {
                        at += 1;
                    }
                } else {
                    at += 1;
                }
                TokenKind::Str
            }
            b'\'' => {
                let (value, length) = char_literal(&text[at + 1..]);
                at += 1 + length;
                if bytes.get(at) == Some(&b'\'') && length > 0 {
                    at += 1;
                } else {
                    errors.push((span(start + 1), "unterminated character literal".into(), Some("write \"'\"")));
                }
                TokenKind::Int { value, scalar: Scalar::I8, hex: false }
            }
            byte => match reserved_starting_with(byte).iter().find(|punctuator| text[at..].starts_with(**punctuator)) {
                Some(punctuator) => {
                    at += punctuator.len();
                    TokenKind::Reserved(punctuator)
                }
                None => {
                    let c = text[at..].chars().next().unwrap_or(' ');
                    at += c.len_utf8();
                    errors.push((span(at), format!("unknown character {c:?}"), None));
                    continue;
                }
            },
        };
        out.push(Token { kind, span: span(at), starts_line, space_before });
        (starts_line, space_before) = (false, false);
    }
    let end = SourceSpan { start: text.len() as u32, end: text.len() as u32 };
    out.push(Token { kind: TokenKind::End, span: end, starts_line: true, space_before: true });
    out
}

/// Skips a raw string from its opening quote: `"(…)"`, `"end(…)end"`. Returns false if it is
/// unterminated.
fn skip_raw_string(text: &str, at: &mut usize) -> bool {
    let rest = &text[*at + 1..];
    let found = rest.find('(').filter(|n| *n <= 16).and_then(|open| {
        let end = format!("){}\"", &rest[..open]);
        rest[open..].find(&end).map(|n| open + n + end.len())
    });
    *at = found.map_or(text.len(), |length| *at + 1 + length);
    found.is_some()
}

/// Parses a character literal after its opening quote: its value and its length in bytes.
fn char_literal(text: &str) -> (u64, usize) {
    let bytes = text.as_bytes();
    let digits = |from: usize, max_digits: usize, radix: u32| {
        let length = bytes[from..].iter().take(max_digits).take_while(|byte| (**byte as char).is_digit(radix)).count();
        (u64::from_str_radix(&text[from..from + length], radix).unwrap_or(0) & 0xff, from + length)
    };
    match bytes {
        [b'\\', b'x', ..] => digits(2, 8, 16),
        [b'\\', b'0'..=b'7', ..] => digits(1, 3, 8),
        [b'\\', byte, ..] if byte.is_ascii() => {
            let value = match byte {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'a' => 7,
                b'b' => 8,
                b'f' => 12,
                b'v' => 11,
                other => *other,
            };
            (value as u64, 2)
        }
        [b'\\', ..] => (0, 1),
        [byte, ..] if byte.is_ascii() && !matches!(byte, b'\'' | b'\n') => (*byte as u64, 1),
        _ => (0, 0),
    }
}

/// Removes attributes: `[[maybe_unused]]`, `__attribute__((unused))`. An attribute that changes the
/// memory layout of a type becomes a single token.
pub fn strip_attributes(tokens: Vec<Token>, names: &Interner) -> Vec<Token> {
    let opens = |at: usize, punctuator: &'static str| {
        let two = tokens.get(at..at + 2).unwrap_or_default();
        two.iter().all(|token| token.kind == TokenKind::Reserved(punctuator))
            && two.last().is_some_and(|second| !second.space_before)
    };
    let named = |at: usize| {
        let is_name = matches!(tokens[at].kind, TokenKind::Name(name) if names.text(name) == "__attribute__");
        is_name && tokens.get(at + 1).is_some_and(|next| next.kind == TokenKind::Reserved("("))
    };
    if !(0..tokens.len()).any(|at| opens(at, "[") || named(at)) {
        return tokens;
    }
    let changes_layout = |token: &Token| match token.kind {
        TokenKind::Name(name) => matches!(names.text(name), "packed" | "__packed__" | "aligned" | "__aligned__"),
        _ => false,
    };
    // Index of the parenthesis that matches the one after a name.
    let closes = |at: usize| {
        let mut depth = 0usize;
        (at + 1..tokens.len()).find(|n| {
            match tokens[*n].kind {
                TokenKind::Reserved("(") => depth += 1,
                TokenKind::Reserved(")") => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0
        })
    };
    let mut out = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let end = match (opens(at, "["), named(at)) {
            (true, _) => (at..tokens.len()).find(|n| opens(*n, "]")).map(|n| n + 1),
            (_, true) => closes(at),
            _ => {
                out.push(tokens[at]);
                at += 1;
                continue;
            }
        };
        // An unterminated attribute: no later one is terminated either.
        let Some(end) = end else {
            out.extend(&tokens[at..]);
            return out;
        };
        if tokens[at..end].iter().any(changes_layout) {
            let span = tokens[at].span.to(tokens[end].span);
            out.push(Token { kind: TokenKind::Reserved("__attribute__"), span, ..tokens[at] });
        }
        at = end + 1;
    }
    out
}

/// Parses a hexadecimal float, `0x1.8p3`; `None` if it has more digits than a double holds.
fn parse_hex_float(text: &str) -> Option<f64> {
    let (digits, exponent) = text.strip_prefix("0x")?.split_once('p')?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mantissa = u64::from_str_radix(&format!("{whole}{fraction}"), 16).ok().filter(|n| *n <= 1 << 53)?;
    let exponent: i32 = exponent.parse().ok().filter(|n| (-2000..=2000).contains(n))?;
    let exponent = exponent - 4 * fraction.len() as i32;
    // In two steps: a single power of two could underflow.
    let half = exponent / 2;
    Some(mantissa as f64 * 2f64.powi(half) * 2f64.powi(exponent - half))
}

fn number_literal(text: &str, at: &mut usize, errors: &mut Vec<LexError>) -> TokenKind {
    let bytes = text.as_bytes();
    let start = *at;
    let hex = text[start..].starts_with("0x") || text[start..].starts_with("0X");
    let binary = text[start..].starts_with("0b") || text[start..].starts_with("0B");
    while *at < bytes.len() {
        let (byte, before) = (bytes[*at], if *at > start { bytes[*at - 1] } else { b' ' });
        let exponent = !hex && matches!(before, b'e' | b'E') || hex && matches!(before, b'p' | b'P');
        let part = byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'\'' && *at > start;
        if !(part || matches!(byte, b'+' | b'-') && exponent) {
            break;
        }
        *at += 1;
    }
    let whole = text[start..*at].replace('\'', "");
    let span = SourceSpan { start: start as u32, end: *at as u32 };
    let mut fail = |what: String| {
        errors.push((span, what, None));
        TokenKind::Int { value: 0, scalar: Scalar::I32, hex: false }
    };
    let lower = whole.to_ascii_lowercase();
    let is_float = !hex && !binary && (lower.contains('.') || lower.contains('e') || lower.ends_with('f'));
    if hex && lower.contains('p') {
        let (digits, scalar) = match lower.strip_suffix('f') {
            Some(digits) => (digits, Scalar::F32),
            None => (lower.as_str(), Scalar::F64),
        };
        return match parse_hex_float(digits) {
            Some(x) if scalar == Scalar::F32 => TokenKind::Float { bits: (x as f32).to_bits() as u64, scalar },
            Some(x) => TokenKind::Float { bits: x.to_bits(), scalar },
            None => fail(format!("'{whole}' is not a hexadecimal number that fits in a double")),
        };
    }
    if is_float {
        let (digits, scalar) = match lower.strip_suffix('f') {
            Some(digits) => (digits, Scalar::F32),
            None => (lower.as_str(), Scalar::F64),
        };
        let bits = match scalar {
            Scalar::F32 => digits.parse::<f32>().map(|x| x.to_bits() as u64),
            _ => digits.parse::<f64>().map(f64::to_bits),
        };
        return match bits {
            Ok(bits) => TokenKind::Float { bits, scalar },
            Err(_) => fail(format!("'{whole}' is not a number")),
        };
    }
    let digits = lower.trim_end_matches(['u', 'l', 'z']);
    let suffix = &lower[digits.len()..];
    let (radix, digits) = match () {
        () if hex => (16, &digits[2..]),
        () if binary => (2, &digits[2..]),
        () if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        () => (10, digits),
    };
    let Ok(value) = u64::from_str_radix(digits, radix) else {
        return fail(format!("'{whole}' is not an integer of at most 64 bits"));
    };
    let (unsigned, long) = (suffix.contains('u'), suffix.contains(['l', 'z']));
    if suffix.len() > 3 {
        return fail(format!("'{whole}' has an unknown suffix"));
    }
    // C++ takes the first of these types that holds the number; decimal literals without 'u' are
    // never unsigned.
    let fits = |scalar: Scalar| value as i128 <= scalar.int_range().1;
    let scalar = [Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64].into_iter().find(|scalar| {
        let allowed = if unsigned { !scalar.is_signed() } else { scalar.is_signed() || radix != 10 };
        allowed && fits(*scalar) && (!long || scalar.bytes() == 8)
    });
    TokenKind::Int { value, scalar: scalar.unwrap_or(Scalar::U64), hex }
}
