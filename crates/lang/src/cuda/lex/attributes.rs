//! Attributes: removed, unless they change the memory layout of a type.

use super::{Interner, Token, TokenKind};

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
