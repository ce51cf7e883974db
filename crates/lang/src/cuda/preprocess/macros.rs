//! Macros: definition, and substitution of arguments with `#`, `##` and variable arguments.

use std::rc::Rc;

use super::{MAX_TOKENS, Preprocessor};
use crate::cuda::lex::{self, Symbol, Token, TokenKind, invalid};
use crate::diagnostic::{counted, given_count};
use bornite_ir::Scalar;

pub struct Macro {
    /// Parameter names of a function-like macro; the last one of a variadic macro takes all
    /// remaining arguments.
    pub params: Option<Vec<Symbol>>,
    is_variadic: bool,
    pub body: Vec<Token>,
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
                if let Some(name) = self.interned_word(token) {
                    names.push(name);
                    continue;
                }
                match token.kind {
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
        self.macros.insert(symbol, Rc::new(Macro { params, is_variadic, body: body.to_vec() }));
        self.toggle_assert(symbol, true);
    }

    /// `NDEBUG` removes assertions.
    pub(super) fn toggle_assert(&mut self, symbol: Symbol, defined: bool) {
        if self.names.text(symbol) != "NDEBUG" {
            return;
        }
        let name = self.names.intern("assert");
        match defined {
            true => {
                self.macros.insert(name, Rc::new(Macro { params: Some(vec![name]), is_variadic: true, body: vec![] }))
            }
            false => self.macros.remove(&name),
        };
    }

