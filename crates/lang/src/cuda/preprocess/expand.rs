//! Expansion of macros: replaced tokens are scanned again together with the tokens after them. A
//! macro is not expanded inside its own replacement, and a name that was not expanded for this
//! reason never is.

use std::rc::Rc;

use super::macros::Macro;
use super::{MAX_EXPANDED_TOKENS, MAX_MACRO_DEPTH, MAX_TOKENS, Preprocessor};
use crate::cuda::lex::{Symbol, Token, TokenKind};

/// Tokens to scan: a text, and on top of it the replacements of macros that are not used up.
struct Scan<'a> {
    text: &'a [Token],
    at: usize,
    replacements: Vec<Replacement>,
    /// Macros whose replacements contain the text.
    outer: &'a [Symbol],
}

struct Replacement {
    of: Symbol,
    tokens: Vec<Token>,
    at: usize,
}

enum Call {
    /// Arguments, and the position after them: number of replacements that remain, index.
    Arguments(Vec<Vec<Token>>, usize, usize),
    /// No parenthesis follows.
    None,
    /// Number of tokens without the closing parenthesis.
    Unterminated(usize),
}

impl Scan<'_> {
    fn next(&mut self) -> Option<Token> {
        while let Some(top) = self.replacements.last_mut() {
            if let Some(token) = top.tokens.get(top.at) {
                top.at += 1;
                return Some(*token);
            }
            self.replacements.pop();
        }
        let token = self.text.get(self.at).copied();
        self.at += 1;
        token
    }

    /// Returns true if a macro is being replaced, seen from the lowest `level` replacements.
    fn is_active(&self, symbol: Symbol, level: usize) -> bool {
        self.outer.contains(&symbol) || self.replacements[..level].iter().any(|replacement| replacement.of == symbol)
    }

    /// Tokens of a level, and the next position in them; level 0 is the text.
    fn level(&self, level: usize) -> (&[Token], usize) {
        match level.checked_sub(1).map(|n| &self.replacements[n]) {
            Some(replacement) => (&replacement.tokens, replacement.at),
            None => (self.text, self.at),
        }
    }

    /// Arguments of a call of a function-like macro, if its parenthesis is next.
    fn call(&self, p: &Preprocessor) -> Call {
        let mut level = self.replacements.len();
        let (mut tokens, mut at) = self.level(level);
        let (mut depth, mut read, mut args) = (0usize, 0, vec![vec![]]);
        loop {
            let Some(mut token) = tokens.get(at).copied().filter(|token| token.kind != TokenKind::End) else {
                if level == 0 {
                    return if depth == 0 { Call::None } else { Call::Unterminated(read) };
                }
                level -= 1;
                (tokens, at) = self.level(level);
                continue;
            };
            at += 1;
            read += 1;
            match token.kind {
                // Only parentheses protect commas.
                TokenKind::Reserved("(") => {
                    depth += 1;
                    if depth == 1 {
                        continue;
                    }
                }
                _ if depth == 0 => return Call::None,
                TokenKind::Reserved(")") => {
                    depth -= 1;
                    if depth == 0 {
                        return Call::Arguments(args, level, at);
                    }
                }
                TokenKind::Reserved(",") if depth == 1 => {
                    args.push(vec![]);
                    continue;
                }
                _ => token.no_expand |= p.word(&token).is_some_and(|symbol| self.is_active(symbol, level)),
            }
            if let Some(arg) = args.last_mut() {
                arg.push(token);
            }
        }
    }

    /// Continues after the arguments of a call.
    fn resume(&mut self, level: usize, at: usize) {
        self.replacements.truncate(level);
        match self.replacements.last_mut() {
            Some(replacement) => replacement.at = at,
            None => self.at = at,
        }
    }
}

impl Preprocessor<'_> {
    /// Expands the macros of a text. `outer` are the macros whose replacements contain it.
    pub(super) fn expand(&mut self, text: &[Token], outer: &[Symbol], out: &mut Vec<Token>) {
        let mut scan = Scan { text, at: 0, replacements: vec![], outer };
        while !self.aborted
            && let Some(token) = scan.next()
        {
            let Some(symbol) = self.word(&token).filter(|_| !token.no_expand) else {
                out.push(token);
                continue;
            };
            let Some(found) = self.macros.get(&symbol).cloned() else {
                let kind = self.positional_macro(symbol, &token).unwrap_or(token.kind);
                out.push(Token { kind, ..token });
                continue;
            };
            if scan.is_active(symbol, scan.replacements.len()) {
                // Macros of the compiler keep their values: `#define __LINE__ __LINE__`.
                out.push(Token { no_expand: true, ..token });
                continue;
            }
            match self.replacement(&mut scan, symbol, &found, &token, out.len()) {
                Ok(Some(tokens)) => {
                    self.record_use(symbol, &token, scan.at.checked_sub(1).and_then(|last| text.get(last)));
                    scan.replacements.push(Replacement { of: symbol, tokens, at: 0 });
                }
                Ok(None) => out.push(token),
                Err(invalid) => out.push(invalid),
            }
        }
    }

    /// Tokens that replace the use of a macro; `None` for a function-like macro without arguments.
    fn replacement(
        &mut self,
        scan: &mut Scan,
        symbol: Symbol,
        found: &Rc<Macro>,
        token: &Token,
        written: usize,
    ) -> Result<Option<Vec<Token>>, Token> {
        self.expanded_tokens += 1 + found.body.len();
        if written > MAX_TOKENS || self.expanded_tokens > MAX_EXPANDED_TOKENS {
            self.abort(token, "macro expansion makes this file too large", None);
            return Ok(None);
        }
        let mut args = vec![];
        if found.params.is_some() {
            match scan.call(self) {
                Call::None => return Ok(None),
                Call::Unterminated(read) => {
                    self.expanded_tokens += read;
                    let name = self.names.text(symbol);
                    return Err(match self.before_directive && self.open_calls == 0 {
                        true => {
                            let what = format!("the call of macro '{name}' does not end before the next directive");
                            self.invalid(token, what, Some("write directives outside the arguments of macros"))
                        }
                        false => self.invalid(token, "unterminated macro call", Some("write ')'")),
                    });
                }
                Call::Arguments(found, level, at) => {
                    args = found;
                    scan.resume(level, at);
                }
            }
        }
        let mut active = scan.outer.to_vec();
        active.extend(scan.replacements.iter().map(|replacement| replacement.of));
        if active.len() + self.open_calls > MAX_MACRO_DEPTH {
            let what = format!("macros are nested more than {MAX_MACRO_DEPTH} deep");
            self.abort(token, what, Some("expand some of them in the source"));
            return Ok(None);
        }
        let args = self.bind_arguments(symbol, found, args, token)?;
        let mut body = self.substitute(found, &args, &active, token)?;
        // Expanded tokens are attributed to the macro's use.
        body.iter_mut().for_each(|t| (t.span, t.starts_line) = (token.span, false));
        if let Some(first) = body.first_mut() {
            first.space_before = token.space_before;
        }
        Ok(Some(body))
    }
}
