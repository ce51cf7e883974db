//! The operator `_Pragma("…")`, which macros can contain.

use super::Preprocessor;
use crate::cuda::lex::{Token, TokenKind};

impl Preprocessor<'_> {
    /// Removes the `_Pragma` operators of the output: hints without an effect, as `#pragma unroll`.
    pub(super) fn remove_pragma_operators(&mut self) {
        let Some(name) = self.names.find("_Pragma").map(TokenKind::Name) else { return };
        let tokens = std::mem::take(&mut self.out);
        let mut at = 0;
        while at < tokens.len() {
            let token = tokens[at];
            at += 1;
            if token.kind != name {
                self.out.push(token);
                continue;
            }
            let [
                Token { kind: TokenKind::Reserved("("), .. },
                Token { kind: TokenKind::Str(text), .. },
                Token { kind: TokenKind::Reserved(")"), .. },
            ] = tokens.get(at..at + 3).unwrap_or_default()
            else {
                let invalid = self.invalid(&token, "'_Pragma' takes one string", Some("write '_Pragma(\"unroll\")'"));
                self.out.push(invalid);
                continue;
            };
            at += 3;
            let text = self.names.text(*text).to_owned();
            let word = text.trim_start().split(|c: char| !(c.is_alphanumeric() || c == '_')).next();
            if let Some("pack" | "once" | "push_macro" | "pop_macro") = word {
                let what = format!("'_Pragma(\"{text}\")' is not supported");
                let invalid = self.invalid(&token, what, Some("write a '#pragma' directive"));
                self.out.push(invalid);
            }
        }
    }
}
