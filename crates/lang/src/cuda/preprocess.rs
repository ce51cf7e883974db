//! A small preprocessor: object-like and function-like macros, conditionals. Includes are ignored,
//! since the declarations of CUDA's headers are built in.

use foldhash::{HashMap, HashMapExt};

use super::lex::{Interner, LexError, Symbol, Token, TokenKind};
use crate::diagnostic::{counted, given_count};
use bornite_ir::Scalar;

/// Maximum tokens of a file after macro expansion, which bounds memory.
pub const MAX_TOKENS: usize = 400_000;
/// Maximum tokens read during macro expansion, which bounds time: macros may expand to nothing.
const MAX_EXPANDED_TOKENS: usize = 10 * MAX_TOKENS;
/// Maximum nesting of macros in macros and of calls in arguments of calls.
const MAX_MACRO_DEPTH: usize = 64;

#[derive(Clone)]
struct Macro {
    /// Parameter names of a function-like macro.
    params: Option<Vec<Symbol>>,
    body: Vec<Token>,
    /// True for macros with `#`, `##` or `...`. Only host code, which is skipped, may use them.
    unsupported: bool,
}

pub struct Preprocessor<'a> {
    text: &'a str,
    names: &'a mut Interner,
    macros: HashMap<Symbol, Macro>,
    errors: &'a mut Vec<LexError>,
    aborted: bool,
    /// Tokens read during macro expansion.
    expanded_tokens: usize,
    /// Number of macro calls whose arguments are being expanded.
    open_calls: usize,
}

/// An open `#if`.
struct Conditional {
    is_active: bool,
    any_taken: bool,
    outer_active: bool,
}

/// Runs the preprocessor: returns the tokens for the parser.
pub fn preprocess(text: &str, tokens: Vec<Token>, names: &mut Interner, errors: &mut Vec<LexError>) -> Vec<Token> {
    if tokens.iter().all(|token| token.kind != TokenKind::Reserved("#")) && !text.contains("__LINE__") {
        return tokens;
    }
    let mut p =
        Preprocessor { text, names, macros: HashMap::new(), errors, aborted: false, expanded_tokens: 0, open_calls: 0 };
    p.run(text, &tokens)
}

/// Returns a single token for a `#pragma pack`, which changes the memory layout of structs.
fn pragma_pack(text: &str, line: &[Token]) -> Option<Token> {
    let [token, pragma, pack, .., last] = line else { return None };
    let text_of = |token: &Token| text.get(token.span.start as usize..token.span.end as usize);
    let found = (text_of(pragma), text_of(pack)) == (Some("pragma"), Some("pack"));
    found.then(|| Token { kind: TokenKind::Reserved("#pragma pack"), span: token.span.to(last.span), ..*token })
}