    /// Expands a macro of the compiler whose value depends on its position.
    pub(super) fn positional_macro(&mut self, symbol: Symbol, token: &Token) -> Option<TokenKind> {
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

    /// Matches the arguments of a call with the macro's parameters; an invalid token if their
    /// number is wrong.
    pub(super) fn bind_arguments(
        &mut self,
        symbol: Symbol,
        found: &Macro,
        mut args: Vec<Vec<Token>>,
        token: &Token,
    ) -> Result<Vec<Vec<Token>>, Token> {
        let Some(params) = &found.params else { return Ok(vec![]) };
        if params.is_empty() && args.len() == 1 && args[0].is_empty() {
            args.clear();
        }
        if found.is_variadic && args.len() + 1 >= params.len() {
            let rest = args.split_off(params.len() - 1);
            let comma = Token { kind: TokenKind::Reserved(","), space_before: false, ..*token };
            args.push(rest.join(&comma));
        }
        if args.len() == params.len() {
            return Ok(args);
        }
        let name = self.names.text(symbol);
        let what =
            format!("macro '{name}' takes {}, {} given", counted(params.len(), "argument"), given_count(args.len()));
        Err(self.invalid(token, what, None))
    }

    /// Returns the body of a macro with its arguments in place. `active` are the macros whose
    /// bodies contain the call.
    pub(super) fn substitute(
        &mut self,
        found: &Macro,
        args: &[Vec<Token>],
        active: &[Symbol],
        at: &Token,
    ) -> Result<Vec<Token>, Token> {
        let mut args = Arguments { raw: args, expanded: vec![None; args.len()], active };
        let body = self.with_optional_parts(found, &mut args, at)?;
        let params = found.params.as_deref().unwrap_or_default();
        let slots: Vec<Option<usize>> =
            body.iter().map(|token| params.iter().position(|param| self.word(token) == Some(*param))).collect();
        let is = |n: usize, text: &'static str| body.get(n).is_some_and(|t| t.kind == TokenKind::Reserved(text));
        let mut filled: Vec<Token> = vec![];
        let mut n = 0;
        while n < body.len() && !self.aborted {
            let token = body[n];
            if is(n, "#")
                && let Some(Some(arg)) = slots.get(n + 1)
            {
                filled.push(self.stringized(&args.raw[*arg], at));
                n += 2;
            } else if is(n + 1, "##") && n + 2 < body.len() {
                // A chain `a ## b ## c`, on unexpanded arguments.
                let mut end = n + 1;
                while is(end, "##") && end + 1 < body.len() {
                    end += 2;
                }
                let is_comma = is(n, ",") && end == n + 3;
                let variadic = slots[n + 2].filter(|arg| is_comma && found.is_variadic && *arg + 1 == params.len());
                match variadic {
                    // `, ## __VA_ARGS__` drops the comma if there are no arguments.
                    Some(arg) if args.raw[arg].is_empty() => {}
                    Some(arg) => {
                        filled.push(token);
                        filled.extend(self.expanded_argument(&mut args, arg));
                    }
                    None => {
                        let operand = |n: usize| slots[n].map_or_else(|| vec![body[n]], |arg| args.raw[arg].clone());
                        filled.extend(self.paste_all((n..end).step_by(2).map(operand), at));
                    }
                }
                n = end;
            } else if let Some(arg) = slots[n] {
                filled.extend(self.expanded_argument(&mut args, arg));
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
        Ok(filled)
    }

    /// Expands an argument, once.
    fn expanded_argument<'c>(&mut self, args: &'c mut Arguments, arg: usize) -> &'c [Token] {
        if args.expanded[arg].is_none() {
            let mut all = vec![];
            self.open_calls += 1;
            self.expand(&args.raw[arg], args.active, &mut all);
            self.open_calls -= 1;
            args.expanded[arg] = Some(all);
        }
        args.expanded[arg].as_deref().unwrap_or_default()
    }

    /// Replaces `__VA_OPT__(…)` by its content, or by nothing if there are no variable arguments.
    fn with_optional_parts(&mut self, found: &Macro, args: &mut Arguments, at: &Token) -> Result<Vec<Token>, Token> {
        let body = &found.body;
        let optional = self.names.find("__VA_OPT__").map(TokenKind::Name).filter(|_| found.is_variadic);
        let is_optional = |token: &Token| Some(token.kind) == optional;
        if !body.iter().any(is_optional) {
            return Ok(body.clone());
        }
        let any = !self.expanded_argument(args, args.raw.len() - 1).is_empty();
        let operator =
            |token: Option<&Token>| token.is_some_and(|token| matches!(token.kind, TokenKind::Reserved("#" | "##")));
        let (mut out, mut n) = (vec![], 0);
        while n < body.len() {
            if !is_optional(&body[n]) {
                out.push(body[n]);
                n += 1;
                continue;
            }
            let mut depth = 0usize;
            let close = (n + 1..body.len()).find(|n| {
                match body[*n].kind {
                    TokenKind::Reserved("(") => depth += 1,
                    TokenKind::Reserved(")") => depth = depth.saturating_sub(1),
                    _ => {}
                }
                depth == 0
            });
            let Some(close) = close.filter(|close| *close > n + 1) else {
                return Err(self.invalid(at, "'__VA_OPT__' without its parentheses", Some("write '__VA_OPT__(…)'")));
            };
            let content = &body[n + 2..close];
            let before = n.checked_sub(1).and_then(|before| body.get(before));
            if operator(before) || operator(body.get(close + 1)) || content.iter().any(is_optional) {
                let what = "'__VA_OPT__' beside '#' or '##', or in another one, is not supported";
                return Err(self.invalid(at, what, None));
            }
            if any {
                out.extend(content);
            }
            n = close + 1;
        }
        Ok(out)
    }

    /// Joins the last token of each operand of `##` with the first of the next.
    fn paste_all(&mut self, operands: impl Iterator<Item = Vec<Token>>, at: &Token) -> Vec<Token> {
        let mut out: Vec<Token> = vec![];
        for (n, mut right) in operands.enumerate() {
            if n > 0
                && !right.is_empty()
                && let Some(left) = out.pop()
            {
                right[0] = self.pasted(&left, &right[0], at);
            }
            out.extend(right);
        }
        out
    }

    fn pasted(&mut self, left: &Token, right: &Token, at: &Token) -> Token {
        let text = self.token_text(left) + &self.token_text(right);
        let mut errors = vec![];
        match lex::tokenize(&text, self.names, &mut errors)[..] {
            [Token { kind: TokenKind::Invalid { text, .. }, .. }, _] => {
                // `0x` of `0 ## x ## 1F` is no number, but part of one.
                let (what, hint) = errors.pop().map_or_else(Default::default, |(_, what, hint)| (what, hint));
                let kind = invalid(&mut self.token_errors, (at.span, what, hint), text);
                Token { kind, ..*left }
            }
            [one, _] => Token { span: at.span, starts_line: false, space_before: left.space_before, ..one },
            _ => self.invalid(at, format!("'##' makes '{text}', which is not one token"), None),
        }
    }

    fn stringized(&mut self, arg: &[Token], at: &Token) -> Token {
        let mut text = String::new();
        for (n, token) in arg.iter().enumerate() {
            if n > 0 && (token.space_before || token.starts_line) {
                text.push(' ');
            }
            let one = self.token_text(token);
            match one.starts_with(['"', '\'']) {
                true => text += &one.replace('\\', "\\\\").replace('"', "\\\""),
                false => text += &one,
            }
        }
        Token { kind: TokenKind::Str(self.names.intern(&text)), ..*at }
    }
}

/// Arguments of a macro call, as written and expanded.
struct Arguments<'a> {
    raw: &'a [Vec<Token>],
    expanded: Vec<Option<Vec<Token>>>,
    active: &'a [Symbol],
}
