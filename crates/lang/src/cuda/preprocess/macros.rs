//! Definition and expansion of macros, with `#`, `##` and variable arguments.

use super::{MAX_EXPANDED_TOKENS, MAX_MACRO_DEPTH, MAX_TOKENS, Preprocessor};
use crate::cuda::lex::{self, Symbol, Token, TokenKind};
use crate::diagnostic::{counted, given_count};
use bornite_ir::Scalar;

#[derive(Clone)]
pub struct Macro {
    /// Parameter names of a function-like macro; the last one of a variadic macro takes all
    /// remaining arguments.
    params: Option<Vec<Symbol>>,
    is_variadic: bool,
    body: Vec<Token>,
}

impl Preprocessor<'_> {
    pub(super) fn define(&mut self, symbol: Symbol, line: &[Token]) {
        let mut body = &line[1..];
        let (mut params, mut is_variadic) = (None, false);
        // Without a space the parenthesis starts a parameter list.
        if body.first().is_some_and(|t| t.kind == TokenKind::Reserved("(") && !t.space_before) {
            let Some(end) = body.iter().position(|t| t.kind == TokenKind::Reserved(")")) else {
                return self.fail(&line[0], "unterminated parameter list of a macro", Some("write ')'"));
            };
            let mut names = vec![];
            for (n, token) in body[1..end].iter().enumerate() {
                match token.kind {
                    TokenKind::Name(name) => names.push(name),
                    TokenKind::Reserved(",") => {}
                    TokenKind::Reserved("...") => {
                        is_variadic = true;
                        // `args...` names the arguments; `...` alone is `__VA_ARGS__`.
                        if n == 0 || body[n].kind == TokenKind::Reserved(",") {
                            names.push(self.names.intern("__VA_ARGS__"));
                        }
                    }
                    _ => return self.fail(token, "a macro parameter must be a name", None),
                }
            }
            params = Some(names);
            body = &body[end + 1..];
        }
        self.macros.insert(symbol, Macro { params, is_variadic, body: body.to_vec() });
        self.toggle_assert(symbol, true);
    }

    /// `NDEBUG` removes assertions.
    pub(super) fn toggle_assert(&mut self, symbol: Symbol, defined: bool) {
        if self.names.text(symbol) != "NDEBUG" {
            return;
        }
        let name = self.names.intern("assert");
        match defined {
            true => self.macros.insert(name, Macro { params: Some(vec![name]), is_variadic: true, body: vec![] }),
            false => self.macros.remove(&name),
        };
    }

    /// Expands a macro of the compiler whose value depends on its position.
    fn positional_macro(&mut self, symbol: Symbol, token: &Token) -> Option<TokenKind> {
        let number = |p: &mut Self, value: u64| {
            let text = p.names.intern(&value.to_string());
            TokenKind::Int { value, scalar: Scalar::I32, hex: false, text }
        };
        match self.names.text(symbol) {
            "__LINE__" => {
                let (_, line) = self.source.location(self.source.line(token.span.start));
                Some(number(self, line.into()))
            }
            "__FILE__" => {
                let (file, _) = self.source.location(self.source.line(token.span.start));
                let file = file.replace('\\', "/").replace('"', "'");
                Some(TokenKind::Str(self.names.intern(&file)))
            }
            "__COUNTER__" => {
                self.counter += 1;
                Some(number(self, self.counter - 1))
            }
            _ => None,
        }
    }

    pub(super) fn expand(&mut self, tokens: &[Token], active: &mut Vec<Symbol>, out: &mut Vec<Token>) {
        let mut at = 0;
        while at < tokens.len() && !self.aborted {
            let token = tokens[at];
            at += 1;
            let TokenKind::Name(symbol) = token.kind else {
                out.push(token);
                continue;
            };
            let Some(found) = self.macros.get(&symbol).filter(|_| !active.contains(&symbol)) else {
                let kind = self.positional_macro(symbol, &token).unwrap_or(token.kind);
                out.push(Token { kind, ..token });
                continue;
            };
            self.expanded_tokens += 1 + found.body.len();
            if out.len() > MAX_TOKENS || self.expanded_tokens > MAX_EXPANDED_TOKENS {
                return self.abort(&token, "macro expansion makes this file too large", None);
            }
            if active.len() + self.open_calls > MAX_MACRO_DEPTH {
                let what = format!("macros are nested more than {MAX_MACRO_DEPTH} deep");
                return self.abort(&token, what, Some("expand some of them in the source"));
            }
            let mut args = vec![];
            if found.params.is_some() {
                if tokens.get(at).map(|t| t.kind) != Some(TokenKind::Reserved("(")) {
                    out.push(token);
                    continue;
                }
                let Some((found_args, after)) = arguments(&tokens[at..]) else {
                    let invalid = self.invalid(&token, "unterminated macro call", Some("write ')'"));
                    out.push(invalid);
                    continue;
                };
                at += after;
                args = found_args;
            }
            let found = found_macro(self, symbol);
            let mut body = match self.bind_arguments(symbol, &found, args, &token) {
                Ok(args) => self.substitute(&found, &args, active, &token),
                Err(invalid) => {
                    out.push(invalid);
                    continue;
                }
            };
            if self.aborted {
                return;
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
            if let Some(first) = body.first_mut() {
                first.space_before = token.space_before;
            }
            active.push(symbol);
            self.expand(&body, active, out);
            active.pop();
        }
    }

    /// Matches the arguments of a call with the macro's parameters; an invalid token if their
    /// number is wrong.
    fn bind_arguments<'t>(
        &mut self,
        symbol: Symbol,
        found: &Macro,
        mut args: Vec<&'t [Token]>,
        token: &Token,
    ) -> Result<Vec<Vec<Token>>, Token> {
        let Some(params) = &found.params else { return Ok(vec![]) };
        if params.is_empty() && args.len() == 1 && args[0].is_empty() {
            args.clear();
        }
        let owned = |all: &[&'t [Token]]| all.iter().map(|arg| arg.to_vec()).collect::<Vec<_>>();
        if found.is_variadic && args.len() + 1 >= params.len() {
            let (named, rest) = args.split_at(params.len() - 1);
            let comma = Token { kind: TokenKind::Reserved(","), space_before: false, ..*token };
            let mut all = owned(named);
            all.push(owned(rest).join(&comma));
            return Ok(all);
        }
        if args.len() == params.len() {
            return Ok(owned(&args));
        }
        let name = self.names.text(symbol);
        let what =
            format!("macro '{name}' takes {}, {} given", counted(params.len(), "argument"), given_count(args.len()));
        Err(self.invalid(token, what, None))
    }

    /// Returns the body of a macro with its arguments in place.
    fn substitute(&mut self, found: &Macro, args: &[Vec<Token>], active: &mut Vec<Symbol>, at: &Token) -> Vec<Token> {
        let Macro { params, body, .. } = found;
        let Some(params) = params else {
            return match body.iter().any(|token| token.kind == TokenKind::Reserved("##")) {
                true => self.paste_all(body, &mut |_| None, at),
                false => body.clone(),
            };
        };
        let param = |token: &Token| match token.kind {
            TokenKind::Name(name) => params.iter().position(|param| *param == name),
            _ => None,
        };
        let mut expanded: Vec<Option<Vec<Token>>> = vec![None; args.len()];
        let mut filled: Vec<Token> = vec![];
        let mut n = 0;
        while n < body.len() && !self.aborted {
            let (token, next) = (body[n], body.get(n + 1));
            let pastes = |m: usize| body.get(m).is_some_and(|t| t.kind == TokenKind::Reserved("##"));
            if token.kind == TokenKind::Reserved("#")
                && let Some(arg) = next.and_then(&param)
            {
                filled.push(self.stringized(&args[arg], at));
                n += 2;
            } else if pastes(n + 1) {
                // A chain `a ## b ## c`, on unexpanded arguments.
                let mut end = n + 1;
                while pastes(end) && end + 1 < body.len() {
                    end += 2;
                }
                let last = body[..end.min(body.len())].last().and_then(&param);
                let is_comma = token.kind == TokenKind::Reserved(",") && end == n + 3;
                match last.filter(|arg| is_comma && found.is_variadic && *arg + 1 == params.len()) {
                    // `, ## __VA_ARGS__` drops the comma if there are no arguments.
                    Some(arg) if args[arg].is_empty() => {}
                    Some(arg) => {
                        filled.push(token);
                        self.expand(&args[arg].clone(), active, &mut filled);
                    }
                    None => {
                        let mut raw = |token: &Token| param(token).map(|arg| args[arg].clone());
                        filled.extend(self.paste_all(&body[n..end.min(body.len())], &mut raw, at));
                    }
                }
                n = end;
            } else if let Some(arg) = param(&token) {
                if expanded[arg].is_none() {
                    self.open_calls += 1;
                    let mut all = vec![];
                    self.expand(&args[arg], active, &mut all);
                    self.open_calls -= 1;
                    expanded[arg] = Some(all);
                }
                filled.extend(expanded[arg].iter().flatten());
                n += 1;
            } else {
                filled.push(token);
                n += 1;
            }
            if filled.len() > MAX_TOKENS {
                self.abort(at, "macro expansion makes this file too large", None);
            }
        }
        self.expanded_tokens += filled.len();
        filled
    }

    /// Joins the tokens around every `##` of a list.
    fn paste_all(
        &mut self,
        tokens: &[Token],
        raw: &mut dyn FnMut(&Token) -> Option<Vec<Token>>,
        at: &Token,
    ) -> Vec<Token> {
        let mut out: Vec<Token> = vec![];
        let mut joins = false;
        for token in tokens {
            if token.kind == TokenKind::Reserved("##") {
                joins = true;
                continue;
            }
            let mut right = raw(token).unwrap_or_else(|| vec![*token]);
            if std::mem::take(&mut joins)
                && !right.is_empty()
                && let Some(left) = out.pop()
            {
                let first = right.remove(0);
                out.push(self.pasted(&left, &first, at));
            }
            out.extend(right);
        }
        out
    }

    fn pasted(&mut self, left: &Token, right: &Token, at: &Token) -> Token {
        // An invalid token has no text: `0x` of `0x ## 1f` is not a number.
        if let Some(invalid) = [left, right].into_iter().find(|token| matches!(token.kind, TokenKind::Invalid(_))) {
            return *invalid;
        }
        let text = self.token_text(left) + &self.token_text(right);
        let mut errors = vec![];
        match lex::tokenize(&text, self.names, &mut errors)[..] {
            [one, _] if errors.is_empty() => Token { span: at.span, starts_line: false, ..one },
            _ => self.invalid(at, format!("'##' makes '{text}', which is not one token"), None),
        }
    }

    fn stringized(&mut self, arg: &[Token], at: &Token) -> Token {
        let mut text = String::new();
        for (n, token) in arg.iter().enumerate() {
            if n > 0 && token.space_before {
                text.push(' ');
            }
            let one = self.token_text(token);
            match token.kind {
                TokenKind::Str(_) => text += &one.replace('\\', "\\\\").replace('"', "\\\""),
                _ => text += &one,
            }
        }
        Token { kind: TokenKind::Str(self.names.intern(&text)), ..*at }
    }

    fn takes_arguments(&self, token: &Token) -> bool {
        let TokenKind::Name(symbol) = token.kind else { return false };
        self.macros.get(&symbol).is_some_and(|found| found.params.is_some())
    }
}

/// The definition of a macro that is known to exist.
fn found_macro(p: &Preprocessor, symbol: Symbol) -> Macro {
    p.macros.get(&symbol).cloned().unwrap_or(Macro { params: None, is_variadic: false, body: vec![] })
}

/// Arguments of a macro call from its opening parenthesis, and the number of tokens.
pub(super) fn arguments(tokens: &[Token]) -> Option<(Vec<&[Token]>, usize)> {
    let (mut depth, mut start, mut args) = (0usize, 1, vec![]);
    for (n, token) in tokens.iter().enumerate() {
        match token.kind {
            // Only parentheses protect commas.
            TokenKind::Reserved("(") => depth += 1,
            TokenKind::Reserved(")") => {
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