impl Preprocessor<'_> {
    fn fail(&mut self, token: &Token, what: impl Into<String>, hint: Option<&'static str>) {
        self.errors.push((token.span, what.into(), hint));
    }

    fn run(&mut self, text: &str, tokens: &[Token]) -> Vec<Token> {
        let mut out = Vec::with_capacity(tokens.len());
        let mut conditions: Vec<Conditional> = vec![];
        let mut at = 0;
        while at < tokens.len() {
            let rest = &tokens[at..];
            let directive = rest[0].starts_line && rest[0].kind == TokenKind::Reserved("#");
            let next = 1 + rest[1..].iter().position(|t| t.starts_line).unwrap_or(rest.len() - 1);
            if directive {
                self.directive(text, &rest[..next], &mut conditions);
                if conditions.last().is_none_or(|c| c.is_active) {
                    out.extend(pragma_pack(text, &rest[..next]));
                }
                at += next;
                continue;
            }
            // Up to the next directive, since calls of macros may span lines.
            let end =
                rest.iter().position(|t| t.starts_line && t.kind == TokenKind::Reserved("#")).unwrap_or(rest.len());
            if conditions.last().is_none_or(|c| c.is_active) {
                self.expand(&rest[..end], &mut vec![], &mut out);
            }
            at += end;
        }
        if out.last().is_none_or(|t| t.kind != TokenKind::End) {
            out.extend(tokens.last());
        }
        out
    }

    fn directive(&mut self, text: &str, line: &[Token], conditions: &mut Vec<Conditional>) {
        let Some(word) = line.get(1) else { return };
        let name = &text[word.span.start as usize..word.span.end as usize];
        let is_active = conditions.last().is_none_or(|c| c.is_active);
        let symbol = line.get(2).and_then(|t| if let TokenKind::Name(symbol) = t.kind { Some(symbol) } else { None });
        match name {
            "ifdef" | "ifndef" | "if" => {
                let holds = match (name, symbol) {
                    ("if", _) => is_active && self.condition(&line[2..]),
                    (_, Some(symbol)) => self.is_defined(symbol) == (name == "ifdef"),
                    _ => false,
                };
                conditions.push(Conditional {
                    is_active: is_active && holds,
                    any_taken: holds,
                    outer_active: is_active,
                });
            }
            "elif" | "else" => {
                let holds = name == "else" || self.condition(&line[2..]);
                match conditions.last_mut() {
                    Some(c) => {
                        c.is_active = c.outer_active && holds && !c.any_taken;
                        c.any_taken |= holds;
                    }
                    None => self.fail(word, format!("'#{name}' without '#if'"), None),
                }
            }
            "endif" => {
                if conditions.pop().is_none() {
                    self.fail(word, "'#endif' without '#if'", None);
                }
            }
            _ if !is_active => {}
            "define" => match symbol {
                Some(symbol) => self.define(symbol, &line[2..]),
                None => self.fail(word, "'#define' without a name", Some("write '#define NAME value'")),
            },
            "undef" => {
                if let Some(symbol) = symbol {
                    self.macros.remove(&symbol);
                    self.toggle_assert(symbol, false);
                }
            }
            // Declarations of CUDA's and the C++ library's headers are built in; uses of other
            // headers fail later.
            "include" | "pragma" => {}
            "error" => self.fail(word, "'#error' directive reached", None),
            _ => self.fail(word, format!("the directive '#{name}' is not supported"), None),
        }
    }

    fn is_defined(&self, symbol: Symbol) -> bool {
        self.macros.contains_key(&symbol) || matches!(self.names.text(symbol), "__CUDACC__" | "__CUDA_ARCH__")
    }

    fn define(&mut self, symbol: Symbol, line: &[Token]) {
        let mut body = &line[1..];
        let (mut params, mut unsupported) = (None, false);
        // Without a space the parenthesis starts a parameter list.
        if body.first().is_some_and(|t| t.kind == TokenKind::Reserved("(") && !t.space_before) {
            let Some(end) = body.iter().position(|t| t.kind == TokenKind::Reserved(")")) else {
                return self.fail(&line[0], "unterminated parameter list of a macro", Some("write ')'"));
            };
            let mut names = vec![];
            for token in &body[1..end] {
                match token.kind {
                    TokenKind::Name(name) => names.push(name),
                    TokenKind::Reserved(",") => {}
                    TokenKind::Reserved("...") => unsupported = true,
                    _ => return self.fail(token, "a macro parameter must be a name", None),
                }
            }
            params = Some(names);
            body = &body[end + 1..];
        }
        unsupported |= body.iter().any(|t| matches!(t.kind, TokenKind::Reserved("#" | "##")));
        self.macros.insert(symbol, Macro { params, body: body.to_vec(), unsupported });
        self.toggle_assert(symbol, true);
    }

    /// `NDEBUG` removes assertions.
    fn toggle_assert(&mut self, symbol: Symbol, defined: bool) {
        if self.names.text(symbol) != "NDEBUG" {
            return;
        }
        let name = self.names.intern("assert");
        match defined {
            true => self.macros.insert(name, Macro { params: Some(vec![name]), body: vec![], unsupported: false }),
            false => self.macros.remove(&name),
        };
    }

    fn expand(&mut self, tokens: &[Token], active: &mut Vec<Symbol>, out: &mut Vec<Token>) {
        let mut at = 0;
        while at < tokens.len() && !self.aborted {
            let token = tokens[at];
            at += 1;
            let TokenKind::Name(symbol) = token.kind else {
                out.push(token);
                continue;
            };
            if self.names.text(symbol) == "__LINE__" {
                let before = self.text.get(..token.span.start as usize).unwrap_or_default();
                let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count() as u64;
                out.push(Token { kind: TokenKind::Int { value: line, scalar: Scalar::I32, hex: false }, ..token });
                continue;
            }
            let Some(found) = self.macros.get(&symbol).filter(|_| !active.contains(&symbol)) else {
                out.push(token);
                continue;
            };
            self.expanded_tokens += 1 + found.body.len();
            if out.len() > MAX_TOKENS || self.expanded_tokens > MAX_EXPANDED_TOKENS {
                self.aborted = true;
                return self.fail(&token, "macro expansion makes this file too large", None);
            }
            if active.len() + self.open_calls > MAX_MACRO_DEPTH {
                self.aborted = true;
                let what = format!("macros are nested more than {MAX_MACRO_DEPTH} deep");
                return self.fail(&token, what, Some("expand some of them in the source"));
            }
            let Macro { params, mut body, unsupported } = found.clone();
            if unsupported {
                let is_device_word =
                    |token: &Token| matches!(token.kind, TokenKind::Reserved("__global__" | "__device__"));
                if body.iter().any(is_device_word) {
                    let what = format!("macro '{}' with '#', '##' or '...' is not supported", self.names.text(symbol));
                    self.fail(&token, what, Some("write out its expansion"));
                }
                out.push(Token { kind: TokenKind::UnsupportedMacro(symbol), ..token });
                continue;
            }
            if let Some(params) = params {
                if tokens.get(at).map(|t| t.kind) != Some(TokenKind::Reserved("(")) {
                    out.push(token);
                    continue;
                }
                let Some((args, after)) = arguments(&tokens[at..]) else {
                    self.fail(&token, "unterminated macro call", Some("write ')'"));
                    return;
                };
                at += after;
                let arg_count = if params.is_empty() && args.len() == 1 && args[0].is_empty() { 0 } else { args.len() };
                if arg_count != params.len() {
                    let name = self.names.text(symbol);
                    let what = format!(
                        "macro '{name}' takes {}, {} given",
                        counted(params.len(), "argument"),
                        given_count(arg_count)
                    );
                    self.fail(&token, what, None);
                    continue;
                }
                self.open_calls += 1;
                let args: Vec<Vec<Token>> = (args.iter())
                    .map(|arg| {
                        let mut expanded = vec![];
                        self.expand(arg, active, &mut expanded);
                        expanded
                    })
                    .collect();
                self.open_calls -= 1;
                if self.aborted {
                    return;
                }
                let mut filled = vec![];
                for token in body {
                    let param = match token.kind {
                        TokenKind::Name(name) => params.iter().position(|param| *param == name),
                        _ => None,
                    };
                    match param {
                        Some(n) => filled.extend(&args[n]),
                        None => filled.push(token),
                    }
                    if filled.len() > MAX_TOKENS {
                        self.aborted = true;
                        return self.fail(&token, "macro expansion makes this file too large", None);
                    }
                }
                self.expanded_tokens += filled.len();
                body = filled;
            }
            // A macro that expands to the name of another takes the arguments after it.
            if body.last().is_some_and(|last| self.takes_arguments(last))
                && tokens.get(at).is_some_and(|next| next.kind == TokenKind::Reserved("("))
                && let Some((_, after)) = arguments(&tokens[at..])
            {
                self.open_calls += 1;
                self.expand(&tokens[at..at + after], active, &mut body);
                self.open_calls -= 1;
                at += after;
            }
            // Expanded tokens are attributed to the macro's use.
            body.iter_mut().for_each(|t| (t.span, t.starts_line) = (token.span, false));
            active.push(symbol);
            self.expand(&body, active, out);
            active.pop();
            if self.aborted {
                return;
            }
        }
    }

    fn takes_arguments(&self, token: &Token) -> bool {
        let TokenKind::Name(symbol) = token.kind else { return false };
        self.macros.get(&symbol).is_some_and(|found| found.params.is_some())
    }

    /// Evaluates the condition of an `#if`; undefined names are 0.
    fn condition(&mut self, line: &[Token]) -> bool {
        let mut tokens = vec![];
        let mut at = 0;
        while at < line.len() {
            let token = line[at];
            at += 1;
            match token.kind {
                TokenKind::Name(symbol) if self.names.text(symbol) == "defined" => {
                    let name =
                        line[at..].iter().find_map(|t| if let TokenKind::Name(s) = t.kind { Some(s) } else { None });
                    let holds = name.is_some_and(|name| self.is_defined(name));
                    let parenthesis = line.get(at).is_some_and(|t| t.kind == TokenKind::Reserved("("));
                    at += if parenthesis { 3 } else { 1 };
                    tokens.push(int(holds as i64));
                }
                TokenKind::Name(_) => {
                    let mut out = vec![];
                    self.expand(&[token], &mut vec![], &mut out);
                    tokens.extend(out.iter().map(|t| match t.kind {
                        TokenKind::Name(symbol) if self.names.text(symbol) == "__CUDA_ARCH__" => int(900),
                        TokenKind::Name(symbol) if self.names.text(symbol) == "__CUDACC__" => int(1),
                        TokenKind::Name(_) => int(0),
                        kind => kind,
                    }));
                }
                kind => tokens.push(kind),
            }
        }
        let (value, used) = evaluate(&tokens, 0, 0);
        if used != tokens.len()
            && let Some(token) = line.first()
        {
            self.fail(token, "this '#if' condition is not supported", Some("compare integers and 'defined(NAME)'"));
        }
        value != 0
    }
}

