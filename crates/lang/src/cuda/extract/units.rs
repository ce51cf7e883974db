//! Declarations in the text of a file. Tokens of macro expansions have the position of the macro's
//! use, so that every declaration is a range of the text; declarations that one use expands to are
//! one unit.

use std::ops::Range;

use super::Outline;
use crate::SourceSpan;
use crate::cuda::lex::{Interner, Symbol, Token, TokenKind};
use crate::cuda::parse::OutlineKind;
use crate::cuda::preprocess::TraceKind;

/// The text of a source and of the files that it includes, in the order in which it was read.
pub struct Units {
    /// Tokens before macro expansion, of text and directives.
    pub raw: Vec<Token>,
    pub elements: Vec<TextElement>,
    pub units: Vec<TextUnit>,
    /// Conditional groups: `#if` to `#endif`.
    pub groups: Vec<ConditionalGroup>,
}

pub struct TextElement {
    pub kind: TraceKind,
    pub raw: Range<usize>,
    /// Word of a directive: `define`.
    pub word: String,
    /// Macros that were expanded, with the spans of their uses.
    pub uses: Vec<(SourceSpan, Symbol)>,
    /// The innermost group that contains it.
    pub group: Option<usize>,
}

/// Declarations that are kept or left out together.
pub struct TextUnit {
    pub kind: OutlineKind,
    pub raw: Range<usize>,
    /// Indices in [`Outline::entries`].
    pub entries: Range<usize>,
}

pub struct ConditionalGroup {
    /// The `#if`, `#elif`, `#else` and `#endif`, by element.
    pub directives: Vec<usize>,
    pub parent: Option<usize>,
    /// True if it guards a file against being included twice.
    pub is_guard: bool,
}

impl Units {
    pub fn new(outline: &Outline, names: &Interner) -> Units {
        let (mut raw, mut elements) = (vec![], vec![]);
        for element in &outline.trace {
            let start = raw.len();
            raw.extend(&element.tokens);
            let word = match element.tokens.get(1).map(|token| token.kind) {
                Some(TokenKind::Name(name)) => names.text(name),
                Some(TokenKind::Reserved(word)) => word,
                _ => "",
            };
            let (kind, uses, word) = (element.kind, element.uses.clone(), word.to_owned());
            elements.push(TextElement { kind, raw: start..raw.len(), word, uses, group: None });
        }
        let mut all = Units { raw, elements, units: vec![], groups: vec![] };
        all.find_groups();
        all.find_units(outline);
        all
    }

    fn find_groups(&mut self) {
        let mut open: Vec<usize> = vec![];
        for n in 0..self.elements.len() {
            let word = match self.elements[n].kind {
                TraceKind::Directive(_) => self.elements[n].word.as_str(),
                _ => "",
            };
            let ends = word == "endif";
            if matches!(word, "if" | "ifdef" | "ifndef") {
                self.groups.push(ConditionalGroup {
                    directives: vec![n],
                    parent: open.last().copied(),
                    is_guard: false,
                });
                open.push(self.groups.len() - 1);
            } else if let (true, Some(group)) = (is_conditional(word), open.last()) {
                self.groups[*group].directives.push(n);
            }
            self.elements[n].group = open.last().copied();
            if ends {
                open.pop();
            }
        }
        for n in 0..self.groups.len() {
            self.groups[n].is_guard = self.is_guard(&self.groups[n]);
        }
    }

    /// Returns true for `#ifndef NAME`, `#define NAME` at the begin of a file up to its end.
    fn is_guard(&self, group: &ConditionalGroup) -> bool {
        let [first, last] = group.directives[..] else { return false };
        let begins = first == 0 || matches!(self.elements[first - 1].kind, TraceKind::Enter(_));
        let ends = self.elements.get(last + 1).is_none_or(|next| next.kind == TraceKind::Leave);
        let name = |n: usize| match self.elements.get(n).map(|element| &self.raw[element.raw.clone()]) {
            Some([_, _, Token { kind: TokenKind::Name(name), .. }]) => Some(*name),
            _ => None,
        };
        begins && ends && name(first).is_some() && name(first) == name(first + 1)
    }

    fn find_units(&mut self, outline: &Outline) {
        let mut is_text = vec![false; self.raw.len()];
        for element in self.elements.iter().filter(|element| element.kind == TraceKind::Text) {
            is_text[element.raw.clone()].fill(true);
        }
        let find = |raw: &[Token], token: &Token, from: usize| {
            (from..raw.len()).find(|n| is_text[*n] && raw[*n].span.start == token.span.start)
        };
        let mut from = 0;
        for (n, entry) in outline.entries.iter().enumerate().filter(|(_, entry)| !entry.tokens.is_empty()) {
            let (first, last) = (&outline.tokens[entry.tokens.start], &outline.tokens[entry.tokens.end - 1]);
            let Some(first) = find(&self.raw, first, from) else { continue };
            let Some(last) = find(&self.raw, last, first) else { continue };
            from = last;
            let raw = first..self.end_of_use(last);
            match self.units.last_mut() {
                Some(before) if raw.start < before.raw.end => {
                    before.raw.end = before.raw.end.max(raw.end);
                    before.entries.end = n + 1;
                    if entry.kind == OutlineKind::Item {
                        before.kind = entry.kind;
                    }
                }
                _ => self.units.push(TextUnit { kind: entry.kind, raw, entries: n..n + 1 }),
            }
        }
        // Attributes and macros that expand to nothing belong to the declaration after them.
        let mut free = 0;
        for n in 0..self.units.len() {
            let mut start = self.units[n].raw.start;
            let element = self.element_of(start);
            while start > free.max(element.raw.start) && self.raw[start - 1].kind != TokenKind::Reserved(";") {
                start -= 1;
            }
            self.units[n].raw.start = start;
            free = self.units[n].raw.end;
        }
    }

    /// Index after the token at `last`, or after the use of a macro there.
    fn end_of_use(&self, last: usize) -> usize {
        let element = self.element_of(last);
        let start = self.raw[last].span.start;
        let end =
            element.uses.iter().filter(|(used, _)| used.start == start).map(|(used, _)| used.end).max().unwrap_or(0);
        let rest = self.raw[last + 1..element.raw.end].iter();
        last + 1 + rest.take_while(|token| token.span.end <= end).count()
    }

    /// Unit that contains a token.
    pub fn unit_at(&self, raw: usize) -> Option<usize> {
        let n = self.units.partition_point(|unit| unit.raw.end <= raw);
        self.units.get(n).filter(|unit| unit.raw.contains(&raw)).map(|_| n)
    }

    fn element_of(&self, raw: usize) -> &TextElement {
        &self.elements[self.elements.partition_point(|element| element.raw.end <= raw)]
    }

    /// Elements that a range of tokens touches.
    pub fn elements_of(&self, raw: &Range<usize>) -> Range<usize> {
        let start = self.elements.partition_point(|element| element.raw.end <= raw.start);
        start..self.elements.partition_point(|element| element.raw.start < raw.end)
    }
}

/// Returns true for the words of conditional directives.
pub fn is_conditional(word: &str) -> bool {
    matches!(word, "if" | "ifdef" | "ifndef" | "elif" | "else" | "endif")
}
