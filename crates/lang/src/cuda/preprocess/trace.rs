//! Record of what the preprocessor reads, in order, with its decisions. `extract/` prints parts of
//! the source from it.

use super::Preprocessor;
use crate::SourceSpan;
use crate::cuda::lex::{Symbol, Token, TokenKind};

/// A part of a file, as read.
pub struct TraceElement {
    pub kind: TraceKind,
    /// Tokens before macro expansion.
    pub tokens: Vec<Token>,
    /// Macros that were expanded, with the spans of their uses in the text. Tokens of an expansion
    /// have the position of the use.
    pub uses: Vec<(SourceSpan, Symbol)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceKind {
    /// Text that is part of the program.
    Text,
    /// Text that a condition excludes.
    Excluded,
    /// A directive; true if no condition excludes it.
    Directive(bool),
    /// Begin of an included file, which follows its `#include`, with the span of the file.
    Enter(SourceSpan),
    /// End of an included file.
    Leave,
}

impl Preprocessor<'_> {
    pub(super) fn record(&mut self, kind: TraceKind, tokens: &[Token]) {
        if let Some(trace) = &mut self.trace {
            let tokens: Vec<Token> = tokens.iter().filter(|token| token.kind != TokenKind::End).copied().collect();
            if !(tokens.is_empty() && matches!(kind, TraceKind::Text | TraceKind::Excluded)) {
                trace.push(TraceElement { kind, tokens, uses: vec![] });
            }
        }
    }

    /// Records the use of a macro in the text that was recorded last.
    pub(super) fn record_use(&mut self, symbol: Symbol, start: &Token, last: Option<&Token>) {
        if let (Some(trace), Some(last)) = (&mut self.trace, last)
            && let Some(element) = trace.last_mut()
        {
            element.uses.push((start.span.to(last.span), symbol));
        }
    }
}