fn int(value: i64) -> TokenKind {
    TokenKind::Int { value: value as u64, scalar: bornite_ir::Scalar::I64, hex: false }
}

/// Arguments of a macro call from its opening parenthesis, and the number of tokens.
fn arguments(tokens: &[Token]) -> Option<(Vec<&[Token]>, usize)> {
    let (mut depth, mut start, mut args) = (0usize, 1, vec![]);
    for (n, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Reserved("(" | "[" | "{") => depth += 1,
            TokenKind::Reserved(")" | "]" | "}") => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    args.push(&tokens[start.min(n)..n]);
                    return Some((args, n + 1));
                }
            }
            TokenKind::Reserved(",") if depth == 1 => {
                args.push(&tokens[start..n]);
                start = n + 1;
            }
            _ => {}
        }
    }
    None
}

/// Evaluates an integer expression: its value and the number of tokens.
fn evaluate(tokens: &[TokenKind], min_level: u8, depth: usize) -> (i64, usize) {
    if depth > 100 {
        return (0, 0);
    }
    let (mut value, mut at) = match tokens.first() {
        Some(TokenKind::Int { value, .. }) => (*value as i64, 1),
        Some(TokenKind::Reserved("!")) => {
            let (value, used) = evaluate(&tokens[1..], 9, depth + 1);
            ((value == 0) as i64, used + 1)
        }
        Some(TokenKind::Reserved("-")) => {
            let (value, used) = evaluate(&tokens[1..], 9, depth + 1);
            (value.wrapping_neg(), used + 1)
        }
        Some(TokenKind::Reserved("(")) => {
            let (value, used) = evaluate(&tokens[1..], 0, depth + 1);
            (value, used + 2)
        }
        _ => (0, 0),
    };
    while let Some(TokenKind::Reserved(token)) = tokens.get(at) {
        let level = match *token {
            "||" => 1,
            "&&" => 2,
            "==" | "!=" => 3,
            "<" | "<=" | ">" | ">=" => 4,
            "+" | "-" => 5,
            "*" | "/" | "%" => 6,
            _ => break,
        };
        if level <= min_level {
            break;
        }
        let (right, used) = evaluate(&tokens[at + 1..], level, depth + 1);
        at += used + 1;
        value = match *token {
            "||" => (value != 0 || right != 0) as i64,
            "&&" => (value != 0 && right != 0) as i64,
            "==" => (value == right) as i64,
            "!=" => (value != right) as i64,
            "<" => (value < right) as i64,
            "<=" => (value <= right) as i64,
            ">" => (value > right) as i64,
            ">=" => (value >= right) as i64,
            "+" => value.wrapping_add(right),
            "-" => value.wrapping_sub(right),
            "*" => value.wrapping_mul(right),
            "/" => value.checked_div(right).unwrap_or(0),
            _ => value.checked_rem(right).unwrap_or(0),
        };
    }
    (value, at.min(tokens.len()))
}
